"""Bytes: a storm of requests at a card with room for eight. Without a budget it runs out of memory, with one nothing does."""

import json
import threading

import pytest

from rig import Paced, dock, paths
from rig.dock import torch_python
from test_crowd import drips

MIB = 1 << 20


@pytest.fixture
def served(serve, tmp_path):
    """served(*flags): a service with 1 GiB of weights on a card of 10 GiB; each request holds 1 GiB for a while."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")
    python = torch_python()

    def start(*flags, env=None):
        words = [paths.plimsoll, "drydock", "--gpu", "small:10GiB", "--"]
        return serve("service:MemoryPeak", "--warmup.examples", "off", *flags, service="memory_peak", python=python, before=words,
                     env={"PLIMSOLL_CACHE": str(tmp_path / "cache"), **(env or {})}).ready()

    return start


def storm(server, count, mib=1024):
    replies = [None] * count

    def one(i):
        replies[i] = server.post("/predict", {"mib": mib}, timeout=120)

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return replies


def metric(server, line):
    return next((float(text.rpartition(" ")[2]) for text in server.get("/metrics").text().splitlines()
                 if text.startswith(line + " ")), None)


def test_a_storm_runs_out_of_memory_without_a_budget_and_not_with_one(served):
    without = served()
    assert any(r.status == 500 for r in storm(without, 40)), "sixteen threads at a time are too many for the card"
    without.terminate()
    assert without.wait_exit() == 0

    server = served("--memory.budget", "8GiB", "--memory.per_request", "1GiB", "--traffic.queue.max_requests", "20",
                    "--traffic.queue.max_wait", "60s")
    replies = storm(server, 60)
    assert {r.status for r in replies} <= {200, 429}
    good = [r.json() for r in replies if r.status == 200]
    assert len(good) >= 28, "eight ran at once, and twenty waited"
    assert max(r["allocated"] for r in good) <= 9 * 1024 * MIB
    for r in replies:
        if r.status == 429:
            assert r.headers["x-plimsoll-reason"] in ("queue_full", "predicted_wait") and int(r.headers["retry-after"]) >= 1
    place = server.status()["services"][0]["budget"][0]
    assert place["budget_bytes"] == 8192 * MIB and place["charged_bytes"] == 0
    gpu = place["gpu"]
    assert metric(server, f'plimsoll_budget_free_bytes{{service="memorypeak",gpu="{gpu}"}}') == 8192 * MIB
    assert server.status()["services"][0]["guards"]["admission"] == "bytes"
    reply = server.post("/predict", {"mib": 1}, timeout=60)
    assert reply.status == 200, json.dumps(place)


def test_a_budget_too_small_for_one_is_told_at_once(served):
    server = served("--memory.budget", "1GiB", "--memory.per_request", "2GiB")
    reply = server.post("/predict", {"mib": 1})
    assert reply.status == 400 and reply.headers["x-plimsoll-reason"] == "context_length"
    assert "memory.budget" in reply.json()["error"]


def test_a_budget_learnt_from_an_oom_holds_after_the_restart(served, tmp_path):
    """Twelve GiB were promised on a card with nine free: the first storm kills the worker, and teaches."""
    flags = ("--memory.budget", "12GiB", "--memory.per_request", "1GiB", "--traffic.queue.max_requests", "0",
             "--state_dir", tmp_path / "state")
    server = served(*flags, env={"DIE": "1"})
    storm(server, 12)
    change = server.wait_for("budget.changed")
    assert change["reason"] == "oom" and change["from_bytes"] == 12288 * MIB and change["to_bytes"] < 11264 * MIB
    kept = tmp_path / "state/learnt/memorypeak.json"
    server.wait_until(kept.exists, what="it is on the disk")
    server.terminate()
    assert server.wait_exit() == 0
    learnt = json.loads(kept.read_text())["budgets"][0]["bytes"]

    server = served(*flags, env={"DIE": "1"})
    storm(server, 1)
    place = server.status()["services"][0]["budget"][0]
    assert place["budget_bytes"] == learnt <= change["to_bytes"] and place["full_bytes"] == 12288 * MIB


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_who_waits_while_a_worker_is_exchanged_is_not_refused_where_room_is_measured(serve, tmp_path):
    """The room of the device changes the moment that a successor is about to start, and who waits is judged again then."""
    server = drips(serve, tmp_path / "cache", "--traffic.queue.max_wait", "60s", "--replace.hold", "60s", "--traffic.max_concurrency", "4")
    assert server.post("/predict", {"keep_mib": 400, "peak_mib": 16}).status == 200
    server.wait_until(lambda: any(0 < place["budget_bytes"] < 1400 * MIB for place in server.status()["services"][0]["budget"]),
                      what="what it has kept is known")
    replies = [None] * 30

    def one(i):
        replies[i] = server.post("/predict", {"keep_mib": 0, "peak_mib": 16, "seconds": 0.2}, timeout=120).status

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(replies))]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] > 0, what="they run")
    assert server.verb("restart", "drips", "--mode", "handover", "--now").returncode == 0
    assert None in replies, "some have waited for it"
    for thread in threads:
        thread.join(120)
    assert set(replies) == {200}, server.log.find("request.refused")


def grow(server, mib, below, peak=16):
    """Once main knows what it had when it was new (the first looks with requests), until it has seen what has grown: the budget is
    less than `below` MiB."""
    with Paced(server, "/predict", {"keep_mib": 0, "peak_mib": peak}, per_s=10) as paced:
        server.wait_until(lambda: len(paced.statuses) > 50, what="five seconds of requests")
    since = server.log.mark()
    for _ in range(mib // 120):
        assert server.post("/predict", {"keep_mib": 120, "peak_mib": peak}).status == 200
    server.wait_for("budget.changed", lambda e: e["to_bytes"] < below * MIB, since=since)


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_the_next_main_knows_what_a_new_worker_takes_and_leaves_room_for_that(serve, tmp_path):
    """The worker that it finds has grown: what one like it had when it was new is what the main before knows."""
    server = drips(serve, tmp_path / "cache", "--replace.when", "hang")
    grow(server, 1200, below=600)
    assert server.verb("upgrade").returncode == 0
    server.wait_for("main.adopted")
    server.wait_until(lambda: any(0 < place["budget_bytes"] < 700 * MIB for place in server.status()["services"][0]["budget"]),
                      what="the new main has measured it")
    since = server.log.mark()
    assert server.verb("restart", "drips", "--now", "--mode", "overlap").returncode == 0
    least = min((e["to_bytes"] for e in server.log.find("budget.changed", since=since)), default=0)
    assert least > 200 * MIB, "beside 1300 of 2000 MiB there was room for it"


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
@pytest.mark.parametrize("upgraded", [False, True])
def test_a_successor_comes_after_a_worker_that_leaves_it_no_room(serve, tmp_path, upgraded):
    """A context of 500 MiB and weights: beside what has grown there is no room for that, and main knows it, the next one too."""
    server = drips(serve, tmp_path / "cache", "--replace.when", "hang", context="500MiB")
    assert server.status()["services"][0]["replacement"]["mode"] == "overlap"
    grow(server, 1080, below=400)
    if upgraded:
        assert server.verb("upgrade").returncode == 0
        server.wait_for("main.adopted")
    server.wait_until(lambda: server.status()["services"][0]["replacement"]["mode"] == "handover", what="it is seen that there is no room")
    assert server.verb("restart", "drips", "--now").returncode == 0
    (begun,) = server.log.find("worker.replace")
    assert begun["mode"] == "handover"
    assert not server.log.find("memory.oom") and not server.log.find("worker.start_failed")


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_what_a_draining_worker_keeps_is_not_given_to_its_successors_requests(serve, tmp_path):
    """1.1 GiB are free for the old one's PyTorch alone. It still runs one request, and beside it, until its process is gone, there is no
    room for the two that the new one would run at a time."""
    server = drips(serve, tmp_path / "cache", "--replace.when", "hang", "--traffic.queue.max_wait", "60s")
    grow(server, 720, below=1100, peak=400)
    assert server.post("/forget", {}).status == 200
    replies = [None] * 7

    def one(i, body):
        replies[i] = server.post("/predict", {"keep_mib": 0, **body}, timeout=120).status

    threads = [threading.Thread(target=one, args=(0, {"peak_mib": 16, "seconds": 6}), daemon=True)]
    threads[0].start()
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 1, what="it runs")
    assert server.verb("restart", "drips", "--now", "--mode", "overlap", "--no-wait").returncode == 0
    server.wait_for("worker.ready", {"generation": 2})
    threads += [threading.Thread(target=one, args=(i, {"peak_mib": 400, "seconds": 0.3}), daemon=True) for i in range(1, len(replies))]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(replies) == {200}
    assert not server.log.find("memory.oom")
