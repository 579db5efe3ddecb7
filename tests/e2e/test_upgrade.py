"""`plimsoll upgrade`: another main takes the helm. Workers and requests notice nothing; whatever goes wrong before the helm
has moved leaves the old main in charge."""

import http.client
import json
import os
import shutil
import signal
import threading

import pytest

from rig import Load, WebSocket, connect, paths, read_reply, request, send_head
from rig.other import installation, new_version, stand_in, version_of
from rig.server import ROOT
from rig.serving import serving
from test_command import small


def upgraded(server, *words):
    """Orders it, and it must work. What the verb said."""
    done = server.verb("upgrade", *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr + server.log.tail()
    told = json.loads(done.stdout)
    assert told["done"] and told["from"]["pid"] != told["to"]["pid"]
    status = server.status()
    assert status["pid"]["main"] == told["to"]["pid"] and status["started"] == "upgrade"
    return told


class Stream:
    """One reply that is still coming: `go` lets the rest of it come."""

    def __init__(self, server, n, pause):
        self.n = n
        self.conn = http.client.HTTPConnection(*server.address, timeout=120)
        body = json.dumps({"n": n, "pause": pause})
        self.conn.request("POST", "/stream", body=body, headers={"Content-Type": "application/json"})
        self.response = self.conn.getresponse()
        self.text = self.response.read1()

    def whole(self):
        self.text += self.response.read()
        self.conn.close()
        return self.text == "".join(f"data: {i}\n\n" for i in range(self.n)).encode()


def quick(number):
    return "POST", "/predict", {"x": number}, lambda reply: reply.json()["double"] == 2 * number


@pytest.mark.timeout(240)
def test_an_upgrade_under_100_open_streams_and_load_loses_nothing_and_loads_no_model(serve, tmp_path):
    program, version = new_version(tmp_path / "new")
    server = serve("service:Feature", "--max-concurrency", 200).ready(workers=2)
    workers, keeper, old = server.workers(), server.status()["pid"]["keeper"], server.main_pid()
    streams = [Stream(server, 40, 0.1) for _ in range(100)]
    with Load(server.address, quick, connections=4) as load:
        load.wait_for_more(20)
        told = upgraded(server, program)
        load.wait_for_more(40)
    assert told["to"]["version"] == version != told["from"]["version"]
    assert all(stream.whole() for stream in streams)
    assert load.kinds() == {"ok": len(load.outcomes)}, (load.kinds(), load.of("cut")[:3], load.of("status")[:3])
    server.wait_for("main.left", {"pid": old, "cut": 0})
    status = server.status()
    assert status["pid"] == {"keeper": keeper, "main": told["to"]["pid"]} and status["version"] == version
    assert server.workers() == workers
    assert sum(line.startswith(("import", "init")) for line in server.journal()) == 4, "a model was loaded again"
    (done,) = server.log.find("upgrade.done")
    assert done["streams_left"] == 100
    assert 'plimsoll_main_starts_total{reason="upgrade"} 1' in server.get("/metrics").text()
    # what it starts from now on runs the Python side of its own version
    assert server.verb("restart", "feature", "--worker", 1).returncode == 0
    side = tmp_path / "new/share/plimsoll" / f"python-{version}"
    environ = open(f"/proc/{server.workers()[1]}/environ").read().split("\0")
    assert any(e.startswith("PYTHONPATH=") and str(side) in e for e in environ), environ
    assert request(server.address, "POST", "/predict", {"x": 4}).json()["double"] == 8


def test_a_connection_that_was_idle_brings_one_more_request_and_is_told(serve):
    server = serve("service:Simple", service="simple").ready()
    kept = http.client.HTTPConnection(*server.address, timeout=60)
    kept.request("GET", "/livez")
    assert kept.getresponse().read()
    old = server.main_pid()
    upgraded(server)
    kept.request("POST", "/predict", body='{"text": "so"}', headers={"Content-Type": "application/json"})
    reply = kept.getresponse()
    assert (reply.status, reply.read(), reply.headers["connection"]) == (200, b"SO", "close")
    server.wait_for("main.left", {"pid": old, "cut": 0})


def test_a_websocket_stays_with_the_old_main_until_its_time_is_over(serve):
    server = serve("service:Feature", "--upgrade.drain", "1s").ready(workers=2)
    socket = WebSocket(server.address, "/ws/echo")
    socket.say("one")
    assert socket.hear() == "echo one"
    old = server.main_pid()
    upgraded(server)
    socket.say("two")
    assert socket.hear() == "echo two"
    server.wait_for("main.left", {"pid": old, "cut": 1})
    socket.sock.close()
    assert server.status()["ready"]


def test_who_waits_at_the_old_main_is_told_when_its_worker_dies(serve):
    """The next worker is the new main's: nobody at the old one waits for it until the wait is over."""
    server = serve(None, "--traffic.max_concurrency", 1, "--traffic.queue.max_wait", "100s", "--", paths.python,
                   ROOT / "tests/e2e/servers/small.py", "--socket", "{socket}").ready()
    running = connect(server.address)
    send_head(running, "GET", "/stream")
    assert running.recv(12) == b"HTTP/1.1 200"
    waiting = connect(server.address, timeout=60)
    send_head(waiting, "GET", "/stream")
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] == 1)
    old, (worker,) = server.main_pid(), server.workers().values()
    upgraded(server)
    os.kill(worker, signal.SIGKILL)
    reply, whole = read_reply(waiting)
    assert whole and reply.status == 503 and reply.headers["x-plimsoll-reason"] == "not_ready"
    assert int(reply.headers["retry-after"]) >= 1 and reply.headers["connection"] == "close"
    running.close()
    waiting.close()
    server.wait_for("main.left", {"pid": old, "cut": 0})
    assert server.post("/x", timeout=60).status == 200


def test_no_upgrade_while_requests_wait_for_a_worker_that_still_starts(serve):
    """They would wait at the old main, and the worker will be the new one's."""
    server = serve(None, "--traffic.queue.max_wait", "100s", "--", paths.python, ROOT / "tests/e2e/servers/small.py",
                   "--socket", "{socket}", service="simple").ready()
    (server.folder / "unready").touch()
    mark = server.log.mark()
    os.kill(*server.workers().values(), signal.SIGKILL)
    server.wait_for("worker.spawned", since=mark)
    waiting = connect(server.address, timeout=60)
    send_head(waiting, "POST", "/x", [("Content-Length", "0")])
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] == 1)
    name = server.status()["services"][0]["name"]
    done = server.verb("upgrade")
    assert done.returncode == 1 and f"requests wait for a worker of {name} that is not ready yet (1)" in done.stderr, done
    assert f"plimsoll status {name}" in done.stderr and f"plimsoll drain {name}" in done.stderr
    assert server.log.find("upgrade.started") == []
    (server.folder / "unready").unlink()
    reply, whole = read_reply(waiting)
    assert whole and reply.status == 200
    waiting.close()
    upgraded(server)
    assert server.post("/x", timeout=60).status == 200


def test_idle_connections_of_the_old_main_are_closed_when_its_workers_were_replaced(serve):
    """The next request on one would find nobody there, while the new main has a warm worker."""
    server = serve("service:Simple", service="simple").ready()
    kept = connect(server.address, timeout=60)
    send_head(kept, "GET", "/schema.json")
    assert read_reply(kept)[1]
    old = server.main_pid()
    upgraded(server)
    assert server.verb("restart", "simple").returncode == 0
    assert kept.recv(1) == b"", "it is not kept until its own time is over"
    server.wait_for("main.left", {"pid": old, "cut": 0})
    assert server.post("/predict", {"text": "abc"}).body == b"ABC"


def kept_connections(server, count):
    kept = [connect(server.address, timeout=60) for _ in range(count)]
    for one in kept:
        send_head(one, "GET", "/nothing")
        assert read_reply(one)[1]
    return kept


def test_the_old_main_sends_a_worker_nothing_more_that_is_about_to_end(serve):
    """It hears of it from the keeper when the worker drains, not by its death: what its connections bring goes to the
    other worker; and when that one is to end as well they are closed, before anybody is told 503."""
    server = small(serve, "--workers", 2).ready(workers=2)
    kept = kept_connections(server, 5)
    other = server.workers()[2]
    upgraded(server)
    (server.folder / "linger").touch()  # whoever is told to end serves on
    assert server.verb("restart", "--all", "--worker", 1, "--no-wait").returncode == 0
    ended = server.wait_for("worker.stopping")["worker"]
    assert ended == 1
    for one in kept[:4]:
        send_head(one, "POST", "/x", [("Content-Length", "2")])
        one.sendall(b"ab")
        reply, whole = read_reply(one)
        assert whole and reply.status == 200 and reply.json()["pid"] == other
    (server.folder / "linger").unlink()
    server.wait_for("worker.gone")
    (server.folder / "linger").touch()
    assert server.verb("restart", "--all", "--worker", 2, "--no-wait").returncode == 0
    server.wait_for("worker.stopping", count=2)
    assert kept[4].recv(1) == b"", "nobody is there for it"
    assert os.path.exists(f"/proc/{other}"), "and the worker is not gone yet"
    (server.folder / "linger").unlink()
    for one in kept:
        one.close()


def test_a_worker_without_a_page_ends_when_the_old_main_is_done_with_it_not_when_that_main_is_gone(serve):
    """What the old main still has with it stands on the board of charges; its other connections are no reason to wait."""
    server = small(serve).ready()
    kept = kept_connections(server, 1)
    stream = connect(server.address, timeout=60)
    send_head(stream, "GET", "/stream")
    data = stream.recv(65536)
    old = server.main_pid()
    upgraded(server)
    assert server.verb("restart", "--all", "--no-wait").returncode == 0
    server.wait_for("worker.replaced")
    for _ in range(20):
        assert server.post("/x", b"ab").json()["body"] == "ab"
    assert not server.log.find("worker.stopping"), "it still sends"
    server.gate.touch()
    while not data.endswith(b"0\r\n\r\n"):
        piece = stream.recv(65536)
        assert piece, data
        data += piece
    assert b"[DONE]" in data
    server.wait_for("worker.stopping", {"generation": 1})
    server.wait_for("main.left", {"pid": old, "cut": 0})
    stream.close()
    kept[0].close()


def test_upgrades_follow_each_other_and_each_takes_everything_over(serve):
    """Twice, then a crash, then a stop with a stream open on the main before."""
    server = serve("service:Feature").ready(workers=2)
    workers = server.workers()
    assert server.verb("enforce", "feature", "enforce").returncode == 0
    for _ in range(2):
        old = server.main_pid()
        upgraded(server)
        server.wait_for("main.left", {"pid": old})
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", since=mark)
    status = server.wait_until(lambda: (s := server.try_status()) and s["ready"] and s)
    assert status["started"] == "crash" and status["services"][0]["mode"] == "enforce"
    assert server.workers() == workers
    stream = Stream(server, 50, 0.1)
    upgraded(server)
    assert "the main before this one still finishes what is open" in server.verb("upgrade").stdout
    server.terminate()
    assert stream.whole(), "the instance stopped under a stream of the main before"
    assert server.wait_exit() == 0
    assert len(server.log.find("main.stopped")) == 1 and server.log.find("worker.death") == []


CHATTY = """
import bentoml


@bentoml.service
class Chatty:
    @bentoml.api
    def say(self, n: int) -> int:
        print("said", n, "x" * 200, flush=True)
        return n
"""


def test_what_workers_print_is_told_once_and_whole_across_upgrades(serve, tmp_path):
    (tmp_path / "service.py").write_text(CHATTY)
    server = serve("service:Chatty", service=tmp_path).ready()
    with Load(server.address, lambda n: ("POST", "/say", {"n": n}, lambda r: True), connections=4) as load:
        for _ in range(3):
            load.wait_for_more(30)
            upgraded(server)
        load.wait_for_more(30)
    assert load.kinds() == {"ok": len(load.outcomes)}
    server.terminate()
    assert server.wait_exit() == 0
    said = [line for line in server.stdout().splitlines() if line.startswith("said ")]
    wanted = [f"said {o.number} {'x' * 200}" for o in load.outcomes]
    assert sorted(said) == sorted(wanted)


# --- whatever goes wrong before the helm has moved leaves the old main in charge


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    """In a folder of its own, which a stand-in's script may lie in. Whatever it was put through, it can be upgraded."""
    folder = tmp_path_factory.mktemp("upgrade") / "service"
    shutil.copytree(paths.services / "simple", folder)
    with serving() as start:
        server = start("service:Simple", service=folder).ready()
        yield server
        assert server.log.find("main.crashed") == []
        assert server.verb("reload").returncode == 0, server.log.tail()
        upgraded(server)


@pytest.fixture
def own(one_server):
    """With clients that never stop; afterwards all must be as before."""
    server = one_server
    pids, workers = server.status()["pid"], server.workers()
    with Load(server.address, lambda n: ("POST", "/predict", {"text": f"n{n}"}, lambda r: r.text() == f"N{n}"), connections=2) as load:
        load.wait_for_more(5)
        yield server
        load.wait_for_more(20)
    assert server.status()["pid"] == pids, "another main has the helm"
    assert server.workers() == workers
    assert load.kinds() == {"ok": len(load.outcomes)}
    assert server.log.find("upgrade.done") == []
    (server.cwd / "main").unlink(missing_ok=True)


def refused(server, *words, status=1):
    done = server.verb("upgrade", *words)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_a_program_that_is_missing_or_none_is_refused_at_once(own, tmp_path):
    started = len(own.log.find("upgrade.started"))
    assert "no such program" in refused(own, tmp_path / "missing", status=2)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexec plimsoll\n")
    assert "is not a program that we may run" in refused(own, script)
    script.chmod(0o755)
    assert "scripts cannot be main" in refused(own, script)
    shutil.copy("/bin/true", script)
    script.chmod(0o757)
    assert "written to by everybody" in refused(own, script)
    assert "is not a program" in refused(own, tmp_path)
    assert len(own.log.find("upgrade.started")) == started


def test_a_main_that_ends_at_once_is_named_with_its_end(own):
    text = refused(own, "/bin/false")
    assert "not upgraded" in text and "ended with status 1 before it had taken over" in text
    failed = own.log.find("upgrade.failed")[-1]
    assert failed["to"] == os.path.realpath("/bin/false")


def test_a_main_that_crashes_at_its_start_is_named_with_its_signal(own):
    program = stand_in(own, "hello(1, 1)\nos.kill(os.getpid(), 11)\n")
    assert "ended by SIGSEGV before it had taken over" in refused(own, program)


def test_a_main_that_would_lose_a_setting_names_it_and_where_it_was_written(own, tmp_path):
    program = installation(tmp_path / "new", [(b"\0working_dir\0", b"\0workinG_dir\0")])
    assert "working_dir is not known to this version" in refused(own, program)


@pytest.mark.parametrize("then", ["time.sleep(600)\n", "hello(1, 1)\ntime.sleep(600)\n"], ids=["silent", "greeted"])
def test_a_main_that_hangs_is_killed_in_time(own, then):
    program = stand_in(own, then)
    assert "had not taken over after 1 s and was killed" in refused(own, program, "--timeout", "1s")


def test_a_main_that_dies_between_take_and_helm_leaves_everything_with_the_old_one(own):
    """The old one is held while it is asked to stand down: it learns of both at once, and must stand up again."""
    program = stand_in(own, f"""
hello(1, 1)
os.kill({own.main_pid()}, 19)
take()
candidate = os.getpid()
if os.fork() == 0:
    link.close()
    while os.path.exists(f"/proc/{{candidate}}"):  # until the keeper knows that it has ended
        time.sleep(0.002)
    os.kill({own.main_pid()}, 18)
    os._exit(0)
os._exit(3)
""")
    for _ in range(3):
        assert "ended with status 3 before it had taken over" in refused(own, program)


def test_a_main_that_dies_with_the_helm_in_its_hands_is_followed_by_the_one_before(serve, tmp_path):
    folder = tmp_path / "service"
    shutil.copytree(paths.services / "simple", folder)
    server = serve("service:Simple", service=folder).ready()
    workers, mark = server.workers(), server.log.mark()
    program = stand_in(server, "hello(1, 1)\ntake()\nwhile receive()[0] != 84:\n    pass\nos._exit(3)\n")
    assert "crashed" in refused(server, program)
    server.wait_for("main.adopted", since=mark)
    server.wait_until(lambda: (s := server.try_status()) and s["ready"])
    assert server.log.find("main.former") and len(server.log.find("main.crashed")) == 1
    assert server.workers() == workers
    assert request(server.address, "POST", "/predict", {"text": "a"}).text() == "A"


@pytest.mark.parametrize("speaks, taken", [((2, 3), False), ((0, 1), True), ((1, 2), True)])
def test_the_protocol_is_spoken_one_version_back(own, speaks, taken):
    """One that is too new is told so and leaves; one that overlaps is welcome (and leaves with its own words)."""
    script_text = f"""
if hello({speaks[0]}, {speaks[1]}) == 65:
    bye(5, "welcome, and no")
else:
    bye(5, "this keeper is too old for us")
sys.exit(5)
"""
    program = stand_in(own, script_text)
    assert ("welcome, and no" if taken else "this keeper is too old for us") in refused(own, program)


def test_two_upgrades_at_once_and_one_during_a_reload_are_refused(own):
    program = stand_in(own, "hello(1, 1)\ntime.sleep(600)\n")
    mark = own.log.mark()
    first = threading.Thread(target=refused, args=(own, program, "--timeout", "2s"))
    first.start()
    own.wait_for("upgrade.started", since=mark)
    assert "an upgrade is under way" in refused(own)
    for verb in (["reload"], ["restart", "simple"]):
        done = own.verb(*verb)
        assert done.returncode != 0 and "an upgrade is under way" in done.stdout + done.stderr
    first.join(30)
    own.wait_for("upgrade.failed", since=mark)


@pytest.mark.full
def test_a_new_main_that_crashes_soon_is_followed_by_the_one_before(serve, tmp_path):
    program, version = new_version(tmp_path / "new")
    server = serve("service:Simple", service="simple").ready()
    workers = server.workers()
    old = version_of(paths.plimsoll.read_bytes())
    upgraded(server, program)
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", since=mark)
    status = server.wait_until(lambda: (s := server.try_status()) and s["ready"] and s)
    assert status["version"] == old and status["started"] == "crash"
    assert server.log.find("main.former")
    assert server.workers() == workers


def test_over_the_network_no_binary_can_be_named(serve, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-many-letters")
    token.chmod(0o600)
    server = serve("service:Simple", "--admin_token", f"file:{token}", service="simple", admin="127.0.0.1:0").ready()
    where = server.status()["admin"]
    address = (where.rpartition(":")[0], int(where.rpartition(":")[2]))
    headers = {"authorization": "Bearer a-token-of-many-letters", "x-plimsoll-admin": "1"}
    reply = request(address, "POST", "/upgrade", {"binary": "/bin/sh"}, headers=headers)
    assert reply.status == 403 and "admin.sock only" in reply.text()
    assert request(address, "POST", "/upgrade", {}, headers=headers).status == 202
    server.wait_for("upgrade.done")
    server.wait_until(lambda: (s := server.try_status()) and s["started"] == "upgrade")
