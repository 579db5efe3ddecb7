"""Where memory for two is not free: the old worker goes first. Who is held, who is told when to come back, and when."""

import json
import os
import re
import signal
import threading
import time

import pytest

from rig import Load

BOOT = {"BOOT_S": "9"}
HANDOVER = ("--replace.mode", "handover")


def timed(serve, *flags, boot="1", ready=1):
    return serve("service:TimedBoot", *HANDOVER, *flags, service="timed_boot", env={"BOOT_S": boot}).ready(ready)


def started(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def predicts(number):
    return ("POST", "/predict", {"x": number}, lambda reply: reply.json() == number)


def replacement(server):
    return server.status()["services"][0]["replacement"]


def gap_seconds(server):
    found = re.search(r"^plimsoll_replacement_gap_seconds\{[^}]*\} (\S+)", server.get("/metrics").text(), re.M)
    return float(found.group(1)) if found else None


class Clients:
    """One request every 100 ms, each on its own: (sent, answered, status, retry-after-ms)."""

    def __init__(self, server):
        self.server, self.rows, self._threads = server, [], []
        self._stop = threading.Event()
        self._pacer = threading.Thread(target=self._pace, daemon=True)

    def __enter__(self):
        self._pacer.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._pacer.join()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client never had an answer"

    def _pace(self):
        while not self._stop.wait(0.1):
            self._threads.append(started(self._one))

    def _one(self):
        sent = time.monotonic()
        reply = self.server.post("/predict", {"x": 1}, timeout=60)
        back = reply.headers.get("retry-after-ms")
        self.rows.append((sent, time.monotonic(), reply.status, int(back) / 1000 if back else None, reply.headers))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("boot", [9, pytest.param(30, marks=pytest.mark.full)])
def test_a_boot_longer_than_the_hold_every_client_has_an_answer_in_time_and_retry_after_is_right(serve, boot):
    server = timed(serve, "--replace.hold", "5s", boot=str(boot))
    assert gap_seconds(server) > boot, "the gap is known before it happens"
    assert replacement(server)["expected_gap_s"] > boot and not replacement(server)["planned"]
    with Clients(server) as clients:
        server.wait_until(lambda: len(clients.rows) > 10)
        done = server.verb("restart", "timedboot", "--now")
        assert done.returncode == 0, done.stdout + done.stderr
        count = len(clients.rows)
        server.wait_until(lambda: len(clients.rows) > count + 10)
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert re.match(r"timedboot: handover; nobody serves for about [\d.]+ s, requests are held up to 5.0 s", first), done.stdout
    assert "generation 1 -> 2, gap " in last
    assert {row[2] for row in clients.rows} == {200, 503}
    assert max(answered - sent for sent, answered, *_ in clients.rows) <= 6
    refused = sorted(row for row in clients.rows if row[2] == 503)
    assert all(row[4]["x-plimsoll-reason"] == "handover" for row in refused)
    gap = server.log.find("worker.replaced", {"mode": "handover"})[0]["gap_ms"] / 1000
    again = min(answered for sent, answered, status, *_ in clients.rows if status == 200 and sent > refused[0][0])
    print(f"boot {boot} s: {len(clients.rows)} requests, longest {max(a - b for b, a, *_ in clients.rows):.2f} s, "
          f"{len(refused)} refused, Retry-After at most {max(abs(r[1] + r[3] - again) / gap for r in refused):.1%} off")
    for _, answered, _, back, headers in refused:
        assert abs(answered + back - again) <= 0.2 * gap, (back, again - answered, gap)
        assert int(headers["retry-after"]) == max(1, -(-int(back * 1000) // 1000))
    begin = server.log.find("worker.replace")[0]
    assert begin["mode"] == "handover" and abs(begin["expected_gap_ms"] / 1000 - gap) <= 0.2 * gap
    told = server.log.find("worker.replaced")[0]
    assert told["held"] > 0 and told["refused"] == len(refused)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("boot", [2, pytest.param(30, marks=pytest.mark.full)])
def test_with_a_long_hold_nothing_is_refused_and_the_service_stays_ready(serve, boot):
    server = timed(serve, "--replace.hold", "60s", boot=str(boot))
    with Load(server.address, predicts, connections=8) as load:
        load.wait_for(50)
        restart = started(server.verb, "restart", "timedboot")
        server.wait_for("worker.stopping")
        server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] > 0)
        assert server.get("/readyz").status == 200, "one replica: it stays ready while it holds"
        assert replacement(server)["under_way"] and replacement(server)["expected_gap_s"] > 0
        assert gap_seconds(server) > 0
        restart.join(120)
        load.wait_for_more(50)
    assert load.kinds() == {"ok": len(load.outcomes)}, load.statuses()
    done = server.log.find("worker.replaced")[0]
    assert done["mode"] == "handover" and done["gap_ms"] >= 1000 * boot and done["held"] > 0 and done["refused"] == 0
    assert [e["ready"] for e in server.log.find("ready.changed")] == [True]
    order = ["worker.replace", "worker.draining", "worker.stopping", "worker.gone", "worker.spawned"]
    times = [server.log.find(name)[-1]["ts"] for name in order]
    assert times == sorted(times), dict(zip(order, times, strict=True))
    text = server.get("/metrics").text()
    assert re.search(r'^plimsoll_worker_replacements_total\{[^}]*reason="operator",mode="handover"\} 1', text, re.M)


def test_not_ready_while_held_when_told_so(serve):
    server = timed(serve, "--replace.hold", "60s", "--replace.ready_while_held", "false")
    restart = started(server.verb, "restart", "timedboot")
    server.wait_for("ready.changed", {"ready": False})
    reply = server.get("/readyz")
    if reply.status == 503:  # it may be back already
        assert reply.json()["why"] == "replacing" and int(reply.headers["retry-after"]) >= 1
    server.wait_for("ready.changed", {"ready": True}, count=2)
    restart.join(60)


def test_a_gap_longer_than_the_hold_waits_for_a_quiet_moment(serve):
    server = timed(serve, "--replace.hold", "100ms")
    with Load(server.address, predicts, connections=1) as load:
        load.wait_for(5)
        restart = started(server.verb, "restart", "timedboot")
        held = server.wait_for("worker.replace_held")
        assert held["why"] == "gap" and held["reason"] == "operator" and held["expected_gap_ms"] > 100
        now = replacement(server)
        assert now["planned"] and not now["under_way"] and now["held_by"] == "gap"
        load.wait_for_more(20)
        assert not server.log.find("worker.replace")
        again = server.verb("restart", "timedboot")
        assert again.returncode == 1 and "waits for a quiet moment" in again.stderr and "--now" in again.stderr
    assert load.kinds() == {"ok": len(load.outcomes)}
    server.wait_for("worker.replaced")  # nobody comes any more
    restart.join(60)
    with Load(server.address, predicts, connections=1) as load:
        load.wait_for(5)
        restart = started(server.verb, "restart", "timedboot")
        server.wait_for("worker.replace_held", count=2)
        assert server.verb("restart", "timedboot", "--now").returncode == 0
    restart.join(60)
    assert set(load.statuses()) == {200, 503}


def test_with_two_workers_the_other_one_serves_and_nothing_is_held(serve):
    server = timed(serve, "--workers", "2", "--replace.hold", "0s", ready=2)
    with Load(server.address, predicts, connections=4) as load:
        load.wait_for(20)
        done = server.verb("restart", "timedboot")
        assert done.returncode == 0 and "its other workers serve meanwhile" in done.stdout, done.stdout
        load.wait_for_more(20)
    assert load.kinds() == {"ok": len(load.outcomes)}
    assert [(e["worker"], e["gap_ms"]) for e in server.log.find("worker.replaced")] == [(1, 0), (2, 0)]
    gone = [e["generation"] for e in server.log.find("worker.gone")]
    assert gone == [1, 2] or gone == [2, 1]
    assert len(server.log.find("worker.spawned")) == 4


def test_what_runs_is_drained_first(serve):
    server = timed(serve, "--replace.hold", "60s")
    replies = []
    busy = started(lambda: replies.append(server.post("/work", {"x": 7, "seconds": 2}, timeout=60)))
    server.wait_until(lambda: server.status()["services"][0]["queue"]["running"] == 1)
    assert server.verb("restart", "timedboot", "--now").returncode == 0
    busy.join(60)
    assert replies[0].status == 200 and replies[0].json() == 7


@pytest.mark.timeout(120)
def test_a_successor_that_fails_is_said_plainly_and_tried_again(serve):
    server = timed(serve, "--replace.hold", "60s", "--backoff.initial", "500ms")
    broken = server.folder / "broken"
    broken.touch()
    done = server.verb("restart", "timedboot", "--now")
    assert done.returncode == 1
    assert "the model is broken" in done.stdout and "the old worker is gone" in done.stdout, done.stdout
    rollback = server.wait_for("worker.rollback")
    assert rollback["mode"] == "handover" and "growing pauses" in rollback["message"]
    server.wait_for("worker.backoff")
    assert server.get("/readyz").status == 503
    broken.unlink()
    server.wait_for("worker.ready", count=2)
    assert server.post("/predict", {"x": 3}, timeout=60).json() == 3


@pytest.mark.timeout(120)
def test_main_killed_in_the_gap_the_next_one_goes_on_with_it(serve):
    server = timed(serve, "--replace.hold", "60s", boot="3")
    started(server.verb, "restart", "timedboot")
    spawned = server.wait_for("worker.spawned", count=2)
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    reply = server.post("/predict", {"x": 5}, timeout=60)
    assert reply.status == 200 and reply.json() == 5, "it was held by a main that did not open the gap"
    done = server.wait_for("worker.replaced")
    assert done["mode"] == "handover" and done["gap_ms"] >= 3000
    assert server.workers() == {1: spawned["pid"]}
    assert replacement(server)["in_hour"] == 1


@pytest.mark.timeout(120)
def test_main_killed_in_an_overlap_the_next_one_goes_on_with_it(serve):
    server = serve("service:TimedBoot", service="timed_boot", env={"BOOT_S": "3"}).ready()
    started(server.verb, "restart", "timedboot")
    spawned = server.wait_for("worker.spawned", count=2)
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    server.wait_for("worker.replaced", {"mode": "overlap"})
    server.wait_for("worker.gone")
    assert server.workers() == {1: spawned["pid"]}, "one worker in its place, the successor"
    assert server.post("/predict", {"x": 6}).json() == 6


@pytest.mark.full
def test_the_mode_can_be_chosen_for_one_restart(serve):
    server = serve("service:Simple", service="simple").ready()
    assert server.verb("restart", "simple", "--mode", "sideways").returncode == 1
    assert server.verb("restart", "simple", "--mode", "handover", "--now").returncode == 0
    assert server.verb("restart", "simple").returncode == 0
    server.wait_for("worker.replaced", count=2)
    assert [e["mode"] for e in server.log.find("worker.replaced")] == ["handover", "overlap"]
    reply = server.verb("restart", "simple", "--mode", "handover", "--now", "--json", "--no-wait")
    assert json.loads(reply.stdout)["kind"] == "action"
    server.wait_for("worker.replaced", count=3)
