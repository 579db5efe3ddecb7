"""What requests leave on the page, with BentoML's own server around the handlers."""

import http.client
import json
import os
import signal
import threading

import pytest
from harness import UnixConnection, until

from plimsoll import page as pages


@pytest.fixture
def gate(tmp_path):
    """A file that lets waiting handlers go on; opened at the latest when the test is over."""

    class Gate:
        path = str(tmp_path / "gate")

        def open(self):
            open(self.path, "w").close()

    g = Gate()
    yield g
    g.open()


def route(worker, name):
    return [r["name"] for r in worker.description["routes"]].index(name)


def background(worker, *args, **more):
    """A request on a thread; result() gives its reply."""
    box = {}

    def run():
        try:
            box["reply"] = worker.post(*args, **more)
        except (OSError, http.client.HTTPException) as exc:
            box["reply"] = exc

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(60)
        return box["reply"]

    return result


def lay_open(worker, path, body, request):
    """Sends a request and gives the connection back without reading."""
    connection = UnixConnection(f"/proc/self/fd/{worker._folder()}/s", 60)
    connection.request("POST", path, json.dumps(body),
                       {"content-type": "application/json", "x-plimsoll-id": f"{request:016x}"})  # fmt: skip
    return connection


# --- each kind once


@pytest.mark.parametrize(
    "name, body, flags",
    [("text", {"name": "a"}, 0), ("sleeps", {}, 0), ("stream", {"n": 4}, pages.STREAM),
     ("stream_sync", {"n": 4}, pages.STREAM), ("batch", {"x": ["a"]}, pages.BATCHED)],
)  # fmt: skip
def test_a_request_begins_once_and_ends_once(feature, name, body, flags):
    status, _, _, request = feature.post(f"/{name}", body)
    end = feature.page.end(request)
    begins = feature.page.begins(request)
    assert status == 200
    assert len(begins) == len(feature.page.ends(request)) == 1
    assert begins[0]["route"] == end["route"] == route(feature, name)
    assert begins[0]["kind"] == end["kind"] == flags
    assert (end["status"], end["outcome"], end["error_class"]) == (200, pages.OK, "")
    assert end["duration_us"] == end["at_us"] - begins[0]["at_us"]


@pytest.mark.parametrize(
    "path, body, status, outcome, error",
    [
        ("/value_error", {}, 500, pages.ERROR, "ValueError"),
        ("/out_of_memory", {}, 500, pages.ERROR, "FakeOutOfMemoryError"),
        ("/invalid", {}, 400, pages.CLIENT_ERROR, "InvalidArgument"),
        ("/stream_breaks", {"after": 0}, 500, pages.ERROR, "ValueError"),
        ("/stream_breaks", {"after": 2}, 200, pages.ERROR, "ValueError"),  # the client cannot tell, the record can
        ("/batch", {"x": ["fail"]}, 500, pages.ERROR, "FakeOutOfMemoryError"),
    ],
)
def test_the_end_knows_the_exception(feature, path, body, status, outcome, error):
    errors = feature.page["errors"]
    got, _, _, request = feature.post(path, body)
    end = feature.page.end(request)
    assert (got, end["status"]) == (status, status)
    assert (end["outcome"], end["error_class"]) == (outcome, error)
    assert feature.page["errors"] == errors + (outcome == pages.ERROR)


@pytest.mark.parametrize(
    "path, body, status", [("/needs", {}, 400), ("/needs", "{", 400), ("/nowhere", {}, 404), ("/text/", {}, 307)]
)
def test_what_reaches_no_handler_only_ends(feature, path, body, status):
    got, _, _, request = feature.post(path, body)
    end = feature.page.end(request)
    assert (got, end["status"]) == (status, status)
    assert feature.page.begins(request) == []
    assert end["flags"] & pages.UNBEGUN
    assert end["outcome"] == (pages.OK if status < 400 else pages.CLIENT_ERROR)


def test_probes_and_pages_of_the_server_leave_no_records(feature):
    before = feature.page["begun"], feature.page["ended"]
    for path in ("/readyz", "/livez", "/metrics", "/docs.json", "/schema.json", "/"):
        assert feature.request("GET", path)[0] == 200
    assert (feature.page["begun"], feature.page["ended"]) == before


@pytest.mark.parametrize("value", ["12", "g" * 16, "0" * 17, "0" * 16, ""])
def test_a_number_that_is_none_counts_as_none(feature, value):
    begun = feature.page["begun"]
    assert feature.request("POST", "/text", {}, {"x-plimsoll-id": value})[0] == 200
    until(lambda: feature.page["begun"] == begun + 1)
    assert feature.page.begins()[-1]["id"] == 0


def test_upper_case_and_the_warm_up_mark_are_understood(feature):
    feature.request("POST", "/text", {}, {"X-Plimsoll-Id": "FEEDABCDEF000001", "x-plimsoll-warmup": "1"})
    assert feature.page.end(0xFEEDABCDEF000001)["kind"] == pages.WARMUP


def test_a_handler_that_calls_another_is_one_request(feature):
    for path in ("/use_itself", "/use_dependency"):
        _, _, _, request = feature.post(path)
        feature.page.end(request)
        assert len(feature.page.begins(request)) == len(feature.page.ends(request)) == 1


def test_many_at_once_all_end(feature):
    ids = [feature.new_id() for _ in range(40)]
    waiting = [background(feature, ("/text", "/sleeps", "/stream")[i % 3], request=n) for i, n in enumerate(ids)]
    assert all(w()[0] == 200 for w in waiting)
    assert all(feature.page.end(n)["outcome"] == pages.OK for n in ids)
    until(lambda: feature.page["in_flight"] == 0)
    assert [len(feature.page.begins(n)) for n in ids] == [1] * 40


# --- while they run


def test_a_running_handler_has_a_begin_and_no_end(feature, gate):
    request, progress = feature.new_id(), feature.page["progress"]
    reply = background(feature, "/gated", {"gate": gate.path}, request=request)
    feature.page.begin(request)
    assert feature.page["in_flight"] == 1
    assert feature.page.ends(request) == []
    assert feature.page["progress"] > progress
    gate.open()
    assert reply()[0] == 200
    feature.page.end(request)
    assert feature.page["in_flight"] == 0


def test_a_task_counts_while_its_job_runs(feature, gate):
    status, _, body, request = feature.post("/job/submit", {"gate": gate.path})
    assert status == 200, body
    assert feature.page["tasks"] == 1
    begin = feature.page.begin(request)
    assert begin["flags"] & pages.TASK and feature.page.ends(request) == []
    task = json.loads(body)["task_id"]
    gate.open()
    assert feature.page.end(request)["outcome"] == pages.OK
    assert feature.page["tasks"] == feature.page["in_flight"] == 0
    assert feature.request("GET", f"/job/get?task_id={task}")[2] == b"done"


def test_a_fork_of_the_worker_writes_nothing(feature):
    begun = feature.page["begun"]
    status, _, body, request = feature.post("/forks")
    assert (status, body) == (200, b"0")
    feature.page.end(request)
    assert feature.page["begun"] == begun + 1


def test_a_client_that_leaves_a_stream_ends_it(feature):
    request = feature.new_id()
    connection = lay_open(feature, "/stream_for_ever", {}, request)
    reply = connection.getresponse()
    assert reply.read(2000)
    connection.close()
    reply.close()
    end = feature.page.end(request)
    assert end["outcome"] in (pages.CANCELLED, pages.OK) and end["status"] == 200
    until(lambda: "stream_for_ever closed" in feature.trace.read_text())
    assert feature.page["in_flight"] == 0


def test_streams_of_threads_that_clients_leave_are_closed_without_the_garbage_collector(feature):
    """Exceptions hold frames in cycles; a generator in one of them would run on in the books until a collection."""
    assert feature.post("/collects_garbage", {"yes": False})[2] == b"false"
    requests = [feature.new_id() for _ in range(60)]
    for request in requests:
        connection = lay_open(feature, "/stream_sync_for_ever", {}, request)
        reply = connection.getresponse()
        assert reply.read(2000)
        connection.close()
        reply.close()
    assert {feature.page.end(r)["outcome"] for r in requests} <= {pages.CANCELLED, pages.OK}
    until(lambda: feature.trace.read_text().count("stream_sync_for_ever closed") == len(requests))
    assert feature.page["in_flight"] == feature.page["zombies"] == 0
    assert feature.post("/collects_garbage", {"yes": True})[2] == b"true"


def test_ping_is_answered_while_the_event_loop_is_blocked(feature, gate):
    request = feature.new_id()
    reply = background(feature, "/blocks", {"gate": gate.path}, request=request)
    feature.page.begin(request)
    pong = feature.ask("ping", 5)
    assert (pong["id"], pong["ok"], pong["in_flight"], pong["pid"]) == (5, True, 1, feature.pid)
    assert "wait_for" in feature.ask("stacks", 6)["stacks"]
    assert feature.ask("dance", 7) == {"v": 1, "id": 7, "error": "unknown"}
    gate.open()
    assert reply()[0] == 200


# --- out of time


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """The feature service with a deadline of half a second."""
    from harness import SERVICES, Worker

    where = tmp_path_factory.mktemp("hasty")
    worker = Worker(SERVICES / "feature", "service:Feature", where, go={"deploy": False, "timeout_ms": 500},
                    env={"TRACE": str(where / "trace")})  # fmt: skip
    worker.trace = where / "trace"
    yield worker
    worker.close()


def test_a_timed_out_handler_keeps_its_request_open(hasty, gate):
    status, _, body, request = hasty.post("/gated", {"gate": gate.path})
    assert (status, json.loads(body)) == (504, {"error": "Not able to process the request in 0.5 seconds"})
    until(lambda: hasty.page["zombies"] == 1)
    assert hasty.page["in_flight"] == 1 and hasty.page.ends(request) == []
    gate.open()
    end = hasty.page.end(request)
    assert end["flags"] & pages.ZOMBIE
    assert (end["outcome"], end["status"]) == (pages.CANCELLED, 504)
    assert end["duration_us"] >= 400000  # it began a little after its request arrived
    assert hasty.page["zombies"] == hasty.page["in_flight"] == 0


def test_a_timed_out_async_handler_is_cancelled_and_over(hasty):
    status, _, _, request = hasty.post("/sleeps", {"s": 3600})
    end = hasty.page.end(request)
    assert status == 504
    assert (end["outcome"], end["error_class"]) == (pages.CANCELLED, "CancelledError")
    assert not end["flags"] & pages.ZOMBIE
    assert "sleeps cancelled" in hasty.trace.read_text()


def test_a_request_given_up_while_it_waited_for_a_thread_never_began(hasty, gate):
    """Streams that have begun to answer have no deadline, so they hold the four threads."""
    busy = [lay_open(hasty, "/stream_gated", {"gate": gate.path}, hasty.new_id()) for _ in range(4)]
    streams = [c.getresponse() for c in busy]
    assert [s.readline() for s in streams] == [b"first\n"] * 4
    status, _, _, request = hasty.post("/text")
    end = hasty.page.end(request)
    assert status == 504
    assert hasty.page.begins(request) == []
    assert end["flags"] & pages.UNBEGUN and end["outcome"] == pages.CANCELLED
    gate.open()
    assert [s.read() for s in streams] == [b"last\n"] * 4
    until(lambda: hasty.page["in_flight"] == 0)
    for connection in busy:
        connection.close()


def test_a_timed_out_batch_holds_its_requests_to_its_end(hasty, gate):
    status, _, _, request = hasty.post("/batch", {"x": [gate.path]})
    assert status == 504
    until(lambda: hasty.page["zombies"] == 1)
    assert hasty.page.ends(request) == []
    gate.open()
    assert hasty.page.end(request)["flags"] & (pages.ZOMBIE | pages.BATCHED) == pages.ZOMBIE | pages.BATCHED
    until(lambda: hasty.page["in_flight"] == 0)


def test_bentoml_neither_refuses_nor_logs_accesses(hasty):
    ids = [hasty.new_id() for _ in range(80)]  # max_concurrency is 64
    waiting = [background(hasty, "/sleeps", {"s": 0.1}, request=n) for n in ids]
    assert {w()[0] for w in waiting} <= {200, 504}
    assert "method=POST" not in hasty.log()
    assert "override from json" not in hasty.log()


# --- death


def test_what_ran_at_death_can_be_read_afterwards(start, tmp_path):
    w = start("feature", "service:Feature", go={"deploy": False})
    gated, died = w.new_id(), w.new_id()
    running = background(w, "/gated", {"gate": str(tmp_path / "never")}, request=gated)
    w.page.begin(gated)
    reply = background(w, "/die", request=died)
    assert w.wait_exit() == 7
    assert isinstance(reply(), Exception) and isinstance(running(), Exception)
    open_ids = {r["id"] for r in w.page.begins()} - {r["id"] for r in w.page.ends()}
    assert open_ids == {gated, died}


def test_sigterm_lets_a_running_handler_end(start, tmp_path):
    trace = tmp_path / "trace"
    w = start("feature", "service:Feature", go={"deploy": False}, env={"TRACE": str(trace)})
    gate, request = str(tmp_path / "gate"), w.new_id()
    reply = background(w, "/gated", {"gate": gate}, request=request)
    w.page.begin(request)
    os.kill(w.pid, signal.SIGTERM)
    open(gate, "w").close()
    assert reply()[0] == 200
    assert w.wait_exit() == -signal.SIGTERM
    assert w.page.end(request)["outcome"] == pages.OK
    assert trace.read_text().splitlines()[-1] == "on_shutdown"


# --- user code before the handler


def test_a_mounted_application_begins_at_the_edge(start):
    w = start("edge", "service:Edge", go={})
    status, _, body, request = w.post("/app/hello")
    assert (status, body) == (200, b"mounted")
    assert w.page.begin(request)["kind"] == w.page.end(request)["kind"] == pages.EDGE
    _, _, _, request = w.post("/predict")
    assert w.page.end(request)["kind"] == 0


def test_with_middleware_everything_begins_at_the_edge(start):
    w = start("edge", "service:Edge", go={}, env={"WITH_MIDDLEWARE": "1"})
    _, _, _, request = w.post("/predict", {"x": "no number"})
    assert w.page.end(request)["status"] == 400
    assert len(w.page.begins(request)) == 1
    _, _, _, request = w.post("/predict", {"x": 2})
    assert w.page.end(request)["kind"] == pages.EDGE and len(w.page.begins(request)) == 1
