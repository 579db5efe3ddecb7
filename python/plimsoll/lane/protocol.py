"""uvicorn's own HTTP protocol with the lane in front of it.

A request that the lane takes runs on a handler thread (pool.py) or as a task of the loop; the thread writes the reply
to the socket itself. Every other request, and every outcome but a plain 200, goes to uvicorn's parser with the bytes as
they came.

At any moment a connection is nobody's (idle), the lane's (`_run`), uvicorn's (`_theirs`), or lent to the handler
threads (`_lent`), from where it comes back with whatever a thread cannot end by itself. What arrives while it is in
somebody's hands is kept and looked at afterwards. All this is written by the event loop only; what a thread does with a
lent connection, and how the two part, is lending.py's. This page is about the bytes that come, and about what uvicorn
does with a connection; a run is serving.py's, and the way to BentoML's application again.py's.
"""

import asyncio
import contextvars

from plimsoll.lane import counts, endpoint, pool
from plimsoll.lane.again import Again
from plimsoll.lane.lending import Lending
from plimsoll.lane.run import Run, Shared, clock, look
from plimsoll.lane.serving import Serving

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


def of(base):
    """The lane in front of this protocol class: uvicorn's for httptools, or the one for h11."""
    idle = IdleHttptools if hasattr(base, "on_message_complete") else IdleH11
    return type(f"Lane{base.__name__}", (LaneProtocol, idle, base), {})


class Placeholder:
    """Among uvicorn's tasks, for a handler whose client has gone: a worker that ends waits for it."""

    def cancel(self, msg=None):
        return False


class LaneProtocol(Serving, Again, Lending):
    """In front of one of uvicorn's protocol classes, which `super()` leads to: see `of`."""

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

    def _give_half(self):
        """uvicorn and BentoML have their way with half a request."""
        if self._expected is not None:
            data, self._expected, self._buffer = bytes(self._buffer), None, None
            self._give(data)

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

    # --- uvicorn's side

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
        self._give_half()
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
        self._give_half()
        self._ending = True
        if self._run is None and self.take_back():
            super().shutdown()


# --- whether uvicorn's parser has nothing left in hand


class IdleHttptools:
    def on_message_begin(self):
        self._partial = True
        super().on_message_begin()

    def on_message_complete(self):
        self._partial = False
        super().on_message_complete()

    def _is_idle(self):
        return not self._partial and not self.pipeline and self.cycle.response_complete


class IdleH11:
    def _is_idle(self):
        import h11

        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
