"""Workers forked from a process that has imported already: they are what they would be by exec, or they are by exec."""

import os
import pathlib
import shutil
import signal

import pytest

from rig import dock, host, paths

# What a forked worker must have in common with one started by exec, of /proc/PID/status
SAME = ("SigBlk", "SigIgn", "SigCgt", "Uid", "Gid", "NoNewPrivs", "Seccomp", "Groups")


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rpartition(")")[2].split()[1])


def read(pid, name):
    return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()


def restart(server, service):
    """By a person; the spawn of the new worker, which is ready and alone by now."""
    mark = server.log.mark()
    done = server.verb("restart", service)
    assert done.returncode == 0, done.stderr + server.log.tail()
    server.wait_for("worker.gone", since=mark)
    return server.wait_for("worker.spawned", {"service": service}, since=mark)


def is_forked(spawned):
    return spawned["way"] in ("standby", "fork")


@pytest.fixture
def soon(serve):
    """A service whose zygote does not wait until things have calmed down."""
    def start(target, *flags, env=None, **more):
        name = target.partition(":")[2]
        return serve(target, *flags, env={f"PLIMSOLL__SERVICES__{name.upper()}__ZYGOTE__AFTER": "0s", **(env or {})}, **more)
    return start


@pytest.fixture
def forkable(soon):
    def start(*flags, set_flags=None, **more):
        folder_env = {}
        server = None

        def make():
            return soon("service:Forkable", *flags, service=more.pop("service", "forkable"), **{**more, "env": folder_env})
        folder_env.update(more.pop("env", {}))
        server = make()
        for name, text in (set_flags or {}).items():
            (server.folder / name).write_text(text)
        return server
    return start


def tell(server):
    return server.post("/tell").json()


def test_records_of_what_was_served_long_ago_are_dropped(forkable):
    server = forkable()
    folder = server.folder / "state/zygote"
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(300):
        old = folder / f"{n:016x}.json"
        old.write_text("{}")
        os.utime(old, (1_700_000_000 + n, 1_700_000_000 + n))
    server.ready()
    server.wait_for("zygote.ready")
    names = server.wait_until(lambda: (names := sorted(os.listdir(folder))) and len(names) == 256 and names, what="pruned")
    assert set(names) >= {f"{n:016x}.json" for n in range(45, 300)}, "the newest stay"
    assert len([name for name in names if int(name[:16], 16) >= 300]) == 1, "and the one of now"


def test_a_forked_worker_is_what_it_would_be_by_exec(forkable):
    server = forkable().ready()
    zygote = server.wait_for("zygote.ready")
    by_exec, old = tell(server), server.workers()[1]
    was = {name: read(old, name) for name in ("cmdline", "limits", "oom_score_adj", "status", "environ")}
    fds = {fd: os.readlink(f"/proc/{old}/fd/{fd}").partition(":")[0] for fd in "01245"}
    spawned = restart(server, "forkable")
    assert is_forked(spawned), server.log.tail()
    pid = spawned["pid"]
    assert parent(pid) == server.pid and os.getsid(pid) == os.getpgid(pid) == pid

    # as the kernel sees it
    assert read(pid, "cmdline").rstrip(b"\0") == was["cmdline"].rstrip(b"\0")
    assert read(pid, "limits") == was["limits"] and read(pid, "oom_score_adj") == was["oom_score_adj"]
    assert {fd: os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0] for fd in "01245"} == fds
    def facts(text):
        return {k: v for k, _, v in (line.partition(":\t") for line in text.decode().splitlines()) if k in SAME}
    assert facts(read(pid, "status")) == facts(was["status"])
    assert (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)) == (os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, server.pid))
    marker = read(pid, "environ").partition(b"\0")[0]
    assert marker.startswith(b"PLIMSOLL_GENERATION=") and marker.endswith(b".%d" % spawned["generation"])
    assert read(zygote["pid"], "environ").partition(b"\0")[0] != marker
    opened = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert sum(name.startswith("/memfd:plimsoll-") for name in opened) <= 1, opened

    # as the service sees it
    forked = tell(server)
    assert forked["forked"] and not by_exec["forked"] and forked["pid"] == pid
    for same in ("argv", "orig_argv", "main", "path", "env"):
        assert forked[same] == by_exec[same], same
    assert forked["tmp"] != by_exec["tmp"] and forked["tmp"].startswith(str(server.run_dir))
    assert forked["random"] != by_exec["random"]
    again = restart(server, "forkable")
    assert is_forked(again) and tell(server)["random"] != forked["random"]

    # as people see it
    service = server.status()["services"][0]
    assert service["zygote"]["state"] == "ready" and service["zygote"]["pid"] == zygote["pid"]
    assert [w["way"] for w in service["workers"]] == [again["way"]]
    server.wait_until(lambda: "the workers share" in server.verb("status").stdout, what="what is shared is shown")
    text = server.get("/metrics").text()
    assert 'plimsoll_zygote_spawns_total{service="forkable",result="exec"} 1' in text
    assert server.log.find("worker.death") == []


@pytest.mark.full
def test_what_a_forked_worker_leaves_behind_is_swept(forkable):
    server = forkable().ready()
    server.wait_for("zygote.ready")
    assert is_forked(restart(server, "forkable"))
    strays = [server.post("/daemon", {"x": 1}).json(), server.post("/twig", {"x": 1}).json()]
    assert all(host.state_of(pid) for pid in strays)
    zygote = server.status()["services"][0]["zygote"]["pid"]
    os.kill(zygote, signal.SIGKILL)
    server.wait_for("zygote.stopped")
    server.wait_until(lambda: host.state_of(zygote) == "", what="it is reaped")
    assert all(host.state_of(pid) for pid in strays), "they are the worker's, not the zygote's"
    restart(server, "forkable")
    for pid in strays:
        server.wait_until(lambda pid=pid: host.state_of(pid) == "", what="the stray is ended")


def test_another_value_in_the_environment_means_exec_and_a_new_record(forkable):
    server = forkable(set_flags={"setting": "one"}).ready()
    server.wait_for("zygote.ready")
    assert is_forked(restart(server, "forkable"))
    assert tell(server)["setting"] == "one"
    (server.folder / "setting").write_text("two")
    spawned = restart(server, "forkable")
    told = tell(server)
    assert told["setting"] == "two" and not told["forked"] and told["pid"] == spawned["pid"]
    refused = server.wait_for("zygote.refused")
    assert "service.py:" in refused["reason"] and "sets FORKABLE_SETTING otherwise" in refused["reason"]
    assert server.log.find("worker.death") == [] and server.log.find("worker.start_failed") == []
    server.wait_for("zygote.ready", count=2)
    assert is_forked(restart(server, "forkable")) and tell(server)["setting"] == "two"


@pytest.mark.full
def test_an_edited_service_is_picked_up_by_a_fork(forkable, tmp_path):
    project = tmp_path / "project"
    shutil.copytree(paths.services / "forkable", project)
    server = forkable(service=project).ready()
    server.wait_for("zygote.ready")
    file = project / "service.py"
    file.write_text(file.read_text().replace('"library": ', '"edited": True, "library": '))
    assert is_forked(restart(server, "forkable"))
    assert tell(server)["edited"] is True


def user_site(folder, python):
    """A folder that is a library's for that interpreter; (environment, folder)."""
    import subprocess
    out = subprocess.run([python, "-c", "import site; print(site.getusersitepackages())"], capture_output=True, text=True,
                         env={**os.environ, "PYTHONUSERBASE": str(folder)}, check=True).stdout.strip()
    pathlib.Path(out).mkdir(parents=True)
    return {"PYTHONUSERBASE": str(folder), "PYTHONPATH": out}, pathlib.Path(out)


def test_a_library_that_changes_on_disk_is_never_served_from_memory(forkable, tmp_path):
    env, site = user_site(tmp_path / "base", paths.python)
    library = site / "forkable_library.py"
    library.write_text("VALUE = 'old'\n")
    server = forkable(env=env, set_flags={"library": "yes"}).ready()
    server.wait_for("zygote.ready")
    assert is_forked(restart(server, "forkable")) and tell(server)["library"] == "old"
    library.write_text("VALUE = 'new and longer'\n")
    restart(server, "forkable")
    told = tell(server)
    assert told["library"] == "new and longer" and not told["forked"]
    refused = server.wait_for("zygote.refused")
    assert refused["reason"] == f"changed on disk: {library}"
    assert server.log.find("worker.start_failed") == []


@pytest.mark.full
def test_a_worker_that_fails_in_a_fork_is_tried_by_exec(forkable):
    server = forkable("--backoff.initial", "10ms").ready()
    server.wait_for("zygote.ready")
    (server.folder / "broken_in_a_fork").write_text("yes")
    mark = server.log.mark()
    os.kill(server.workers()[1], signal.SIGKILL)
    failed = server.wait_for("worker.start_failed", since=mark)
    assert "not in a fork" in failed["sentence"]
    server.wait_for("worker.ready", since=mark)
    ways = [e["way"] for e in server.log.find("worker.spawned")]
    assert ways[-1] == "exec" and ways[1] in ("standby", "fork")
    assert server.wait_for("zygote.refused")["reason"] == "a worker that it forked did not become ready"


@pytest.mark.full
def test_one_that_has_died_is_made_anew_also_when_all_workers_are_forked(forkable):
    server = forkable().ready()
    zygote = server.wait_for("zygote.ready")["pid"]
    assert is_forked(restart(server, "forkable"))
    os.kill(zygote, signal.SIGKILL)
    assert server.wait_for("zygote.stopped")["reason"] == "ended by SIGKILL"
    server.wait_for("zygote.ready", count=2, timeout=180)  # after a pause


@pytest.mark.full
def test_one_that_is_old_is_made_anew(forkable):
    server = forkable("--zygote.max_age", "1s").ready()
    server.wait_for("zygote.ready")
    server.wait_for("zygote.stopped", {"reason": "age"})
    server.wait_for("zygote.ready", count=2)


def test_the_next_main_goes_on_with_the_same_zygote(forkable):
    server = forkable().ready()
    zygote = server.wait_for("zygote.ready")["pid"]
    forked = restart(server, "forkable")
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", since=mark)  # the one before may still be listed, as gone
    status = server.wait_until(lambda: (s := server.try_status()) and s["ready"] and s, what="ready again")
    service = status["services"][0]
    assert service["zygote"]["pid"] == zygote
    assert [(w["pid"], w["way"]) for w in service["workers"]] == [(forked["pid"], forked["way"])]
    assert is_forked(restart(server, "forkable"))
    assert host.state_of(zygote), "it was not made anew"


@pytest.mark.full
def test_off_is_off_and_a_zygote_that_dies_costs_nothing(forkable):
    server = forkable("--zygote.use", "off").ready()
    restart(server, "forkable")
    service = server.status()["services"][0]
    assert service["zygote"] == {"state": "off"} and service["workers"][0]["way"] == "exec"
    assert server.log.find("zygote.ready") == []


@pytest.mark.full
def test_the_record_of_an_earlier_life_is_used_and_one_of_another_interpreter_is_made_anew(forkable):
    server = forkable().ready()
    server.wait_for("zygote.ready")
    (record,) = (server.folder / "state/zygote").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    server.terminate()
    assert server.wait_exit() == 0
    text = record.read_text()
    record.write_text(text[:-40])  # cut off by a full disk
    server.again().ready()
    assert "unreadable" in server.wait_for("zygote.refused")["reason"]
    server.wait_for("zygote.ready", since=server.mark)
    assert len(record.read_text()) > 1000


@pytest.mark.full
@pytest.mark.timeout(240)
def test_dependencies_are_forked_too_and_leave_their_socket_as_before(serve):
    env = {"PLIMSOLL__SERVICES__FRONT__ZYGOTE__AFTER": "0s"}
    server = serve("service:Front", "--workers", "1", service="apart", env=env).ready()
    server.wait_for("zygote.ready", {"service": "front"})
    server.wait_for("zygote.ready", {"service": "front.Scale"})
    before = server.post("/by_async", {"x": 3}).json()["pid"]
    mark = server.log.mark()
    os.kill(before, signal.SIGKILL)
    spawned = server.wait_for("worker.spawned", {"service": "front.Scale"}, since=mark)
    assert is_forked(spawned)
    server.wait_for("worker.ready", {"service": "front.Scale"}, since=mark)
    assert server.post("/by_async", {"x": 3}).json()["x"] == 6
    assert is_forked(restart(server, "front"))
    assert server.post("/by_sync", {"x": 4}).json()["x"] == 8


@pytest.mark.full
@pytest.mark.timeout(240)
@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_torch_in_a_fork_has_cuda_memory_records_explain_and_a_death_with_its_cause(soon, tmp_path):
    server = soon("service:Holders", service="holders", python=dock.torch_python(),
                  before=[paths.plimsoll, "drydock", "-q", "--gpu", "mine:8GiB", "--"],
                  env={"PLIMSOLL_CACHE": str(tmp_path / "cache")}).ready()
    server.wait_for("zygote.ready")
    spawned = restart(server, "holders")
    assert is_forked(spawned)
    for n in range(20):
        assert server.post("/leak", {"n": n}).status == 200
    memory = server.status()["services"][0]["workers"][0]["memory"]
    gpu = next(row for row in memory if row["scope"].startswith("gpu"))
    assert gpu["allocated_bytes"] > 0
    done = server.verb("explain", "--deadline", "60s", "--again", "1s", "--json", timeout=200)
    assert done.returncode == 0 and "KEPT" in done.stdout
    os.kill(spawned["pid"], signal.SIGKILL)
    death = server.wait_for("worker.death")
    assert death["cause"] == "killed" and "SIGKILL" in death["sentence"]
    server.wait_for("worker.ready", {"generation": spawned["generation"] + 1})
    assert is_forked(server.log.find("worker.spawned")[-1])
