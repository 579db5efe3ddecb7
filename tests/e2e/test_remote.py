"""In front of a server that somebody else runs: the same answers, and the truth while it is away."""

import contextlib
import os
import signal
import socket
import subprocess

import pytest

from rig import Load, host, paths, request, state_of
from rig.server import ROOT, clean_environment, run_plimsoll

SMALL = ROOT / "tests/e2e/servers/small.py"
PYTHON = str(paths.python)


def free_port():
    """Outside the range that the kernel gives to clients, so that nobody takes it while the server is away."""
    for port in range(20000 + os.getpid() % 5000, 30000):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


class Remote:
    """A server that is none of plimsoll's: a process group of its own, started and ended by the test."""

    def __init__(self, words, cwd, env, port):
        self.words, self.cwd, self.env = words, cwd, env
        self.address = ("127.0.0.1", port)
        self.url = f"http://127.0.0.1:{port}"
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def end(self):
        """The whole family at once, as a crash of its machine would."""
        family = [self.process.pid, *host.descendants(self.process.pid)]
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()
        host.end_processes([p for p in family[1:] if state_of(p)])


@pytest.fixture
def remote(tmp_path):
    """remote("small") or remote("bentoml"), which serves tests/e2e/services/feature or another folder."""
    started = []

    def start(kind, service="feature", target="service:Feature"):
        port = free_port()
        env = {**clean_environment(), "BENTOML_HOME": str(tmp_path), "BENTOML_DO_NOT_TRACK": "True",
               "JOURNAL": str(tmp_path / "journal"), "GATE": str(tmp_path / "gate"), "FLAGS": str(tmp_path),
               "PYTHONDONTWRITEBYTECODE": "1"}
        words = ([PYTHON, SMALL, "--port", str(port)] if kind == "small" else
                 [paths.python.parent / "bentoml", "serve", target, "--host", "127.0.0.1", "--port", str(port)])
        one = Remote(words, paths.services / service, env, port)
        started.append(one)
        return one

    yield start
    for one in started:
        one.end()


def front(serve, remote, *flags, **more):
    return serve(remote.url, *flags, **more)


def ready_changed(server, ready, since=0):
    return server.wait_for("ready.changed", {"ready": ready}, since=since)


def test_bentoml_serve_gives_the_same_answers_and_503_while_it_restarts(serve, remote):
    bento = remote("bentoml", "simple", "service:Simple")
    server = front(serve, bento).started()
    waiting = server.post("/predict", {"text": "x"})  # it starts still, or was quicker than we
    assert waiting.status in (200, 503)
    server.wait_for("main.ready")

    for method, path, body in [("POST", "/predict", {"text": "abc"}), ("POST", "/predict", {}),
                               ("POST", "/predict", {"text": 5}), ("POST", "/predict", b"{nonsense"),
                               ("GET", "/predict", None), ("GET", "/nothing", None), ("GET", "/docs.json", None),
                               ("GET", "/", None), ("POST", "/readyz", {}), ("HEAD", "/docs.json", None)]:
        direct = request(bento.address, method, path, body)
        through = request(server.address, method, path, body)
        assert (through.status, through.body) == (direct.status, direct.body), (method, path)
        assert through.headers.get("content-type") == direct.headers.get("content-type")
        assert through.headers.get("allow") == direct.headers.get("allow")

    def shout(number):
        return "POST", "/predict", {"text": f"n{number}"}, lambda reply: reply.text() == f"N{number}"

    mark = server.log.mark()
    with Load(server.address, shout, connections=8) as load:
        load.wait_for(40)
        bento.end()
        ready_changed(server, False, mark)
        load.wait_for_more(40)
        # nobody waits for it: every answer is there, and says when to come back
        away = server.post("/predict", {"text": "x"})
        assert away.status == 503 and int(away.headers["retry-after"]) >= 1
        assert away.headers["x-plimsoll-reason"] == "not_ready"
        assert server.get("/readyz").status == 503 and server.get("/livez").status == 200
        bento.start()
        ready_changed(server, True, mark)
        load.wait_for_more(40)
    assert set(load.kinds()) <= {"ok", "status"}, (load.kinds(), [o for o in load.outcomes if o.kind not in ("ok", "status")][:3])
    assert set(load.statuses()) <= {200, 502, 503}, load.statuses()
    assert len(load.of("status", 502)) <= 8  # those in its hands when it was killed
    assert load.outcomes[-1].kind == "ok"
    assert server.post("/predict", {"text": "back"}).text() == "BACK"


def test_what_does_not_work_for_it_is_said(serve, remote):
    server = front(serve, remote("small")).ready()
    (service,) = server.status()["services"]
    assert (service["kind"], service["target"]) == ("remote", server.words[2])
    guards = service["guards"]
    assert (guards["readiness"], guards["restart"], guards["replacement"], guards["ledger"]) == (True, False, False, False)
    (worker,) = service["workers"]
    assert "pid" not in worker
    text = server.verb("status").stdout
    assert "somebody else runs it: no restart, no replacement" in text
    done = server.verb("restart", "--all")
    assert done.returncode == 1
    assert "is run by somebody else" in done.stderr and "503 with Retry-After" in done.stderr
    assert server.get("/metrics").status == 200


@pytest.mark.asan
def test_it_comes_and_goes_and_plimsoll_stays(serve, remote):
    other = remote("small")
    server = front(serve, other).ready()  # /readyz is 404 there: /health was found
    pid = server.post("/a", {}).json()["pid"]
    for _ in range(3):
        mark = server.log.mark()
        other.end()
        refused = server.post("/a", {})  # before or after a probe has seen it: never a hang, never another answer
        assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
        ready_changed(server, False, mark)
        other.start()
        ready_changed(server, True, mark)
        again = server.post("/a", {}).json()["pid"]
        assert again != pid
        pid = again
    main, mark = server.main_pid(), server.log.mark()
    os.kill(main, signal.SIGKILL)
    server.wait_for("main.started", since=mark)
    server.wait_until(lambda: (s := server.try_status()) and s["ready"], what="the next main is ready")
    assert server.post("/a", {}).json()["pid"] == pid
    server.terminate()
    assert server.wait_exit() == 0
    assert state_of(pid), "it was not ours to end"


def test_one_that_is_silent_is_not_ready(serve, remote):
    other = remote("small")
    server = front(serve, other, "--probe.timeout", "200ms", "--probe.interval", "100ms").ready()
    mark = server.log.mark()
    other.signal(signal.SIGSTOP)
    ready_changed(server, False, mark)
    assert server.post("/a", {}).status == 503
    other.signal(signal.SIGCONT)
    ready_changed(server, True, mark)
    assert server.post("/a", {}).status == 200


def test_a_name_is_looked_up_and_an_unreachable_one_is_not_ready(serve, remote):
    other = remote("small")
    server = serve(f"http://localhost:{other.address[1]}").ready()
    assert server.post("/a", {}).status == 200
    nobody = serve("http://no-such-host.invalid:80").started()
    assert nobody.post("/a", {}).status == 503
    (row,) = nobody.get("/readyz").json()["services"].values()
    assert "nobody answers GET /readyz" in row["detail"]


@pytest.mark.parametrize("url, words", [
    ("https://127.0.0.1:1", "TLS towards a server is not in this version"),
    ("http://127.0.0.1:1/v1", "has a path"),
    ("http://:80", "is not a server's address"),
])
def test_a_url_that_cannot_be_served_is_refused(url, words, tmp_path):
    done = run_plimsoll("serve", "--check", url)
    assert done.returncode == 2 and words in done.stderr
    (tmp_path / "plimsoll.yaml").write_text(f"services:\n  s:\n    url: {url}\n")
    done = run_plimsoll("serve", "--check", cwd=tmp_path)
    assert done.returncode == 3 and words in done.stderr and "plimsoll.yaml:3:10: url" in done.stderr
