"""Requests whose memory depends on their input, and nobody has said how: Plimsoll measures the card and learns the rest."""

import os
import signal
import threading

import pytest

from rig import dock, paths
from rig.dock import torch_python
from rig.load import Load

MIB = 1 << 20


@pytest.fixture
def served(serve, tmp_path):
    """served(*flags): weights of 1 GiB on a card of 10 GiB."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")
    python = torch_python()

    def start(*flags, env=None, service="sized", target="service:Sized"):
        words = [paths.plimsoll, "drydock", "--gpu", "small:10GiB", "--"]
        return serve(target, "--warmup.examples", "off", *flags, service=service, python=python, before=words,
                     env={"PLIMSOLL_CACHE": str(tmp_path / "cache"), **(env or {})}).ready()

    return start


class Storm:
    """All at once; the replies in their order, None where the connection was lost."""

    def __init__(self, server, sizes, path="/predict"):
        self.replies = [None] * len(sizes)
        self.threads = [threading.Thread(target=self.one, args=(server, path, i, size), daemon=True) for i, size in enumerate(sizes)]
        for thread in self.threads:
            thread.start()

    def one(self, server, path, i, size):
        self.replies[i] = server.try_post(path, {"text": "x" * size}, timeout=120)

    def end(self):
        for thread in self.threads:
            thread.join(120)
        return self.replies


def storm(server, sizes):
    return Storm(server, sizes).end()


def budget(server):
    return server.status()["services"][0]["budget"][0]


def measured(server):
    """The budget of a card: its size less margin, context and weights."""
    server.wait_until(lambda: server.status()["services"][0]["budget"], what="a sample of the card")
    server.wait_until(lambda: budget(server)["fixed_bytes"] > 1100 * MIB, what="context and weights are seen")
    return budget(server)


def test_a_storm_of_long_inputs_kills_without_plimsolls_line_and_not_with_it(served):
    """A hundred at once, of 1.25 GiB each and small ones between them; there is room for five of the large."""
    sizes = [200 if i % 4 == 0 else 20000 for i in range(100)]
    without = served("--memory.charge", "none", "--memory.budget", "0", env={"DIE": "1"})
    replies = storm(without, sizes)
    assert any(r.status in (502, 503) for r in replies), "sixteen threads at a time are too many for the card"
    without.wait_for("worker.death", {"cause": "gpu_out_of_memory"})
    without.terminate()
    without.wait_exit()

    server = served("--memory.charge", "learnt", "--traffic.queue.max_requests", "60", "--traffic.queue.max_wait", "60s",
                    env={"DIE": "1"})
    place = measured(server)
    assert place["foreign_bytes"] == 0 and place["margin_bytes"] == pytest.approx(1536 * MIB, rel=0.01)
    assert place["budget_bytes"] == pytest.approx(10240 * MIB - 1536 * MIB - place["fixed_bytes"], rel=0.02)
    for size in (10, 10, 10):  # a worker's first is not its like
        assert server.post("/predict", {"text": "x" * size}).status == 200
    replies = storm(server, sizes)
    assert {r.status for r in replies} <= {200, 429}
    good = [r.json() for r in replies if r.status == 200]
    assert len(good) >= 60 and any(r["bytes"] == 20000 << 16 for r in good)
    for r in replies:
        if r.status == 429:
            assert r.headers["x-plimsoll-reason"] in ("queue_full", "predicted_wait") and int(r.headers["retry-after"]) >= 1
            assert r.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
    assert not server.log.find("worker.death") and not server.log.find("memory.oom")
    assert budget(server)["charged_bytes"] == 0
    access = [e for e in server.log.find("access") if e.get("charged_bytes", 0) > 1000 * MIB]
    assert access, "the large ones were charged what they take"
    assert len([r for r in storm(server, [20000] * 12) if r.status == 200]) == 12


def test_what_a_killed_main_had_let_in_counts_on(served, tmp_path):
    """Fifty handlers hold 125 MiB each when main is killed; the flood that comes then finds room for a few only."""
    gate = tmp_path / "gate"
    server = served("--memory.charge", "learnt", "--traffic.queue.max_wait", "60s", "--traffic.timeout", "120s",
                    env={"DIE": "1", "THREADS": "128", "GATE": str(gate)})
    measured(server)
    for _ in range(3):
        assert server.post("/hold", {"text": "x" * 2000}).status == 200
    gate.touch()
    running = Storm(server, [2000] * 50, "/hold")
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 50, what="fifty handlers run")
    server.wait_until(lambda: budget(server)["charged_bytes"] >= 50 * 125 * MIB, what="they are charged")
    mark = server.log.mark()
    os.kill(server.main_pid(), signal.SIGKILL)
    orphans = server.wait_for("budget.orphans", since=mark)
    assert orphans["count"] == 50 and orphans["bytes"] >= 50 * 125 * MIB
    assert running.end() == [None] * 50
    # the next main has a budget again once it has looked at the device
    counted = lambda s: [p["orphan_bytes"] for p in s["services"][0]["budget"]]  # noqa: E731
    server.wait_until(lambda: (s := server.try_status()) and counted(s) == [orphans["bytes"]], what="they count")
    flood = Storm(server, [2000] * 60, "/hold")
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] >= 40, what="the rest waits")
    place = budget(server)
    assert place["charged_bytes"] <= place["budget_bytes"]
    gate.unlink()
    assert {r.status for r in flood.end()} == {200}
    assert not server.log.find("worker.death") and not server.log.find("memory.oom")
    server.wait_until(lambda: budget(server)["charged_bytes"] == 0, what="nothing is charged")
    assert budget(server)["orphan_bytes"] == 0 and not server.log.find("budget.corrected")


def mean_batch(server, address, requests):
    """Items a call while 64 clients ask."""
    calls, items = server.post("/counts").json()
    make = lambda n: ("POST", "/embed", {"texts": ["x" * 100]}, lambda reply: reply.json() == [100])  # noqa: E731
    with Load(address, make, connections=64) as load:
        load.wait_for(requests)
    assert load.kinds() == {"ok": len(load.outcomes)}
    after = server.post("/counts").json()
    return (after[1] - items) / (after[0] - calls)


@pytest.mark.full
def test_room_for_a_successor_is_taken_before_it_is_spawned(served):
    server = served("--memory.charge", "learnt")
    measured(server)
    mark = server.log.mark()
    assert server.verb("restart", "sized", "--mode", "overlap").returncode == 0
    down = server.wait_for("budget.changed", lambda e: e["to_bytes"] < e["from_bytes"], since=mark)
    assert down["reason"] == "plan" and down["from_bytes"] - down["to_bytes"] > 1000 * MIB
    spawned = server.wait_for("worker.spawned", since=mark)
    assert down["ts"] <= spawned["ts"]
    server.wait_for("budget.changed", lambda e: e["to_bytes"] > e["from_bytes"], since=mark)


@pytest.mark.full
def test_batches_still_fill_when_bytes_are_counted(served):
    """64 requests of 2 GiB each when alone, on a card of 10 GiB: together they are one batch of 4 GiB."""
    server = served("--memory.charge", "learnt", service="batched", target="service:Batched")
    measured(server)
    worker = server.run_dir / "w" / os.listdir(server.run_dir / "w")[0]
    for _ in range(3):
        server.post("/embed", {"texts": ["x" * 100]})
    mean_batch(server, server.address, 500)  # it learns, and so does BentoML's batcher
    place = budget(server)
    assert place["kept_bytes"] == pytest.approx(2048 * MIB, rel=0.1)
    pairs = []
    for _ in range(4):  # a batcher adapts in its own time: one pair that is as good will do, 64 alone would be a tenth
        pairs.append((mean_batch(server, worker, 500), mean_batch(server, server.address, 500)))
        if pairs[-1][1] >= 0.9 * pairs[-1][0]:
            break
    assert any(through >= 0.9 * direct for direct, through in pairs), pairs
    assert not server.log.find("memory.oom")
