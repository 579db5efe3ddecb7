"""What requests do to device memory, as the worker's page, /metrics and /status tell it: real PyTorch, in the dry dock."""

import concurrent.futures
import json
import re

import pytest

from rig import dock, paths
from rig.page import open_page, pages, until
from rig.server import ROOT
from rig.serving import serving

pytestmark = [pytest.mark.timeout(240),
              pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")]
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
WEIGHTS = 32 * MIB


def start(serve, cache, target, *flags):
    return serve(target, *flags, service="accounts", python=dock.torch_python(),
                 before=[paths.plimsoll, "drydock", "-q", "--"], env={"PLIMSOLL_CACHE": str(cache)}).ready()


@pytest.fixture(scope="module")
def one(cache):
    with serving() as serve:
        server = start(serve, cache, "service:Accounts")
        server.page = open_page(server.status()["pid"]["keeper"], server.workers()[1])
        yield server


@pytest.fixture
def server(one):
    """The one service of this module, quiet; `base` is what is allocated now."""
    one.gate.unlink(missing_ok=True)
    one.wait_until(lambda: one.page["in_flight"] == 0)
    one.seen, one.base = one.page["ended"], one.page.device(0)["allocated"]
    assert one.base >= WEIGHTS
    return one


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


def test_a_request_alone_is_told_to_the_byte(server):
    server.post("/keep", {"kib": 64})
    end = ends(server)
    assert has(end, pages.MEMORY, pages.ALONE, pages.PEAK_EXACT, pages.QUIESCENT) == [True] * 4
    assert not end["flags"] & pages.OVERLAPPED
    assert (end["allocated_before"], end["allocated"]) == (server.base, server.base + 64 * KIB)
    assert end["reserved"] >= end["allocated"] and end["device"] == 0
    begin = server.page.begins()[end["begun"] - 1]
    assert (begin["id"], begin["allocated"], begin["flags"] & pages.ALONE) == (end["id"], server.base, pages.ALONE)
    assert (tag_of(server, end), end["input_bytes"]) == ("accounts /keep body16", len('{"kib": 64}'))

    server.post("/peak", {"mib": 40})  # what it held is gone, and was its own
    end = ends(server)
    assert end["allocated"] - end["allocated_before"] == 0
    assert end["peak"] - end["allocated_before"] == 40 * MIB
    server.post("/peak", {"mib": 8})
    assert (end := ends(server))["peak"] - end["allocated_before"] == 8 * MIB, "another's peak"

    device = server.page.device(0)
    assert device["allocated"] == server.base + 64 * KIB and device["peak"] >= server.base + 64 * KIB + 40 * MIB
    assert device["uuid"].startswith("GPU-") and device["total"] > 30 * GIB
    assert server.page["features"] & (pages.F_MEMORY | pages.F_PEAKS) == pages.F_MEMORY | pages.F_PEAKS


@pytest.mark.parametrize(
    "path, status, oom, name",
    [("/out_of_memory", 500, True, "OutOfMemoryError"), ("/wrapped", 500, True, "ValueError"),
     ("/told_otherwise", 500, True, ""), ("/dealt_with", 200, False, "")],
)
def test_an_oom_behind_a_generic_500_is_seen(server, path, status, oom, name):
    seen, failed = server.page["ooms"], server.page.device(0)["ooms"]
    reply = server.post(path)
    end = ends(server)
    assert reply.status == end["status"] == status
    assert (bool(end["flags"] & pages.OOM), end["error_class"], server.page["ooms"] - seen) == (oom, name, int(oom))
    assert end["allocated"] == server.base, "the exception's frames hold nothing"
    assert server.page.device(0)["ooms"] == failed + 1
    server.wait_until(lambda: value(server.get("/metrics").text(), "plimsoll_allocator_ooms_total", worker="1") == failed + 1)


def test_overlapping_requests_share_their_peak_and_say_so(server):
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
    assert short["allocated_before"] == short["allocated"] == server.base + 16 * MIB
    assert short["peak"] == server.base + 24 * MIB
    assert (first["allocated_before"], first["allocated"]) == (server.base, server.base)


def test_a_stream_ends_with_its_last_piece(server):
    assert server.post("/stream", {"n": 3}).text().split() == [str(4 * MIB)] * 3
    end = ends(server)
    assert has(end, pages.STREAM, pages.PEAK_EXACT, pages.QUIESCENT) == [True] * 3
    assert end["peak"] - end["allocated_before"] == 4 * MIB and end["allocated"] == server.base


def test_a_batch_is_accounted_once_with_its_size(server):
    for rows in (3, 5):
        assert server.post("/batch", {"x": [[1.0, 2.0]] * rows}).status == 200
        end = ends(server)
        assert has(end, pages.BATCHED, pages.MEMORY, pages.PEAK_EXACT) == [True] * 3
        assert (end["batch"], end["peak"] - end["allocated_before"]) == (rows, rows * MIB)
        assert tag_of(server, end) == "accounts /batch f64[2]"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: server.post("/batch", {"x": [[1.0, 2.0]]}).status, range(24)))
    rows = ends(server, 24)
    assert replies == [200] * 24
    carriers = [r for r in rows if r["batch"]]
    assert sum(r["batch"] for r in carriers) == 24
    assert all(r["flags"] & pages.MEMORY for r in carriers)
    assert not any(r["flags"] & pages.MEMORY for r in rows if not r["batch"])


def test_a_task_is_accounted_until_its_job_is_done(server):
    assert server.post("/job/submit", {"mib": 8}).status == 200
    server.wait_until(lambda: server.page["tasks"] == 1)
    server.gate.touch()
    end = ends(server)
    assert has(end, pages.TASK, pages.MEMORY, pages.PEAK_EXACT) == [True] * 3
    assert end["peak"] - end["allocated_before"] == 8 * MIB and end["allocated"] == server.base


def test_shapes_make_buckets_and_their_number_is_bounded(server):
    for n, title, bucket in ((3, "", "f64[3]"), (9, "", "f64[16]"), (100, "x" * 40, "x=f64[128],title=str64")):
        server.post("/shaped", {"x": [0.5] * n, **({"title": title} if title else {})})
        wanted = bucket if title else f"x={bucket},title=str0"
        assert tag_of(server, ends(server)) == f"accounts /shaped {wanted}"


def test_metrics_and_status_tell_it(server):
    before = server.get("/metrics").text()
    server.post("/peak", {"mib": 200})
    server.post("/keep", {"kib": 1024})
    ends(server, 2)

    def counted(text):
        return value(text, "plimsoll_request_peak_bytes_count", route="/peak") or 0

    def told():  # what the page has now is read at once, its records a moment later
        text = server.get("/metrics").text()
        allocated = value(text, "plimsoll_memory_allocated_bytes", worker="1")
        return text if allocated == server.base + MIB and counted(text) > counted(before) else None

    text = server.wait_until(told)
    peak = server.base + 200 * MIB
    which = {"service": "accounts", "worker": "1"}
    assert value(text, "plimsoll_memory_allocated_bytes", gpu="0", **which) == server.base + MIB
    assert value(text, "plimsoll_memory_reserved_bytes", gpu="0", **which) == server.page.device(0)["reserved"]
    assert value(text, "plimsoll_memory_peak_bytes", scope="gpu0", **which) == peak
    assert value(text, "plimsoll_allocator_retries_total", **which) == server.page.device(0)["retries"]
    for part, more in (("count", 1), ("sum", peak)):
        name = f"plimsoll_request_peak_bytes_{part}"
        assert value(text, name, route="/peak") - (value(before, name, route="/peak") or 0) == more
    (service,) = server.status()["services"]
    assert service["guards"]["memory"] == "device"
    memory = {m["scope"]: m for m in service["workers"][0]["memory"]}
    assert memory["gpu0"]["allocated_bytes"] == server.base + MIB and memory["gpu0"]["peak_bytes"] == peak
    assert memory["gpu0"]["reserved_bytes"] >= peak - MIB and memory["gpu0"]["limit_bytes"] > 30 * GIB


def test_the_agent_asks_only_a_torch_that_is_awake(tmp_path, cache):
    dry = dock.Dock(tmp_path, cache)
    done = dry.run(dock.torch_python(), ROOT / "tests/drydock/accounts.py", flags=["-q", "--count", "2"],
                   env={"PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    alone = pages.ALONE | pages.QUIESCENT
    assert (told["without_torch"], told["imports"]) == ([alone, 0, 0, 0, 0, 0], [])
    assert (told["without_context"], told["context_made"]) == ([alone, 0, 0, 0, 0, 0], False)
    exact = alone | pages.MEMORY | pages.PEAK_EXACT
    assert told["features"] == pages.F_MEMORY | pages.F_PEAKS
    assert told["first"] == [exact, 0, 0, 3 * MIB, 20 * MIB, 3 * MIB]
    assert told["other_device"] == [exact, 1, 0, 5 * MIB, 20 * MIB, 5 * MIB], "the one that changed"
    assert told["again_on_the_first"] == [exact, 0, 3 * MIB, 10 * MIB, 20 * MIB, 10 * MIB]
    assert told["busy"] is None
    assert told["emptied"]["returned_bytes"] == 300 * MIB and told["emptied"]["took_ms"] > 0
    assert (told["emptied"]["allocated_bytes"], told["emptied"]["reserved_bytes"]) == (15 * MIB, 40 * MIB)
    assert told["nothing_left"] == 0
    assert [d["allocated_bytes"] for d in told["sample"]["devices"]] == [10 * MIB, 5 * MIB]
    assert told["hot"][0] == 1.0 and 0 < told["hot"][1] < 0.5 and told["hot_in_soak"] == 1.0
    reason = ["memory", "RuntimeError: a plugged-in allocator keeps no counters"]
    assert told["broken"] == [alone, alone, 0, [reason]], "said once, and the service goes on"


def test_memory_sync_comes_from_the_file_and_a_reload_changes_it_in_the_live_worker(serve, cache, tmp_path):
    file = tmp_path / "plimsoll.yaml"
    text = "services:\n  accounts:\n    run: service:Accounts\n    memory: {sync: %s}\n"
    file.write_text(text % "always")
    server = start(serve, cache, None, "--config", file)
    worker = server.workers()

    def a_request_adds():
        before = server.post("/syncs").json()
        return server.post("/syncs").json() - before

    assert a_request_adds() == 2
    file.write_text(text % "off")
    assert server.verb("reload").returncode == 0
    server.wait_until(lambda: a_request_adds() == 0)
    assert server.workers() == worker
