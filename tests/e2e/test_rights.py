"""Who runs as whom, what belongs to whom, and what a worker is not given: users, folders, memory, environment, descriptors."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from rig import descendants
from rig.door import ECHO, Authority, KeyFile, echo
from rig.server import clean_environment, paths, run_plimsoll

NOBODY = 65534


def status_of(pid, field):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split()[1:]
    raise KeyError(field)


def nobody(*words, **more):
    return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *map(str, words)], capture_output=True,
                          text=True, timeout=60, env=clean_environment(), cwd="/", **more)


def others_may_run(*words):
    """Whether the way there is open to another user: a clone or a cache in root's home is not."""
    try:
        # by way of a shell: setpriv itself still has root's way through folders
        return os.getuid() == 0 and nobody("sh", "-c", 'exec "$@"', "sh", *words).returncode == 0
    except OSError:
        return False


as_root = pytest.mark.skipif(not others_may_run(paths.plimsoll, "--version"),
                             reason="only root can become another user, who must come to the program under test")
# Any Python will do for the server of the tests; BentoML is where the tests' own environment is.
PYTHON = paths.python if others_may_run(paths.python, "-c", "") else Path("/usr/bin/python3")


def open_way(server):
    """The test's own folder is root's alone: let others through to what the server makes in it."""
    server.folder.chmod(0o711)
    return server


def pids_of(server):
    """{keeper, main, worker}"""
    state = server.status()
    return {"keeper": server.pid, "main": state["pid"]["main"], "worker": state["services"][0]["workers"][0]["pid"]}


class Gate:
    """`plimsoll serve` begins only when its folder is open: a program in front of it that waits for that."""

    words = ("sh", "-c", 'while ! [ -e "$FLAGS/open" ]; do sleep 0.02; done; exec "$@"', "sh")


def start(serve, *flags, **more):
    server = serve(None, "--name", "echo", *flags, "--", "sh", "-c", f'exec {PYTHON} "$FLAGS/echo.py" --socket {{socket}}',
                   before=Gate.words, **more)
    open_way(server)
    shutil.copy(ECHO, server.folder / "echo.py")
    (server.folder / "echo.py").chmod(0o644)
    (server.folder / "tmp").chmod(0o777)
    (server.folder / "open").touch()
    return server.ready()


@as_root
def test_user_is_that_of_keeper_main_and_workers_and_root_does_not_come_back(serve, tmp_path):
    server = start(serve, "--user", "nobody", "--listen", f"127.0.0.1:0,unix:{tmp_path}/data.sock", listen=False)
    for who, pid in pids_of(server).items():
        assert status_of(pid, "Uid") == [str(NOBODY)] * 4, who
        assert "0" not in status_of(pid, "Groups"), who
        assert int(status_of(pid, "CapEff")[0], 16) == 0, who
    folder = server.run_dir.stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (NOBODY, 0o700)
    assert (server.folder / "state").stat().st_uid == NOBODY
    assert (tmp_path / "data.sock").stat().st_uid == NOBODY
    for path in server.run_dir.rglob("*"):
        assert path.lstat().st_uid == NOBODY and path.lstat().st_mode & 0o077 in (0, 0o077 & 0o055), path
    env = server.post("/x", {}).json()["env"]
    assert env["USER"] == env["LOGNAME"] == "nobody" and env["HOME"] != "/root"
    assert nobody(paths.plimsoll, "drain", "echo", "--admin", server.run_dir / "admin.sock").returncode == 0
    assert server.verb("drain", "echo", "--undo").returncode == 0, "and root may, too"
    server.terminate()
    assert server.wait_exit() == 0
    (tmp_path / "data.sock").unlink()


@as_root
def test_a_port_that_only_root_may_open_is_opened_before(serve):
    """Below 1024, as nobody: the socket was opened while we were root."""
    port = next(p for p in range(300, 1000) if socket.socket().connect_ex(("127.0.0.1", p)) != 0)
    server = start(serve, "--user", "nobody", "--host", "127.0.0.1", "--port", str(port), listen=False)
    assert server.address[1] == port and server.post("/x", {}).json()["uid"] == NOBODY


@as_root
def test_workers_user_is_that_of_the_workers_alone(serve):
    server = start(serve, "--workers.user", "nobody")
    pids = pids_of(server)
    assert status_of(pids["worker"], "Uid") == [str(NOBODY)] * 4
    assert status_of(pids["keeper"], "Uid") == status_of(pids["main"], "Uid") == ["0"] * 4
    assert status_of(pids["worker"], "Groups") == [] and int(status_of(pids["worker"], "CapEff")[0], 16) == 0
    env = server.post("/x", {}).json()["env"]
    assert env["USER"] == "nobody" and Path(env["TMPDIR"]).stat().st_uid == NOBODY
    # what is main's stays main's
    for path, mode in ((server.run_dir, 0o711), (server.run_dir / "admin.sock", 0o600), (server.run_dir / "lock", 0o600)):
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, mode), path
    sock = server.run_dir / "admin.sock"
    assert nobody("curl", "-s", "--unix-socket", sock, "http://localhost/status").returncode != 0
    assert nobody("ls", server.run_dir).returncode != 0
    assert nobody("cat", f"/proc/{pids['main']}/environ").returncode != 0
    # and the worker is main's to stop, replace and start
    assert server.verb("restart", "echo").returncode == 0
    assert server.post("/x", {}).json()["uid"] == NOBODY


@as_root
@pytest.mark.skipif(PYTHON != paths.python, reason="the environment with BentoML lies where no other user may come")
def test_a_bentoml_service_runs_as_another_user(serve):
    server = serve("service:Feature", "--workers", "1", "--workers.user", "nobody", before=Gate.words)
    server.journal_path.touch()
    server.journal_path.chmod(0o666)
    (server.bentoml_home / "models").unlink(missing_ok=True)  # a link into a store that is root's alone
    server.bentoml_home.chmod(0o777)
    open_way(server)
    (server.folder / "open").touch()
    server.ready()
    assert status_of(next(iter(server.workers().values())), "Uid") == [str(NOBODY)] * 4
    assert server.post("/predict", {"x": 4}).json()["double"] == 8
    assert server.get("/metrics").text().count("feature_calls") > 0, "its multiprocess metrics work, too"
    assert any(line.startswith("import") for line in server.journal())


@pytest.mark.parametrize(("flags", "message"), [
    (["--user", "no-such-user"], "--user: user: there is no user 'no-such-user' here"),
    (["--user", "nobody", "--group", "no-such-group"], "there is no group 'no-such-group' here"),
    (["--group", "nogroup"], "group: has no effect without user"),
    (["--user", "424242"], "user 424242 has no name here, so its group is not known"),
    (["--workers.user", "no-such-user"], "workers.user: there is no user"),
    (["--user", "nobody", "--workers.user", "nobody"], "leave one of the two out"),
])
def test_users_that_cannot_be_are_refused(flags, message):
    done = run_plimsoll("serve", "--check", *flags, "--", "/bin/true", "{port}")
    assert done.returncode == 3 and message in done.stderr, done.stderr


@as_root
def test_who_is_not_root_cannot_ask_for_another_user():
    for flags in (["--user", "daemon"], ["--workers.user", "daemon"]):
        done = nobody(paths.plimsoll, "serve", "--check", *flags, "--", "/bin/true", "{port}")
        assert done.returncode == 3 and "only root can" in done.stderr, done.stderr
    assert nobody(paths.plimsoll, "serve", "--check", "--user", "nobody", "--", "/bin/true", "{port}").returncode == 0


@as_root
def test_keeper_and_main_are_not_dumpable_and_workers_are(serve):
    """A process of the same user, a worker for example, reads nothing of them: no memory, environment or descriptor."""
    server = start(serve, "--user", "nobody", "--api-key", "env:MY_KEY", env={"MY_KEY": "sk-0123456789abcdef0123"})
    pids = pids_of(server)
    for who in ("keeper", "main"):
        for name in ("environ", "mem", "maps", "fd/0"):
            done = nobody("dd", f"if=/proc/{pids[who]}/{name}", "of=/dev/null", "bs=1", "count=1")
            assert done.returncode != 0 and "ermission denied" in done.stderr, (who, name, done.stderr)
        assert nobody("ls", f"/proc/{pids[who]}/fd").returncode != 0, who
        assert nobody("kill", "-0", str(pids[who])).returncode == 0, "it is the same user"
    assert nobody("cat", f"/proc/{pids['worker']}/environ").returncode == 0, "what is denied above is not denied by chance"


LISTER = """#!{python}
import json, os, sys
links = {{}}
for name in os.listdir("/proc/self/fd"):
    try:
        links[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass  # what listed them
with open("{listed}.%d" % os.getpid(), "w") as f:
    json.dump({{n: l for n, l in links.items() if l != os.path.realpath(__file__)}}, f)
os.execv({program!r}, [{program!r}, *{words!r}, *sys.argv[1:]])
"""


def lister(folder, *words):
    """(program, its lists): lists the descriptors it was given before anything else runs, and becomes `words`."""
    made = folder / "lister"
    made.write_text(LISTER.format(python=paths.python, listed=folder / "fds", program=str(words[0]), words=[str(w) for w in words[1:]]))
    made.chmod(0o755)
    return made, lambda pid: json.loads((folder / f"fds.{pid}").read_text())


def test_a_worker_gets_no_descriptor_but_its_own(serve, tmp_path):
    """With everything open that main and keeper hold: listeners, keys, certificates, pages of others."""
    python, listed = lister(tmp_path, paths.python)
    pair = Authority(tmp_path / "ca").issue("localhost")
    server = serve("service:Feature", "--workers", "2", "--ssl-certfile", pair[0], "--ssl-keyfile", pair[1], "--api_keys.file",
                   KeyFile(tmp_path / "keys").write({"a": ("sk-0123456789abcdef",)}), python=python, admin="127.0.0.1:0").ready(workers=2)
    for pid in server.workers().values():
        fds = listed(pid)
        assert set(fds) == {"0", "1", "2", "3", "4", "5"}, fds
        assert fds["0"] == "/dev/null" and fds["1"] == fds["2"] and fds["1"].startswith("pipe:")
        assert fds["3"].startswith("socket:") and "plimsoll-page" in fds["4"] and fds["5"].startswith("socket:")
        held = " ".join(os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd"))
        assert not re.search("plimsoll-(door|config|args|log|recipe)", held), held
    holds = " ".join(os.readlink(f"/proc/{server.pid}/fd/{n}") for n in os.listdir(f"/proc/{server.pid}/fd"))
    assert "plimsoll-door" in holds and "plimsoll-config" in holds and holds.count("plimsoll-page") >= 2, "there was something to leak"


def test_a_command_gets_its_output_and_its_own_page_alone(serve, tmp_path):
    program, listed = lister(tmp_path, paths.python, ECHO)
    server = serve(None, "--name", "echo", "--", program, "--socket", "{socket}").ready()
    fds = listed(pids_of(server)["worker"])
    assert set(fds) == {"0", "1", "2", "4"} and "plimsoll-page" in fds["4"], fds
    assert server.post("/x", {}).status == 200


def test_the_environment_of_a_worker_has_nothing_of_ours(serve, tmp_path):
    """Names of ours, what a service manager gave us, and every variable that a secret is read from."""
    token = "token-0123456789abcdef"
    given = {"MY_KEY": "sk-0123456789abcdef0123", "MY_TOKEN": token, "MY_PASSWORD": "open sesame", "NOTIFY_SOCKET": "/run/x", "LISTEN_FDS": "1",
             "LISTEN_PID": "1", "PLIMSOLL_TOKEN_FILE": "/x", "PLIMSOLL__LOGS__LEVEL": "info", "HF_TOKEN": "theirs", "PLAIN": "yes"}
    pair = Authority(tmp_path / "ca").issue("localhost", password="open sesame")
    server = echo(serve, "--api-key", "env:MY_KEY", "--admin_token", "env:MY_TOKEN", "--ssl-certfile", pair[0], "--ssl-keyfile", pair[1],
                  "--ssl-keyfile-password", "env:MY_PASSWORD", env=given, admin="127.0.0.1:0")
    worker = pids_of(server)["worker"]
    for pid in [worker, *descendants(worker)]:
        env = dict(e.split("=", 1) for e in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in e)
        assert env["HF_TOKEN"] == "theirs" and env["PLAIN"] == "yes", "what is the service's stays"
        assert not set(env) & {"MY_KEY", "MY_TOKEN", "MY_PASSWORD", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"}
        assert {k for k in env if k.startswith("PLIMSOLL")} <= {
            "PLIMSOLL_GENERATION", "PLIMSOLL_WORKER", "PLIMSOLL_WORKER_NAME", "PLIMSOLL_PAGE_FD", "PLIMSOLL_CONTROL_FD", "PLIMSOLL_AGENTS"}
        for secret in ("sk-0123456789abcdef0123", token, "open sesame"):
            assert secret not in str(env)


OURS = {name: status_of(os.getpid(), name) for name in ("NoNewPrivs", "Seccomp")}
can_filter = pytest.mark.skipif(OURS != {"NoNewPrivs": ["0"], "Seccomp": ["0"]}, reason="these tests run behind a filter already")


def fence_of(pid):
    return {name: status_of(pid, name)[0] for name in OURS}


@can_filter
@pytest.mark.asan
def test_main_gives_up_what_it_never_needs_and_the_others_keep_it(serve):
    server = echo(serve)
    for _ in range(2):  # the next main does the same
        pids = pids_of(server)
        assert fence_of(pids["main"]) == {"NoNewPrivs": "1", "Seccomp": "2"}
        assert fence_of(pids["keeper"]) == fence_of(pids["worker"]) == {"NoNewPrivs": "0", "Seccomp": "0"}
        threads = [fence_of(f"{pids['main']}/task/{t}") for t in os.listdir(f"/proc/{pids['main']}/task")]
        assert len(threads) > 1 and {t["Seccomp"] for t in threads} == {"2"}, "every thread has it"
        mark = server.log.mark()
        os.kill(pids["main"], signal.SIGKILL)
        server.wait_for("main.adopted", since=mark)
        server.wait_until(server.try_status)
    assert server.post("/x", {}).status == 200 and server.verb("restart", "echo").returncode == 0


@can_filter
def test_a_main_that_dies_again_and_again_goes_on_without_refusals(serve):
    """It may have died of one. What it would have been refused is logged by the kernel."""
    server = echo(serve)
    for _ in range(2):
        mark = server.log.mark()
        os.kill(server.main_pid(), signal.SIGKILL)
        server.wait_for("main.adopted", since=mark)
        server.wait_until(server.try_status)
    told = server.wait_for("main.fence", since=mark)
    assert (told["state"], told["reason"]) == ("log", "main has crashed twice")
    assert server.post("/x", {}).status == 200


@can_filter
def test_the_fence_can_be_left_out_or_only_log(serve):
    server = echo(serve, "--main.fence", "off")
    assert fence_of(pids_of(server)["main"]) == {"NoNewPrivs": "0", "Seccomp": "0"} and not server.log.find("main.fence")
    other = echo(serve, "--main.fence", "log")
    assert fence_of(pids_of(other)["main"]) == {"NoNewPrivs": "1", "Seccomp": "2"}
    assert other.wait_for("main.fence")["state"] == "log"
