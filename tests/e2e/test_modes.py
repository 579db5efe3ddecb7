"""observe, guard, enforce: who acts when; what would have been done is told and counted, and not done."""

import json
import os
import signal

import pytest

from rig import Load
from test_admission import Busy, journal_has
from test_reasons import number_of, predicts


def modes(server):
    service = server.status()["services"][0]
    return service["mode"], service["mode_origin"]


@pytest.mark.timeout(180)
def test_an_observed_service_is_never_touched_and_enforce_would_have(serve):
    server = serve("service:Leaky", "--mode", "observe", "--replace.max_requests", "30", "--replace.max_requests_jitter",
                   "0", "--replace.host_rss", "300MiB", service="leaky").ready()
    pids = server.workers()
    assert number_of(server, "plimsoll_would_total", action="replace", reason="host_rss") == 0
    server.post("/keep", {"mib": 300})
    would = server.wait_for("would.replace", {"reason": "host_rss"})
    assert (would["mode"], would["way"], would["worker"]) == ("observe", "overlap", 1)
    with Load(server.address, predicts, connections=1) as load:
        server.wait_for("would.replace", {"reason": "max_requests"}, count=2)
    assert load.kinds() == {"ok": len(load.outcomes)}
    assert number_of(server, "plimsoll_would_total", action="replace", reason="host_rss") == 1, "told once, not each second"
    assert number_of(server, "plimsoll_would_total", action="replace", reason="max_requests") >= 2
    assert server.workers() == pids and not server.log.find("worker.replace") and not server.log.find("worker.gone")
    # and now it may
    done = server.verb("enforce", "leaky")
    assert done.returncode == 0 and done.stdout == "leaky: mode observe -> enforce\n"
    begun = server.wait_for("worker.replace")
    assert begun["reason"] in ("host_rss", "max_requests")
    server.wait_for("worker.replaced")


@pytest.mark.timeout(120)
def test_a_silent_worker_that_is_only_observed_is_unready_and_left_alone(serve):
    server = serve("service:Leaky", "--mode", "observe", "--timeout", "1s", "--liveness.silent_after", "3s",
                   "--probe.interval", "200ms", "--probe.timeout", "500ms", service="leaky").ready()
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGSTOP)
    would = server.wait_for("would.replace")
    assert (would["reason"], would["way"], would["mode"]) == ("hang", "restart", "observe")
    assert server.get("/livez").status == 200
    assert server.get("/livez/leaky").status == 503
    reply = server.get("/readyz")
    assert reply.status == 503 and reply.json()["why"] == "proof_stale"
    assert server.workers() == {1: pid}
    os.kill(pid, signal.SIGCONT)
    server.wait_for("ready.changed", {"ready": True}, count=2)
    assert server.post("/predict", {"x": 3}, timeout=60).json() == 3
    assert not server.log.find("worker.death") and len(server.log.find("would.replace")) == 1


def test_an_observed_service_refuses_nobody_who_can_be_served(serve):
    server = serve("service:Feature", "--mode", "observe", "--max-concurrency", "2", "--traffic.queue.max_requests", "0",
                   "--limits.body", "64KiB", "--limits.replay", "16KiB").ready()
    busy = Busy(server, seconds=3, count=2)
    assert server.post("/work", {"number": 99, "seconds": 0}).status == 200
    assert journal_has(server, "end 99 ")
    would = server.wait_for("would.refuse")
    assert (would["reason"], would["status"], would["mode"]) == ("concurrency", 429, "observe")
    assert {r.status for r in busy.join().values()} == {200}
    assert server.post("/text", {"name": "x" * 100_000}).status == 200
    assert server.wait_for("would.refuse", {"reason": "too_large"})["status"] == 413
    assert number_of(server, "plimsoll_would_total", action="refuse", reason="concurrency") == 1
    assert number_of(server, "plimsoll_would_total", action="refuse", reason="too_large") == 1
    assert number_of(server, "plimsoll_requests_refused_total", reason="concurrency") == 0
    assert not server.log.find("request.refused")
    # the same in guard
    assert server.verb("enforce", "feature", "guard").returncode == 0
    assert server.post("/text", {"name": "x" * 100_000}).status == 413


@pytest.mark.full
def test_a_death_is_restarted_in_every_mode(serve):
    server = serve("service:Leaky", "--mode", "observe", service="leaky").ready()
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    server.wait_for("worker.ready", count=2)


@pytest.mark.timeout(120)
def test_what_an_operator_has_set_outlives_main(serve):
    server = serve("service:Leaky", "--mode", "observe", service="leaky").ready()
    assert modes(server) == ("observe", "flag")
    assert server.verb("enforce", "leaky", "guard").returncode == 0
    assert modes(server) == ("guard", "operator")
    assert server.verb("drain", "leaky").returncode == 0
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    server.wait_until(lambda: server.try_status())
    assert modes(server) == ("guard", "operator")
    assert server.get("/readyz").status == 503
    assert server.verb("drain", "leaky", "--undo").returncode == 0
    assert server.get("/readyz").status == 200
    bad = server.verb("enforce", "leaky", "shout")
    assert bad.returncode == 2 and "observe" in bad.stderr, bad.stderr
    assert server.verb("enforce", "nobody").returncode == 1
    assert json.loads(server.verb("enforce", "leaky", "--json").stdout)["message"] == "guard -> enforce"


def test_a_drained_service_finishes_what_it_has_and_takes_nothing_new(serve):
    server = serve("service:Feature", "--workers", "1").ready()
    busy = Busy(server, seconds=3, count=1)
    early = server.verb("drain", "feature", "--timeout", "100ms")
    assert early.returncode == 1 and "1 in flight" in early.stdout, early.stdout
    refused = server.post("/predict", {"x": 1})
    assert (refused.status, refused.headers["x-plimsoll-reason"]) == (503, "draining")
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json()["why"] == "draining"
    done = server.verb("drain", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["in_flight"] == 0
    assert {r.status for r in busy.join().values()} == {200}
    assert server.verb("drain", "--undo").returncode == 0
    assert server.post("/predict", {"x": 1}).status == 200
    assert server.wait_for("drain.changed", count=2)["draining"] is False
