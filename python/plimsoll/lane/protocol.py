"""uvicorn's own HTTP protocol with the lane in front of it.

A request that the lane takes runs on a handler thread (pool.py) or as a task of the loop; the thread writes the reply
to the socket itself. Every other request, and every outcome but a plain 200, goes to uvicorn's parser with the bytes as
they came.

At any moment a connection is nobody's (idle), the lane's (`_run`), uvicorn's (`_theirs`), or lent to the handler
threads (`_lent`), from where it comes back with whatever a thread cannot end by itself. What arrives while it is in
somebody's hands is kept and looked at afterwards. All this is written by the event loop only; what a thread does with a
lent connection, and how the two part, is lending.py's.
"""

import asyncio
import contextvars

from plimsoll import deadline, records
from plimsoll import page as pages
from plimsoll.lane import context, counts, endpoint, pool
from plimsoll.lane.lending import Lending
from plimsoll.lane.run import QUICK, Run, Shared, answered, clock, counted, look, run_async, timed, to_loop, watch

MOST_KEPT = 65536


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


class Placeholder:
    """Among uvicorn's tasks, for a handler whose client has gone: a worker that ends waits for it."""

    def cancel(self, msg=None):
        return False


def of(base):
    """The lane in front of this protocol class: uvicorn's for httptools, or the one for h11."""

    class LaneProtocol(Lending, base):
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
                if self._lent and self.take_back():
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
            if self.scheme == "http" and self.transport.get_write_buffer_size() == 0 and self._has_fd():
                run.direct = True
                if run.endpoint.quick >= QUICK and not self._kept and not self._ending and self._lend(run):
                    return
            watch(self.loop, run)
            Shared.pool.submit(self._thread, run, broken=self.broken)

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
            """On the thread, of a run that the loop knows of: the reply goes from here, and the rest is the loop's."""
            if not run.claim():
                counted(run, False)
                if type(result) is bytes:
                    Shared.recorder.handler_ends(run.call, None)
                return
            if type(result) is bytes and run.direct:
                result = self._write(result)
                if not result:
                    answered(run)
            to_loop(self._end, run, result)

        def _end(self, run, result):
            """On the loop: what is left to do for a run that has ended on a thread."""
            Shared.running.pop(run, None)
            if type(result) is not bytes:
                self._give_back(run, result)
                return
            if result:
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
            self._mind()
            if self._run is None and not self._lent:
                self._close_fd()
            super().connection_lost(exc)
            self._unset_keepalive_if_required()

        def _mind(self):
            """A run on a thread whose client has gone is waited for by a worker that ends."""
            run = self._run
            if self._gone and run is not None and run.task is None and self._placeholder is None:
                self._placeholder = Placeholder()
                self.tasks.add(self._placeholder)

        def shutdown(self):
            if self._expected is not None:
                data, self._expected, self._buffer = bytes(self._buffer), None, None
                self._give(data)
            self._ending = True
            if self._run is None and self.take_back():
                super().shutdown()

    return LaneProtocol
