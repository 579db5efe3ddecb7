"""The handler threads: at most `threads` of them, as BentoML's own limiter has it, for the lane and for what BentoML
runs in threads itself (generators, batches, forms), so that the bound holds over both.

They wait on one epoll for jobs and for connections that were lent to them: a thread reads such a connection's next
request, runs it and writes the reply, and no request goes from one thread to another. That is worth it for handlers of
less than a millisecond, and only for these is it done. A connection that waits here while all threads are busy would
wait too long, whatever it carries (a request for the loop, a probe): so the loop looks every TICK_S while there is
traffic on lent ones, and takes back what a run of more than LONG_S holds up.

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
        self.lent = {}  # descriptor: connection
        self.runs = {}  # Run: None, of lent connections
        self.single = threads == 1
        self.turns = 0  # requests of lent connections, about
        self._most = threads
        self._since = []  # of each thread: when its job began, 0.0 = it waits
        self._jobs = collections.deque()
        self._token = current_token()
        self._watching = False
        self._seen = 0
        self._mask = select.EPOLLIN | select.EPOLLRDHUP | (0 if self.single else select.EPOLLONESHOT)
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    # --- jobs, from the loop

    def submit(self, job, *args):
        self._jobs.append((job, args))
        self._enough()
        os.eventfd_write(self._wake, 1)

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

    # --- connections

    def lend(self, connection, fd):
        """By the thread that holds it."""
        if fd in self.lent:
            if not self.single:
                self._epoll.modify(fd, self._mask)
        else:
            self.lent[fd] = connection
            self._epoll.register(fd, self._mask)

    def again(self, fd):
        """By a thread that found it held: it is told once more."""
        if not self.single and fd in self.lent:
            try:
                self._epoll.modify(fd, self._mask)
            except OSError:
                pass  # it has just been forgotten

    def forget(self, fd):
        """By who holds it."""
        if self.lent.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def begins(self, run):
        """From any thread: a run of a lent connection."""
        self.runs[run] = None
        self.turns += 1
        if not self._watching:
            self._watching = True
            try:
                self.loop.call_soon_threadsafe(self._tick, context=contextvars.Context())
            except RuntimeError:
                pass  # the loop has ended

    def _tick(self):
        """On the loop, while lent connections are used."""
        now = clock()
        for run in list(self.runs):
            if now - run.began > LONG_S:
                run.connection.adopt(run)
        busy = [since for since in self._since if since]
        if len(busy) == self._most and all(now - since > LONG_S for since in busy):
            for connection in list(self.lent.values()):
                connection.take_back()
        self._enough()
        idle, self._seen = self._seen == self.turns, self.turns
        if idle and not busy:
            self._watching = False
            if not self.runs:  # else one has begun that did not see this
                return
            self._watching = True
        self.loop.call_later(TICK_S, self._tick)

    # --- the threads

    def _main(self, number):
        try:
            from anyio._core._eventloop import threadlocals

            threadlocals.current_token = self._token  # anyio.from_thread.run() works in handlers
        except ImportError:
            pass
        poll, most = self._epoll.poll, 16 if self.single else 1
        since, lent, jobs = self._since, self.lent, self._jobs
        while True:
            for fd, _ in poll(-1, most):
                if fd == self._wake:
                    try:
                        os.eventfd_read(fd)
                    except BlockingIOError:
                        continue  # another thread was faster
                    since[number] = clock()
                    job, args = jobs.popleft()
                else:
                    connection = lent.get(fd)
                    if connection is None:
                        continue  # taken back just now
                    since[number] = clock()
                    job, args = connection.readable, ()
                try:
                    job(*args)
                except Exception:  # of ours: one request hangs, and not all that come after it
                    traceback.print_exc()
                job = args = connection = None  # a thread that waits keeps nothing of its last request alive
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
