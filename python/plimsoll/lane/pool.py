"""The handler threads: at most `threads` of them, as BentoML's own limiter has it, for the lane and for what BentoML
runs in threads itself (generators, batches, forms), so that the bound holds over both.

They wait on one epoll for jobs and for connections that were lent to them (lending.py): a thread reads such a
connection's next request, runs it and writes the reply, and no request goes from one thread to another. That is worth
it for handlers of less than a millisecond, and only for these is it done. A connection that waits here while all
threads are busy would wait too long, whatever it carries (a request for the loop, a probe): so the loop looks every
TICK_S while threads have something to do, and takes back what a run of more than LONG_S holds up.

A thread is busy until its handler returns. BentoML frees the place of a synchronous call when its time is up although
the call runs on (bentoml/BentoML#5642); here it is taken until the call has ended.
"""

import collections
import contextvars
import os
import select
import threading
import time
import traceback

from anyio.lowlevel import current_token

TICK_S = 0.02
LONG_S = 0.005
clock = time.perf_counter


class Pool:
    """Made on the event loop."""

    def __init__(self, threads, loop):
        self.loop = loop
        self.known = {}  # descriptor: connection, of those that are lent
        self.parked = {}  # connection: True, of those of them that nobody owns. See lending.py
        self.runs = {}  # Run: True, of lent connections
        self.single = threads == 1
        self.turns = 0  # requests of lent connections, about
        self._most = threads
        self._since = []  # of each thread: when its job began, 0.0 = it waits
        self._jobs = collections.deque()
        self._token = current_token()
        self._watching = False  # the loop looks every TICK_S
        self._timer = None
        self._seen = 0
        events = select.EPOLLIN | select.EPOLLRDHUP
        # One thread never waits while it owns a connection: epoll may tell of it all the time. Of several, one is told,
        # once, when it was armed.
        self._quiet = events if self.single else select.EPOLLONESHOT
        self._armed = None if self.single else events | select.EPOLLONESHOT
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    # --- jobs, from the loop

    def submit(self, job, *args, broken=None):
        """`broken()` is called on the thread when the job raises something."""
        self._jobs.append((job, args, broken))
        self._enough()
        os.eventfd_write(self._wake, 1)
        if not self._watching:
            self._watching = True
            self._watch()

    def _enough(self):
        """Starts another thread when there are more jobs than threads that wait."""
        if len(self._since) < self._most and len(self._jobs) > self._since.count(0.0):
            self._since.append(0.0)
            number = len(self._since) - 1
            threading.Thread(target=self._main, args=(number,), name="AnyIO worker thread", daemon=True).start()

    async def run(self, func, *args, **kwargs):
        """In place of ServiceAppFactory._to_thread."""
        future = self.loop.create_future()
        self.submit(self._run, future, contextvars.copy_context(), func, args, kwargs)
        return await future

    def _run(self, future, context, func, args, kwargs):
        if future.cancelled():
            return  # its time was up before its turn came
        result = error = None
        try:
            result = context.run(func, *args, **kwargs)
        except BaseException as exc:  # for the one who waits, SystemExit too: as anyio does
            error = exc
        try:
            self.loop.call_soon_threadsafe(deliver, future, result, error)
        except RuntimeError:
            pass  # the loop has ended under a handler that nobody waits for

    # --- connections: what only their owner calls, but for take()

    def admit(self, connection, fd):
        """It is lent from now on."""
        self._epoll.register(fd, self._quiet)
        self.known[fd] = connection

    def forget(self, fd):
        """It is lent no longer."""
        if self.known.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def park(self, connection, fd):
        """Whoever takes it owns it. Behind the first line the caller does not."""
        self.parked[connection] = True
        if self._armed is not None:
            try:
                self._epoll.modify(fd, self._armed)
            except OSError:
                pass  # the loop has taken it already

    def take(self, connection):
        """From any thread: whether it is the caller's now."""
        return self.parked.pop(connection, None) is not None

    # --- what takes long

    def begins(self, run):
        """From any thread: a run of a lent connection."""
        self.runs[run] = True
        self.turns += 1
        if not self._watching:
            self._watching = True
            try:
                self.loop.call_soon_threadsafe(self._watch, context=contextvars.Context())
            except RuntimeError:
                pass  # the loop has ended

    def _watch(self):
        """On the loop."""
        if self._timer is None:
            self._timer = self.loop.call_later(TICK_S, self._tick, context=contextvars.Context())

    def _tick(self):
        self._timer = None
        try:
            busy = self._look_round()
        except Exception:  # of ours: the next one comes all the same
            traceback.print_exc()
            busy = True
        idle, self._seen = self._seen == self.turns, self.turns
        if idle and not busy:
            self._watching = False
            if not self.runs:  # else one has begun that did not see this
                return
            self._watching = True
        self._watch()

    def _look_round(self):
        """Whether there is something to do."""
        now = clock()
        for run in self.runs.copy():
            if now - run.began > LONG_S:
                run.connection.adopt(run)
        busy = [since for since in self._since if since]
        if len(busy) == self._most and all(now - since > LONG_S for since in busy):
            for connection in self.parked.copy():
                connection.take_back()
        self._enough()
        return bool(busy or self._jobs)

    # --- the threads

    def _main(self, number):
        try:
            from anyio._core._eventloop import threadlocals

            threadlocals.current_token = self._token  # anyio.from_thread.run() works in handlers
        except ImportError:
            pass
        poll, most = self._epoll.poll, 16 if self.single else 1
        since, known, jobs = self._since, self.known, self._jobs
        while True:
            for fd, _ in poll(-1, most):
                if fd == self._wake:
                    try:
                        os.eventfd_read(fd)
                    except BlockingIOError:
                        continue  # another thread was faster
                    since[number] = clock()
                    job, args, broken = jobs.popleft()
                else:
                    connection = known.get(fd)
                    if connection is None or not self.take(connection):
                        continue  # somebody has it: the event comes late
                    since[number] = clock()
                    job, args, broken = connection.readable, (), connection.broken
                try:
                    job(*args)
                except BaseException:  # of ours: one request fails, and all that come after it do not
                    traceback.print_exc()
                    if broken is not None:
                        broken()
                job = args = broken = connection = None  # a thread that waits keeps nothing of its last request alive
                since[number] = 0.0


def deliver(future, result, error):
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future does not take it
        wrapped = RuntimeError("coroutine raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
