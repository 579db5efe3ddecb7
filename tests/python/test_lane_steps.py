"""A handler thread and the event loop, each stopped at every single step of what it does with a lent connection while
the other one does all that it can do meanwhile. lending.py says why no order of the two can lose a request."""

import lane_steps
import pytest
from lane_steps import Shared, ask, nothing_is_left, raw, replies, reply, until

from plimsoll.lane import lending, pool
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


@pytest.fixture(params=[pytest.param(1, id="each", marks=pytest.mark.full), pytest.param(8, id="some")])
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
        assert bench.begun.wait(lane_steps.PATIENCE_S)
        bench.step = step
        adopted = bench.on_loop(adopt, bench, mine, wait=False)
        until(lambda: step.reached.is_set() or adopted.is_set())
        bench.gate.set()
        until(bench.idle, "the handler and its thread are through")
        step.go_on.set()
        assert adopted.wait(lane_steps.PATIENCE_S)
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


# --- what must not end a thread, or stay with one


@pytest.fixture(params=[1, 2])
def bench(request):
    with lane_steps.opened(request.param) as mine:
        yield mine


@pytest.mark.parametrize("body", [b"exits", b"leaves"])
def test_whatever_code_of_the_user_raises_ends_its_request_and_no_thread(bench, body):
    """A validator that calls sys.exit(), a serialiser that is cancelled: BentoML has its way with them."""
    sock = parked(bench)
    for _ in range(3):
        assert ask(sock, body) == (200, b"asgi")
    assert ask(sock, b"next") == (200, b"next")
    nothing_is_left(bench, sock)


def test_a_fault_of_our_own_on_a_thread_ends_a_connection_and_not_the_lane(bench, monkeypatch, capfd):
    first, second = parked(bench), parked(bench)
    monkeypatch.setattr(Shared.recorder, "lane_begins", lambda *args: 1 / 0)
    first.sendall(raw())
    assert reply(first) is None
    monkeypatch.undo()
    assert ask(second) == (200, b"{}")
    for sock in first, second:
        nothing_is_left(bench, sock)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_what_comes_on_a_lent_connection_while_bentoml_s_own_calls_hold_all_threads_is_answered(bench):
    """The pool looks for what takes long from the first such call on, lent connections being used or not."""
    sock = parked(bench)
    until(lambda: not Shared.pool._watching, "it has stopped looking")
    for _ in range(Shared.pool._most):
        bench.on_loop(Shared.pool.submit, bench.gate.wait, lane_steps.PATIENCE_S)
    until(lambda: len(Shared.pool._since) == Shared.pool._most and all(Shared.pool._since))
    assert ask(sock, b"x", b"/other") == (200, b"asgi")
    assert all(Shared.pool._since)
    bench.gate.set()
    nothing_is_left(bench, sock)


def test_a_lane_without_a_descriptor_to_give_away_answers_all_the_same(bench, monkeypatch):
    def none(fd):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(lending.os, "dup", none)
    sock = bench.connect()
    for _ in range(3):
        assert ask(sock, b"next") == (200, b"next")
    monkeypatch.undo()
    monkeypatch.setattr(pool.Pool, "admit", lambda *args: none(0))
    assert ask(sock, b"next") == (200, b"next")
    nothing_is_left(bench, sock)


def test_a_look_that_fails_is_not_the_last(bench, monkeypatch, capfd):
    sock = parked(bench)
    monkeypatch.setattr(bench.made[sock], "adopt", lambda run: 1 / 0)
    sock.sendall(raw(b"wait"))
    assert bench.begun.wait(lane_steps.PATIENCE_S)
    until(lambda: "ZeroDivisionError" in capfd.readouterr().err)
    monkeypatch.undo()
    until(lambda: bench.made[sock]._run is not None, "it is adopted")
    bench.gate.set()
    assert reply(sock) == (200, b"wait")
    nothing_is_left(bench, sock)
