"""A handler thread and the event loop, each stopped at every single step of what it does with a lent connection while
the other one does all that it can do meanwhile. lending.py says why no order of the two can lose a request."""

import lane_steps
import pytest
from lane_steps import Shared, ask, nothing_is_left, raw, replies, reply, until

from plimsoll.lane import run as lane_run

THREAD = {
    "_main",
    "readable",
    "_run_lent",
    "_stay",
    "_park",
    "park",
    "take",
    "_ended",
    "_bring_back",
    "lend",
    "begins",
    "forget",
}
LOOP = {
    "adopt",
    "_returns",
    "_mind",
    "take_back",
    "forget",
    "take",
    "_from_thread",
    "_go_on",
    "_end",
    "watch",
    "_lend",
    "admit",
}
MOST = 600


@pytest.fixture(params=[pytest.param(1, id="each", marks=pytest.mark.full), pytest.param(6, id="some")])
def stride(request):
    return request.param


def parked(bench):
    """A connection that nobody owns, with a thread waiting for it."""
    sock = bench.connect()
    for _ in range(2):
        assert ask(sock) == (200, b"{}")
    until(bench.idle)
    return sock


# --- what the loop can want meanwhile


def nothing(bench, mine):
    pass


def take_back(bench, mine):
    mine.take_back()


def adopt(bench, mine):
    for run in list(Shared.pool.runs):
        mine.adopt(run)


def adopt_and_tell_late(bench, mine):
    adopt(bench, mine)
    Shared.deadline_s = 0
    lane_run.expire(bench.loop)
    Shared.deadline_s = 3600


def take_and_lend(bench, mine):
    """Taken back, used by the loop, and lent again by the time the thread goes on. True: there was another request."""
    if not mine.take_back() or mine._run is not None or mine._theirs:
        return False
    mine.data_received(raw(b"other"))
    return True


def end(bench, mine):
    mine.shutdown()


def cut(bench, mine):
    mine.transport.abort()


def explore(bench, who, functions, act, stride=1):
    """act(sock, step) for each step of one request until there are no more; returns how many there were."""
    for at in range(1, MOST, stride):
        sock = parked(bench)
        step = lane_steps.Step(who, functions, at)
        try:
            act(sock, step)
        except Exception as exc:
            raise AssertionError(f"stopped at step {at}, {step.where}: {type(exc).__name__}: {exc}") from exc
        finally:
            bench.step = None
            step.go_on.set()
            bench.gate.clear()
            bench.begun.clear()
        if not step.reached.is_set():
            return at
    raise AssertionError("it does not end")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("wish", [nothing, take_back, adopt, adopt_and_tell_late, take_and_lend, end, cut])
def test_whatever_the_loop_does_while_a_thread_stands_still_each_request_is_answered_once(threads, wish, stride):
    def act(sock, step):
        mine, bench.step = bench.made[sock], step
        sock.sendall(raw(b"mine"))
        until(lambda: step.reached.is_set() or step.count and bench.idle(), "the thread comes that far")
        more = bench.on_loop(wish, bench, mine)
        bench.settle()
        step.go_on.set()
        bench.step = None
        want = {(200, b"mine")}
        if wish is adopt_and_tell_late:
            want.add((504, b"asgi"))
        if wish is end:
            want |= {(200, b"asgi"), None}
        if wish is cut:
            want.add(None)
        if more:
            assert sorted(replies(sock, 2)) == [(200, b"mine"), (200, b"other")]
        else:
            answer = reply(sock)
            assert answer in want, answer
        if wish in (nothing, take_back, adopt, adopt_and_tell_late, take_and_lend):
            for _ in range(2):
                assert ask(sock, b"next") == (200, b"next")
            assert ask(sock, b"x", b"/other") == (200, b"asgi")
            assert ask(sock, b"last") == (200, b"last")
        nothing_is_left(bench, sock)

    with lane_steps.opened(threads) as bench:
        assert explore(bench, "pool", THREAD, act, stride) > 80


@pytest.mark.parametrize("threads", [1, 2])
def test_a_handler_that_ends_while_its_run_is_being_adopted(threads):
    def act(sock, step):
        mine = bench.made[sock]
        sock.sendall(raw(b"wait"))
        assert bench.begun.wait(5)
        bench.step = step
        adopted = bench.on_loop(adopt, bench, mine, wait=False)
        until(lambda: step.reached.is_set() or adopted.is_set())
        bench.gate.set()
        until(bench.idle, "the handler and its thread are through")
        step.go_on.set()
        assert adopted.wait(5)
        assert reply(sock) == (200, b"wait")
        for _ in range(2):
            assert ask(sock, b"next") == (200, b"next")
        nothing_is_left(bench, sock)

    with lane_steps.opened(threads) as bench:
        assert explore(bench, "loop", LOOP, act) > 20


@pytest.mark.parametrize("threads", [1, 2])
def test_a_request_that_comes_while_its_connection_is_taken_back_or_given_away(threads, stride):
    """A request of BentoML's own way brings it home, one of the lane lends it again."""

    def act(sock, step):
        bench.step = step
        sock.sendall(raw(b"x", b"/other"))
        until(lambda: step.reached.is_set() or lane_steps.select.select([sock], [], [], 0)[0])
        step.go_on.set()
        assert reply(sock) == (200, b"asgi")
        for _ in range(2):
            assert ask(sock, b"next") == (200, b"next")
        nothing_is_left(bench, sock)

    def taken(sock, step):
        mine, bench.step = bench.made[sock], step
        done = bench.on_loop(mine.take_back, wait=False)
        until(lambda: step.reached.is_set() or done.is_set())
        sock.sendall(raw(b"mine"))
        until(bench.idle)
        lane_steps.select.select([sock], [], [], 0.005)
        step.go_on.set()
        assert reply(sock) == (200, b"mine")
        for _ in range(2):
            assert ask(sock, b"next") == (200, b"next")
        nothing_is_left(bench, sock)

    with lane_steps.opened(threads) as bench:
        assert explore(bench, "loop", LOOP, act, stride) > 20
        assert explore(bench, "loop", LOOP, taken, stride) > 10
