"""The idle canary: a marked request keeps the proof of readiness fresh where nobody asks."""

import time

import pytest

SERVICE = """
import os
from pathlib import Path

import bentoml

FLAGS = Path(os.environ["FLAGS"])


@bentoml.service
class Watched:
    @bentoml.api
    def look(self, x: int) -> int:
        if (FLAGS / "broken").exists():
            raise RuntimeError("the model is gone")
        with open(os.environ["JOURNAL"], "a") as f:
            f.write(f"look {x}\\n")
        return 2 * x
"""

CONFIG = """
services:
  watched:
    run: service:Watched
    canary: {interval: 5s, timeout: 2s}
    warmup:
      max: 8
      requests:
        - {path: /look, body: {"x": 1}}
        - {path: /look, body: {"x": 2}, canary: true}
"""


PACE_S = 0.2  # of a client that asks now and then: in between nobody does


def looks(server, x):
    return sum(line == f"look {x}" for line in server.journal())


@pytest.fixture
def watched(serve, tmp_path):
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "plimsoll.yaml").write_text(CONFIG)
    return serve(None, service=tmp_path).ready()


def test_only_the_marked_one_is_sent_only_when_idle_and_a_failure_makes_unready(watched):
    server = watched
    first, second = looks(server, 1), looks(server, 2)
    server.wait_until(lambda: looks(server, 2) == second + 1, what="a canary")
    assert looks(server, 1) == first
    assert server.status()["services"][0]["proof_age_s"] <= 5
    # a real success is better proof: none is sent for more than two intervals of requests now and then
    sent, until = looks(server, 2), server.status()["uptime_s"] + 11
    while server.status()["uptime_s"] < until:
        assert server.post("/look", {"x": 5}).text() == "10"
        time.sleep(PACE_S)
    assert looks(server, 2) <= sent + 1  # one may have been under way at the first
    # it fails: told at once, unready after two intervals, and requests are still let through
    (server.folder / "broken").touch()
    failed = server.wait_for("canary.failed")
    assert (failed["route"], failed["status"]) == ("/look", 500)
    server.wait_for("ready.changed", {"ready": False})
    reply = server.get("/readyz")
    assert reply.status == 503 and reply.json()["why"] == "proof_stale"
    assert server.get("/metrics").text().count('plimsoll_ready{service="watched"} 0') == 1
    (server.folder / "broken").unlink()
    assert server.post("/look", {"x": 6}).text() == "12"
    server.wait_until(lambda: server.get("/readyz").status == 200, what="a real success is proof")


@pytest.mark.full
def test_a_recorded_one_that_is_marked_counts_without_a_restart(serve, tmp_path):
    (tmp_path / "service.py").write_text(SERVICE)
    server = serve("service:Watched", "--canary.interval", "5s", service=tmp_path).ready()
    assert looks(server, 3) == 0
    body = tmp_path / "three.json"
    body.write_text('{"x": 3}')
    assert server.verb("sample", "/look", "--file", body, "--canary").returncode == 0
    assert "canary" in server.verb("sample", "--list").stdout
    server.wait_until(lambda: looks(server, 3) >= 1, what="a canary")
    # and the next main goes on with it
    assert server.verb("upgrade").returncode == 0
    sent = looks(server, 3)
    server.wait_until(lambda: looks(server, 3) > sent, what="a canary of the next main")
    assert server.log.find("canary.failed") == []


CACHED = """
import os
from pathlib import Path

import bentoml


@bentoml.service
class Cached:
    def __init__(self):
        self.compiled = 0

    @bentoml.api
    def work(self, x: int = 1) -> dict:
        \"\"\"As a library does that compiles what it does not find.\"\"\"
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
            file = Path(os.environ[name]) / "ab" / "kernel.so"
            if not file.exists():
                self.compiled += 1
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"x" * 1000)
        return {"compiled": self.compiled, "triton": os.environ["TRITON_CACHE_DIR"]}
"""


def test_what_is_compiled_outlives_the_worker_and_one_restart_is_offered(serve, tmp_path):
    (tmp_path / "service.py").write_text(CACHED)
    server = serve("service:Cached", service=tmp_path).ready()
    cold = server.wait_for("worker.cold_cache")
    assert (cold["files"], cold["bytes"]) == (3, 3000) and "restart it once" in cold["remedy"]
    said = server.post("/work", {}).json()
    assert said == {"compiled": 3, "triton": str(server.folder / "cache/jit/cached/triton")}
    caches = server.status()["services"][0]["caches"]
    assert caches["cold"] and caches["bytes"] == {"triton": 1000, "inductor": 1000, "cuda": 1000}
    assert "cold compile cache" in server.verb("status").stdout
    page = server.get("/metrics").text()
    assert 'plimsoll_jit_cache_cold{service="cached"} 1' in page
    assert 'plimsoll_jit_cache_bytes{service="cached",cache="cuda"} 1000' in page
    cold_s, warm_s = (float(line.rsplit(" ", 1)[1]) for name in ("cold", "warm") for line in page.splitlines()
                      if line.startswith(f'plimsoll_{name}_latency_seconds{{service="cached"}}'))
    assert cold_s > 0 and warm_s > 0
    assert server.verb("restart", "cached").returncode == 0
    assert server.post("/work", {}).json()["compiled"] == 0, "the next worker compiled again"
    server.wait_until(lambda: not server.status()["services"][0]["caches"]["cold"], what="the offer is withdrawn")
    assert "cold compile cache" not in server.verb("status").stdout
    assert len(server.log.find("worker.cold_cache")) == 1
