"""The gateway's own process is killed under load: workers and models stay, and no half a reply looks whole."""

import http.client
import os
import signal
import time

import pytest

from rig import Load, paths
from rig.server import ROOT


def mixed(number):
    """One in four is a stream, whose whole length the client knows."""
    if number % 4 == 0:
        n = 5 + number % 20
        whole = "".join(f"data: {i}\n\n" for i in range(n)).encode()
        return "POST", "/stream", {"n": n, "pause": 0.01}, lambda reply: reply.body == whole
    return "POST", "/predict", {"x": number}, lambda reply: reply.json()["double"] == 2 * number


def kill_main(server):
    """SIGKILL, and until its successor has taken over and is ready."""
    main, mark = server.main_pid(), server.log.mark()
    os.kill(main, signal.SIGKILL)
    server.wait_for("main.adopted", since=mark)
    status = server.wait_until(lambda: (s := server.try_status()) and s["ready"] and s, what="the next main is ready")
    assert status["pid"]["main"] != main


def kill_main_under_load(server, kills):
    workers = server.workers()
    assert len(workers) == 2
    loads = sum(line.startswith("import") for line in server.journal())
    assert loads == 2
    with Load(server.address, mixed, connections=16) as load:
        for _ in range(kills):
            load.wait_for_more(60)
            kill_main(server)
        load.wait_for_more(60)
    assert server.workers() == workers, "worker pids changed"
    assert sum(line.startswith("import") for line in server.journal()) == loads, "a model was loaded again"
    assert sum(line.startswith("init") for line in server.journal()) == loads
    assert server.log.find("worker.death") == []
    assert load.of("wrong") == [], "a reply looked complete and was not"
    assert set(load.kinds()) <= {"ok", "cut"}, (load.kinds(), load.statuses(), load.of("status")[:5])
    # Only what was accepted and unanswered may be cut: at most one a connection and kill.
    assert len(load.of("cut")) <= 16 * kills
    return load


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", [4, 3, 3])
def test_ten_kills_of_main_in_three_lives(serve, kills):
    """Five crashes in a minute would end it (on purpose), hence three lives."""
    server = serve("service:Feature").ready(workers=2)
    kill_main_under_load(server, kills)
    adopted = server.log.find("main.adopted", lambda e: e.get("workers") == 2)
    assert len(adopted) >= kills


@pytest.mark.asan
def test_one_kill_of_main_changes_nothing_that_a_user_sees(serve):
    server = serve("service:Feature").ready(workers=2)
    workers = server.workers()
    os.kill(server.main_pid(), signal.SIGKILL)
    # Nobody accepts until the next main does: it waits in the listener that the keeper holds.
    assert server.post("/predict", {"x": 3}, timeout=60).json()["double"] == 6
    server.wait_for("main.adopted", {"workers": 2})
    assert server.workers() == workers
    assert server.get("/readyz").json() == {"ready": True}
    assert sum(line.startswith("import") for line in server.journal()) == 2


def test_main_killed_under_100_open_streams_loads_no_model_and_no_stream_looks_whole(serve):
    server = serve("service:Feature", "--max-concurrency", 200).ready(workers=2)
    workers = server.workers()
    streams = []
    for _ in range(100):
        conn = http.client.HTTPConnection(*server.address, timeout=60)
        conn.request("POST", "/stream", body='{"n": 600, "pause": 0.1}', headers={"Content-Type": "application/json"})
        streams.append(conn.getresponse())
        assert streams[-1].read1()
    kill_main(server)
    for stream in streams:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            stream.read()
    assert server.workers() == workers
    assert sum(line.startswith(("import", "init")) for line in server.journal()) == 4, "a model was loaded again"
    assert server.post("/predict", {"x": 3}).json()["double"] == 6


def test_what_the_keeper_says_of_it_is_json_where_main_logs_json(serve):
    server = serve("service:Simple", service="simple").ready()
    kill_main(server)
    (crashed,) = server.log.find("main.crashed")
    assert crashed["signal"] == "SIGKILL" and crashed["restarts"] == 0 and crashed["level"] == "error", crashed
    assert "event=main.crashed" not in server.log.text()


def test_main_killed_while_a_worker_boots_adopts_the_boot(serve):
    server = serve("service:SlowBoot", service="slow_boot").started()
    pid = server.wait_for("worker.spawned")["pid"]
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", since=mark)
    server.gate.touch()
    server.wait_for("main.ready", since=mark)
    assert list(server.workers().values()) == [pid]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_ten_kills_of_main_in_one_life(serve):
    """At the pace that is no crash loop."""
    server = serve("service:Feature").ready(workers=2)
    for kills in (4, 4, 2):
        kill_main_under_load(server, kills)
        if kills == 4:
            time.sleep(61)  # the window of the crash limit is a matter of real time
    assert server.log.find("main.crash_loop") == []


def test_a_main_that_hangs_is_ended_and_the_next_one_says_so(serve):
    server = serve(None, "--main.hang_after", "2s", "--", paths.python, ROOT / "tests/e2e/servers/small.py", "--socket", "{socket}").ready()
    workers, mark = server.workers(), server.log.mark()
    os.kill(server.main_pid(), signal.SIGSTOP)
    started = server.wait_for("main.started", since=mark)
    assert started["reason"] == "hang"
    server.wait_for("main.adopted", since=mark)
    status = server.wait_until(lambda: (s := server.try_status()) and s["ready"] and s)
    assert status["started"] == "hang" and server.workers() == workers
    assert 'plimsoll_main_starts_total{reason="hang"} 1' in server.get("/metrics").text()


def test_a_main_that_keeps_crashing_ends_in_order_with_70(serve):
    server = serve("service:Feature").ready(workers=2)
    workers = server.workers()
    for _ in range(4):
        kill_main(server)
    os.kill(server.main_pid(), signal.SIGKILL)
    assert server.wait_exit(60) == 70
    assert sum(line.startswith("shutdown") for line in server.journal()) == len(workers)
