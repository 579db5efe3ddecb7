"""Why a worker is replaced although nobody asked: age in requests, host memory, silence; and what holds it back."""

import os
import signal
import threading

import pytest

from rig import Load, state_of


def predicts(number):
    return ("POST", "/predict", {"x": number}, lambda reply: reply.json() == number)


def simple(serve, *flags, service="leaky", target="service:Leaky", ready=1):
    return serve(target, *flags, service=service).ready(ready)


def number_of(server, family, **labels):
    """The value of one series of the page of metrics, or None."""
    for line in server.get("/metrics").text().splitlines():
        if line.startswith(family + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


@pytest.mark.timeout(180)
def test_workers_go_after_their_number_of_requests_and_never_together(serve):
    server = simple(serve, "--workers", "2", "--replace.max_requests", "100", "--replace.max_requests_jitter", "50",
                    ready=2)
    with Load(server.address, predicts, connections=4) as load:
        server.wait_for("worker.replaced", count=2)
        load.wait_for_more(20)
    assert load.kinds() == {"ok": len(load.outcomes)}
    begun = server.log.find("worker.replace")
    assert {e["reason"] for e in begun} == {"max_requests"} and {e["mode"] for e in begun} == {"overlap"}
    events = sorted(server.log.find("worker.replace") + server.log.find("worker.replaced"), key=lambda e: e["ts"])
    names = [e["event"] for e in events]
    assert names[:4] == ["worker.replace", "worker.replaced"] * 2, "one at a time"
    assert number_of(server, "plimsoll_worker_replacements_total", reason="max_requests", mode="overlap") >= 2


@pytest.mark.timeout(180)
def test_the_cap_per_hour_holds_and_outlives_main(serve):
    server = simple(serve, "--replace.max_requests", "20", "--replace.max_requests_jitter", "0",
                    "--replace.max_per_hour", "1")
    with Load(server.address, predicts, connections=1) as load:
        server.wait_for("worker.replaced")
        held = server.wait_for("worker.replace_held")
        assert (held["why"], held["reason"]) == ("cap", "max_requests") and held["until"]
        now = server.status()["services"][0]["replacement"]
        assert (now["planned"], now["held_by"], now["in_hour"], now["max_per_hour"]) == (True, "cap", 1, 1)
    assert load.kinds() == {"ok": len(load.outcomes)}
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    again = server.wait_for("worker.replace_held", count=2)
    assert again["why"] == "cap" and again["worker"] == 1
    assert len(server.log.find("worker.replace")) == 1
    # an operator is not held by it
    assert server.verb("restart", "leaky").returncode == 0
    assert server.status()["services"][0]["replacement"]["in_hour"] == 2


@pytest.mark.timeout(120)
def test_host_memory_over_its_limit_replaces_the_worker_children_included(serve):
    server = simple(serve, "--replace.host_rss", "600MiB")
    server.wait_until(lambda: number_of(server, "plimsoll_host_memory_bytes", kind="anon"))
    before = server.workers()
    child = server.post("/child", {"mib": 400}).json()
    server.post("/keep", {"mib": 300})
    begun = server.wait_for("worker.replace")
    assert (begun["reason"], begun["mode"]) == ("host_rss", "overlap")
    server.wait_for("worker.gone")
    after = server.workers()
    assert set(before) == set(after) and before != after
    server.wait_until(lambda: not state_of(child), what="the old worker's child is gone as well")
    assert server.post("/predict", {"x": 2}).json() == 2


@pytest.mark.full
def test_what_replace_when_does_not_name_is_measured_and_no_reason(serve):
    server = simple(serve, "--replace.when", "hang", "--replace.host_rss", "1MiB")
    server.wait_until(lambda: number_of(server, "plimsoll_host_memory_bytes", kind="rss"))
    rss = number_of(server, "plimsoll_host_memory_bytes", kind="rss", worker="1")
    assert rss > 1 << 20 and not server.log.find("worker.replace")
    assert server.status()["services"][0]["workers"][0]["memory"][0]["limit_bytes"] == 1 << 20


@pytest.mark.asan
@pytest.mark.timeout(120)
def test_a_stopped_worker_is_found_silent_and_replaced_while_we_stay_alive(serve):
    server = simple(serve, "--timeout", "1s", "--liveness.silent_after", "3s", "--probe.interval", "200ms",
                    "--probe.timeout", "500ms")
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGSTOP)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(server.post("/predict", {"x": 1}, timeout=60)))
    thread.start()
    silent = server.wait_for("worker.silent")
    assert silent["silent_ms"] >= 3000
    server.wait_for("ready.changed", {"ready": False})
    assert server.get("/livez").status == 200
    ready = server.get("/readyz")
    if ready.status == 200:  # its successor may be there already
        server.wait_for("worker.ready", count=2)
    begun = server.wait_for("worker.replace")
    assert (begun["reason"], begun["mode"]) == ("hang", "restart") and begun["expected_gap_ms"] > 0
    death = server.wait_for("worker.death")
    assert death["cause"] == "hang" and "was silent for" in death["sentence"]
    server.wait_for("worker.ready", count=2)
    thread.join(60)
    assert replies[0].status in (200, 502, 504)
    assert server.post("/predict", {"x": 4}, timeout=60).json() == 4
    assert server.get("/readyz").status == 200
    assert number_of(server, "plimsoll_worker_replacements_total", reason="hang", mode="restart") == 1
    assert number_of(server, "plimsoll_worker_deaths_total", cause="hang") == 1


def test_busy_is_not_dead(serve):
    server = serve("service:TimedBoot", "--timeout", "1s", "--liveness.silent_after", "2s", "--probe.interval", "200ms",
                   service="timed_boot", env={"BOOT_S": "0"}).ready()
    for x in range(3):
        threading.Thread(target=server.post, args=("/work", {"x": x, "seconds": 6}), daemon=True).start()
    server.wait_until(lambda: sum(w["zombies"] for w in server.status()["services"][0]["workers"]) == 3)
    server.wait_until(lambda: sum(w["zombies"] for w in server.status()["services"][0]["workers"]) == 0, timeout=30)
    assert not server.log.find("worker.silent") and not server.log.find("worker.replace")
    assert server.get("/livez/timedboot").status == 200


@pytest.mark.timeout(120)
def test_handlers_that_never_end_fill_a_worker_until_it_is_replaced(serve):
    server = serve("service:TimedBoot", "--timeout", "1s", "--replace.zombies", "2", "--replace.drain", "1s",
                   service="timed_boot", env={"BOOT_S": "0"}).ready()
    for x in range(3):
        threading.Thread(target=server.post, args=("/work", {"x": x, "seconds": 600}), daemon=True).start()
    begun = server.wait_for("worker.replace")
    assert (begun["reason"], begun["mode"]) == ("hang", "overlap"), "it answers still: its successor is ready first"
    server.wait_for("worker.gone")
    assert server.get("/readyz").status == 200


def test_a_crash_is_counted_as_a_restart(serve):
    server = simple(serve)
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    done = server.wait_for("worker.replaced")
    assert (done["reason"], done["mode"]) == ("crash", "restart") and done["gap_ms"] > 0
    assert number_of(server, "plimsoll_worker_replacements_total", reason="crash", mode="restart") == 1


def test_a_word_that_is_no_reason_is_an_error_with_its_place(serve):
    server = serve("service:Leaky", "--replace.when", "hang,leek", service="leaky")
    assert server.wait_exit() == 3
    text = server.log.text()
    assert "replace.when" in text and "leek" in text and "leak, forecast, budget, host_rss, hang" in text
