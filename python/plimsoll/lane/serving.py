"""A run on its connection: begun on a handler thread or as a task of the event loop, and ended there.

What comes of a run: bytes, which are the reply, or an Outcome, which BentoML's own application makes a reply of
(again.py). Who ends it for its client claims it first (`Run.claim`): its thread or task, or its deadline.
"""

from plimsoll.lane.run import QUICK, Shared, answered, counted, run_async, timed, to_loop, watch


class Serving:
    """The part of protocol.LaneProtocol that this page is about."""

    def _start(self, run):
        self._run = run
        self._used = run.began
        if self.timeout_keep_alive_task is None:
            self._arm(self.timeout_keep_alive)
        if Shared.counts is not None:
            Shared.counts.begins(run.endpoint)
        if run.endpoint.is_async:
            watch(self.loop, run)
            run.task = self._spawn(self._serve(run))
            return
        if self.scheme == "http" and self.transport.get_write_buffer_size() == 0 and self._has_fd():
            run.direct = True
            if run.endpoint.quick >= QUICK and not self._kept and not self._ending and self._lend(run):
                return
        watch(self.loop, run)
        Shared.pool.submit(self._thread, run, broken=self.broken)

    def _spawn(self, coroutine):
        """A task that a worker that ends waits for."""
        task = self.loop.create_task(coroutine, context=Shared.base.copy())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # --- as a task

    async def _serve(self, run):
        try:
            result = await run_async(run)
        except BaseException:  # cancelled: late, or the worker ends with it
            self._broken_off(run)
            raise
        Shared.running.pop(run, None)
        if not run.claim():
            _too_late(run, result)
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

    # --- on a handler thread

    def _thread(self, run):
        if run.late:
            counted(run, False)
            return  # its time was up while it waited for its turn
        self._ended(run, timed(run))

    def _ended(self, run, result):
        """On the thread, of a run that the loop knows of: the reply goes from here, and the rest is the loop's."""
        if not run.claim():
            _too_late(run, result)
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


def _too_late(run, result):
    """Its client was answered at its deadline."""
    counted(run, False)
    if type(result) is bytes:
        Shared.recorder.handler_ends(run.call, None)
