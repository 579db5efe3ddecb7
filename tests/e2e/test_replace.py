"""Workers come and go under load; requests do not notice, or are told the truth."""

import os
import re
import signal

import pytest

from rig import Load, connect, paths, send_head
from rig.server import ROOT


def numbered(seconds, path="/work_async"):
    def make(number):
        return ("POST", path, {"number": number, "seconds": seconds},
                lambda reply: reply.json() == {"number": number})
    return make


def begun_and_ended(server):
    """{number: times begun}, {number: times ended}, as the handlers themselves wrote it down."""
    counts = {"begin": {}, "end": {}}
    for line in server.journal():
        if m := re.match(r"(begin|end) (\d+) ", line):
            counts[m[1]][int(m[2])] = counts[m[1]].get(int(m[2]), 0) + 1
    return counts["begin"], counts["end"]


def judge(server, load):
    """Every request answered; 200, or 502 for exactly those that a dead worker had begun; none ran twice."""
    odd = [o for o in load.outcomes if o.kind not in ("ok", "status")]
    assert not odd, (load.kinds(), odd[:5])
    assert set(load.statuses()) <= {200, 502}, (load.statuses(), load.of("status")[:5])
    begun, ended = begun_and_ended(server)
    assert all(times == 1 for times in begun.values()), "a request was given to a handler twice"
    lost = {o.number for o in load.of("status", 502)}
    assert {n for n in begun if n not in ended} <= lost, "begun, never ended, and yet not answered with 502"
    in_handlers = sum(e["in_handlers"] for e in server.log.find("worker.death"))
    assert len(lost) == in_handlers == len(server.log.find("request.lost"))
    for outcome in load.of("status", 502):
        assert '"worker_failed"' in outcome.detail
    return lost


def all_ready(server, count):
    return server.wait_until(lambda: len(w := server.workers()) == count and w, what=f"{count} ready workers")


def test_restart_under_load_loses_nothing_and_changes_every_pid(serve):
    server = serve("service:Feature", "--traffic.queue.max_wait", "120s").ready()
    before = all_ready(server, 2)
    with Load(server.address, numbered(0.02), connections=16) as load:
        load.wait_for(50)
        done = server.verb("restart", "feature")
        assert done.returncode == 0, done.stderr
        load.wait_for_more(50)
    assert load.kinds() == {"ok": len(load.outcomes)}, load.statuses()
    after = all_ready(server, 2)
    assert set(before) == set(after) == {1, 2}
    assert not set(before.values()) & set(after.values())
    for slot in (1, 2):
        assert server.wait_for("worker.replaced", {"worker": slot})
    assert {e["reason"] for e in server.log.find("worker.replace")} == {"operator"}


def test_restart_takes_the_files_as_they_are_now_and_rolls_back_what_does_not_start(serve, tmp_path):
    service = tmp_path / "service.py"
    text = ('import bentoml\n\n@bentoml.service\nclass Versions:\n    @bentoml.api\n'
            '    def predict(self, x: int = 0) -> str:\n        return "{}"\n')
    service.write_text(text.format("old"))
    server = serve("service:Versions", "--backoff.attempts", "1", service=tmp_path).ready()
    assert server.post("/predict").text() == "old"
    service.write_text(text.format("new"))
    assert server.verb("restart", "versions").returncode == 0
    assert server.post("/predict").text() == "new"
    service.write_text("raise RuntimeError('not today')\n")
    done = server.verb("restart", "versions")
    assert done.returncode == 1
    server.wait_for("worker.rollback")
    assert server.post("/predict").text() == "new"
    assert server.get("/readyz").status == 200


@pytest.mark.asan
def test_a_worker_killed_between_requests_is_back_at_once_and_nobody_notices(serve):
    server = serve("service:Simple", service="simple").ready()
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    server.wait_for("worker.death")
    assert server.post("/predict", {"text": "queued"}, timeout=90).text() == "QUEUED"
    death = server.log.find("worker.death")[0]
    assert death["cause"] == "killed" and death["in_handlers"] == 0
    assert server.log.find("worker.backoff") == []
    assert server.log.find("request.lost") == []


@pytest.mark.timeout(240)
def test_kill_9_under_load_costs_only_what_was_in_a_handler(serve):
    server = serve("service:Feature", "--traffic.queue.max_wait", "120s").ready()
    victim = all_ready(server, 2)[1]
    with Load(server.address, numbered(0.05), connections=16) as load:
        load.wait_for(100)
        os.kill(victim, signal.SIGKILL)
        server.wait_for("worker.death")
        load.wait_for_more(100)
        all_ready(server, 2)
    lost = judge(server, load)
    assert lost, "16 connections, 50 ms handlers: somebody was in a handler"
    text = server.get("/metrics").text()
    assert re.search(rf'^plimsoll_requests_lost_total\{{[^}}]*cause="killed"[^}}]*\}} {len(lost)}(\.0)?$', text, re.M)


@pytest.mark.timeout(600)
def test_five_replacements_and_five_kills_under_32_connections(serve):
    """2,000 requests and until all ten have happened: each is answered, 502 only for what died in a handler."""
    server = serve("service:Feature", "--traffic.queue.max_wait", "120s").ready()
    with Load(server.address, numbered(0.05), connections=32) as load:
        load.wait_for(100)
        for round_ in range(5):
            done = server.verb("restart", "feature", timeout=240)
            assert done.returncode == 0, done.stderr
            load.wait_for_more(20)
            victim = all_ready(server, 2)[1 + round_ % 2]
            os.kill(victim, signal.SIGKILL)
            server.wait_for("worker.death", count=round_ + 1)
            load.wait_for_more(20)
            all_ready(server, 2)
        load.wait_for(2000)
    judge(server, load)
    assert len(server.log.find("worker.replaced", lambda e: e.get("worker") == 1)) >= 5
    assert server.log.find("worker.backoff") == [], "a first death after READY restarts at once"


def test_a_worker_killed_while_streaming_cuts_the_stream_visibly(serve):
    server = serve("service:Feature", "--workers", "1").ready()
    sock = connect(server.address)
    body = b'{"n": 1000, "pause": 0.1}'
    send_head(sock, "POST", "/stream", [("Content-Type", "application/json"), ("Content-Length", len(body))])
    sock.sendall(body)
    seen = sock.recv(4096)
    assert seen.startswith(b"HTTP/1.1 200")
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    rest = seen
    try:
        while data := sock.recv(65536):
            rest += data
    except ConnectionResetError:
        pass
    sock.close()
    assert not rest.endswith(b"0\r\n\r\n") and b"[DONE]" not in rest
    server.wait_for("worker.ready", count=2)


def test_a_worker_killed_while_starting_is_tried_again(serve):
    server = serve("service:SlowBoot", "--backoff.initial", "100ms", service="slow_boot").started()
    spawned = server.wait_for("worker.spawned")
    os.kill(spawned["pid"], signal.SIGKILL)
    failed = server.wait_for("worker.start_failed")
    assert failed["cause"] == "killed"
    server.gate.touch()
    server.wait_for("main.ready")
    assert server.post("/predict", {"x": 3}).text() == "3"


def test_a_handler_that_ends_the_process_is_502_with_the_cause(feature):
    reply = feature.post("/die", {"status": 7})
    assert reply.status == 502
    assert reply.json()["code"] == "worker_failed"
    death = feature.wait_for("worker.death")
    assert death["cause"] == "exited" and death["in_handlers"] == 1
    assert sum(line.startswith("die ") for line in feature.journal()) == 1, "it must not be given to another worker"
    assert feature.post("/predict", {"x": 1}, timeout=60).status == 200


def test_a_task_under_way_is_waited_for_by_a_replacement(serve):
    server = serve("service:Feature", "--workers", "1").ready()
    assert server.post("/job/submit", {"number": 1, "seconds": 6.0}).status == 200
    server.wait_until(lambda: any(line.startswith("job begin 1") for line in server.journal()))
    assert server.verb("restart", "feature").returncode == 0
    server.wait_for("worker.gone")
    assert any(line.startswith("job end 1") for line in server.journal())


def test_ten_retries_of_a_poison_request_cost_at_most_two_workers(serve):
    s = serve("service:Feature", "--workers", "1").ready()
    replies = []
    for _ in range(10):
        replies.append(s.post("/die", {"status": 9}, timeout=60))
        s.wait_until(lambda: s.get("/readyz").status == 200, what="a worker is back")
    assert [r.status for r in replies] == [502, 502] + [422] * 8
    assert all(r.headers["x-should-retry"] == "false" for r in replies[2:])
    assert replies[2].headers["x-plimsoll-reason"] == "quarantined"
    assert len(s.log.find("worker.death")) == 2 and len(s.log.find("request.quarantined")) == 1
    assert s.post("/predict").status == 200 and s.post("/text", {"name": "x"}).status == 200
    assert s.verb("restart", "feature").returncode == 0
    assert s.post("/die", {"status": 9}).status == 502


def test_a_request_with_another_query_is_another_one(serve):
    """GET requests have no body: what tells them apart stands behind the question mark."""
    s = serve(None, "--", paths.python, ROOT / "tests/e2e/servers/small.py", "--socket", "{socket}").ready()

    def begins(query):
        sock = connect(s.address)
        send_head(sock, "GET", f"/stream?{query}")
        return sock, sock.recv(12)

    for deaths in (1, 2):
        sock, status = begins("a=1")
        assert status == b"HTTP/1.1 200"
        os.kill(s.workers()[1], signal.SIGKILL)
        s.wait_for("worker.ready", count=deaths + 1)
        sock.close()
    for query, expected in (("a=1", b"HTTP/1.1 422"), ("a=2", b"HTTP/1.1 200")):
        sock, status = begins(query)
        sock.close()
        assert status == expected, query
