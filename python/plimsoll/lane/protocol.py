"""uvicorn's own HTTP protocol with the lane in front of it.

A request that the lane takes runs on a handler thread (pool.py) or as a task of the loop; the thread writes the reply
to the socket itself, so that the loop is woken only when there is something left to do. Every other request, and every
outcome but a plain 200, goes to uvicorn's parser with the bytes as they came.

At any moment a connection is in one of four hands: nobody's (idle), the lane's (`_run`), uvicorn's (`_theirs`), or lent
to the handler threads (`_lent`), from where it comes back with whatever a thread cannot end by itself. What arrives
while it is in somebody's hands is kept and looked at afterwards. Three locks, each only ever tried:

    Run.claim()    who ends the run for its client: its reply, or its deadline
    Run.keep       whether the connection is still lent behind the run: its thread, or the loop that adopts the run
    _hold          of a lent connection: the thread that reads and runs, or the loop that takes it back
"""

import _thread
import asyncio
import contextvars
import os
import re
import time

from plimsoll import deadline, records
from plimsoll import page as pages
from plimsoll.lane import context, counts, endpoint, pool

MOST_HEAD = 16384
MOST_BODY = 1 << 20  # what a larger one costs, a millisecond does not change
MOST_KEPT = 65536
READ = 65536
SLOW_S = 0.005
# Connections are lent to endpoints whose runs are quick: each quick one counts 1, a slow one takes PENALTY, so that one
# that was only preempted does not change it.
QUICK, MOST_QUICK, PENALTY = 8, 64, 24
HEAD = re.compile(rb"POST ([!-~]+) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)+)\r\n")
FIELD = re.compile(
    rb"^(host|content-length|content-type|transfer-encoding|connection|expect|upgrade|traceparent|tracestate|baggage"
    rb"|x-plimsoll-id|x-plimsoll-warmup):[ \t]*([^\r\n]*?)[ \t]*\r$",
    re.I | re.M,
)
TRACE = (b"traceparent", b"tracestate", b"baggage")
clock = time.perf_counter


class Shared:
    """What the connections of a worker share. Empty until the service's instance is there."""

    lanes = {}
    pool = None
    recorder = None
    counts = None
    base = None  # the context that requests descend from: that of a connection
    deadline_s = None
    running = {}  # Run: None, in the order of their beginning
    timer = None
    _date = (0, b"")

    @classmethod
    def head(cls, length, tail, span_id):
        now = int(time.time())
        stamp, line = cls._date
        if stamp != now:
            text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))
            line = b"HTTP/1.1 200 OK\r\ndate: " + text.encode("ascii") + b"\r\ncontent-length: "
            cls._date = (now, line)
        return b"%b%d%b" % (line, length, tail % span_id)


def open_lane(factory, app, lanes, recorder, deadline_s):
    loop = asyncio.get_running_loop()
    Shared.counts = counts.find(app, lanes)
    endpoint.answer_outcomes(factory)
    if any(not e.is_async for e in lanes.values()):
        Shared.pool = pool.Pool(factory.service.config.get("threads", 1), loop)
        factory._to_thread = Shared.pool.run
    if Shared.counts is not None:
        destroy = factory.destroy_instance

        async def destroy_instance(app):
            Shared.counts.hand_over()
            await destroy(app)

        factory.destroy_instance = destroy_instance
    Shared.recorder, Shared.deadline_s = recorder, deadline_s
    Shared.lanes = lanes


class Request:
    """What the head says: where it goes, where the body begins, how long it is, and for whom."""

    __slots__ = ("endpoint", "start", "total", "traced", "id", "flags")


def look(data):
    """A Request, or None when it is not for the lane; the head must be whole."""
    form = HEAD.match(data, 0, MOST_HEAD)
    if form is None:
        return None
    target = form[1]
    found = Shared.lanes.get(target)
    if found is None:
        path, mark, _ = target.partition(b"?")
        found = Shared.lanes.get(path) if mark else None
        if found is None:
            return None
    length, hosts, types, traced, request, flags = -1, 0, 0, False, 0, pages.LANE
    for name, value in FIELD.findall(data, form.start(2), form.end(2)):
        name = name.lower()
        if name == b"content-length":
            if length >= 0 or not value.isdigit() or len(value) > 15:
                return None
            length = int(value)
        elif name == b"content-type":
            types += 1
            if types > 1 or value.split(b";", 1)[0].strip() != b"application/json":
                return None
        elif name == b"host":
            hosts += 1
        elif name == records.ID_HEADER:
            if request == 0 and records.ID_FORM.fullmatch(value):
                request = int(value, 16)
        elif name == records.WARMUP_HEADER:
            flags |= pages.WARMUP
        elif name in TRACE:
            traced = True
        else:
            return None
    if hosts != 1 or not 0 <= length <= MOST_BODY:
        return None
    out = Request()
    out.endpoint, out.start, out.total = found, form.end(), form.end() + length
    out.traced, out.id, out.flags = traced, request, flags
    return out


class Run:
    """One request in the lane. `late`: its time was up before it ended, and its client has been told."""

    __slots__ = ("endpoint", "raw", "head", "body", "connection", "call", "traced", "span_id", "request", "response",
                 "began", "direct", "late", "task", "adopted", "keep", "_claim")  # fmt: skip

    def __init__(self, request, raw, connection):
        self.endpoint = request.endpoint
        self.raw = raw
        self.head = raw[: request.start - 2]
        self.body = raw[request.start :]
        self.connection = connection
        self.call = records.Call(request.id, request.flags, request.endpoint.record, input_bytes=len(self.body))
        self.traced = request.traced
        self.request = self.response = None
        self.began = clock()
        self.direct = False
        self.late = False
        self.task = None
        self.adopted = False
        self.keep = None
        self._claim = _thread.allocate_lock()

    def claim(self):
        """True for the first one who asks."""
        return self._claim.acquire(False)

    def reply(self, body):
        return Shared.head(len(body), self.endpoint.reply_tail, self.span_id) + body


def encode(run, output):
    """The reply, or an Outcome."""
    if run.response.touched:
        return endpoint.Outcome(None, output, run.response)
    try:
        body = run.endpoint.encode(output)
    except Exception as exc:
        return endpoint.Outcome(exc, None, run.response)
    if body is None:
        return endpoint.Outcome(None, output, run.response)
    return run.reply(body)


def run_sync(run):
    """On a handler thread, in a context of its own: the reply, or an Outcome."""
    try:
        try:
            context.enter(run)
            args, kwargs = run.endpoint.parse(run.body)
        except Exception as exc:
            return endpoint.Outcome(exc, None, run.response)
        recorder, call = Shared.recorder, run.call
        run.call = call = recorder.lane_begins(call, run.endpoint.record, args, kwargs)
        history = recorder.history
        tagged = history is not None and history.tagging
        if tagged:
            history.tag(run.endpoint.record, call)
        error = None
        try:
            output = run.endpoint.local(*args, **kwargs)
        except BaseException as exc:  # SystemExit too: BentoML raises it in the loop, and the worker ends
            error = exc
        if tagged:
            history.untag()
        args = kwargs = None
        if error is None:
            result = encode(run, output)
            if type(result) is bytes:
                return result
            recorder.handler_ends(call, None)
            return result
        recorder.handler_ends(call, error)
        return endpoint.Outcome(error, None, run.response)
    finally:
        context.leave(run)


async def run_async(run):
    try:
        try:
            context.enter(run)
            args, kwargs = run.endpoint.parse(run.body)
        except Exception as exc:
            return endpoint.Outcome(exc, None, run.response)
        recorder = Shared.recorder
        run.call = call = recorder.lane_begins(run.call, run.endpoint.record, args, kwargs)
        try:
            output = await run.endpoint.local(*args, **kwargs)
        except asyncio.CancelledError as exc:
            recorder.handler_ends(call, exc)
            if asyncio.current_task().cancelling():
                raise
            return endpoint.Outcome(exc, None, run.response)
        except Exception as exc:
            recorder.handler_ends(call, exc)
            return endpoint.Outcome(exc, None, run.response)
        except BaseException as exc:
            recorder.handler_ends(call, exc)
            raise
        args = kwargs = None
        result = encode(run, output)
        if type(result) is not bytes:
            recorder.handler_ends(call, None)
        return result
    finally:
        context.leave(run)


def counted(run, answered):
    if Shared.counts is not None:
        Shared.counts.ends(run.endpoint, answered, clock(), run.began)


def answered(run):
    run.connection.server_state.total_requests += 1
    counted(run, True)
    Shared.recorder.lane_ends(run.call)


def rate(endpoint, quick):
    endpoint.quick = min(endpoint.quick + 1, MOST_QUICK) if quick else max(endpoint.quick - PENALTY, 0)


def timed(run):
    """run_sync, and whether its endpoint is quick."""
    began = clock()
    result = Shared.base.copy().run(run_sync, run)
    rate(run.endpoint, clock() - began < SLOW_S)
    return result


def to_loop(callback, *args):
    """From a thread: runs it on the loop, in a context like a connection's."""
    try:
        Shared.pool.loop.call_soon_threadsafe(callback, *args, context=Shared.base.copy())
    except RuntimeError:
        pass  # the loop has ended under a handler that nobody waits for


# --- deadlines: all are as long, so that the first to begin is the first to be late


def watch(loop, run):
    Shared.running[run] = None
    if Shared.timer is None and Shared.deadline_s is not None:
        Shared.timer = loop.call_later(Shared.deadline_s, expire, loop)


def expire(loop):
    Shared.timer = None
    now = clock()
    for run in list(Shared.running):
        left = run.began + Shared.deadline_s - now
        if left > 0:
            Shared.timer = loop.call_later(left, expire, loop)
            return
        Shared.running.pop(run, None)
        if run.claim():
            run.connection.time_is_up(run)


class Placeholder:
    """Among uvicorn's tasks, for a handler whose client has gone: a worker that ends waits for it."""

    def cancel(self, msg=None):
        return False


def of(base):
    """The lane in front of this protocol class: uvicorn's for httptools, or the one for h11."""

    class LaneProtocol(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._theirs = False  # uvicorn's parser holds a request, or a part of one
            self._partial = False  # (httptools)
            self._run = None
            self._kept = b""  # arrived while it was in somebody's hands
            self._expected = None  # a Request whose body is not whole
            self._buffer = None
            self._fd = -1  # a descriptor of the socket for handler threads, which no other file gets meanwhile
            self._ending = False
            self._gone = False
            self._used = 0.0
            self._lent = False
            self._hold = _thread.allocate_lock()
            self._placeholder = None

        def connection_made(self, transport):
            if Shared.base is None:
                Shared.base = contextvars.copy_context()
            super().connection_made(transport)

        # --- bytes from the peer

        def data_received(self, data):
            if self._theirs:
                super().data_received(data)
                if self.cycle is not None and self.cycle.response_complete and self._is_idle():
                    self._theirs = False  # it was answered before its body was whole
            elif self._run is not None or self._lent:
                self._kept += data
                if len(self._kept) > MOST_KEPT:
                    self.flow.pause_reading()
                if self._run is None:  # its thread has ended it meanwhile, and may not have seen this
                    self._go_on()
            else:
                self._take(data)

        def _take(self, data):
            request = self._expected
            if request is not None:
                self._buffer += data
                if len(self._buffer) < request.total:
                    return
                data = bytes(self._buffer)
                self._expected = self._buffer = None
            else:
                request = look(data) if Shared.lanes and not self._ending else None
                if request is None:
                    self._give(data)
                    return
                if len(data) < request.total:
                    self._expected = request
                    self._buffer = bytearray(data)
                    return
            if len(data) > request.total:
                self._kept = data[request.total :] + self._kept
                data = data[: request.total]
            self._start(Run(request, data, self))

        def _give(self, data):
            """To uvicorn."""
            self._theirs = True
            if Shared.counts is not None and data[:4] == b"GET " and b"/metrics" in data[:256]:
                Shared.counts.hand_over()
            super().data_received(data)

        def _start(self, run):
            self._run = run
            self._used = run.began
            if self.timeout_keep_alive_task is None:
                self._arm(self.timeout_keep_alive)
            if Shared.counts is not None:
                Shared.counts.begins(run.endpoint)
            if run.endpoint.is_async:
                watch(self.loop, run)
                run.task = task = self.loop.create_task(self._serve(run), context=Shared.base.copy())
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                return
            if self.scheme == "http" and self.transport.get_write_buffer_size() == 0:
                run.direct = True
                if self._fd < 0:
                    self._fd = os.dup(self.transport.get_extra_info("socket").fileno())
                if run.endpoint.quick >= QUICK and not self._kept and not self._ending:
                    self._lend(run)
                    return
            watch(self.loop, run)
            Shared.pool.submit(self._thread, run)

        # --- the end of a run

        async def _serve(self, run):
            try:
                result = await run_async(run)
            except BaseException:  # cancelled: late, or the worker ends with it
                self._broken_off(run)
                raise
            Shared.running.pop(run, None)
            if not run.claim():
                counted(run, False)
                if type(result) is bytes:
                    Shared.recorder.handler_ends(run.call, None)
                return
            if type(result) is not bytes:
                self._give_back(run, result)
                return
            if not self.transport.is_closing():
                self.transport.write(result)
            answered(run)
            self._run = None
            if self._kept or self._ending:
                self._go_on()

        def _broken_off(self, run):
            Shared.running.pop(run, None)
            counted(run, False)
            if run.claim():
                run.call.cut = True
                Shared.recorder.left(run.call, None)
                self._run = None
                self.transport.close()

        def _thread(self, run):
            """On a handler thread."""
            if run.late:
                counted(run, False)
                return  # its time was up while it waited for its turn
            self._ended(run, timed(run))

        def _ended(self, run, result):
            """On the thread: this run is known to the loop."""
            Shared.running.pop(run, None)
            if not run.claim():
                counted(run, False)
                if type(result) is bytes:
                    Shared.recorder.handler_ends(run.call, None)
                return
            left = result if type(result) is not bytes or not run.direct else self._write(result)
            if left:
                to_loop(self._end, run, left)
                return
            self._run = None
            if self._kept or self._ending or self._gone:
                to_loop(self._go_on)
            answered(run)

        def _write(self, data):
            """From a thread; returns what did not go."""
            try:
                return data[os.write(self._fd, data) :]
            except BlockingIOError:
                return data
            except OSError:
                return b""  # the peer has gone; who reads next sees it

        # --- lent to the handler threads

        def _lend(self, run):
            """On the loop: a thread runs this one and keeps the connection."""
            self._hold.acquire(False)
            self._run = None
            self._lent = True
            self.flow.pause_reading()
            run.keep = _thread.allocate_lock()
            Shared.pool.begins(run)
            Shared.pool.submit(self._run_lent, run)

        def readable(self):
            """On a thread."""
            if not self._hold.acquire(False):
                Shared.pool.again(self._fd)  # it is being taken back, or not quite lent again
                return
            try:
                data = os.read(self._fd, READ)
            except BlockingIOError:
                self._stay()
                return
            except OSError:
                data = b""
            request = look(data) if data and not self._ending else None
            if (
                request is None
                or len(data) != request.total
                or request.endpoint.is_async
                or request.endpoint.quick < QUICK
            ):
                self._bring_back(data, None)
                return
            run = Run(request, data, self)
            run.direct = True
            run.keep = _thread.allocate_lock()
            self._used = run.began
            if Shared.counts is not None:
                Shared.counts.begins(run.endpoint)
            Shared.pool.begins(run)
            self._run_lent(run)

        def _run_lent(self, run):
            """On the thread that has _hold."""
            if run.late:  # adopted, and its time was up, while it waited for its turn
                counted(run, False)
                self._hold.release()
                return
            result = timed(run)
            Shared.pool.runs.pop(run, None)
            if not run.keep.acquire(False):
                self._hold.release()
                self._ended(run, result)
                return
            if type(result) is not bytes:
                self._bring_back(b"", (run, result))
                return
            left = self._write(result)
            if left:
                self._bring_back(b"", (run, left))
                return
            answered(run)
            self._stay()

        def _stay(self):
            """On the thread that has _hold: it is lent for another request."""
            Shared.pool.lend(self, self._fd)
            self._hold.release()
            if (self._ending or self._gone) and self._hold.acquire(False):
                self._bring_back(b"", None)

        def _bring_back(self, data, ended):
            """On the thread that has _hold."""
            Shared.pool.forget(self._fd)
            to_loop(self._from_thread, data, ended)

        def _from_thread(self, data, ended):
            """On the loop, with _hold: a connection comes back, with what was read, or with how its run has ended."""
            self._lent = False
            self._hold.release()
            self.flow.resume_reading()
            if ended is not None:
                self._run = ended[0]
                self._end(*ended)
            elif data and not self._gone:
                self._kept, data = b"", data + self._kept
                self._take(data)
                if self._ending and self.cycle is not None:
                    self.cycle.keep_alive = False
            else:
                self._go_on()

        def take_back(self):
            """On the loop. False: a thread has it just now."""
            if not self._lent:
                return True
            if not self._hold.acquire(False):
                return False
            Shared.pool.forget(self._fd)
            self._lent = False
            self._hold.release()
            self.flow.resume_reading()
            return True

        def adopt(self, run):
            """On the loop: a run that takes long on a lent connection becomes one that the loop knows of."""
            if not run.keep.acquire(False):
                return  # it is ending
            Shared.pool.runs.pop(run, None)
            run.adopted = True
            rate(run.endpoint, False)
            Shared.pool.forget(self._fd)
            self._lent = False
            self._run = run
            self.flow.resume_reading()
            watch(self.loop, run)

        def _end(self, run, result):
            """On the loop, for what a thread could not end by itself."""
            if type(result) is not bytes:
                self._give_back(run, result)
                return
            if not self.transport.is_closing():
                self.transport.write(result)
            answered(run)
            self._run = None
            self._go_on()

        def _go_on(self):
            """On the loop: it is nobody's again."""
            if self._run is not None or self._theirs or self._lent:
                return
            if self._gone:
                self._close_fd()
                if self._placeholder is not None:
                    self.tasks.discard(self._placeholder)
                    self._placeholder = None
            elif self._ending:
                super().shutdown()
            elif self._kept:
                data, self._kept = self._kept, b""
                self.flow.resume_reading()
                self._take(data)

        # --- the same request again, for BentoML's application

        def _give_back(self, run, outcome):
            counted(run, False)
            run.call.flags |= pages.RETURNED
            self._again(run, {endpoint.OUTCOME: outcome, records.OPEN: run.call})

        def time_is_up(self, run):
            run.late = True
            run.call.cut = True
            run.call.flags |= pages.RETURNED
            if run.task is not None:
                run.task.cancel()
            self._again(run, {deadline.LATE: run, records.OPEN: run.call})

        def _again(self, run, more):
            self._run = None
            if self._gone or self.transport.is_closing():
                task = self.loop.create_task(self._for_nobody(run, more), context=Shared.base.copy())
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                self._go_on()
                return
            app = self.app

            async def with_more(scope, receive, send):
                scope.update(more)
                await app(scope, receive, send)

            self._theirs = True
            self.app = with_more
            self._unset_keepalive_if_required()
            try:
                super().data_received(run.raw)
            finally:
                self.app = app
            if self._ending and self.cycle is not None:
                self.cycle.keep_alive = False

        async def _for_nobody(self, run, more):
            """The client has gone; what BentoML logs, counts and does behind a reply is done all the same."""
            body = [{"type": "http.request", "body": run.body, "more_body": False}]

            async def receive():
                return body.pop() if body else {"type": "http.disconnect"}

            async def send(_):
                pass

            await self.app({**context.scope_of(run), **more}, receive, send)

        # --- uvicorn's side

        if hasattr(base, "on_message_complete"):  # httptools

            def on_message_begin(self):
                self._partial = True
                super().on_message_begin()

            def on_message_complete(self):
                self._partial = False
                super().on_message_complete()

            def _is_idle(self):
                return not self._partial and not self.pipeline and self.cycle.response_complete

        else:

            def _is_idle(self):
                import h11

                return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

        def on_response_complete(self):
            super().on_response_complete()
            if self._theirs and self._is_idle():
                self._theirs = False
                if self._kept:
                    self.loop.call_soon(self._go_on, context=Shared.base.copy())

        def _arm(self, after_s):
            self.timeout_keep_alive_task = self.loop.call_later(after_s, self.timeout_keep_alive_handler)

        def timeout_keep_alive_handler(self):
            """The timer is set once and looks when the connection was used last: not one for each request."""
            self.timeout_keep_alive_task = None
            left = self._used + self.timeout_keep_alive - clock()
            if self._run is not None or self._expected is not None or left > 0 or not self.take_back():
                self._arm(max(left, 0.0) or self.timeout_keep_alive)
            else:
                super().timeout_keep_alive_handler()

        def connection_lost(self, exc):
            if self._expected is not None:  # uvicorn and BentoML have their way with half a request
                data, self._expected, self._buffer = bytes(self._buffer), None, None
                self._give(data)
            self._gone = True
            self.take_back()
            run = self._run
            if run is not None and run.task is None:
                self._placeholder = Placeholder()
                self.tasks.add(self._placeholder)
            elif run is None and not self._lent:
                self._close_fd()
            super().connection_lost(exc)
            self._unset_keepalive_if_required()
            if run is not None and self._run is None:  # it has ended meanwhile
                self._go_on()

        def _close_fd(self):
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

        def shutdown(self):
            if self._expected is not None:
                data, self._expected, self._buffer = bytes(self._buffer), None, None
                self._give(data)
            self._ending = True
            if self._run is None and self.take_back():
                super().shutdown()

    return LaneProtocol
