"""The fast lane where answers alone do not tell: bounds, long handlers, the end of a worker, what switches it off."""

import json
import os
import pathlib
import random
import signal
import sys
import threading

import lane_wire
import pytest
from harness import SERVICES, Worker, pages, until

from plimsoll import lane
from plimsoll.lane import fingerprint

FORM = {"headers": {"content-type": "application/x-www-form-urlencoded"}, "body": "seconds=0.1&tag=form"}
QUICK = 12  # requests after which connections are lent


def case(path, body=None, **more):
    return {"method": "POST", "path": path, "headers": {}, "body": json.dumps({} if body is None else body), **more}


def send(connection, path, value=None, request=0, **more):
    connection.send(lane_wire.raw({**case(path, value), **more}, request))


def ask(connection, path, value=None, request=0, **more):
    send(connection, path, value, request, **more)
    got = connection.reply()
    return int(got["line"][9:12] or b"0"), got["body"]


def together(calls):
    out = [None] * len(calls)

    def one(i):
        out[i] = calls[i]()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def shared(service, tmp_path_factory):
    worker = Worker(SERVICES / service, "service", tmp_path_factory.mktemp(service), env={"SLOW_THREADS": "1"}, go={})
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    yield from shared("lane_slow", tmp_path_factory)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    yield from shared("lane_corpus", tmp_path_factory)


def lent(worker, path="/nap", body=None):
    """A connection that a handler thread has by now."""
    connection = lane_wire.Connection(worker)
    for _ in range(QUICK):
        assert ask(connection, path, body or {"seconds": 0})[0] == 200
    return connection


# --- the table


@pytest.mark.parametrize(
    "switch, said",
    [
        pytest.param("", "sync", marks=pytest.mark.full),
        ("middleware", "off: the service adds ASGI middleware"),
        pytest.param("cors", "off: CORS is BentoML's own here", marks=pytest.mark.full),
        ("tracing", "off: tracing.sample_rate is not zero"),
        ("mount", "sync"),
        pytest.param("prefix", "sync", marks=pytest.mark.full),
        ("patched", "off: starlette.applications:Starlette.__call__ is wrapped by "),
    ],
)
def test_what_a_service_uses_switches_the_lane_off_and_says_why(start, switch, said):
    prefix = "/api" if switch == "prefix" else ""
    worker = start("lane_switches", env={"SWITCH": switch}, go=None)
    worker.described()
    worker.say(go={"deploy": False, "timeout_ms": 31000})
    until(lambda: worker.request("GET", f"{prefix}/readyz")[0] == 200, "readiness")
    assert worker.ask("lane")["lane"][f"{prefix}/one"].startswith(said)
    status, headers, body, request = worker.post(f"{prefix}/one", {"x": 3})
    assert (status, body, headers.get("x-mark")) == (200, b"3", "1" if switch == "middleware" else None)
    assert bool(worker.page.end(request)["flags"] & pages.LANE) == (said == "sync")
    if switch == "mount":
        assert worker.request("GET", "/hello")[2] == b"mounted"


def test_endpoints_that_bentoml_must_answer_say_why(corpus):
    table = corpus.ask("lane")["lane"]
    assert table["/batched"] == "off: batchable"
    assert table["/stream"] == table["/astream"] == "off: a stream"
    assert (table["/ints"], table["/aints"]) == ("sync", "async")


def test_it_is_off_when_it_is_set_to_be(start):
    worker = start("lane_slow", go={"fast_lane": "off"})
    assert set(worker.ask("lane")["lane"].values()) == {"off: fast_lane is off"}
    request = worker.post("/nap", {"seconds": 0})[3]
    assert not worker.page.end(request)["flags"] & pages.LANE


def test_another_bentoml_is_not_stood_in_for(monkeypatch):
    assert fingerprint.why_not() is None
    monkeypatch.setattr(fingerprint, "KNOWN", {**fingerprint.KNOWN, "_bentoml_impl.serde": ("0",), "_bentoml_impl.serde:JSONSerde": ("0",)})
    assert "_bentoml_impl.serde:JSONSerde" in fingerprint.why_not()


def test_a_wrapper_of_somebody_else_is_seen_around_our_own_code_too(monkeypatch):
    from plimsoll import records

    inner = records.Edge.__call__
    monkeypatch.setattr(records.Edge, "__call__", lambda *args: inner(*args))
    assert "plimsoll.records:Edge.__call__ is replaced by" in fingerprint.why_not()


def test_it_is_off_with_an_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    mine = lane.Lane(None)
    mine.prepare(None, [], None, 1)
    assert mine.all_off == "Python 3.10 is older than 3.11"


# --- what it is for


def cpu_us(pid):
    return sum(int(p.read_text().split()[0]) for p in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


def test_it_costs_a_fraction_of_bentoml_s_own_way(start):
    """Interleaved, and the best of some rounds: only a gross loss shows. `make bench` has the figures."""
    workers = {word: start("lane_slow", go={"fast_lane": word}) for word in ("off", "auto")}
    connections = {word: lane_wire.Connection(w) for word, w in workers.items()}
    best = 0.0
    for _ in range(5):
        spent = {}
        for word, worker in workers.items():
            before = cpu_us(worker.pid)
            for _ in range(150):
                assert ask(connections[word], "/anap", {"seconds": 0})[0] == 200
            spent[word] = cpu_us(worker.pid) - before
        best = max(best, spent["off"] / spent["auto"])
        if best >= 4:
            return
    raise AssertionError(f"the lane costs 1/{best:.1f} of BentoML's own way")


# --- threads


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_handlers_run_at_once_than_the_service_has_threads(start, threads):
    worker = start("lane_slow", env={"SLOW_THREADS": str(threads)}, go={})
    warm = lent(worker)
    calls = []
    for _ in range(5):
        calls.append(lambda: worker.post("/nap", {"seconds": 0.1})[0])
        calls.append(lambda: ask(lane_wire.Connection(worker), "/nap", **FORM)[0])
        calls.append(lambda: worker.post("/parts", {"n": 2})[0])
    calls.append(lambda: ask(warm, "/nap", {"seconds": 0.1})[0])
    assert set(together(calls)) == {200}
    assert int(worker.post("/most")[2]) == threads


def test_what_waits_behind_a_long_handler_on_a_lent_connection_is_answered_meanwhile(slow):
    first, second = lent(slow), lent(slow)
    send(first, "/nap", {"seconds": 3.0, "tag": "long"}, 77)
    slow.page.begin(77)
    assert ask(second, "/anap", {"seconds": 0}, 78) == (200, b'{"tag": ""}')
    second.send(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    assert second.reply()["line"].startswith(b"HTTP/1.1 200")
    assert not slow.page.ends(77)  # both came while it ran
    assert b"long" in first.reply()["body"]


def test_a_long_handler_on_a_lent_connection_has_its_deadline(start):
    worker = start("lane_slow", go={"timeout_ms": 1000})
    connection = lent(worker)
    send(connection, "/nap", {"seconds": 2.5}, 5)
    got = connection.reply()
    assert (got["line"], got["body"]) == (
        b"HTTP/1.1 504 Gateway Timeout",
        b'{"error":"Not able to process the request in 1 seconds"}',
    )
    assert not worker.page.ends(5)  # the handler runs on, and keeps its place
    until(lambda: worker.page["zombies"] == 1)
    record = worker.page.end(5)
    assert (record["status"], record["outcome"]) == (504, pages.CANCELLED)
    assert record["flags"] & (pages.LANE | pages.RETURNED | pages.ZOMBIE) == pages.LANE | pages.RETURNED | pages.ZOMBIE
    assert worker.page["zombies"] == 0
    assert ask(connection, "/nap", {"seconds": 0})[0] == 200


def test_a_long_body_comes_through_on_a_lent_connection(slow):
    connection = lent(slow)
    tag = "x" * 300_000
    assert ask(connection, "/nap", {"seconds": 0, "tag": tag}) == (200, json.dumps({"tag": tag}).encode())
    assert ask(connection, "/nap", {"seconds": 0, "tag": "y"})[1] == b'{"tag": "y"}'


@pytest.mark.parametrize("path", ["/uses", "/auses"])
def test_nothing_of_a_request_is_kept_alive(slow, path):
    connection = lent(slow, path, {"how": "well"})
    assert ask(connection, path, {"how": "fails"})[0] == 500
    # The thread that has handed the error on may not have come to its own end yet.
    until(lambda: ask(connection, "/left") == (200, b"0"), "nothing is left of the request")


# --- clients that go, workers that end


def test_clients_that_vanish_leave_nothing(corpus):
    worker = corpus
    rng = random.Random(4)
    lane_wire.exchange([lane_wire.Connection(worker)], case("/ints", {"x": 1}), 1)
    files = len(os.listdir(f"/proc/{worker.pid}/fd"))
    for _ in range(100):
        connection = lane_wire.Connection(worker)
        data = lane_wire.raw(case(rng.choice(["/ints", "/aints", "/fails", "/stream"]), {"x": 1}), 0)
        connection.send(data[: rng.randrange(1, len(data) + 1)])
        connection.vanish() if rng.random() < 0.5 else connection.close()
    until(lambda: len(os.listdir(f"/proc/{worker.pid}/fd")) <= files, "descriptors given back")
    until(lambda: worker.page["in_flight"] == 0, "nothing in flight")
    assert worker.post("/ints", {"x": 2})[:1] == (200,)


def client(worker, seed, count):
    rng, connection, wrong = random.Random(seed), lane_wire.Connection(worker), []
    for _ in range(count):
        n = rng.randrange(10**9)
        size = rng.randrange(1, 300_000) if rng.random() < 0.1 else rng.randrange(1, 500)
        path, body, want = rng.choice([
            *[("/ints", {"x": n}, (200, b'{"x": %d}' % n))] * 4,
            *[("/aints", {"x": n}, (200, b'{"x": %d}' % n))] * 2,
            ("/fails", {"kind": "invalid"}, (400, '[{"error":"bad <thing> é"}]'.encode())),
            ("/stream", {"n": 2}, (200, b"part 0\npart 1\n")),
            ("/size", {"s": "s" * size}, (200, b"%d" % size)),
            ("/big", {"n": size}, (200, b"x" * size)),
        ])  # fmt: skip
        got = ask(connection, path, body)
        if got != want:
            wrong.append((path, got[0]))
    return wrong


def test_mixed_requests_of_many_clients_are_all_answered_right(corpus):
    assert sum(together([lambda i=i: client(corpus, i, 60) for i in range(12)]), []) == []
    until(lambda: corpus.page["in_flight"] == 0, "nothing in flight")


@pytest.mark.parametrize("path", ["/nap", "/anap"])
def test_a_worker_that_is_told_to_end_answers_what_it_has_begun(start, path):
    worker = start("lane_slow", go={})
    idle, busy = lent(worker), lent(worker, path)
    send(busy, path, {"seconds": 1.0, "tag": "last"}, 9)
    worker.page.begin(9)
    os.kill(worker.pid, signal.SIGTERM)
    assert b"last" in busy.reply()["body"]
    assert worker.wait_exit(15) == -signal.SIGTERM
    assert idle.reply()["line"] == b""


@pytest.mark.full
@pytest.mark.parametrize("how", ["exit", "os", "interrupt"])
def test_a_handler_that_ends_the_process_does_it_as_with_bentoml(start, how):
    ends = []
    for word in "off", "auto":
        worker = start("lane_slow", go={"fast_lane": word})
        connection = lane_wire.Connection(worker)
        send(connection, "/ends", {"how": how})
        ends.append((connection.reply()["line"], worker.wait_exit(20)))
    assert ends[0] == ends[1]
