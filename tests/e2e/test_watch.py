"""plimsoll.watch(): servers that are not of our making publish what their requests do."""

import json
import os
import signal
import socket
import stat
import subprocess

import pytest

from rig import dock, paths
from rig.page import find_page, open_page, pages, until
from rig.server import ROOT, clean_environment

SERVERS = ROOT / "tests/e2e/servers"
MIB = 1 << 20


def asgi(serve, *flags, python=paths.python, env=None, **more):
    words = [python, "-m", "uvicorn", "--app-dir", SERVERS, "asgi:app", "--log-level", "warning", "--uds", "{socket}"]
    return serve(None, "--name", "plain", *flags, "--", *words, env=env, python=python, **more).ready()


def watched(server, count=1):
    """Until its agent is there; its page."""
    server.post("/double", {"x": 1})
    server.wait_for("worker.watched", count=count)
    return open_page(server.status()["pid"]["keeper"], server.workers()[1])


def ask(server, path, body=None):
    """Posts; the end record of that request."""
    until(lambda: server.page["in_flight"] == 0, "the ends of what was before")
    seen = server.page["ended"]
    reply = server.post(path, body)
    end = until(lambda: [e for e in server.page.ends()[seen:] if e["id"]], f"the end of {path}")[-1]
    return reply, end, server.page.tags()[end["tag"]]


@pytest.mark.parametrize("way", ["wrapper", "middleware"])
def test_requests_of_a_plain_server_are_told_apart(serve, way):
    server = asgi(serve, env={"WATCH": way})
    server.page = watched(server)
    reply, end, tag = ask(server, "/double", {"x": 21})
    assert (reply.json(), tag, end["outcome"], end["status"]) == (42, "plain /double body16", pages.OK, 200)
    assert end["kind"] == pages.EDGE and end["flags"] & pages.ALONE and end["flags"] & pages.QUIESCENT
    assert not end["flags"] & pages.MEMORY, "nobody has imported torch"
    _, end, tag = ask(server, "/items/left")
    _, again, tag_again = ask(server, "/items/right")
    assert tag == tag_again == "plain /items/{name} body2"
    reply, end, _ = ask(server, "/stream")
    assert (reply.text(), end["outcome"]) == ("piece\n" * 3, pages.OK)
    ask(server, "/block")
    assert [server.page.tags()[e["tag"]] for e in server.page.ends() if e["id"] == 0] == ["plain embed list2:str7"]
    assert server.page.host()["anon"] > 10 * MIB and server.page["features"] & pages.F_RECORDS == 0
    reply, _, _ = ask(server, "/another")
    assert json.loads(reply.json()) == {"v": 1, "error": "taken"}
    reply, end, _ = ask(server, "/fail")  # the last one: uvicorn closes the connection after it
    assert (reply.status, end["outcome"], end["error_class"]) == (500, pages.ERROR, "LookupError")
    assert end["status"] == {"wrapper": 500, "middleware": 0}[way], "0: the 500 is made outside of the middleware"


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
@pytest.mark.timeout(240)
def test_device_memory_of_a_plain_server(serve, cache):
    server = asgi(serve, python=dock.torch_python(), before=[paths.plimsoll, "drydock", "-q", "--"],
                  env={"PLIMSOLL_CACHE": str(cache)})
    server.page = watched(server)
    _, end, _ = ask(server, "/keep", {"mib": 5})
    assert end["flags"] & pages.PEAK_EXACT and (end["allocated_before"], end["allocated"]) == (0, 5 * MIB)
    reply, end, _ = ask(server, "/out_of_memory")
    assert (reply.status, end["error_class"], bool(end["flags"] & pages.OOM)) == (500, "OutOfMemoryError", True)
    memory = {m["scope"]: m for m in server.status()["services"][0]["workers"][0]["memory"]}
    assert memory["gpu0"]["allocated_bytes"] == 5 * MIB
    server.wait_until(lambda: 'plimsoll_memory_allocated_bytes{service="plain",worker="1",gpu="0"} 5242880'
                      in server.get("/metrics").text())


def test_the_agent_comes_again_when_main_was_killed(serve):
    server = asgi(serve)
    server.page = watched(server)
    ask(server, "/double", {"x": 1})
    begun = server.page["begun"]
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("worker.watched", count=2)
    assert server.page["begun"] == begun, "its page went on"
    server.wait_until(server.try_status)
    _, end, _ = ask(server, "/double", {"x": 1})
    assert end["begun"] == server.page["begun"] == begun + 1


def test_the_next_generation_has_a_page_of_its_own(serve):
    server = asgi(serve)
    old = watched(server)
    assert server.verb("restart", "plain").returncode == 0
    server.page = server.wait_until(lambda: server.post("/double", {"x": 1}) and len(server.log.find("worker.watched")) > 1
                                    and find_page(server.status()["pid"]["keeper"], server.workers()[1]))
    _, end, _ = ask(server, "/double", {"x": 1})
    assert server.page.head()[7] != old.head()[7] and end["status"] == 200


def test_only_workers_are_given_a_page(serve):
    server = asgi(serve)
    path = server.run_dir / "agents.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        answer, fds, _, _ = s.recvmsg(4096, 256)
        assert json.loads(answer) == {"v": 1, "error": "not a worker of kind command, nor the pid of a remote service"}
        assert fds == [] and s.recv(1) == b""


def test_a_server_that_somebody_else_runs_publishes_when_its_pid_is_named(serve, tmp_path):
    socket_of_plimsoll = tmp_path / "agents"  # a link: the run folder is made later
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**clean_environment(), "PYTHONPATH": str(ROOT / "python"), "PLIMSOLL_AGENTS": str(socket_of_plimsoll)}
    words = [paths.python, "-m", "uvicorn", "--app-dir", SERVERS, "asgi:app", "--log-level", "warning", "--port", str(port)]
    with subprocess.Popen(words, env=env) as theirs:
        try:
            server = serve(f"http://127.0.0.1:{port}", "--pid", theirs.pid).ready()
            socket_of_plimsoll.symlink_to(server.run_dir / "agents.sock")
            assert server.post("/double", {"x": 2}).json() == 4
            server.wait_for("worker.watched")
            page = open_page(server.main_pid(), theirs.pid)
            server.post("/double", {"x": 2})
            assert until(lambda: [e for e in page.ends() if e["id"]], "an end record")[-1]["status"] == 200
        finally:
            theirs.terminate()
