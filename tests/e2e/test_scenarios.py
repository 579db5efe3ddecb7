"""What happens to a server in its life, whole: 0 -> 1, rolling reload under load, node drain, a cold page cache, a disk that
stalls, a service that only crashes beside one that does not, two services on one GPU."""

import ctypes
import mmap
import os
import shutil
import threading
import time

import pytest

from rig import Load, dock, paths
from rig.dock import torch_python
from rig.wire import connection, exchange


def predicts(number):
    return "POST", "/predict", {"x": number}, lambda reply: reply.json() == number


# --- 0 -> 1


def test_from_nothing_to_one_nobody_meets_a_cold_worker_and_everybody_is_told_when_to_come_back(serve):
    """Clients that come with the first moment of the port, as behind a scaler that has just made the pod."""
    server = serve("service:TimedBoot", service="timed_boot", env={"BOOT_S": "2"}).started()
    rows, stop = [], threading.Event()

    def client():
        while not stop.is_set():
            reply = server.post("/predict", {"x": 7}, timeout=60)
            rows.append(reply)
            if reply.status == 503:
                stop.wait(min(1, int(reply.headers["retry-after"])))

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    assert server.get("/livez").status == 200, "alive while nothing is ready"
    assert server.get("/readyz").json()["why"] in ("starting", "warming")
    server.wait_for("main.ready")
    server.wait_until(lambda: sum(r.status == 200 for r in rows) >= 40)
    stop.set()
    for thread in clients:
        thread.join(60)
    refused = [r for r in rows if r.status != 200]
    assert {r.status for r in refused} == {503}
    assert {r.headers["x-plimsoll-reason"] for r in refused} == {"not_ready"}
    assert all(r.json() == 7 for r in rows if r.status == 200)
    (warming,) = server.log.find("worker.warming")
    (first,) = server.log.find("worker.first_request")
    ready = server.log.find("worker.ready")[0]
    assert ready["warm"] and ready["first_ms"] > 0 and warming["source"] == "examples"
    assert first["generation"] == 1


# --- rolling reload under load


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode, workers", [
    ("handover", 1), *(pytest.param(*full, marks=pytest.mark.full) for full in (("overlap", 1), ("overlap", 2), ("handover", 2)))])
def test_a_rolling_reload_under_load_loses_nothing(serve, tmp_path, mode, workers):
    shutil.copytree(paths.services / "timed_boot", tmp_path / "s")
    file = tmp_path / "s/plimsoll.yaml"

    def write(threads):
        file.write_text(f"""
services:
  timed:
    run: service:TimedBoot
    workers: {workers}
    threads: {threads}
    replace: {{mode: {mode}, hold: 60s}}
    traffic: {{timeout: 90s, queue: {{max_wait: 90s}}}}
""")

    write(4)
    server = serve(None, service=tmp_path / "s", env={"BOOT_S": "0.5"}).ready(workers)
    before = server.workers()
    write(6)
    with Load(server.address, predicts, connections=4) as load:
        load.wait_for_more(50)
        done = server.verb("reload")
        assert done.returncode == 0, done.stdout + done.stderr
        load.wait_for_more(50)
    after = server.workers()
    assert len(after) == workers and not set(after.values()) & set(before.values())
    assert load.kinds() == {"ok": len(load.outcomes)}, (load.statuses(), load.of("status")[:3], load.of("cut")[:3])
    replaced = server.log.find("worker.replaced")
    assert [e["mode"] for e in replaced] == [mode] * workers and {e["reason"] for e in replaced} == {"generation"}


# --- node drain with a deadline


def test_a_node_drain_serves_on_then_finishes_what_is_under_way_and_ends_by_its_deadline(serve):
    """SIGTERM, as the kubelet sends it: the endpoints still point here for a while (drain_delay); after that nothing new,
    what runs is finished, and what runs too long is cut where its client can see it."""
    server = serve("service:Feature", "--workers", "1", "--drain_delay", "1s", "--drain_timeout", "3s", "--stop_timeout", "1s").ready()
    kept = connection(server.run_dir / "admin.sock")
    assert exchange(kept, "GET", "/readyz").status == 200
    outcomes = []

    def stream(n, pause):
        try:
            whole = "".join(f"data: {i}\n\n" for i in range(n)).encode()
            outcomes.append((n, server.post("/stream", {"n": n, "pause": pause}, timeout=60).body == whole))
        except Exception as e:  # noqa: BLE001 - whatever a client makes of a cut
            outcomes.append((n, type(e).__name__))

    threads = [threading.Thread(target=stream, args=args) for args in ((20, 0.1), (900, 0.1))]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 2)
    server.terminate()
    server.wait_for("main.stopping")
    for x in range(5):  # each with a connection of its own
        assert server.post("/predict", {"x": x}).json()["double"] == 2 * x
    assert exchange(kept, "GET", "/readyz").status == 200, "ready during drain_delay"
    server.wait_for("drain.changed", {"draining": True})
    assert server.wait_exit(30) == 0
    for thread in threads:
        thread.join(60)
    assert dict(outcomes)[20] is True, "a stream that would have ended in time was cut"
    assert dict(outcomes)[900] in ("IncompleteRead", "ConnectionResetError", "ProtocolError"), outcomes
    with pytest.raises(OSError):
        server.get("/livez")


# --- cold page cache

WEIGHTS = """
import os
import time
from pathlib import Path

import bentoml


def read_from_disk():
    for line in open("/proc/self/io"):
        if line.startswith("read_bytes:"):
            return int(line.split()[1])


@bentoml.service
class Weights:
    def __init__(self):
        before, total = read_from_disk(), 0
        with open(os.environ["WEIGHTS"], "rb", buffering=0) as f:
            while piece := f.read(1 << 20):
                total += len(piece)
        with open(os.environ["JOURNAL"], "a") as f:
            f.write(f"loaded {total} from_disk {read_from_disk() - before}\\n")
        self.total = total

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return self.total
"""

SIZE = 48 << 20


def resident(path):
    """Pages of the file in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        pages = (ctypes.c_ubyte * (len(m) // mmap.PAGESIZE))()
        at = (ctypes.c_char * len(m)).from_buffer(m)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(len(m)), pages) == 0
        del at
    return sum(p & 1 for p in pages)


def drop_from_cache(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.full
def test_a_cold_page_cache_delays_readiness_and_nothing_else(serve, tmp_path):
    (tmp_path / "service.py").write_text(WEIGHTS)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    drop_from_cache(weights)
    if resident(weights) > 100:
        pytest.skip(f"{tmp_path} is on a file system whose cache cannot be dropped")
    server = serve("service:Weights", service=tmp_path, env={"WEIGHTS": str(weights)}).started()
    statuses = set()
    while not server.log.find("worker.ready"):
        reply = server.post("/predict", {}, timeout=60)
        statuses.add(reply.status)
        if reply.status == 200:
            assert reply.json() == SIZE
    assert statuses <= {200, 503}
    assert server.post("/predict", {}).json() == SIZE
    assert server.verb("restart", "weights").returncode == 0
    cold, hot = ([int(word) for word in line.split()[1::2]] for line in server.journal() if line.startswith("loaded"))
    assert cold[0] == hot[0] == SIZE
    assert cold[1] >= SIZE * 0.9, "the first start did not come from the disk"
    assert hot[1] <= SIZE * 0.1, "the second start read it again"
    # a start's figures, for whoever compares the two: the second one's are shown
    assert 'plimsoll_start_seconds{service="weights",phase="loaded"}' in server.get("/metrics").text()


# --- a throttled disk


def feed(path, pieces, pause):
    """The disk: a pipe that gives a piece now and then. Whoever reads it waits as for a disk."""
    with open(path, "wb", buffering=0) as f:
        for _ in range(pieces):
            f.write(b"w" * 65536)
            time.sleep(pause)


def test_a_disk_that_trickles_and_stalls_costs_starts_and_never_a_wrong_answer(serve, tmp_path):
    """A stall longer than start_timeout is a failed start with its reason, tried again; with more patience, and a disk that
    trickles, it is waited for. Nobody is sent to a worker that still loads."""
    (tmp_path / "service.py").write_text(WEIGHTS)
    file, pipe = tmp_path / "plimsoll.yaml", tmp_path / "weights.pipe"
    os.mkfifo(pipe)

    def write(patience):
        file.write_text(f"""
services:
  weights:
    run: service:Weights
    start_timeout: {patience}
    backoff: {{initial: 100ms, max: 200ms, attempts: 100}}
""")

    write("2s")
    server = serve(None, service=tmp_path, env={"WEIGHTS": str(pipe)}).started()
    stalled = os.open(pipe, os.O_RDWR)  # there is a disk, and it gives nothing
    failed = server.wait_for("worker.start_failed")
    assert failed["cause"] == "start_timeout" and failed["generation"] == 1
    reply = server.post("/predict", {})
    assert reply.status == 503 and int(reply.headers["retry-after"]) >= 1
    write("120s")
    assert server.verb("reload").returncode == 0
    mark = server.log.mark()
    patient = server.wait_for("worker.spawned", since=mark)["generation"]
    server.wait_for("worker.imported", {"generation": patient})
    os.close(stalled)
    writer = threading.Thread(target=feed, args=(pipe, 20, 0.05))
    writer.start()
    assert server.wait_for("worker.ready")["generation"] == patient
    writer.join(60)
    assert server.post("/predict", {}).json() == 20 * 65536
    assert {e["cause"] for e in server.log.find("worker.start_failed")} == {"start_timeout"}


# --- a crash loop beside a service that is well

TWO = """
import os
from pathlib import Path

import bentoml

if (Path(os.environ["FLAGS"]) / "broken").exists() and os.environ["PLIMSOLL_WORKER_NAME"] == "bad":
    os.abort()


@bentoml.service
class Good:
    @bentoml.api(route="/good")
    def good(self, x: int = 1) -> int:
        return x


@bentoml.service
class Bad:
    @bentoml.api(route="/bad")
    def bad(self, x: int = 1) -> int:
        return x
"""

TWO_YAML = """
services:
  good: {run: "service:Good", python: PYTHON, route: {path: /good}}
  bad: {run: "service:Bad", python: PYTHON, route: {path: /bad}, required: false,
        backoff: {initial: 200ms, max: 400ms, attempts: 3}}
failed_exit: 5s
"""


def test_a_crash_loop_ends_by_itself_and_the_service_beside_it_notices_nothing(serve, tmp_path):
    (tmp_path / "service.py").write_text(TWO)
    (tmp_path / "plimsoll.yaml").write_text(TWO_YAML.replace("PYTHON", str(paths.python)))
    server = serve(None, service=tmp_path, python=None).ready(2)
    bad = next(w["pid"] for s in server.status()["services"] if s["name"] == "bad" for w in s["workers"])
    (server.folder / "broken").touch()
    with Load(server.address, lambda n: ("POST", "/good", {"x": n}, lambda r: r.json() == n), connections=1) as load:
        os.kill(bad, 9)
        given_up = server.wait_for("worker.failed")
        load.wait_for_more(50)
    assert load.kinds() == {"ok": len(load.outcomes)}
    assert (given_up["service"], given_up["attempts"], given_up["cause"]) == ("bad", 3, "crashed")
    spawned = server.log.find("worker.spawned", lambda e: e["service"] == "bad")
    assert len(spawned) == 4, "one start that worked, and three that did not"
    assert server.get("/readyz").status == 200, "bad is not required"
    assert server.get("/readyz/bad").json()["why"] == "failed"
    refused = server.post("/bad", {})
    assert refused.status == 503
    # repaired, one order brings it back
    (server.folder / "broken").unlink()
    assert server.verb("restart", "bad").returncode == 0
    server.wait_until(lambda: server.get("/readyz/bad").status == 200)
    assert server.post("/bad", {"x": 3}).json() == 3


# --- two services on one GPU

SHARED = """
import time

import bentoml
import torch


class Peak:
    def __init__(self):
        self.weights = torch.zeros(256, 1024, 1024, device="cuda")  # 1 GiB

    def use(self):
        held = torch.empty(256 << 20, device="cuda")  # another one, while the request runs
        time.sleep(0.25)
        return held.numel() * 4


@bentoml.service(threads=16)
class Left(Peak):
    @bentoml.api(route="/left")
    def left(self, x: int) -> int:
        return self.use()


@bentoml.service(threads=16)
class Right(Peak):
    @bentoml.api(route="/right")
    def right(self, x: int) -> int:
        return self.use()
"""

SHARED_YAML = "services:\n" + "".join(f"""
  {name}:
    run: service:{name.capitalize()}
    gpus: [0]
    route: {{path: /{name}}}
    memory: {{budget: 3GiB, per_request: 1GiB}}
    traffic: {{timeout: 60s, queue: {{max_requests: 40, max_wait: 60s}}}}
""" for name in ("left", "right"))


@pytest.mark.full
@pytest.mark.timeout(300)
def test_two_services_on_one_gpu_share_it_and_are_not_replaced_at_once(serve, tmp_path):
    """A card of 14 GiB: two times 1 GiB of weights, a context and what PyTorch keeps, two budgets of 3 GiB: room for one worker
    more. Storms at both at once run nobody out of memory, and of two replacements the second waits for the first."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")
    (tmp_path / "service.py").write_text(SHARED)
    (tmp_path / "plimsoll.yaml").write_text(SHARED_YAML)
    env = {"PLIMSOLL_CACHE": str(tmp_path / "cache"), "VIRTUAL_ENV": str(torch_python().parents[1])}
    server = serve(None, service=tmp_path, python=None, env=env,
                   before=[paths.plimsoll, "drydock", "--gpu", "small:14GiB", "--"]).ready(2)

    def ask(n):
        return "POST", "/left" if n % 2 else "/right", {"x": n}, lambda reply: reply.json() == 1 << 30

    with Load(server.address, ask, connections=16) as load:
        load.wait_for_more(40)
        orders = [threading.Thread(target=server.verb, args=("restart", side, "--mode", "overlap"), kwargs={"timeout": 240})
                  for side in ("left", "right")]
        for order in orders:
            order.start()
        for order in orders:
            order.join(240)
        load.wait_for_more(20)
    assert set(load.statuses()) <= {200, 429}, (load.statuses(), load.of("status")[:3])
    assert load.of("cut") == [] and load.of("wrong") == []
    assert server.log.find("memory.oom") == []
    begun = [(e["ts"], e["service"]) for e in server.log.find("worker.spawned")[2:]]
    done = [(e["ts"], e["service"]) for e in server.log.find("worker.replaced")]
    assert {service for _, service in done} == {"left", "right"} == {service for _, service in begun}
    assert begun[1][0] >= done[0][0] and begun[0][1] == done[0][1], (begun, done)
