"""The writer of the page: the same layout as shm.h, and records that a reader may believe."""

import json
import os
import struct
import subprocess
import sys
import threading
import zlib

import pytest
from harness import PACKAGE, ROOT, PageReader, cmake_version

from plimsoll import __version__
from plimsoll import page as pages

BLOCKS = ("counters", "begins", "ends", "devices", "host", "engine", "tags")


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    program = tmp_path_factory.mktemp("layout") / "page_layout"
    source = ROOT / "tests" / "support" / "page_layout.c"
    subprocess.run([os.environ.get("CC", "cc"), "-I", ROOT / "include", source, "-o", program], check=True)
    return json.loads(subprocess.run([program], capture_output=True, check=True).stdout)


def test_constants_are_those_of_the_header(layout):
    ours = {
        "PL_PAGE_MAGIC": pages.MAGIC, "PL_PAGE_MAJOR": pages.MAJOR, "PL_PAGE_MINOR": pages.MINOR,
        "PL_PAGE_BYTES": pages.PAGE_BYTES, "PL_PAGE_RECORDS": pages.RECORDS, "PL_PAGE_WORKER": pages.KIND_WORKER,
        "PL_PAGE_COUNTERS_AT": pages.COUNTERS_AT, "PL_PAGE_BEGINS_AT": pages.BEGINS_AT,
        "PL_PAGE_ENDS_AT": pages.ENDS_AT, "PL_PAGE_F_RECORDS": pages.F_RECORDS,
        "PL_PAGE_F_DEADLINE": pages.F_DEADLINE, "PL_PAGE_F_OVERRIDES": pages.F_OVERRIDES,
        "PL_PAGE_F_CONTROL": pages.F_CONTROL, "PL_RECORD_BATCHED": pages.BATCHED, "PL_RECORD_ZOMBIE": pages.ZOMBIE,
        "PL_RECORD_STREAM": pages.STREAM, "PL_RECORD_TASK": pages.TASK, "PL_RECORD_WARMUP": pages.WARMUP,
        "PL_RECORD_EDGE": pages.EDGE, "PL_RECORD_UNBEGUN": pages.UNBEGUN, "PL_OUTCOME_OK": pages.OK,
        "PL_OUTCOME_CLIENT_ERROR": pages.CLIENT_ERROR, "PL_OUTCOME_ERROR": pages.ERROR,
        "PL_OUTCOME_CANCELLED": pages.CANCELLED, "PL_NO_ROUTE": pages.NO_ROUTE,
        "PL_PAGE_HOST_AT": pages.HOST_AT, "PL_PAGE_ENGINE_AT": pages.ENGINE_AT, "PL_PAGE_DEVICES_AT": pages.DEVICES_AT,
        "PL_PAGE_TAGS_AT": pages.TAGS_AT, "PL_PAGE_DEVICES": pages.DEVICES, "PL_PAGE_TAGS": pages.TAGS,
        "PL_PAGE_TAG_TEXT": pages.TAG_TEXT, "PL_NO_TAG": pages.NO_TAG, "PL_PAGE_F_MEMORY": pages.F_MEMORY,
        "PL_PAGE_F_PEAKS": pages.F_PEAKS, "PL_PAGE_F_HISTORY": pages.F_HISTORY, "PL_PAGE_F_LANE": pages.F_LANE,
        "PL_RECORD_MEMORY": pages.MEMORY, "PL_RECORD_ALONE": pages.ALONE, "PL_RECORD_OVERLAPPED": pages.OVERLAPPED,
        "PL_RECORD_PEAK_EXACT": pages.PEAK_EXACT, "PL_RECORD_QUIESCENT": pages.QUIESCENT,
        "PL_RECORD_OOM": pages.OOM, "PL_RECORD_LANE": pages.LANE,
        "PL_RECORD_RETURNED": pages.RETURNED,
    }  # fmt: skip
    assert ours == {k: v for k, v in layout.items() if isinstance(v, int) and k != "done"}


@pytest.mark.parametrize(
    "struct_name, form, fields",
    [
        ("pl_page_head", pages.HEAD, "magic major minor crc head_bytes total_bytes kind writer_pid writer_start "
         "generation boot"),
        ("pl_page_counts", pages.COUNTS, " ".join(pages.COUNTERS)),
        ("pl_page_begin_record", pages.BEGIN, "crc flags seq id at_us thread in_flight route tag device "
         "allocated reserved"),
        ("pl_page_end_record", pages.END, "crc flags seq id at_us duration_us thread in_flight route status outcome "
         "tag device batch error_class allocated_before allocated reserved peak input_bytes host_anon begun"),
        ("pl_page_device", pages.DEVICE, "index sampled_us " + " ".join(pages.DEVICE_FIELDS) + " uuid"),
        ("pl_page_host", pages.HOST, " ".join(pages.HOST_FIELDS)),
        ("pl_page_engine", pages.ENGINE, "sampled_us cells cells_used cells_reserved cells_cached cells_parked weights "
         "compute output tokens_in tokens_out kv preemptions steps_us steps"),
    ],
)  # fmt: skip
def test_fields_lie_where_the_header_puts_them(layout, struct_name, form, fields):
    c = layout[struct_name]
    assert form.size == c["size"]
    names = fields.split()
    blocks = set(BLOCKS) if struct_name == "pl_page_head" else set()
    assert set(names) | blocks | {"size"} == set(c)
    for i, name in enumerate(names):
        at, size = c[name]
        raw = bytearray(form.size)
        raw[at : at + size] = b"\xff" * size
        values = form.unpack(bytes(raw))
        set_ones = [k for k, v in enumerate(values) if v not in (0, b"\0" * 32, b"\0" * 48, b"\0" * 144)]
        assert set_ones == [i], name


def test_blocks_of_the_header(layout):
    assert [layout["pl_page_head"][n] for n in BLOCKS] == [[64 + 16 * i, 16] for i in range(len(BLOCKS))]
    assert layout["pl_page_tag"] == {"size": pages.TAG.size, "crc": [0, 4], "route": [4, 4], "text": [32, 96]}
    assert layout["pl_page_block"] == {"size": 16, "at": [0, 4], "stride": [4, 4], "count": [8, 4]}


def test_the_version_is_the_project_s():
    assert __version__ == cmake_version()


@pytest.fixture
def shared():
    fd = os.memfd_create("page")
    os.ftruncate(fd, pages.PAGE_BYTES)
    reader = PageReader(fd)
    page = pages.Page(fd)
    yield page, reader
    with pytest.raises(OSError):
        os.fstat(fd)  # the writer closed it


def test_the_header_comes_whole(shared):
    page, reader = shared
    assert not any(reader.map[: pages.ENDS_AT])
    page.open(7, 0xAB12)
    head = reader.head()
    assert head[:3] == (pages.MAGIC, 1, 2)
    assert head[3] == zlib.crc32(reader.map[12:256])
    assert head[4:8] == (256, pages.PAGE_BYTES, pages.KIND_WORKER, os.getpid())
    assert head[8] == pages.start_ticks() > 0
    assert head[9:11] == (7, 0xAB12)


def test_records_carry_what_they_were_given(shared):
    page, reader = shared
    page.open()
    with page.lock:
        begun = page.begin(2**64 - 1, pages.STREAM, 3)
        page.end(2**64 - 1, pages.STREAM, 3, begun, 500, pages.ERROR, "Ünnamed" * 10)
        page.end(9, pages.UNBEGUN, pages.NO_ROUTE, None, 404, pages.CLIENT_ERROR, "")
    (begin,) = reader.begins()
    assert (begin["id"], begin["flags"], begin["route"], begin["in_flight"]) == (2**64 - 1, pages.STREAM, 3, 1)
    assert begin["thread"] == threading.get_native_id()
    first, second = reader.ends()
    assert first["error_class"] == ("Ünnamed" * 10).encode()[:32].decode()
    assert first["duration_us"] == first["at_us"] - begin["at_us"]
    assert (second["flags"], second["duration_us"], second["status"]) == (pages.UNBEGUN, 0, 404)
    assert (reader["begun"], reader["ended"], reader["in_flight"], reader["errors"]) == (1, 2, 0, 1)


def test_the_ring_laps_and_stays_readable(shared):
    page, reader = shared
    page.open()
    for n in range(pages.RECORDS * 2 + 5):
        with page.lock:
            page.begin(n + 1, 0, 0)
    found = reader.begins()
    assert [r["id"] for r in found] == list(range(pages.RECORDS + 6, pages.RECORDS * 2 + 6))


def test_threads_write_whole_records(shared):
    page, reader = shared
    page.open()

    def work(number):
        for i in range(100):
            with page.lock:
                begun = page.begin(number * 1000 + i, 0, 0)
                page.end(number * 1000 + i, 0, 0, begun, 200, pages.OK, "")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({r["id"] for r in reader.begins()}) == len({r["id"] for r in reader.ends()}) == 800
    assert reader["in_flight"] == 0


def test_a_stamp_is_set_once(shared):
    page, reader = shared
    page.stamp("loaded_ms")
    at = reader["loaded_ms"]
    assert at > 0
    page.set("loaded_ms", at - 1)
    page.stamp("loaded_ms")
    assert reader["loaded_ms"] == at - 1


def test_a_small_page_is_refused():
    fd = os.memfd_create("page")
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="4096"):
        pages.Page(fd)
    os.close(fd)


def test_without_a_page_everything_works_and_nobody_reads():
    page = pages.Page()
    page.open()
    with page.lock:
        page.end(1, 0, 0, page.begin(1, 0, 0), 200, pages.OK, "")
    assert page.get("ended") == 1


def test_the_c_reader_and_the_header_agree_on_the_padding(layout):
    """Reserved bytes stay zero, so that a later minor may use them."""
    page = pages.Page()
    page.open()
    head = bytes(page._bytes[: pages.HEAD.size])
    assert head[176:] == bytes(80)
    assert struct.unpack_from("<IIII", head, 80) == (pages.BEGINS_AT, 64, pages.RECORDS, 0)
    assert layout["pl_page_head"]["ends"] == [96, 16]


def test_records_carry_memory_and_a_tag(shared):
    page, reader = shared
    page.open()
    with page.lock:
        tag = page.tag("Toy /predict f32[2]", 3)
        begun = page.begin(1, pages.ALONE, 3, tag, (1, 1000, 2000))
        page.end(1, pages.MEMORY | pages.OOM, 3, begun, 500, pages.ERROR, "OutOfMemoryError", tag=tag, device=1, batch=4,
                 memory=(1000, 1100, 2000, 1500), input_bytes=11, host_anon=12, begun=page.get("begun"))  # fmt: skip
        page.end(2, pages.UNBEGUN, pages.NO_ROUTE, None, 404, pages.CLIENT_ERROR, "")
    (begin,) = reader.begins()
    first, second = reader.ends()
    assert (begin["tag"], begin["device"], begin["allocated"], begin["reserved"]) == (1, 1, 1000, 2000)
    assert reader.tags() == ["other", "Toy /predict f32[2]"]
    wanted = {"tag": 1, "device": 1, "batch": 4, "allocated_before": 1000, "allocated": 1100, "reserved": 2000,
              "peak": 1500, "input_bytes": 11, "host_anon": 12, "begun": 1}  # fmt: skip
    assert {k: first[k] for k in wanted} == wanted
    assert {k: second[k] for k in wanted} == {**dict.fromkeys(wanted, 0), "tag": pages.NO_TAG}
    assert (reader["ooms"], reader["untagged"]) == (1, 0)


def test_tags_are_bounded_and_the_rest_is_other(shared):
    page, reader = shared
    page.open()
    got = [page.tag(f"Toy /predict {i}") for i in range(10_000)]
    assert got[: pages.TAGS - 1] == list(range(1, pages.TAGS))
    assert set(got[pages.TAGS - 1 :]) == {pages.OTHER}
    tags = reader.tags()
    assert (len(tags), tags[0], tags[-1]) == (pages.TAGS, "other", f"Toy /predict {pages.TAGS - 2}")
    with page.lock:
        page.end(1, 0, 0, page.begin(1, 0, 0, got[-1]), 200, pages.OK, "", tag=got[-1])
    assert reader["untagged"] == 1


def test_a_long_tag_is_cut_between_characters(shared):
    page, reader = shared
    page.tag("a" + "Ü" * 60)
    assert reader.tags()[1] == "a" + "Ü" * 47


def test_device_and_host_memory_are_published(shared):
    page, reader = shared
    page.device(15, 99, range(1, 9))
    page.device_uuid(15, "GPU-" + "ab" * 30)
    page.device(16, 99, range(1, 9))
    page.host((1, 2, 3, 4, 5))
    assert reader.device(15) == {"index": 15, "sampled_us": 99, **dict(zip(pages.DEVICE_FIELDS, range(1, 9))),
                                 "uuid": ("GPU-" + "ab" * 30)[:48]}  # fmt: skip
    assert reader.device(0)["sampled_us"] == 0
    assert [reader.host()[n] for n in pages.HOST_FIELDS[1:]] == [1, 2, 3, 4, 5, 0]
    assert reader.host()["sampled_us"] > 0


FORKS = {
    "os.fork": "os.fork",
    "a fork by C code": "ctypes.PyDLL(None).fork",  # Python's handlers do not run
}


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS.keys())
def test_a_forked_child_does_not_write(fork):
    fd = os.memfd_create("page")
    os.ftruncate(fd, pages.PAGE_BYTES)
    reader = PageReader(fd)
    code = f"""
import ctypes, os
from plimsoll import page as pages
page = pages.Page({fd})
page.open()
page.end(1, 0, 0, page.begin(1, 0, 0), 200, pages.OK, "")
child = {fork}()
if child == 0:
    with page.lock:
        page.add("tasks", 7)
        page.tag("child")
        page.device(0, 1, range(8))
        page.host((1, 2, 3, 4, 5))
        page.end(2, 0, 0, page.begin(2, 0, 0), 200, pages.OK, "")
    os._exit(page.get("ended") - 1)  # it counts for itself
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
page.end(3, 0, 0, page.begin(3, 0, 0), 200, pages.OK, "")
"""
    subprocess.run([sys.executable, "-c", code], pass_fds=[fd], check=True, env={**os.environ, "PYTHONPATH": PACKAGE})
    os.close(fd)
    assert [r["id"] for r in reader.ends()] == [1, 3]
    assert (reader["tasks"], reader.tags(), reader.host()["sampled_us"]) == (0, [], 0)
    assert reader.device(0)["sampled_us"] == 0


def test_the_package_needs_nothing_but_the_standard_library():
    code = ("import sys, plimsoll.worker, plimsoll.describe; "
            "print([m for m in sys.modules if m.split('.')[0] in ('bentoml', 'yaml', 'numpy', 'starlette')])")  # fmt: skip
    out = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); {code}"],
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert out.stdout.strip() == "[]"
