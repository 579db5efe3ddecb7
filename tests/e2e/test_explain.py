"""`plimsoll explain` of a running service: real PyTorch and BentoML, in the dry dock."""

import contextlib
import json
import stat
import threading

import pytest

from rig import dock, paths
from rig.serving import serving

pytestmark = [pytest.mark.timeout(240),
              pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")]
SOURCE = (paths.services / "holders/service.py").read_text().splitlines()


def line_of(text):
    return next(n for n, line in enumerate(SOURCE, 1) if text in line)


def start(serve, cache, *flags, env=None):
    return serve("service:Holders", *flags, service="holders", python=dock.torch_python(),
                 before=[paths.plimsoll, "drydock", "-q", "--gpu", "mine:8GiB", "--"],
                 env={"PLIMSOLL_CACHE": str(cache), **(env or {})}).ready()


@pytest.fixture(scope="module")
def server(cache):
    with serving() as serve:
        yield start(serve, cache)


class Traffic:
    """Requests all the time, with a moment between them, until the block is left."""

    def __init__(self, server, paths_):
        self.server, self.paths, self.over = server, paths_, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.count = 0
        self.failed = None

    def run(self):
        while not self.over.is_set():
            reply = self.server.post(self.paths[self.count % len(self.paths)], {"n": self.count})
            if reply.status != 200:
                self.failed = reply
                return
            self.count += 1
            self.over.wait(0.06 if self.count % 20 == 0 else 0)  # a quiet moment now and then

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(30)
        assert self.failed is None and not self.thread.is_alive(), self.failed


def explain(server, *flags, status=0):
    done = server.verb("explain", "--deadline", "60s", *flags, "--json", timeout=200)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout else json.loads(done.stderr)


def kept(server, kind):
    folder = server.folder / "state" / kind
    return sorted(folder.iterdir()) if folder.exists() else []


def test_the_holder_is_named_with_its_lines_and_its_route(server):
    for n in range(20):
        server.post("/leak", {"n": n})
    since = server.log.mark()
    with Traffic(server, ["/leak", "/innocent", "/innocent"]):
        report = explain(server, "--history", "on", "--again", "60s")
    assert report["kind"] == "explain" and report["service"] == "holders" and report["complete"]
    assert report["looks"] == 2 and report["requests"] >= 290 and report["why"] == "operator"
    row = next(f for f in report["findings"] if f["growing"])
    assert (row["holder"], row["kind"], row["container"]) == ("KEPT", "module_global", "list")
    assert (row["file"], row["line"]) == ("service.py", line_of("KEPT = []"))
    assert row["grown_at"][0]["line"] == line_of("KEPT.append(y)") and row["grown_at"][0]["code"] == "KEPT.append(y)"
    assert row["allocated_at"][0]["line"] == line_of("y = self.model")
    assert row["route"] == "/leak" and abs(row["blocks_per_request"] - 1) < 0.1
    assert abs(row["bytes_per_request"] - 8192) < 820 and row["tagged"].keys() == {"/leak"}
    assert report["cost"]["pause_ms"] > 0 and report["mode"] == "fork"
    # events, metrics, the file, the status
    told = server.wait_for("memory.holder", lambda e: e["holder"] == "KEPT", since=since)
    assert told["growing"] in (True, "true") and told["grown_at"] == f"service.py:{line_of('KEPT.append(y)')}"
    assert told["route"] == "/leak"
    done = server.wait_for("explain.done", since=since)
    path = server.folder / "state/explain" / done["file"]
    assert json.loads(path.read_text())["findings"] == report["findings"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert server.status()["services"][0]["workers"][0]["verdict"]["holder"] == f"service.py:{line_of('KEPT = []')} KEPT"
    text = server.get("/metrics").body.decode()
    assert 'plimsoll_explain_runs_total{service="holders",result="done"} 1' in text
    assert 'plimsoll_explain_pause_seconds_count{service="holders"} 1' in text


def test_looks_are_limited_and_force_lifts_the_limit(server):
    explain(server, "--again", "0s", "--force")
    refused = explain(server, "--again", "0s", status=1)
    assert refused["state"] == "failed" and refused["message"].startswith("limit: ")
    server.wait_for("explain.refused", lambda e: e["reason"] == "limit")
    once = explain(server, "--again", "0s", "--force", "--mode", "inline")
    assert once["mode"] == "inline"


def test_a_first_look_that_had_too_little_time_is_no_first_look(server):
    """A person is told at once, with status 4; a second look would find that nothing grows, since nothing was seen before."""
    since = server.log.mark()
    assert server.post("/short", {"looks": "x"}).status == 200
    report = explain(server, "--again", "60s", "--force", status=4)
    assert report["complete"] is False
    assert server.wait_for("explain.done", since=since)["complete"] in (False, "false")
    server.post("/leak", {"n": 1})
    assert explain(server, "--again", "0s", "--force")["complete"] and not server.log.find("explain.again")


def test_nothing_is_held_afterwards(server):
    explain(server, "--again", "0s", "--force", "--mode", "inline")
    explain(server, "--again", "0s", "--force")
    server.post("/leak", {"n": 1})
    before = int(server.post("/forget", {}).body)
    for mode in ("fork", "inline"):
        for n in range(30):
            server.post("/leak", {"n": n})
        explain(server, "--again", "0s", "--force", "--mode", mode)
        assert int(server.post("/forget", {}).body) == before, mode


def test_words_for_people(server):
    done = server.verb("explain", "holders", "--again", "0s", "--force", timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("holders worker 1: looked at in "), done.stdout
    assert "  host: " in done.stdout


def test_host_memory_is_explained_too(server):
    server.post("/remember", {"n": -1})
    for n in range(80):
        server.post("/remember", {"n": n})
    explain(server, "--again", "0s", "--force")
    with Traffic(server, ["/remember"]) as traffic:
        traffic.count = 1000
        report = explain(server, "--force", "--again", "60s")
    row = next((r for r in report["host"]["holders"] if r["holder"] == "NOTES"), None)
    assert row, report["host"]
    assert (row["file"], row["line"], row["kind"]) == ("service.py", line_of("NOTES = {}"), "module_global")
    assert row["grown"] >= 290 and abs(row["bytes_grown"] / row["grown"] / 65536 - 1) < 0.1
    assert row["grown_at"][0]["line"] == line_of("NOTES[n] = ")
    assert report["host"]["grown"] == "malloc"


def test_a_busy_worker_is_left_alone_until_forced(server):
    busy = threading.Thread(target=server.post, args=("/busy",))
    busy.start()
    try:
        server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 1)
        done = server.verb("explain", "--again", "0s", "--json", timeout=100)
        assert done.returncode == 1 and json.loads(done.stdout)["message"].startswith(("busy: ", "limit: ")), done.stdout
        assert explain(server, "--again", "0s", "--force")["complete"]
    finally:
        server.gate.touch()
        busy.join(60)


def test_a_snapshot_is_saved_and_analysed(server, tmp_path):
    file = tmp_path / "mem.pickle"
    done = server.verb("explain", "--again", "0s", "--force", "--snapshot", file, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = server.wait_for("snapshot.saved", lambda e: e["why"] == "operator")
    assert file.stat().st_size == int(saved["bytes"]) and (server.folder / "state/snapshots" / saved["file"]).read_bytes() == file.read_bytes()
    assert "GiB" in done.stdout or "MiB" in done.stdout
    checked = paths.plimsoll and server.verb("explain", "--again", "0s", "--force", "--snapshot", "/nowhere/x", timeout=200)
    assert checked.returncode == 5 and "/nowhere/x" in checked.stderr
    assert not list((server.run_dir / "snap").iterdir())


def test_an_oom_leaves_a_snapshot(server):
    assert server.post("/full", {}).status == 500
    saved = server.wait_for("snapshot.saved", lambda e: e["why"] == "oom")
    path = next(p for p in kept(server, "snapshots") if str(p) == saved["file"])
    assert path.stat().st_size == int(saved["bytes"]) > 1000

    def analysed():
        report = path.with_name(path.name + ".report.json")
        return report.exists() and report.stat().st_size > 0 and json.loads(report.read_text())

    assert server.wait_until(analysed, what="what is in the snapshot")["kind"] == "snapshot"
    assert server.post("/full", {}).status == 500  # not a second one so soon
    server.post("/innocent", {})
    assert len(server.log.find("snapshot.saved", {"why": "oom"})) == 1


@pytest.mark.full
def test_a_verdict_looks_once_with_the_history_on(serve, cache):
    server = start(serve, cache, "--mode", "observe", "--replace.host_rss", "64MiB")
    with Traffic(server, ["/leak"]):
        done = server.wait_for("explain.done", {"why": "host_rss"}, timeout=120)
    report = json.loads((server.folder / "state/explain" / done["file"]).read_text())
    row = next(f for f in report["findings"] if f["growing"])
    assert row["holder"] == "KEPT" and row["allocated_at"][0]["line"] == line_of("y = self.model")
    assert report["looks"] == 2 and report["why"] == "host_rss"
    with Traffic(server, ["/leak"]) as traffic:
        server.wait_until(lambda: traffic.count > 50)
    assert len(server.log.find("explain.done")) == 1
    assert server.status()["services"][0]["workers"][0]["verdict"]["holder"].endswith(" KEPT")


def on_a_verdict(serve, cache, short):
    """(server, its explain.again, its explain.done) of a verdict whose looks have no time where `short` has an x."""
    server = start(serve, cache, "--mode", "observe", "--replace.host_rss", "64MiB", env={"SHORT_LOOKS": short})
    with Traffic(server, ["/leak"]):
        done = server.wait_for("explain.done", {"why": "host_rss"}, timeout=150)
    return server, server.log.find("explain.again"), done


@pytest.mark.full
@pytest.mark.parametrize("short, look", [("x", 1), (".x", 2)], ids=["first", "second"])
def test_a_look_that_had_too_little_time_is_taken_again_with_more(serve, cache, short, look):
    server, again, done = on_a_verdict(serve, cache, short)
    assert [(e["reason"], e["look"], e["try"], e["of"], e["deadline_ms"], e["why"]) for e in again] == [
        ("incomplete", look, 2, 3, 20000, "host_rss")]
    assert done["complete"] in (True, "true") and done["tries"] == 2
    report = json.loads((server.folder / "state/explain" / done["file"]).read_text())
    assert report["looks"] == 2 and next(f for f in report["findings"] if f["growing"])["holder"] == "KEPT"
    said = server.status()["services"][0]["workers"][0]["verdict"]
    assert said["explain"] == {"state": "done", "tries": 2} and said["holder"].endswith(" KEPT")


@pytest.mark.full
def test_looks_that_never_have_enough_time_come_to_an_end_and_say_so(serve, cache):
    server, again, done = on_a_verdict(serve, cache, "xxxxxx")
    assert [(e["try"], e["deadline_ms"]) for e in again] == [(2, 20000), (3, 40000)]
    assert done["complete"] in (False, "false") and done["tries"] == 3
    assert server.status()["services"][0]["workers"][0]["verdict"]["explain"] == {"state": "incomplete", "tries": 3}
    assert "its holder was not found (incomplete after 3 tries: plimsoll explain --force" in server.verb("status").stdout
    with Traffic(server, ["/leak"]) as traffic:
        server.wait_until(lambda: traffic.count > 50)
    assert len(server.log.find("explain.done")) == 1


@pytest.mark.full
def test_the_fast_lane_answers_everybody_under_looks_with_the_history_on(serve, cache, tmp_path):
    """Threads that change every microsecond, many clients, pauses of a fork in between: nobody waits for ever, and the
    worker ends when it is told to."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.setswitchinterval(1e-6)\n")
    server = start(serve, cache, "--timeout", "20s", env={"PYTHONPATH": str(tmp_path)})
    table = server.wait_until(lambda: server.status()["services"][0]["workers"][0].get("fast_lane"), what="its table")
    assert table["/leak"] == table["/innocent"] == "sync"
    crowd = [Traffic(server, paths_) for paths_ in (["/leak"], ["/innocent"], ["/remember", "/innocent"], ["/leak", "/innocent"])]
    with contextlib.ExitStack() as stack:
        for traffic in crowd:
            stack.enter_context(traffic)
        for n in range(6):
            explain(server, "--again", "0s", "--force", "--history", "on" if n % 3 < 2 else "off")
    assert sum(t.count for t in crowd) > 300
    server.terminate()
    assert server.wait_exit() == 0
    gone = server.wait_for("worker.gone")
    assert gone["took_ms"] < 8000, "by itself: SIGKILL comes after 10 s"


def test_at_most_ten_reports_are_kept(server):
    folder = server.folder / "state/explain"
    for n in range(12):
        (folder / f"{n:013}-old-g1.json").write_text("{}")
    explain(server, "--again", "0s", "--force", "--deadline", "60s")
    names = [p.name for p in kept(server, "explain")]
    assert len(names) == 10 and not names[-1].startswith("0000000000"), names


def test_what_cannot_be_explained(serve, server):
    bad = server.verb("explain", "--worker", "7", "--json")
    assert bad.returncode in (1, 2) and "has no worker 7" in bad.stderr
    assert "mode auto, fork or inline" in server.verb("explain", "--mode", "sideways").stderr
    assert server.verb("explain", "--deadline", "soon").returncode == 2
    off = serve("service:Simple", "--explain", "off", service="simple").ready()
    done = off.verb("explain")
    assert done.returncode == 1 and "explain is off" in done.stderr
