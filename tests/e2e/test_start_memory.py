"""Host memory of starts: measured, told with the limit that would be enough, and held against the limit of the group."""

import json
import os
import signal

import pytest

from rig import memory_group
from rig.memory_group import GIB

MIB = 1 << 20


@pytest.fixture
def group(tmp_path):
    return memory_group.make(tmp_path)


def test_the_peak_of_a_start_is_told_with_the_limit_that_is_enough(serve, group):
    server = serve("service:Simple", "--workers", "1", service="simple", before=group.before).ready()
    told = server.log.find("worker.ready")[0]["peak_rss_bytes"]
    assert 30 * MIB < told < GIB
    start = server.wait_until(lambda: (s := server.status()["services"][0]["start_memory"]).get("limit_bytes") and s,
                              what="the group was seen")
    assert start["peak_rss_bytes"] == told and 10 * MIB < start["peak_anon_bytes"] <= told
    assert start["limit_bytes"] == 8 * GIB
    assert start["suggested_limit_bytes"] % (64 * MIB) == 0 and start["suggested_limit_bytes"] > start["peak_anon_bytes"]
    assert "would be enough" not in server.verb("status").stdout
    group.write(limit=32 * MIB)
    server.wait_until(lambda: "a start takes" in (t := server.verb("status").stdout) and "would be enough" in t, what="it is short")
    (kept,) = (server.folder / "state/learnt").glob("*.start.json")
    assert json.loads(kept.read_text())["rss_bytes"] == told


def test_one_that_alone_exceeds_the_limit_is_refused_with_the_number(serve, group):
    server = serve("service:Simple", "--workers", "1", "--backoff.initial", "10ms", "--backoff.attempts", "2", "--replace.when", "leak",
                   service="simple", before=group.before).ready()
    group.write(limit=16 * MIB)
    server.wait_until(lambda: server.status()["services"][0]["start_memory"].get("limit_bytes") == 16 * MIB, what="it was seen")
    os.kill(server.workers()[1], signal.SIGKILL)
    failed = server.wait_for("worker.start_failed")
    assert "could not be started: a start takes" in failed["sentence"] and "the limit is 16.0 MiB: raise it to" in failed["sentence"]
    server.wait_for("worker.failed")
    group.write(limit=8 * GIB)
    server.wait_until(lambda: server.status()["services"][0]["start_memory"]["limit_bytes"] == 8 * GIB, what="it was seen")
    assert server.verb("restart", "simple").returncode == 0, "once it is raised"


@pytest.mark.full
def test_starts_that_together_exceed_it_come_one_after_the_other(serve, group):
    server = serve("service:Simple", "--workers", "1", "--replace.when", "leak", service="simple", before=group.before).ready()
    peak = server.status()["services"][0]["start_memory"]["peak_anon_bytes"]
    server.terminate()
    assert server.wait_exit() == 0
    # the figures of the group stand still: a start never fits beside another one
    group.write(current=100 * MIB, limit=100 * MIB + peak * 9 // 10)
    server.words += ["--workers", "3"]
    server.again().ready(workers=3)
    held = server.log.find("host.start_held", since=server.mark)
    assert held and held[0]["held"] is True and held[0]["peak_bytes"] == peak
    spawned = [e["ts"] for e in server.log.find("worker.spawned", since=server.mark)]
    ready = [e["ts"] for e in server.log.find("worker.ready", since=server.mark)]
    assert len(spawned) == 3 and all(s >= r for s, r in zip(sorted(spawned)[1:], sorted(ready))), (spawned, ready)


@pytest.mark.full
def test_a_service_that_is_only_observed_is_not_held(serve, group):
    server = serve("service:Simple", "--workers", "1", "--mode", "observe", service="simple", before=group.before).ready()
    peak = server.status()["services"][0]["start_memory"]["peak_anon_bytes"]
    server.terminate()
    assert server.wait_exit() == 0
    group.write(current=100 * MIB, limit=100 * MIB + peak * 3 // 2)
    server.words += ["--workers", "2"]
    server.again().ready(workers=2)
    held = server.log.find("host.start_held", since=server.mark)
    assert all(e["held"] is False for e in held)
