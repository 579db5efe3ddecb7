"""Any HTTP server as a worker: told where to listen, replaced, ended with everything it started, and explained."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from rig import Load, connect, paths, read_reply, state_of
from rig.host import descendants
from rig.server import ROOT, clean_environment, run_plimsoll

SERVERS = ROOT / "tests/e2e/servers"
SMALL, VLLM = SERVERS / "small.py", SERVERS / "vllm"
PYTHON = str(paths.python)
BENTOML = paths.python.parent / "bentoml"


def small(serve, *flags, place=("--socket", "{socket}"), **more):
    return serve(None, *flags, "--", PYTHON, SMALL, *place, **more)


def send(server, path, body):
    """A request whose reply is read later: the socket."""
    sock, data = connect(server.address), json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall((head + data).encode())
    return sock


def ask(server, path="/x", body=None):
    reply = server.post(path, body)
    assert reply.status == 200, reply
    return reply.json()


# ---- the words of the command

def test_a_program_that_nobody_could_find_is_refused_with_the_remedy():
    done = run_plimsoll("serve", "--check", "--", "/bin/sleep", "60")
    assert done.returncode == 2
    assert "sleep is a program that Plimsoll does not know how to tell where to listen" in done.stderr
    assert "{port}" in done.stderr and "--worker-port" in done.stderr
    done = run_plimsoll("serve", "--check", "--", "no-such-program", "{port}")
    assert done.returncode == 5 and "no-such-program: no such program" in done.stderr
    done = run_plimsoll("serve", "--check", "service:C", "--", "/bin/sleep", "{port}")
    assert done.returncode == 2


def test_a_command_in_a_file_is_refused_with_its_place(tmp_path):
    (tmp_path / "plimsoll.yaml").write_text("services:\n  s:\n    command: [/bin/sleep, '60']\n")
    done = run_plimsoll("serve", "--check", cwd=tmp_path)
    assert done.returncode == 3
    assert "plimsoll.yaml:3:14: sleep is a program" in done.stderr


def test_an_engines_own_port_is_replaced_and_that_is_said():
    done = run_plimsoll("serve", "--check", "--", VLLM, "serve", "tiny", "--port", "8000")
    assert done.returncode == 0
    assert "--port of service vllm is replaced" in done.stderr


# ---- the life of one

@pytest.mark.asan
def test_workers_on_sockets_of_their_own(serve):
    server = small(serve, "--workers", 2).ready(workers=2)
    seen = ask(server, "/any?q=1", {"a": 1})
    assert seen["path"] == "/any?q=1" and seen["body"] == '{"a": 1}'
    assert seen["plimsoll"] == ["PLIMSOLL_AGENTS", "PLIMSOLL_GENERATION", "PLIMSOLL_PAGE_FD", "PLIMSOLL_WORKER",
                                "PLIMSOLL_WORKER_NAME"]
    (service,) = server.status()["services"]
    assert (service["kind"], service["engine"], service["guards"]["restart"]) == ("command", "generic", True)
    assert service["target"].endswith("--socket {socket}")
    # as many workers as slots, each with its own socket in the run folder, where nobody else may look
    sockets = list((server.run_dir / "w").iterdir())
    assert len(sockets) == 2
    with Load(server.address, lambda n: ("POST", "/l", {"n": n}, lambda r, n=n: json.loads(r.json()["body"]) == {"n": n}),
              connections=8) as load:
        load.wait_for(50)
        assert server.verb("restart", "--all").returncode == 0
        load.wait_for_more(50)
    assert load.kinds() == {"ok": len(load.outcomes)}, load.statuses()
    # `restart` ends when the successors serve; an old worker is drained, and its socket removed, after that
    server.wait_until(lambda: len(list((server.run_dir / "w").iterdir())) == 2, what="the old workers' sockets are gone")


def test_a_killed_worker_is_replaced_and_main_may_die(serve):
    server = small(serve, "--workers", 2, place=("--port", "{port}")).ready(workers=2)
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = {ask(server)["argv"][1] for _ in range(20)}
    assert all(not low <= int(p) <= high for p in ports), ports
    before = server.workers()
    os.kill(before[1], signal.SIGKILL)
    death = server.wait_for("worker.death")
    assert death["cause"] == "killed"
    server.wait_for("worker.ready", count=3)
    after = server.workers()
    assert after[2] == before[2] and after[1] != before[1]

    main, mark = server.main_pid(), server.log.mark()
    os.kill(main, signal.SIGKILL)
    assert server.wait_for("main.adopted", since=mark)["workers"] == 2
    server.wait_until(lambda: (s := server.try_status()) and s["ready"], what="the next main is ready")
    assert server.workers() == after
    assert ask(server)["pid"] in after.values()
    server.terminate()
    assert server.wait_exit() == 0
    assert sum(line.startswith("end") for line in server.journal()) == 2  # both were asked, not killed


def test_readiness_of_the_servers_own_is_believed(serve):
    server = small(serve, "--traffic.queue.max_requests", 0).ready()
    flag = server.folder / "unready"
    flag.touch()
    server.wait_for("ready.changed", {"ready": False})
    refused = server.post("/x", {})
    assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
    flag.unlink()
    server.wait_for("ready.changed", {"ready": True}, count=2)
    assert ask(server)


def test_metrics_of_a_worker_that_does_not_tell_them_any_more_leave_the_page(serve):
    server = small(serve, "--metrics.refresh", "100ms", "--metrics.stale_after", "300ms").started()
    flag = server.folder / "metrics"
    flag.touch()
    server.ready()
    own = 'small_things{worker="1"} 7'
    server.wait_until(lambda: own in server.get("/metrics").text(), what="its own families")
    flag.unlink()
    server.wait_until(lambda: own not in server.get("/metrics").text(), what="they are too old")
    flag.touch()
    server.wait_until(lambda: own in server.get("/metrics").text(), what="it tells them again")


def test_a_port_that_cannot_be_chosen(serve):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = small(serve, "--worker-port", port, place=("--port", str(port))).ready()
    assert ask(server)
    (pid,) = server.workers().values()
    done = server.verb("restart", "--all", "--mode", "overlap")
    assert done.returncode == 1
    assert f"always listens on port {port}" in done.stderr and "{port}" in done.stderr
    done = server.verb("restart", "--all")
    assert done.returncode == 0, done.stderr
    handed_over = ask(server)["pid"]
    assert handed_over != pid
    os.kill(handed_over, signal.SIGKILL)
    server.wait_for("worker.ready", count=3)
    assert ask(server)["pid"] not in (pid, handed_over)


def test_a_server_without_the_usual_paths_says_what_to_set(serve):
    script = "import http.server as h,sys;h.HTTPServer(('127.0.0.1',int(sys.argv[1])),h.SimpleHTTPRequestHandler).serve_forever()"
    server = serve(None, "--", PYTHON, "-c", script, "{port}").started()
    hint = server.wait_for("worker.degraded")
    assert hint["feature"] == "readiness" and "probe.ready_path" in hint["reason"]
    (row,) = server.get("/readyz").json()["services"].values()
    assert re.match(r"GET /(readyz|health) is answered 404", row["detail"])


# ---- bentoml serve

def test_bentoml_serve_is_replaced_killed_and_leaves_no_orphans(serve):
    server = serve(None, "--", BENTOML, "serve", "service:Simple", "--port", "{port}", service="simple").ready()
    assert server.status()["services"][0]["engine"] == "bentoml"

    def shout(number):
        return "POST", "/predict", {"text": f"n{number}"}, lambda reply: reply.text() == f"N{number}"

    with Load(server.address, shout, connections=4) as load:
        load.wait_for(20)
        assert server.verb("restart", "--all").returncode == 0
        load.wait_for_more(20)
    assert load.kinds() == {"ok": len(load.outcomes)}, load.statuses()
    (pid,) = server.workers().values()
    family = [pid, *descendants(pid)]
    assert len(family) >= 2
    mark = server.log.mark()
    os.kill(pid, signal.SIGKILL)
    server.wait_for("worker.gone", since=mark)
    assert [p for p in family if state_of(p)] == []
    server.wait_for("worker.ready", since=mark)
    assert server.post("/predict", {"text": "again"}).text() == "AGAIN"


def test_a_legacy_service_is_run_by_bentomls_own_server(serve):
    server = serve("service:svc", service=ROOT / "tests/python/services/legacy").ready()
    told = server.wait_for("worker.degraded", {"feature": "python"})
    assert "service:svc is a legacy service (bentoml.legacy): run by `bentoml serve`" in told["reason"]
    assert len(server.log.find("worker.degraded", {"feature": "python"})) == 1
    assert server.log.find("worker.start_failed") == []
    reply = server.post("/echo", b"hello", headers={"Content-Type": "text/plain"})
    assert (reply.status, reply.text()) == (200, "hello")
    assert server.status()["services"][0]["kind"] == "command"
    # the next main knows without asking again
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    server.wait_until(lambda: (s := server.try_status()) and s["ready"], what="the next main is ready")
    assert server.status()["services"][0]["kind"] == "command"
    assert server.post("/echo", b"again", headers={"Content-Type": "text/plain"}).text() == "again"


# ---- an engine that behaves as vLLM does

def vllm(serve, *flags, command=()):
    return serve(None, *flags, "--", VLLM, "serve", "tiny", *command)


def family_of(server):
    """{role: pid} of EngineCore and Worker that live."""
    found = {}
    for role in ("engine", "worker"):
        pids = [int(p.suffix[1:]) for p in server.folder.glob(f"{role}.*")]
        (found[role],) = [p for p in pids if state_of(p)]
    return found


def test_an_engine_is_known_and_told(serve):
    server = vllm(serve)
    (server.folder / "hold").touch()
    server.started()
    server.wait_for("worker.spawned")
    assert server.get("/readyz").status == 503
    (server.folder / "hold").unlink()
    server.ready()
    (line,) = server.journal()
    assert re.fullmatch(r"\d+ serve tiny --uds \S+/w/\S+ --shutdown-timeout 30 --enable-server-load-tracking", line)
    assert server.wait_for("worker.command")["message"].endswith(f"servers/vllm {line.partition(' ')[2]}"), "what was added is told"
    config = server.status()["services"][0]
    assert config["engine"] == "vllm"
    assert server.post("/v1/completions", {"prompt": "a"}).json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("role", ["engine", "worker"])
def test_an_engine_that_dies_is_named_although_the_server_leaves_with_status_0(serve, role):
    server = vllm(serve).ready()
    os.kill(family_of(server)[role], signal.SIGKILL)
    death = server.wait_for("worker.death")
    assert (death["cause"], death["status"]) == ("engine_failed", 0)
    assert "its engine process died first" in death["sentence"]
    server.wait_for("worker.ready", count=2)
    assert server.post("/v1/completions", {"prompt": "a"}).status == 200


def test_a_killed_server_takes_its_engine_along(serve):
    server = vllm(serve).ready()
    family = family_of(server)
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    left = server.wait_for("group.leftover")
    assert left["ended"] >= 1
    server.wait_for("worker.gone")
    assert [p for p in family.values() if state_of(p)] == []
    server.wait_for("worker.ready", count=2)


def test_a_stream_ends_whole_before_the_old_engine_is_told_to_stop(serve):
    server = vllm(serve).ready()
    sock = send(server, "/v1/completions", {"prompt": "a", "stream": True})
    (pid,) = server.workers().values()
    restart = subprocess.Popen([str(paths.plimsoll), "restart", "--all", "--admin", str(server.run_dir / "admin.sock")],
                               env=clean_environment(), stdout=subprocess.DEVNULL)
    server.wait_for("worker.draining")
    assert state_of(pid)
    assert server.post("/v1/completions", {"prompt": "a"}).json()["id"][5:13] != f"{pid:08x}"
    server.gate.touch()
    reply, whole = read_reply(sock)
    sock.close()
    assert whole and reply.body.endswith(b"data: [DONE]\n\n")
    assert b"error" not in reply.body and b'"finish_reason":"length"' in reply.body
    server.wait_for("worker.gone")
    assert restart.wait(60) == 0
    assert server.log.find("worker.death") == []


@pytest.mark.asan
@pytest.mark.parametrize("successor", ["comes up", "dies too"])
def test_a_worker_that_dies_under_its_replacement_is_followed_by_the_successor(serve, successor):
    server = vllm(serve, "--backoff.initial", "100ms").ready()
    (old,) = server.workers().values()
    hold = server.folder / "hold"
    hold.touch()
    assert server.verb("restart", "--all", "--mode", "overlap", "--no-wait").returncode == 0
    second = server.wait_for("worker.spawned", count=2)["pid"]
    os.kill(old, signal.SIGKILL)
    server.wait_for("worker.gone")
    server.wait_until(lambda: [w["pid"] for w in server.status()["services"][0]["workers"]] == [second], what="it is forgotten")
    if successor == "dies too":
        os.kill(second, signal.SIGKILL)
        assert "the old worker is gone" in server.wait_for("worker.rollback")["message"]
    hold.unlink()
    server.wait_for("worker.ready", count=2)
    assert server.post("/v1/completions", {"prompt": "a"}, timeout=60).status == 200
    assert len(server.log.find("worker.spawned")) == (2 if successor == "comes up" else 3), "a load that nobody needed"


def test_a_request_is_sent_again_when_the_server_is_killed_before_it_answered(serve):
    """LLM presets are idempotent until something of the reply is out."""
    server = vllm(serve, "--traffic.queue.max_wait", "60s").ready()
    (pid,) = server.workers().values()
    sock = send(server, "/v1/completions", {"prompt": "a", "wait": True})
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 1, what="in flight")
    os.kill(pid, signal.SIGKILL)
    replayed = server.wait_for("request.replayed")
    assert replayed["class"] == "unknown"
    server.gate.touch()
    reply, whole = read_reply(sock)
    sock.close()
    assert whole and reply.status == 200 and reply.json()["id"][5:13] != f"{pid:08x}"


@pytest.mark.parametrize("why, cause, words", [
    ("memory", "config_failed", "15.53 of 18.09 GiB were free and gpu_memory_utilization asks for 16.64: lower it to 0.85"),
    ("flag", "config_failed", "Sleep mode is not supported on current platform"),
])
def test_an_engine_that_cannot_start_says_why(serve, why, cause, words):
    server = vllm(serve, "--backoff.attempts", 1, "--failed_exit", "0s", command=("--fail", why))
    failed = server.wait_for("worker.start_failed")
    assert failed["cause"] == cause
    assert words in failed["sentence"]
    assert server.wait_exit() == 6


# ---- devices

def test_each_worker_gets_gpus_of_its_own_by_uuid(serve, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-aaaa)'; echo 'GPU 1: A (UUID: GPU-bbbb)'\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    server = small(serve, "--workers", 2, "--gpus", "0,1", "--gpus_per_worker", 1,
                   place=("--socket", "{socket}", "--note", "{gpus}"), env=env).ready(workers=2)
    seen = {}
    server.wait_until(lambda: _collect(server, seen), what="both workers have answered")
    assert sorted(seen.values()) == [("GPU-aaaa", "GPU-aaaa"), ("GPU-bbbb", "GPU-bbbb")]
    by_slot = {w: seen[pid][0] for w, pid in server.workers().items()}
    assert by_slot == {1: "GPU-aaaa", 2: "GPU-bbbb"}


def _collect(server, seen):
    with Load(server.address, lambda n: ("POST", "/g", {}, lambda r: seen.update(
            {r.json()["pid"]: (r.json()["gpus"], r.json()["argv"][3])}) or True), connections=8) as load:
        load.wait_for(40)
    return len(seen) == 2


def test_cuda_visible_devices_bounds_what_may_be_named(tmp_path):
    env = {**clean_environment(), "CUDA_VISIBLE_DEVICES": "2,3", "PATH": "/nonexistent"}
    done = run_plimsoll("serve", "--check", "--gpus", "0,", "--", PYTHON, SMALL, "--port", "{port}", env=env)
    assert done.returncode == 3
    assert "0 is not among CUDA_VISIBLE_DEVICES (2,3)" in done.stderr
    done = run_plimsoll("serve", "--check", "--gpus", "2,3", "--", PYTHON, SMALL, "--port", "{port}", env=env)
    assert done.returncode == 0, done.stderr
