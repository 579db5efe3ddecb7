"""The handler threads: at most `threads` of them, as BentoML's own limiter has it, for the lane and for what BentoML
runs in threads itself (generators, batches, forms), so that the bound holds over both.

A thread is busy until its handler returns. BentoML frees the place of a synchronous call when its time is up although
the call runs on (bentoml/BentoML#5642); here it is taken until the call has ended.
"""

import contextvars
import queue
import threading

from anyio.lowlevel import current_token


class Pool:
    """Made on the event loop."""

    def __init__(self, threads, loop):
        self.loop = loop
        self._most = threads
        self._started = 0
        self._jobs = queue.SimpleQueue()
        self._token = current_token()

    def submit(self, job, *args):
        """From the loop."""
        self._jobs.put((job, args))
        if self._started < self._most and self._jobs.qsize() > 0:
            self._started += 1
            threading.Thread(target=self._main, name="AnyIO worker thread", daemon=True).start()

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

    def _main(self):
        try:
            from anyio._core._eventloop import threadlocals

            threadlocals.current_token = self._token  # anyio.from_thread.run() works in handlers
        except ImportError:
            pass
        jobs = self._jobs
        while True:
            job, args = jobs.get()
            job(*args)
            job = args = None  # a thread that waits keeps nothing of its last request alive


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
