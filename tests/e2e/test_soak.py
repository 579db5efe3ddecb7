"""`plimsoll soak`: the tutorials' services get the verdict their authors would, with the real PyTorch in the dry dock."""

import concurrent.futures
import json
import os
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rig import dock, host, paths, tutorials, wire
from rig.server import ROOT, clean_environment

torch = pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
pytestmark = [pytest.mark.timeout(400)]
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
QUICK = {"bad/gpu_cache.py"}
SCENARIOS = {"identical": "identical", "failing": "failing", "mixed_shapes": "shapes", "cancelled_streams": "cancel",
             "start": "identical", "bentoml serve": "identical"}
LEAKS = {"leak", "host_leak", "duplicate_load"}


class Soak:
    """`plimsoll soak` in a folder of its own; whatever it started must be gone afterwards."""

    def __init__(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="pl-soak-", dir="/tmp"))

    def run(self, *words, cwd=None, env=None, timeout=900):
        environment = {**clean_environment(), "TMPDIR": str(self.tmp), "BENTOML_DO_NOT_TRACK": "True",
                       "PYTHONDONTWRITEBYTECODE": "1", "BENTOML_HOME": str(self.tmp / "bentoml"), **(env or {})}
        (self.tmp / "bentoml").mkdir(exist_ok=True)
        done = subprocess.run([paths.plimsoll, *map(str, words)], cwd=cwd, env=environment, text=True, capture_output=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)
        left = [p.name for p in self.tmp.glob("plimsoll-soak-*")]
        assert not left, f"left behind: {left}"
        return done

    def json(self, *words, **more):
        done = self.run("soak", "--json", *words, **more)
        lines = done.stdout.splitlines()
        assert lines, done.stderr
        done.progress, done.doc = [json.loads(line) for line in lines[:-1]], json.loads(lines[-1])
        return done


@pytest.fixture
def soak():
    one = Soak()
    before = set(host.descendants(os.getpid()))
    yield one
    assert set(host.descendants(os.getpid())) <= before, "a process was left"
    shutil.rmtree(one.tmp)


def in_dock(cache, *more, gpu="a100-40"):
    return ["--drydock", gpu, "--python", dock.torch_python(), *more], {"PLIMSOLL_CACHE": str(cache)}


def request_of(name):
    row = tutorials.expected[name]
    words = ["--route", row["request"]["path"]]
    if "failing_body" in row["request"]:
        words += ["--failing", json.dumps(row["request"]["failing_body"])]
    return words, tutorials.body(name)


@torch
@pytest.mark.parametrize("name, word", list(tutorials.cases(QUICK)))
def test_the_tutorials_get_the_verdict_they_deserve(soak, cache, request, tmp_path, name, word):
    row = tutorials.expected[name]
    flags, env = in_dock(cache)
    if "needs" in row["soak"]:
        env["BENTOML_HOME"] = str(request.getfixturevalue("store"))
    words, body = request_of(name)
    (tmp_path / "body.json").write_text(json.dumps(body))
    scenario = SCENARIOS[row["soak"]["scenario"]]
    many = 3000 if scenario == "cancel" else 2000
    if row["service"] == "InferenceService":
        many = 600  # a request is a megabyte
    done = soak.json(tutorials.target(name), *flags, *words, "--body", f"@{tmp_path / 'body.json'}",
                     "--scenario", scenario, "--requests", many, cwd=(tutorials.folder / name).parent, env=env)
    one = done.doc["scenarios"][0]
    verdict = one["verdict"]
    assert verdict["word"] == word, done.doc
    assert done.returncode == (1 if word in LEAKS else 0), done.stderr
    assert one["result"] == ("leak" if word in LEAKS else "clean")
    assert done.doc["dry_run"] is True and done.doc["gpu"]["name"].startswith("NVIDIA A100")
    if word in ("leak", "host_leak"):
        wanted = row["soak"].get("host_kib_per_request") or row["soak"]["kib_per_request"]
        if scenario == "cancel":  # of streams only those leak that did not come to their end before the client left
            assert 4 * KIB < verdict["bytes_per_request"] < wanted * KIB * 1.1
        else:
            assert verdict["bytes_per_request"] == pytest.approx(wanted * KIB, rel=0.1)
        assert verdict["low"] <= verdict["bytes_per_request"] <= verdict["high"]
        assert row["soak"]["holder"].split(".")[-1] in one["holder"]
    if word == "leak":
        assert one["failed_share"] == pytest.approx(0 if scenario == "identical" else 1, abs=0.01)
        assert one["requests"] < verdict["since_requests"] + many + 1000, "it stops when it is certain"
    if word == "duplicate_load":
        assert verdict["copies"] == (4 if name == "bad/workers_on_one_gpu.py" else 2)


# ---- what it says, and how it ends


def simple(*more):
    return ["service:Simple", "--python", paths.python, *more]


SIMPLE = paths.services / "simple"


def test_too_few_requests_are_not_judged_and_every_report_says_so(soak, tmp_path):
    done = soak.run("soak", *simple("--requests", 30, "--scenario", "identical,failing,batch", "--junit", tmp_path / "s.xml",
                                    "--html", tmp_path / "s.html"), cwd=SIMPLE)
    assert done.returncode == 4, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80, "it fits a terminal"
    assert lines[-1].startswith("not known") and any("more requests are needed" in line for line in lines)
    suite = ElementTree.parse(tmp_path / "s.xml").getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == \
        ("testsuite", "3", "0", "2", "1")
    assert [case.get("name") for case in suite] == ["identical", "failing", "batch"]
    assert "more requests are needed" in suite[0].find("error").get("message")
    page = (tmp_path / "s.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert [s["head"] for s in data["sections"] if "head" in s] == ["Verdicts", "identical", "failing", "batch"]
    assert "http://" not in page and "https://" not in page.replace("http://www.w3.org", ""), "nothing is fetched"


def test_json_is_progress_and_then_one_document(soak):
    done = soak.json(*simple("--requests", 450), cwd=SIMPLE)
    assert done.returncode == 4
    assert [p["kind"] for p in done.progress] == ["soak_progress"] * 3 and done.progress[-1]["requests"] == 450
    one = done.doc["scenarios"][0]
    assert (done.doc["kind"], done.doc["route"], one["result"], one["verdict"]["word"]) == ("soak", "/predict", "unknown", "warming")
    assert one["requests"] == one["ok"] == 450 and one["latency_ms"]["median"] <= one["latency_ms"]["p95"]
    assert one["curve"][-1][3] == pytest.approx(one["host_bytes"], rel=0.1)
    assert "gpu" not in done.doc and "device_bytes" not in one, "what is not known is absent"


def test_a_server_behind_plimsoll_is_judged_by_its_rows(soak, serve):
    server = serve("service:Simple", service="simple").ready()
    done = soak.json(server.url, "--admin", server.run_dir / "admin.sock", "--requests", 40)
    assert done.returncode == 4 and done.doc["service"] == "simple"
    assert done.doc["scenarios"][0]["verdict"]["requests"] == 40
    rows = json.loads(run_curl(server, "/rows/simple?from=0"))
    assert rows["columns"][:4] == ["n", "id", "tag", "outcome"]
    assert rows["next"] >= 40 and len(rows["rows"]) >= 40 and rows["lost"] == 0
    now = json.loads(run_curl(server, "/rows/simple"))
    assert now["next"] == rows["next"] and "rows" not in now


def run_curl(server, target):
    done = subprocess.run(["curl", "-sS", "--unix-socket", server.run_dir / "admin.sock", f"http://localhost{target}"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


LEAKING = """
import http.server, sys
KEPT = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if sys.argv[1] == "leak":
            KEPT.append(bytearray(64 << 10))
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"{}")
    def do_GET(self):
        import resource
        page = f"process_resident_memory_bytes {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}.0\\n".encode()
        self.send_response(200); self.send_header("content-length", str(len(page))); self.end_headers(); self.wfile.write(page)
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def http_server():
    started = []

    def start(how):
        process = subprocess.Popen(["python3", "-c", LEAKING, how], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, f"http://127.0.0.1:{int(process.stdout.readline())}"

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("how, word, status", [("leak", "host_leak", 1), pytest.param("keep nothing", "stable", 0, marks=pytest.mark.full)])
def test_any_url_is_judged_by_the_memory_of_its_process(soak, http_server, how, word, status):
    process, url = http_server(how)
    done = soak.json(url, "--pid", process.pid, "--route", "/x", "--body", "{}", "--requests", 3000)
    one = done.doc["scenarios"][0]
    assert (one["verdict"]["word"], done.returncode) == (word, status)
    if word == "host_leak":
        assert one["verdict"]["bytes_per_request"] == pytest.approx(64 * KIB, rel=0.1)


def test_any_url_is_judged_by_its_metrics(soak, http_server):
    _, url = http_server("keep nothing")
    done = soak.json(url, "--metrics", f"{url}/metrics", "--route", "/x", "--body", "{}", "--requests", 1500)
    assert done.doc["scenarios"][0]["verdict"]["word"] == "stable" and done.returncode == 0
    done = soak.run("soak", url, "--metrics", "http://127.0.0.1:1/metrics", "--route", "/x", "--body", "{}")
    assert done.returncode == 5 and "process_resident_memory_bytes" in done.stderr


@pytest.mark.parametrize("words, status, said", [
    (["http://127.0.0.1:1", "--route", "/x", "--body", "{}"], 2, "--pid"),
    (["https://x.example"], 2, "plain HTTP"),
    (["service:X", "--scenario", "identical,nope"], 2, "'nope' is none"),
    (["service:X", "--requests", "0"], 2, "from 1 to"),
    (["service:X", "--rate", "fast"], 2, "--rate"),
    (["service:X", "--route", "predict"], 2, "slash"),
    (["service:X", "--body", "{oops"], 3, "body:1:"),
    (["service:X", "--body", "@/nowhere.json"], 5, "/nowhere.json"),
    (["service:X", "--max-time", "10"], 2, "--max-time"),
    (["--compare", "service:X"], 2, "--with"),
    (["service:X", "service:Y"], 2, "--compare"),
    (["service:X", "--with", "nothing"], 2, "KEY=VALUE"),
])
def test_what_is_wrong_is_said_with_its_remedy(soak, words, status, said):
    done = soak.run("soak", *words, cwd=SIMPLE)
    assert done.returncode == status and said in done.stderr, done.stderr


def test_a_service_that_does_not_start_is_told_with_its_reason(soak):
    done = soak.run("soak", "service:Feature", "--python", paths.python, cwd=paths.services / "bad_init")
    assert done.returncode in (3, 5, 6), done.stderr
    assert "start" in done.stderr or "ready" in done.stderr


def test_values_are_not_invented(soak):
    done = soak.run("soak", "service:Feature", "--python", paths.python, cwd=paths.services / "feature")
    assert done.returncode == 2 and "--route" in done.stderr


# ---- on a card


@torch
def test_the_largest_batch_is_what_the_card_has_room_for(soak, cache):
    flags, env = in_dock(cache, gpu="small:2GiB")
    done = soak.json("service:Accounts", *flags, "--scenario", "batch", "--route", "/peak", "--body", '{"mib": 1}',
                     cwd=paths.services / "accounts", env=env)
    assert done.returncode == 0, done.stderr
    batch = done.doc["scenarios"][0]["batch"]
    # 85 % of the card, less the context of 400 MiB; 32 MiB of weights, and a mebibyte for each
    budget = int(2 * GIB * 0.85) - 400 * MIB
    assert batch["budget_bytes"] == pytest.approx(budget, abs=1)
    assert batch["largest"] == (budget - 32 * MIB) // MIB
    assert batch["peak_bytes"] == 32 * MIB + batch["largest"] * MIB
    assert (batch["field"], batch["limited_by"], batch["bytes_per_item"]) == ("mib", "budget", MIB)


@torch
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_requests_that_run_out_of_memory_are_no_clean_bill(soak, cache):
    flags, env = in_dock(cache, gpu="small:1GiB")
    done = soak.json("service:Leaky", *flags, "--route", "/predict", cwd=ROOT / "examples/leaky", env=env)
    one = done.doc["scenarios"][0]
    assert done.returncode == 1 and one["result"] == "failed"
    assert "lack of device memory" in one["notes"][0] and "HISTORY" in one["holder"]


@torch
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_b_is_compared_with_a(soak, cache):
    flags, env = in_dock(cache)
    body = ["--body", '{"length": 64}', "--requests", 600]
    clean = soak.json("service:Leaky", *flags, "--route", "/clean", *body, cwd=ROOT / "examples/leaky", env=env)
    leaky = soak.json("service:Leaky", *flags, "--route", "/predict", *body, cwd=ROOT / "examples/leaky", env=env)
    for name, done in (("a", clean), ("b", leaky)):
        (soak.tmp / f"{name}.json").write_text(done.stdout)
    worse = soak.run("soak", "--compare", soak.tmp / "a.json", soak.tmp / "b.json")
    assert worse.returncode == 1 and "B is worse than A" in worse.stdout
    better = soak.run("soak", "--compare", "--json", soak.tmp / "b.json", soak.tmp / "a.json")
    assert better.returncode in (0, 4) and json.loads(better.stdout)["worse"] is False


def test_b_is_a_with_a_change(soak):
    done = soak.json("--compare", *simple("--requests", 20, "--with", "traffic.max_concurrency=1", "--with", "OMP_NUM_THREADS=1"),
                     cwd=SIMPLE)
    assert done.returncode == 4 and done.doc["kind"] == "soak_compare"
    assert done.doc["b"]["with"] == ["traffic.max_concurrency=1", "OMP_NUM_THREADS=1"] and "with" not in done.doc["a"]
    assert {f["figure"] for f in done.doc["scenarios"][0]["figures"]} >= {"host at the end", "requests a second"}


def workflow():
    """The command of the CI example in docs/soak.md."""
    text = (ROOT / "docs/soak.md").read_text()
    line = next(line for line in text.splitlines() if "run: plimsoll soak" in line)
    return line.split("run: plimsoll ")[1].split()


@torch
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_ci_example_fails_on_the_leak_and_passes_on_its_fix(soak, cache, tmp_path):
    repository = tmp_path / "repository"
    shutil.copytree(ROOT / "examples/leaky", repository)

    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=repository, check=True,
                       capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a leak")
    git("tag", "leak")
    source = (repository / "service.py").read_text()
    fixed = source.replace("        HISTORY.append(y)\n", "").replace("        y = self.model(x)\n",
                                                                      "        with torch.inference_mode():\n            y = self.model(x)\n")
    assert fixed != source
    (repository / "service.py").write_text(fixed)
    git("commit", "-qam", "its fix")
    git("tag", "fix")
    env = {"PLIMSOLL_CACHE": str(cache)}
    ends = []
    for commit in ("leak", "fix"):
        git("checkout", "-q", commit)
        done = soak.run(*workflow(), "--python", dock.torch_python(), cwd=repository, env=env)
        ends.append((done.returncode, ElementTree.parse(repository / "soak.xml").getroot().get("failures")))
        if commit == "leak":
            assert "service.py:13 HISTORY" in done.stdout
    assert ends == [(1, "1"), (0, "0")]


# ---- the knee


@pytest.mark.full
def test_the_knee_of_four_threads_is_four_at_a_time(soak):
    done = soak.run("soak", "service:Sleepy", "--python", paths.python, "--tune", "--concurrency", 16, "--requests", 300,
                    cwd=paths.services / "sleepy")
    assert done.returncode == 0, done.stderr
    said = yaml(done.stdout)
    assert said["max_concurrency"] in (4, 8), done.stderr  # one step beside it when the machine has no time
    assert {"timeout", "queue"} <= set(said)
    assert "at a time" in done.stderr, "the table goes to stderr"
    check = soak.tmp / "plimsoll.yaml"
    check.write_text(done.stdout.replace("  sleepy:\n", "  sleepy:\n    run: service:Sleepy\n"))
    valid = soak.run("serve", "--check", "-c", check, "--python", paths.python, cwd=paths.services / "sleepy")
    assert valid.returncode == 0, valid.stderr


def yaml(text):
    """The traffic settings of what --tune prints; plain enough to be read line by line."""
    rows = [line.strip().partition(": ") for line in text.splitlines() if line.startswith("      ")]
    return {key: int(value) if value.isdigit() else value for key, _, value in rows}


def sweep(server, body, steps, each):
    """Requests a second at each step: the best of three rounds, each step in each round."""
    best = dict.fromkeys(steps, 0.0)
    for _ in range(3):
        for step in steps:
            def client(count):
                conn = wire.connection(server.address)
                for _ in range(count):
                    assert wire.exchange(conn, "POST", "/predict", body).status == 200
                conn.close()
            count = max(1, each // step)
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(step) as pool:
                list(pool.map(client, [count] * step))
            best[step] = max(best[step], count * step / (time.monotonic() - began))
    return best


@pytest.mark.full
def test_the_knee_of_the_example_is_within_one_step_of_a_sweep(soak, serve):
    steps = [1, 2, 4, 8, 16, 32, 64]
    body = json.loads((paths.digits / "samples/three.json").read_text())
    done = soak.run("soak", "service:Digits", "--python", paths.python, "--tune", "--route", "/predict", "--body",
                    f"@{paths.digits / 'samples/three.json'}", cwd=paths.digits, env={"BENTOML_HOME": paths.digits_home})
    assert done.returncode == 0, done.stderr
    found = yaml(done.stdout)["max_concurrency"]
    server = serve("service:Digits", service=paths.digits).ready()
    best = sweep(server, body, steps, 96)
    # what is flat has no sharp knee: every step that is one for a share from 80 to 95 %
    knees = {next(s for s in steps if best[s] >= share / 100 * max(best.values())) for share in range(80, 96)}
    assert min(abs(steps.index(found) - steps.index(knee)) for knee in knees) <= 1, (found, best, done.stderr)


# ---- check


def test_check_names_the_host_that_a_start_wants(soak, tmp_path):
    done = soak.run("check", "service:Downloads", "--python", paths.python, "--json", "--junit", tmp_path / "c.xml", "--html",
                    tmp_path / "c.html", cwd=paths.services / "downloads", env={"PLIMSOLL_CACHE": str(tmp_path)})
    assert done.returncode == 1, done.stderr
    doc = json.loads(done.stdout)
    start = next(p for p in doc["points"] if p["point"] == "start")
    assert start["state"] == "no" and len(doc["points"]) == 7
    if not any("namespace" in line for line in start["said"]):
        assert any("weights.example.org:443" in line for line in start["said"]), start
    suite = ElementTree.parse(tmp_path / "c.xml").getroot()
    assert suite.get("tests") == "7" and int(suite.get("failures")) >= 1
    assert "seven points" in (tmp_path / "c.html").read_text()


@torch
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_check_is_the_checklist_on_one_page(soak, cache):
    words = ["--body", '{"x": [1.0, 2.0, 3.0]}', "--python", dock.torch_python()]
    env = {"PLIMSOLL_CACHE": str(cache)}
    good = soak.run("check", "load_at_start.py:LoadAtStart", *words, cwd=tutorials.folder / "good", env=env)
    bad = soak.run("check", "gpu_cache.py:GpuCache", *words, cwd=tutorials.folder / "bad", env=env)
    for done in (good, bad):
        lines = done.stdout.splitlines()
        assert len(lines) <= 60 and max(map(len, lines)) <= 80, done.stdout
    assert good.returncode == 0 and "it may ship" in good.stdout, good.stdout
    assert bad.returncode == 1 and "PL005" in bad.stdout and "held by gpu_cache.py:20 CACHE" in bad.stdout
