"""Dependencies of a BentoML service: in its process, or in processes of their own on one shared socket."""

import os
import signal
import threading

import pytest

from rig import Load, host

APART = {"front.Scale": 2, "front.Deep": 1}


def below(server, state="ready"):
    """{dependency: {slot: pid}} of its workers in that state."""
    service = server.status()["services"][0]
    return {d["name"]: {w["worker"]: w["pid"] for w in d["workers"] if w["state"] == state}
            for d in service.get("dependencies", [])}


def all_apart(server):
    """Once every worker of every dependency that runs apart is ready."""
    def there():
        found = below(server)
        return {name: len(pids) for name, pids in found.items()} == APART and found
    return server.wait_until(there, what="all dependencies are ready")


def started(server):
    return sorted(line for line in server.journal() if line.startswith("init"))


@pytest.fixture
def apart(serve):
    server = serve("service:Front", service="apart").ready()
    all_apart(server)
    return server


def mixed(number):
    path = "/by_sync" if number % 2 else "/by_async"
    return "POST", path, {"x": number}, lambda reply: reply.json()["x"] == 2 * number


@pytest.mark.asan
def test_each_runs_where_auto_says_and_is_called_both_ways(serve):
    server = serve("service:Front", service="apart").ready()
    processes = all_apart(server)
    front = server.workers()[1]
    assert server.post("/by_async", {"x": 3}).json()["pid"] in processes["front.Scale"].values()
    by_sync = server.post("/by_sync", {"x": 4}).json()
    assert by_sync["x"] == 8 and by_sync["pid"] in processes["front.Scale"].values()
    seen = server.post("/pids").json()
    assert seen == {"front": front, "near": front, "deep": processes["front.Deep"][1]}
    # what it depends on was ready before its own instance was made
    ready = [e["ts"] for name in APART for e in server.log.find("worker.ready", {"service": name})]
    assert min(ready) < server.log.find("worker.loaded", {"service": "front"})[0]["ts"]
    journal = server.journal()
    assert [line.split()[0] for line in journal][0] == "deployed" and sum("deployed" in line for line in journal) == 1
    text = server.wait_until(lambda: 'service="front.Scale"} ' in (t := server.get("/metrics").text()) and t,
                             what="the dependency's own families are on the page")
    assert 'plimsoll_worker_state{service="front.Scale",worker="2",state="ready"} 1' in text
    assert "front.Scale  dependency  ready" in server.verb("status").stdout
    assert server.get("/readyz/front").status == 200
    server.terminate()
    assert server.wait_exit() == 0
    ends = [line.split()[1] for line in server.journal() if line.startswith("shutdown")]
    assert ends == ["Front", "Scale", "Scale"]


def test_a_killed_worker_of_a_dependency_costs_what_it_had_in_hand_and_no_more(apart):
    front = apart.workers()
    with Load(apart.address, mixed, connections=8) as load:
        for n in (1, 2):
            load.wait_for_more(60)
            victim = all_apart(apart)["front.Scale"][n]
            os.kill(victim, signal.SIGKILL)
            apart.wait_for("worker.death", {"service": "front.Scale"}, count=n)
        load.wait_for_more(60)
    assert set(load.kinds()) <= {"ok", "status"}, load.kinds()
    assert set(load.statuses()) <= {200, 500}, (load.statuses(), load.of("status")[:5])
    assert len(load.of("status")) <= 2 * 8
    assert apart.workers() == front and not apart.log.find("worker.death", {"service": "front"})
    assert apart.log.find("worker.backoff") == []
    all_apart(apart)


def test_calls_wait_in_the_socket_while_no_worker_is_there(apart):
    before = all_apart(apart)["front.Scale"]
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    apart.wait_for("worker.death", {"service": "front.Scale"}, count=2)
    assert apart.post("/by_sync", {"x": 5}).json()["x"] == 10
    assert apart.post("/by_async", {"x": 6}).json()["x"] == 12
    after = all_apart(apart)["front.Scale"]
    assert not set(before.values()) & set(after.values())


def test_main_killed_nothing_is_loaded_again_and_the_next_main_restarts_what_dies(apart):
    front, others, inits = apart.workers(), all_apart(apart), started(apart)
    mark = apart.log.mark()
    with Load(apart.address, mixed, connections=4) as load:
        load.wait_for_more(20)
        os.kill(apart.main_pid(), signal.SIGKILL)
        apart.wait_for("main.adopted", {"workers": 4}, since=mark)
        load.wait_for_more(20)
    assert set(load.kinds()) <= {"ok", "cut"} and len(load.of("cut")) <= 4, load.kinds()
    assert (apart.workers(), all_apart(apart), started(apart)) == (front, others, inits)
    os.kill(others["front.Scale"][1], signal.SIGKILL)
    apart.wait_for("worker.death", {"service": "front.Scale"}, since=mark)
    now = all_apart(apart)
    assert now["front.Scale"][2] == others["front.Scale"][2] and now["front.Deep"] == others["front.Deep"]
    os.kill(now["front.Scale"][2], signal.SIGKILL)  # the new one alone answers: on the socket that was held
    apart.wait_for("worker.death", {"service": "front.Scale"}, count=2, since=mark)
    assert apart.post("/by_sync", {"x": 1}).json()["x"] == 2
    assert apart.workers() == front


def test_main_killed_while_a_dependency_loads(serve):
    server = serve("service:Front", service="apart", env={"SCALE_WAITS": "1"}).started()
    waits = "waits for its dependency front.Scale"
    server.wait_until(lambda: waits in server.get("/readyz").text(), what="the service waits for its dependency")
    server.wait_until(lambda: sum("init Scale" in line for line in server.journal()) == 2, what="both load")
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", {"workers": 4}, since=mark)
    assert not any("init Front" in line for line in server.journal())
    server.gate.touch()
    server.wait_for("main.ready", since=mark)
    all_apart(server)
    assert server.post("/by_sync", {"x": 1}).json()["x"] == 2
    assert sum("init Scale" in line for line in server.journal()) == 2
    assert server.log.find("worker.death") == server.log.find("worker.start_failed") == []


@pytest.mark.parametrize("where, names", [("inline", []), ("process", ["front.Deep", "front.Near", "front.Scale"])])
def test_the_setting_overrides_what_the_decorators_say(serve, where, names):
    server = serve("service:Front", "--dependencies", where, service="apart").ready()
    assert sorted(below(server)) == names
    assert server.post("/by_async", {"x": 3}).json()["x"] == 6
    assert len(set(server.post("/pids").json().values())) == len(names) or not names
    if not names:
        assert set(server.post("/pids").json().values()) == {server.workers()[1]}


def test_a_restart_changes_what_was_named_and_nothing_else(apart):
    front, others = apart.workers(), all_apart(apart)
    done = apart.verb("restart", "front")
    assert done.returncode == 0, done.stderr
    assert all_apart(apart) == others
    second = apart.workers()
    assert second != front
    done = apart.verb("restart", "front.Scale")
    assert done.returncode == 0, done.stderr
    # On a shared socket the old ones may take a last call until they have heard their SIGTERM.
    apart.wait_for("worker.gone", {"service": "front.Scale"}, count=2)
    after = all_apart(apart)
    assert apart.post("/by_sync", {"x": 1}).json()["pid"] in after["front.Scale"].values()
    assert not set(after["front.Scale"].values()) & set(others["front.Scale"].values())
    assert after["front.Deep"] == others["front.Deep"] and apart.workers() == second
    assert apart.verb("logs", "front.Scale").returncode == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.full)])
def test_restarts_of_a_dependency_under_load_lose_no_call(apart, times):
    """The old ones leave the shared socket before they are ended; and BentoML's own client, which changes its session
    every 100 calls, does not lose those of others with it."""
    with Load(apart.address, mixed, connections=8) as load:
        for _ in range(times):
            load.wait_for_more(30)
            done = apart.verb("restart", "front.Scale", timeout=240)
            assert done.returncode == 0, done.stderr
        load.wait_for(100 * times)
    assert load.kinds() == {"ok": len(load.outcomes)}, (load.statuses(), load.of("status")[:5])
    apart.wait_for("worker.replaced", {"service": "front.Scale"}, count=2 * times)
    gone = apart.wait_for("worker.gone", {"service": "front.Scale"}, count=2 * times)
    assert gone and apart.log.find("worker.death") == []


def test_main_killed_while_a_dependency_drains_the_next_one_ends_it(apart):
    old = all_apart(apart)["front.Scale"]
    slow = threading.Thread(target=lambda: apart.post("/slow", {"seconds": 8.0}, timeout=60))
    slow.start()
    apart.wait_until(lambda: any(line.startswith("begin slow") for line in apart.journal()))
    assert apart.verb("restart", "front.Scale", timeout=240).returncode == 0
    mark = apart.log.mark()
    os.kill(apart.main_pid(), signal.SIGKILL)
    apart.wait_for("main.adopted", since=mark)
    slow.join()
    apart.wait_until(lambda: not any(host.state_of(pid) for pid in old.values()), what="the old ones are gone")
    assert apart.log.find("worker.death") == []
    assert not set(all_apart(apart)["front.Scale"].values()) & set(old.values())


def test_a_dependency_that_never_starts_is_named_and_ends_it(serve):
    server = serve("service:Front", "--backoff.attempts", "1", "--failed_exit", "1s", service="apart",
                   env={"SCALE_FAILS": "1"}).started()
    failed = server.wait_for("worker.failed", {"service": "front.Scale"})
    assert "the scale is broken" in failed["sentence"]
    assert server.wait_exit() == 6
    assert not any("init Front" in line for line in server.journal())


def test_a_dependency_that_the_files_name_no_more_ends(serve, tmp_path):
    service = tmp_path / "service.py"
    text = ("import bentoml\n\n@bentoml.service(workers=2)\nclass Old:\n    @bentoml.api\n"
            "    def one(self) -> int:\n        return 1\n\n@bentoml.service\nclass Front:\n{}\n    @bentoml.api\n"
            "    def get(self) -> int:\n        return {}\n")
    service.write_text(text.format("    old = bentoml.depends(Old)", "self.old.one()"))
    server = serve("service:Front", service=tmp_path).ready()
    assert server.post("/get").text() == "1" and list(below(server)) == ["front.Old"]
    service.write_text(text.format("", "2"))
    assert server.verb("restart", "front").returncode == 0
    assert server.post("/get").text() == "2"
    server.wait_for("worker.gone", {"service": "front.Old"}, count=2)
    server.wait_until(lambda: below(server) == {}, what="it is not shown any more")


def test_the_keeper_too_ends_callers_first(apart):
    for _ in range(4):
        mark = apart.log.mark()
        os.kill(apart.main_pid(), signal.SIGKILL)
        apart.wait_for("main.adopted", {"workers": 4}, since=mark)
        apart.wait_until(lambda: (s := apart.try_status()) and s["ready"], what="the next main is ready")
    os.kill(apart.main_pid(), signal.SIGKILL)
    assert apart.wait_exit() == 70
    ends = [line.split()[1] for line in apart.journal() if line.startswith("shutdown")]
    assert ends == ["Front", "Scale", "Scale"]
