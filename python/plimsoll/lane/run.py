"""One request in the lane: from the bytes that arrived to its reply, or to an Outcome for BentoML; and its deadline.

Nothing here knows of sockets: protocol.py, serving.py and lending.py do.
"""

import _thread
import asyncio
import re
import time
import traceback

from plimsoll import page as pages
from plimsoll import records
from plimsoll.lane import context, endpoint

MOST_HEAD = 16384
MOST_BODY = 1 << 20  # what a larger one costs, a millisecond does not change
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
    running = {}  # Run: None, in the order of their beginning; the event loop's
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
                 "began", "direct", "late", "task", "_claim")  # fmt: skip

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
        self.direct = False  # its thread may write to the socket
        self.late = False
        self.task = None
        self._claim = _thread.allocate_lock()

    def claim(self):
        """True for the first one who asks: who ends it for its client, with its reply or at its deadline."""
        return self._claim.acquire(False)

    def reply(self, body):
        return Shared.head(len(body), self.endpoint.reply_tail, self.span_id) + body


def encode(run, output):
    """The reply, or an Outcome."""
    if run.response.touched:
        return endpoint.Outcome(None, output, run.response)
    try:
        body = run.endpoint.encode(output)
    except BaseException as exc:  # a serialiser of the user's may raise anything
        return endpoint.Outcome(exc, None, run.response)
    if body is None:
        return endpoint.Outcome(None, output, run.response)
    return run.reply(body)


def run_sync(run):
    """On a handler thread, in a context of its own: the reply, or an Outcome, whatever the user's code raises."""
    try:
        try:
            context.enter(run)
            args, kwargs = run.endpoint.parse(run.body)
        except BaseException as exc:  # SystemExit of a validator: BentoML raises it in the loop, and the worker ends
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
    """On the loop."""
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
            try:
                run.connection.time_is_up(run)
            except Exception:  # of ours: one request fails, and those behind it keep their deadlines
                traceback.print_exc()
