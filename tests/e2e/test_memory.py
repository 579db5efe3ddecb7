"""What requests do to device memory, as the worker's page, /metrics and /status tell it: real PyTorch, in the dry dock."""

import concurrent.futures
import os
import re

import pytest

from rig import dock, paths
from rig.page import open_page, pages, until

pytestmark = [pytest.mark.timeout(240),
              pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")]
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
WEIGHTS = 32 * MIB


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("drydock-cache")


@pytest.fixture
def served(serve, cache):
    def start(*flags):
        server = serve("service:Accounts", *flags, service="accounts", python=dock.torch_python(),
                       before=[paths.plimsoll, "drydock", "-q", "--"], env={"PLIMSOLL_CACHE": str(cache)})
        server.ready()
        status = server.status()
        server.page = open_page(status["pid"]["keeper"], server.workers()[1])
        server.seen = server.page["ended"]  # warm-up, and what else was before
        return server
    yield start


def ends(server, count=1):
    """The next end records that requests with a number leave."""
    def found():
        rows = [r for r in server.page.ends()[server.seen:] if r["id"] != 0]
        return rows if len(rows) >= count else None
    rows = until(found, f"{count} end records")
    server.seen = server.page["ended"]
    return rows if count > 1 else rows[-1]


def tag_of(server, record):
    return server.page.tags()[record["tag"]]


def has(record, *flags):
    return [bool(record["flags"] & f) for f in flags]


def value(text, name, **labels):
    """The value of a series on a page of metrics."""
    for line in text.splitlines():
        found = re.fullmatch(name + r"\{(.*)\} (\S+)", line)
        if found and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[1])).items():
            return float(found[2])
    return None


def test_a_request_alone_is_told_to_the_byte(served):
    server = served()
    server.post("/keep", {"kib": 64})
    end = ends(server)
    assert has(end, pages.MEMORY, pages.ALONE, pages.PEAK_EXACT, pages.QUIESCENT) == [True] * 4
    assert not end["flags"] & pages.OVERLAPPED
    assert (end["allocated_before"], end["allocated"]) == (WEIGHTS, WEIGHTS + 64 * KIB)
    assert end["reserved"] >= end["allocated"] and end["device"] == 0
    begin = server.page.begins()[end["begun"] - 1]
    assert (begin["id"], begin["allocated"], begin["flags"] & pages.ALONE) == (end["id"], WEIGHTS, pages.ALONE)
    assert (tag_of(server, end), end["input_bytes"]) == ("Accounts /keep body16", len('{"kib": 64}'))

    server.post("/peak", {"mib": 40})  # what it held is gone, and was its own
    end = ends(server)
    assert end["allocated"] - end["allocated_before"] == 0
    assert end["peak"] - end["allocated_before"] == 40 * MIB
    server.post("/peak", {"mib": 8})
    assert (end := ends(server))["peak"] - end["allocated_before"] == 8 * MIB, "another's peak"

    device = server.page.device(0)
    assert device["allocated"] == WEIGHTS + 64 * KIB and device["peak"] == WEIGHTS + 64 * KIB + 40 * MIB
    assert device["uuid"].startswith("GPU-") and device["total"] > 30 * GIB
    assert server.page["features"] & (pages.F_MEMORY | pages.F_PEAKS) == pages.F_MEMORY | pages.F_PEAKS


@pytest.mark.parametrize(
    "path, status, oom, name",
    [("/out_of_memory", 500, True, "OutOfMemoryError"), ("/wrapped", 500, True, "ValueError"),
     ("/told_otherwise", 500, True, ""), ("/dealt_with", 200, False, "")],
)
def test_an_oom_behind_a_generic_500_is_seen(served, path, status, oom, name):
    server = served()
    reply = server.post(path)
    end = ends(server)
    assert reply.status == end["status"] == status
    assert (bool(end["flags"] & pages.OOM), end["error_class"], server.page["ooms"]) == (oom, name, int(oom))
    assert end["allocated"] == WEIGHTS, "the exception's frames hold nothing"
    assert server.page.device(0)["ooms"] == 1
    server.wait_until(lambda: value(server.get("/metrics").text(), "plimsoll_allocator_ooms_total", worker="1") == 1)


def test_overlapping_requests_share_their_peak_and_say_so(served):
    server = served()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long = pool.submit(server.post, "/hold", {"mib": 16})
        server.wait_until(lambda: server.page["in_flight"] == 1)
        server.post("/peak", {"mib": 8})
        short = ends(server)
        server.gate.touch()
        assert long.result().status == 200
    first = ends(server)
    assert has(short, pages.OVERLAPPED, pages.ALONE, pages.PEAK_EXACT, pages.QUIESCENT) == [True, False, False, False]
    assert has(first, pages.OVERLAPPED, pages.ALONE, pages.PEAK_EXACT, pages.QUIESCENT) == [True, False, False, True]
    assert short["allocated_before"] == short["allocated"] == WEIGHTS + 16 * MIB
    assert short["peak"] == WEIGHTS + 24 * MIB
    assert (first["allocated_before"], first["allocated"]) == (WEIGHTS, WEIGHTS)


def test_a_stream_ends_with_its_last_piece(served):
    server = served()
    assert server.post("/stream", {"n": 3}).text().split() == [str(4 * MIB)] * 3
    end = ends(server)
    assert has(end, pages.STREAM, pages.PEAK_EXACT, pages.QUIESCENT) == [True] * 3
    assert end["peak"] - end["allocated_before"] == 4 * MIB and end["allocated"] == WEIGHTS


def test_a_batch_is_accounted_once_with_its_size(served):
    server = served()
    for rows in (3, 5):
        assert server.post("/batch", {"x": [[1.0, 2.0]] * rows}).status == 200
        end = ends(server)
        assert has(end, pages.BATCHED, pages.MEMORY, pages.PEAK_EXACT) == [True] * 3
        assert (end["batch"], end["peak"] - end["allocated_before"]) == (rows, rows * MIB)
        assert tag_of(server, end) == "Accounts /batch f64[2]"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: server.post("/batch", {"x": [[1.0, 2.0]]}).status, range(24)))
    rows = ends(server, 24)
    assert replies == [200] * 24
    carriers = [r for r in rows if r["batch"]]
    assert sum(r["batch"] for r in carriers) == 24
    assert all(r["flags"] & pages.MEMORY for r in carriers)
    assert not any(r["flags"] & pages.MEMORY for r in rows if not r["batch"])


def test_a_task_is_accounted_until_its_job_is_done(served):
    server = served()
    assert server.post("/job/submit", {"mib": 8}).status == 200
    server.wait_until(lambda: server.page["tasks"] == 1)
    server.gate.touch()
    end = ends(server)
    assert has(end, pages.TASK, pages.MEMORY, pages.PEAK_EXACT) == [True] * 3
    assert end["peak"] - end["allocated_before"] == 8 * MIB and end["allocated"] == WEIGHTS


def test_shapes_make_buckets_and_their_number_is_bounded(served):
    server = served()
    for n, title, bucket in ((3, "", "f64[3]"), (9, "", "f64[16]"), (100, "x" * 40, "x=f64[128],title=str64")):
        server.post("/shaped", {"x": [0.5] * n, **({"title": title} if title else {})})
        wanted = bucket if title else f"x={bucket},title=str0"
        assert tag_of(server, ends(server)) == f"Accounts /shaped {wanted}"


def test_metrics_and_status_tell_it(served):
    server = served()
    server.post("/peak", {"mib": 64})
    server.post("/keep", {"kib": 1024})
    ends(server, 2)
    wanted = {"plimsoll_memory_allocated_bytes": WEIGHTS + MIB, "plimsoll_memory_reserved_bytes": None,
              "plimsoll_memory_peak_bytes": WEIGHTS + 64 * MIB, "plimsoll_allocator_retries_total": 0}
    def told():
        text = server.get("/metrics").text()
        return text if value(text, "plimsoll_memory_allocated_bytes", worker="1") == WEIGHTS + MIB else None
    text = server.wait_until(told)
    for name, wanted_value in wanted.items():
        assert value(text, name, service="accounts", worker="1") in (wanted_value, value(text, name) if wanted_value is None else wanted_value)
    assert value(text, "plimsoll_memory_allocated_bytes", gpu="0") and value(text, "plimsoll_memory_peak_bytes", scope="gpu0")
    assert value(text, "plimsoll_request_peak_bytes_count", route="/peak") == 1
    assert value(text, "plimsoll_request_peak_bytes_sum", route="/peak") == WEIGHTS + 64 * MIB
    memory = {m["scope"]: m for m in server.status()["services"][0]["workers"][0]["memory"]}
    assert memory["gpu0"]["allocated_bytes"] == WEIGHTS + MIB and memory["gpu0"]["peak_bytes"] == WEIGHTS + 64 * MIB
    assert memory["gpu0"]["reserved_bytes"] >= 96 * MIB and memory["gpu0"]["limit_bytes"] > 30 * GIB


def test_memory_sync_is_told_to_the_worker_and_taken_over_by_a_reload(serve, cache, tmp_path):
    file = tmp_path / "plimsoll.yaml"
    text = "services:\n  accounts:\n    run: service:Accounts\n    memory: {sync: %s}\n"
    file.write_text(text % "always")
    server = serve(None, "--config", file, service="accounts", python=dock.torch_python(),
                   before=[paths.plimsoll, "drydock", "-q", "--trace", "--"], env={"PLIMSOLL_CACHE": str(cache)}).ready()
    assert server.post("/peak", {"mib": 1}).status == 200
