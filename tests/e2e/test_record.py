"""The flight record: what is left of a life that was killed whole, and disks that do not take it."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from rig import FakeWorker, Load, host
from rig.fake import ok
from rig.server import ROOT, paths, run_plimsoll

# In front of `plimsoll serve`: its state folder becomes a small file system of its own, in a mount namespace of its own.
SMALL_DISK = """
for word; do [ "$before" = --state_dir ] && state=$word; before=$word; done
mkdir -p "$state" && mount -t tmpfs -o "$OPTIONS" tmpfs "$state" && exec "$@"
"""


def disk(options):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    return ["env", f"OPTIONS={options}", "unshare", "-m", "sh", "-c", SMALL_DISK, "sh"]


@pytest.fixture
def fake():
    with FakeWorker() as worker:
        yield worker


def record_of(server):
    return server.folder / "state/record.sqlite"


def ask(path, sql):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute(sql).fetchall()
    db.close()
    return rows


def figure(server, family):
    """The value of a family without labels."""
    (value,) = re.findall(rf"^{family} (\S+)$", server.get("/metrics").text(), re.M)
    return float(value)


def report(server, *words, status=0):
    done = server.verb("report", "--json", *words)
    assert done.returncode == status, done.stderr + done.stdout
    return json.loads(done.stdout)


def kill_everything(server):
    """All stopped first, so that nobody sees another one die."""
    pids = [server.pid, *host.descendants(server.pid)]
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, sig)
    assert server.wait_exit() == 128 + signal.SIGKILL
    for pid in pids[1:]:
        os.waitpid(pid, 0)  # orphans become children of the test: conftest made it a subreaper


def all_ok(server, count=200):
    for number in range(count):
        assert server.post("/predict", {"n": number, "text": "x" * 200}).status == 200


@pytest.mark.timeout(180)
def test_all_killed_together_the_next_start_tells_it_once_with_the_last_minute(serve, fake):
    arrived, go = threading.Event(), threading.Event()

    def handler(request, sock):
        if request.target.startswith("/slow"):
            arrived.set()
            go.wait(60)
            return False
        return ok(request, sock)

    fake.handler = handler
    server = serve("service:Any", python=fake.python, env=fake.env).ready()
    for _ in range(20):
        assert server.post("/predict?key=secret", {"prompt": "a secret"}).status == 200
    client = threading.Thread(target=server.try_post, args=("/slow", {}))
    client.start()
    assert arrived.wait(30)
    path = record_of(server)
    server.wait_until(lambda: ask(path, "SELECT 1 FROM request WHERE outcome IS NULL"), what="the slow request has a row")
    server.wait_until(lambda: ask(path, "SELECT 1 FROM sample WHERE scope = 'host'"), what="a sample")
    kill_everything(server)
    go.set()
    client.join()

    server.again().ready()
    told = server.wait_for("instance.died", since=server.mark)
    assert told["cause"] == "unknown" and "without a goodbye" in told["sentence"]
    doc = server.wait_until(lambda: (d := report(server))["death"]["sentence"] == told["sentence"] and d)
    assert (doc["death"]["kind"], doc["death"]["cause"]) == ("instance", "unknown")
    assert {"main.ready", "worker.ready", "worker.first_request"} <= {e["event"] for e in doc["story"]}
    assert doc["numbers"][0]["outcomes"] == {"ok": 20}
    (slow,) = doc["in_flight"]
    assert (slow["route"], slow["worker"], slow.get("outcome")) == ("/slow", 1, None)
    assert any(m["scope"] == "host" and m["points"] for m in doc["memory"])
    text = server.verb("report").stdout
    assert "keeper, main and workers together: unknown" in text and "/slow" in text and "no end known" in text
    server.terminate()
    assert server.wait_exit() == 0

    server.again().ready()
    server.wait_until(lambda: figure(server, "plimsoll_record_bytes") > 0)
    assert not server.log.find("instance.died", since=server.mark), "told once"
    assert report(server)["death"] == doc["death"]
    assert ask(path, "SELECT count(*) FROM exit") == [(1,)]
    # nothing of what was sent is in the files
    for file in path.parent.glob("record.sqlite*"):
        assert b"secret" not in file.read_bytes(), file


@pytest.mark.timeout(120)
def test_a_worker_that_dies_is_told_with_what_it_had_in_hand(serve):
    server = serve("service:Feature", "--workers", "1").ready()
    (pid,) = server.workers().values()
    replies = []
    client = threading.Thread(target=lambda: replies.append(server.post("/work", {"number": 1, "seconds": 30}, timeout=100).status))
    client.start()
    server.wait_until(lambda: any(line.startswith("begin 1") for line in server.journal()), what="a handler has it")
    os.kill(pid, signal.SIGKILL)
    death = server.wait_for("worker.death")
    client.join()
    assert replies == [502]
    server.wait_until(lambda: ask(record_of(server), "SELECT 1 FROM exit"))
    doc = report(server)
    assert (doc["death"]["id"], doc["death"]["cause"], doc["death"]["in_handlers"]) == (death["death"], "killed", 1)
    assert [(r["route"], r["outcome"]) for r in doc["in_flight"]] == [("/work", "worker_died")]
    assert report(server, "--service", "other", status=1).get("death") is None
    # the same out of the file alone, and between two times
    file = run_plimsoll("report", "--json", "--record", record_of(server))
    assert json.loads(file.stdout)["death"] == doc["death"]
    assert report(server, "--since", "1h")["deaths"] == report(server, "--since", doc["from"])["deaths"]
    assert server.verb("report", "--since", "1h", "--last").returncode == 2
    assert server.verb("report", "--since", "yesterday").returncode == 2
    # start-up of both generations
    starts = admin(server, "/timeline/feature")["starts"]
    assert [s["generation"] for s in starts][-1] == 1 and starts[-1]["ready_ms"] > starts[-1]["imported_ms"] > 0
    past = admin(server, "/history?service=feature&step=1s")
    assert sum(p["requests"] for p in past["requests"]) >= 1 and past["deaths"][0]["id"] == death["death"]
    assert "no time" in admin(server, "/history?from=yesterday", status=400)["error"]["message"]


def admin(server, target, status=200):
    done = subprocess.run(["curl", "-s", "-w", "%{http_code}", "--unix-socket", str(server.run_dir / "admin.sock"),
                           f"http://x{target}"], capture_output=True, text=True, timeout=60)
    assert done.stdout[-3:] == str(status), done.stdout
    return json.loads(done.stdout[:-3])


@pytest.mark.timeout(120)
def test_main_killed_alone_is_an_exit_of_main_and_of_nothing_else(serve, fake):
    server = serve("service:Any", python=fake.python, env=fake.env).ready()
    server.wait_until(lambda: ask(record_of(server), "SELECT 1 FROM event WHERE event = 'main.ready'"))
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted", {"workers": 1})
    server.wait_until(lambda: ask(record_of(server), "SELECT 1 FROM exit"))
    assert ask(record_of(server), "SELECT kind, cause FROM exit") == [("main", "crashed")]
    assert not server.log.find("instance.died")


@pytest.mark.timeout(120)
def test_a_full_disk_costs_no_request_and_what_was_kept_comes_back(serve, fake):
    def handler(request, sock):
        if request.target == "/none":
            sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        return ok(request, sock)

    fake.handler = handler
    server = serve("service:Any", python=fake.python, env=fake.env, before=disk("size=300k")).ready()
    before = server.pid  # unshare and sh became it
    memory = None
    for _ in range(500):
        for _ in range(20):
            assert server.post("/none", {}).status == 404
        if memory := server.log.find("record.memory"):
            break
    assert memory and "full" in memory[0]["reason"]
    all_ok(server, 50)
    assert figure(server, "plimsoll_record_rows_dropped_total") == 0
    assert server.verb("report", "--since", "1h").returncode == 0, "read out of memory"
    # room again: all of it is moved to the file
    state = server.folder / "state"
    subprocess.run(["nsenter", "-t", str(before), "-m", "mount", "-o", "remount,size=32m", str(state)], check=True)
    server.wait_for("record.back")
    all_ok(server, 5)
    server.wait_until(lambda: report(server, "--since", "1h")["numbers"][0]["outcomes"].get("ok") == 55)
    story = [e["event"] for e in report(server, "--since", "1h")["story"]]
    assert story.count("main.ready") == story.count("record.memory") == story.count("record.back") == 1


@pytest.mark.timeout(120)
def test_a_read_only_disk_costs_no_request(serve, fake):
    server = serve("service:Any", python=fake.python, env=fake.env, before=disk("ro")).ready()
    assert server.wait_for("record.memory")["reason"]
    with Load(server.address, lambda n: ("POST", "/predict", {"n": n}, lambda r: r.status == 200), connections=4) as load:
        load.wait_for_more(200)
    assert load.kinds() == {"ok": len(load.outcomes)}
    assert figure(server, "plimsoll_record_rows_dropped_total") == 0
    assert {"main.ready", "record.memory"} <= {e["event"] for e in report(server, "--since", "1h")["story"]}
    assert report(server, status=1).get("death") is None


@pytest.mark.timeout(120)
def test_what_an_observed_service_would_have_done_is_in_the_report(serve, fake):
    server = serve("service:Any", "--mode", "observe", "--replace.max_requests", "10", "--replace.max_requests_jitter", "0",
                   python=fake.python, env=fake.env).ready()
    all_ok(server, 30)
    server.wait_for("would.replace")
    server.wait_until(lambda: ask(record_of(server), "SELECT 1 FROM would"))
    row = report(server, "--would")["would"][0]
    assert (row["action"], row["reason"], row["mode"]) == ("replace", "max_requests", "observe")
    assert "would replace (max_requests), mode observe" in server.verb("report", "--would").stdout


@pytest.mark.timeout(120)
def test_the_page_holds_all_it_shows_and_draws(tmp_path):
    evil = "</script><script>alert(1)</script>"
    path, page = tmp_path / "record.sqlite", tmp_path / "report.html"
    make_record(path, evil)
    done = run_plimsoll("report", "--record", path, "--html", page)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    text = page.read_text()
    assert text.count("</script>") == 2 and "http" not in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert [s["head"] for s in data["sections"]][1:3] == ["Memory, gpu0", "Requests that began, each 1 s"]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return
    dom = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/c", "--dump-dom",
                          page.as_uri()], capture_output=True, text=True, timeout=100).stdout
    assert dom.count("<canvas") == 2 and "What happened" in dom and "alert(1)&lt;/script&gt;" in dom


def make_record(path, text):
    """A minute of another machine's service, which leaked and died."""
    subprocess.run([paths.build / "bin/make_record", path, text, "1796000000000"], check=True)


def test_a_plan_expects_what_the_record_has_seen(tmp_path):
    make_record(tmp_path / "record.sqlite", "x")
    model = ROOT / "tests/data/plan/configs/llama-2-13b"
    done = run_plimsoll("plan", model, "--gpu", "card:40GiB", "--strategies", "--record", tmp_path / "record.sqlite")
    # 100 to 690 tokens in, the same number of each, and 50 out
    assert done.returncode == 0 and "requests of 445 tokens on average" in done.stdout.replace("444", "445"), done.stdout
    assert run_plimsoll("plan", model, "--gpu", "card:40GiB", "--record", tmp_path / "record.sqlite", "--expect", "1+1").returncode == 2
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        db.execute("UPDATE request SET input_tokens = NULL")
    db.close()
    done = run_plimsoll("plan", model, "--gpu", "card:40GiB", "--record", tmp_path / "record.sqlite")
    assert done.returncode == 4 and "holds 0 requests" in done.stderr


def test_foreign_files_are_refused_with_words(tmp_path):
    (tmp_path / "text").write_text("no database at all")
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE t(x)")
    db.close()
    for name, status, words in (("text", 3, "no flight record"), ("other", 3, "no flight record"), ("none", 5, "No such file")):
        done = run_plimsoll("report", "--record", tmp_path / name)
        assert done.returncode == status and words in done.stderr, done.stderr


QUERY = re.compile(r"^```sql\n(.*?)^```", re.S | re.M)


def test_the_documented_queries_run_on_a_record(tmp_path):
    make_record(tmp_path / "record.sqlite", "x")
    queries = QUERY.findall(Path(ROOT / "docs/record.md").read_text())
    assert len(queries) >= 5
    for query in queries:
        assert ask(tmp_path / "record.sqlite", query), query


def test_the_documented_columns_are_those_of_the_tables(tmp_path):
    make_record(tmp_path / "record.sqlite", "x")
    text = Path(ROOT / "docs/record.md").read_text()
    tables = {name for (name,) in ask(tmp_path / "record.sqlite", "SELECT name FROM sqlite_master WHERE type = 'table'")}
    told = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*) \|$", text, re.M))
    assert set(told) == tables
    for table in tables:
        columns = {row[1] for row in ask(tmp_path / "record.sqlite", f"PRAGMA table_xinfo({table})")}
        assert set(re.findall(r"`(\w+)`", told[table])) == columns, table
