"""Connections that are lent to the handler threads, and why no request gets lost between a thread and the event loop.

Somebody owns a connection at any moment: the event loop, one handler thread, or nobody, in a table where the next owner
takes it. Only its owner reads its socket, registers its descriptor with epoll or takes it off, closes it, and changes
what the connection is. It changes hands in four ways only:

    loop -> thread            `_lend`: a job of the pool, which one thread pops
    thread -> loop            `_bring_back`: a callback of the loop
    thread -> nobody          `_park`: into the pool's table `parked`, when nothing is to be done until bytes come.
                              Taken out by a thread that epoll told of it (`readable`), or by the loop (`take_back`)
    thread -> its own run     the handler runs: the run is in the pool's table `runs`. Taken out by its thread when the
                              handler has returned, or before that by the loop, for one that takes long (`adopt`)

Why this holds:

1. There is one owner. What is taken out of a table is taken by `dict.pop`, one step that no other thread gets between;
   so one of those who try gets it, and the others learn that they did not. Who puts an entry in has done with the
   connection, and touches it again only when it has taken it out itself. (One thing a thread does behind `_park` is to
   arm epoll for the descriptor. That does no harm, whoever owns the connection or the number by then: see 2.)
2. An event of epoll is a hint. Who gets one looks for the connection's entry in `parked`: a late event, or one of a
   number that is another file's by now, finds none; or it finds a connection with nothing to read, which is parked
   again. No bytes are overlooked, since every `_park` arms epoll behind its entry, and epoll tells of bytes that are
   there already.
3. What the loop wants of a connection that a thread has (to end, to close, to look at what came) it writes down first
   (`_ending`, `_gone`, `_kept`), and tries to take the connection then. The thread parks first, and reads what is
   written down then. So one of the two sees the other: the loop takes it, or the thread brings it.
4. A run that was adopted is the loop's from the `pop` on. Its thread may return in the middle of `adopt`; it writes the
   reply, which only who has claimed the run does, and leaves everything else to a callback of the loop, which runs when
   `adopt` is through. Only the loop writes `_run` and `_lent`.
5. Nobody waits for anybody here, so that nothing can wait for ever: a `pop` that finds nothing goes on without.

tests/python/test_lane_steps.py stops each side at every single step, lets the other one do all it can do meanwhile, and
looks whether every request is answered and everything is given back.
"""

import os
import traceback

from plimsoll.lane.run import QUICK, Run, Shared, answered, counted, look, rate, timed, to_loop, watch

READ = 65536


class Lending:
    """The part of protocol.LaneProtocol that this page is about."""

    def _lend(self, run):
        """The loop, its owner, gives it to a thread together with its first run. False: it cannot."""
        try:
            Shared.pool.admit(self, self._fd)
        except OSError:  # as many descriptors are watched as the user may
            return False
        self._run = None
        self._lent = True
        self.flow.pause_reading()
        Shared.pool.begins(run)
        Shared.pool.submit(self._first, run, broken=self.broken)
        return True

    def _first(self, run):
        """On a thread: the owner, unless the run was adopted while it waited for its turn."""
        if run.late:  # adopted, and its client was told that its time was up
            counted(run, False)
            return
        self._run_lent(run)

    def readable(self):
        """On the thread that has taken it out of `parked`: the owner."""
        try:
            data = os.read(self._fd, READ)
        except BlockingIOError:
            self._park()
            return
        except OSError:
            data = b""
        request = look(data) if data and not self._ending else None
        if request is None or len(data) != request.total or request.endpoint.is_async or request.endpoint.quick < QUICK:
            self._bring_back(data, None)
            return
        run = Run(request, data, self)
        run.direct = True
        self._used = run.began
        if Shared.counts is not None:
            Shared.counts.begins(run.endpoint)
        Shared.pool.begins(run)
        self._run_lent(run)

    def _run_lent(self, run):
        """On a thread, the run being in `runs` or adopted."""
        result = timed(run)
        if Shared.pool.runs.pop(run, None) is None:
            self._ended(run, result)
            return
        if type(result) is bytes:
            result = self._write(result)
            if not result:
                answered(run)
                self._park()
                return
        self._bring_back(b"", (run, result))

    def _park(self):
        """By the thread that owns it, and does so no longer."""
        Shared.pool.park(self, self._fd)
        if (self._ending or self._gone or self._kept) and Shared.pool.take(self):
            self._bring_back(b"", None)

    def _bring_back(self, data, ended):
        """By the thread that owns it, to the loop: with what was read, or with a run and what is left to do for it."""
        Shared.pool.forget(self._fd)
        to_loop(self._from_thread, data, ended)

    def _from_thread(self, data, ended):
        """On the loop, its owner from now on."""
        self._lent = False
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
        """On the loop, which owns it then. False: a thread has it just now."""
        if self._lent:
            if not Shared.pool.take(self):
                return False
            self._returns()
        return True

    def adopt(self, run):
        """On the loop: the connection of a run that takes long becomes the loop's, and the run one that it knows of."""
        if Shared.pool.runs.pop(run, None) is None:
            return  # it has just ended
        rate(run.endpoint, False)
        self._run = run
        self._returns()
        self._mind()
        watch(self.loop, run)

    def _returns(self):
        """On the loop, which has taken it out of a table."""
        self._lent = False
        Shared.pool.forget(self._fd)
        self.flow.resume_reading()

    def _has_fd(self):
        """On the loop: whether there is a descriptor for threads."""
        if self._fd < 0:
            try:
                self._fd = os.dup(self.transport.get_extra_info("socket").fileno())
            except OSError:  # none is left: the loop writes the reply
                return False
        return True

    def _close_fd(self):
        """On the loop, which owns it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data):
        """From a thread; returns what did not go."""
        try:
            return data[os.write(self._fd, data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the peer has gone; who reads next sees it

    # --- should our own code fail on a thread

    def broken(self):
        """On the thread, of an exception that nobody has caught. Its client learns it from the end of the connection:
        what became of the request is not known, and nothing may wait for it."""
        to_loop(self._break_off)

    def _break_off(self):
        try:
            pool, run = Shared.pool, self._run
            pool.take(self)
            for lent in [r for r in pool.runs.copy() if r.connection is self]:
                pool.runs.pop(lent, None)
            if self._lent:
                self._lent = False
                pool.forget(self._fd)
            if run is not None and run.task is None:
                Shared.running.pop(run, None)
                self._run = None
            self.transport.abort()
            self._go_on()
        except Exception:
            traceback.print_exc()
