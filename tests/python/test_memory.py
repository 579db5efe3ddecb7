"""Buckets of inputs, OOMs by name and text, host memory, tags of real requests. With PyTorch: tests/e2e/test_device_memory.py."""

import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pydantic
import pytest
from harness import until

from plimsoll import memory, shapes
from plimsoll import page as pages
from plimsoll.records import Call, Endpoint, Recorder, current, wrap


class Picture:  # as PIL's
    mode, size = "RGB", (1000, 700)


class Options(pydantic.BaseModel):
    prompt: str
    top: int = 1
    ids: list = []


class Lazy:
    """What must not be touched."""

    @property
    def shape(self):
        raise RuntimeError("loaded from far away")


# --- buckets


@pytest.mark.parametrize(
    "n, text",
    [(0, "0"), (8, "8"), (9, "16"), (512, "512"), (513, "1k"), (1024, "1k"), (3 << 20, "4M"), (1 << 31, "2G")],
)
def test_sizes_are_rounded_up_to_powers_of_two(n, text):
    assert shapes.rounded(n) == text


@pytest.mark.parametrize(
    "value, bucket",
    [
        (np.zeros((3, 100), np.float32), "f32[3,128]"),
        (np.zeros((), np.int64), "i64[]"),
        (np.zeros((9,), np.uint8), "u8[16]"),
        (np.array(["a"]), "ndarray[1]"),
        (Picture(), "image[1k,1k]"),
        ("x" * 300, "str512"),
        (b"x" * 5, "bytes5"),
        (["ab", "abcdefghij"], "list2:str16"),
        ([[1, 2], [3]], "list2:list2"),
        ([1.0] * 20, "list32"),
        ({"a": 1}, "dict1"),
        (pathlib.Path(__file__), None),
        (Options(prompt="x" * 20, ids=[1, 2]), "prompt=str32,ids=list2"),
        (7, None),
        (True, None),
        (None, None),
        (object(), None),
    ],
)
def test_a_value_has_a_bucket_or_tells_nothing(value, bucket):
    got = shapes.bucket(value)
    assert got == bucket if bucket else got is None or got.startswith("file")


def test_names_come_with_several_values_and_the_first_few_are_enough():
    assert shapes.of_call(("x", "top"), ("abc", 5), {}) == "str3"
    assert shapes.of_call(("x",), ("abc",), {"y": [1]}) == "x=str3,y=list1"
    many = {f"k{i}": "v" for i in range(100)}
    assert shapes.of_call((), (), many).count("=") == shapes.MOST_VALUES


def test_a_value_that_cannot_be_looked_at_is_left_alone():
    assert shapes.of_call(("x",), (Lazy(),), {}) is None
    assert shapes.of_call(("x",), (pathlib.Path("/nowhere"),), {}) is None


@pytest.mark.parametrize(
    "args, items, bucket",
    [
        ((np.zeros((5, 3), np.float64),), 5, "f64[3]"),
        ((["a", "a" * 9],), 2, "str16"),
        (([1, 2, 3],), 3, None),
        ((7,), 0, None),
    ],
)
def test_a_batch_tells_its_items_apart_from_their_number(args, items, bucket):
    assert (shapes.items_of(args), shapes.of_batch(args)) == (items, bucket)


# --- OOM


class OutOfMemoryError(RuntimeError):
    pass


def chained(depth):
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    for _ in range(depth):
        try:
            raise ValueError("wrapped") from error
        except ValueError as exc:
            error = exc
    return error


class Unreadable(RuntimeError):
    def __str__(self):
        raise KeyError("no text")


@pytest.mark.parametrize(
    "error, oom",
    [
        (OutOfMemoryError("x"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("a user wrote: out of memory"), False),
        (chained(3), True),
        (chained(9), False),
        (Unreadable(), False),
        (MemoryError(), False),
    ],
)
def test_an_oom_is_known_by_its_class_its_text_or_its_cause(error, oom):
    assert memory.is_oom(error) is oom


# --- the host


def test_host_memory_is_that_of_this_process():
    anon, swap, rss, threads = memory.host_status()
    assert abs(memory.anon_bytes() - anon) < 32 << 20
    assert 0 < anon <= rss and swap >= 0 and threads >= threading.active_count()


@pytest.fixture
def recorder():
    page = pages.Page()
    page.open()
    return Recorder(page)


def test_host_memory_is_read_at_most_a_hundred_times_a_second(recorder):
    first, second = recorder.memory.host_anon(), recorder.memory.host_anon()
    assert first > 1 << 20 and second == 0
    assert recorder.page.host_now("anon") == first and recorder.page.host_now("python_blocks") > 1000


# --- runs


def test_overlap_is_that_of_user_code_and_a_quiet_point_is_when_none_runs(recorder):
    m = recorder.memory
    first = m.begin()
    second = m.begin()
    assert (first.alone, second.alone) == (True, False)
    assert m.end(first).flags == pages.OVERLAPPED
    third = m.begin()
    assert m.end(second).flags == pages.OVERLAPPED
    assert m.end(third).flags == pages.OVERLAPPED | pages.QUIESCENT
    assert m.end(m.begin()).flags == pages.ALONE | pages.QUIESCENT


def test_empty_cache_waits_for_a_quiet_moment(recorder):
    account = recorder.memory.begin()
    assert recorder.empty_cache() is None
    said = []
    waiter = threading.Thread(target=lambda: said.append(recorder.empty_cache(60)))
    waiter.start()
    until(lambda: recorder.quiet._waiters, "somebody to wait")
    with recorder.page.lock:
        recorder._run_ends(account)
    waiter.join(60)
    assert said == [{"returned_bytes": 0, "took_ms": 0.0}], "there is no torch"


def test_a_zombie_is_accounted_until_it_ends(recorder):
    endpoint = Endpoint(0, "/slow", "sync", False, "Toy", ("x",))
    call = Call(9, 0, endpoint)
    current.set(call)
    running = recorder.handler_begins(endpoint, (None, "text"), {})
    call.cut = True
    recorder.left(call, None)
    assert recorder.memory.running == 1 and recorder.page.get("zombies") == 1
    recorder.handler_ends(running, None)
    current.set(None)
    assert recorder.memory.running == 0 and recorder.page.get("ended") == 1


def test_ten_thousand_shapes_make_no_more_tags_than_the_page_has(recorder):
    endpoint = Endpoint(0, "/x", "sync", False, "Toy", ("x", "y"))
    handler = wrap(lambda self, x, y: None, recorder, endpoint)
    began = time.process_time()
    for n in range(10_000):
        handler(None, np.empty((1 << n % 60, 0)), "y" * (n % 200))
    assert len(endpoint.tags) <= pages.TAGS - 1 and recorder.page.get("untagged") > 0
    assert time.process_time() - began < 60


def test_inputs_are_not_kept_alive(recorder):
    import weakref

    class Input:
        pass

    gone = []
    endpoint = Endpoint(0, "/x", "sync", False, "Toy", ("x",))

    def handler(self, x):
        gone.append(weakref.ref(x))
        del x

    wrap(handler, recorder, endpoint)(None, Input())
    assert gone[0]() is None


def test_the_launcher_imports_no_torch():
    code = "import sys, plimsoll.worker, plimsoll.agent; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": str(pathlib.Path(pages.__file__).parents[1])}).stdout == "[]\n"  # fmt: skip


# --- real requests


def test_requests_of_a_service_carry_tags_and_host_memory(feature):
    _, _, _, request = feature.post("/text", {"name": "abc"})
    end = feature.page.end(request)
    assert feature.page.tags()[end["tag"]] == f"{feature.description['name']} /text str3"
    assert end["input_bytes"] == len('{"name": "abc"}') and end["batch"] == 0
    assert feature.page.host()["anon"] > 10 << 20
    _, _, _, request = feature.post("/batch", {"x": ["a", "b"]})
    end = feature.page.end(request)
    assert (feature.page.tags()[end["tag"]], end["batch"]) == (f"{feature.description['name']} /batch str1", 2)
    assert not end["flags"] & pages.MEMORY


def test_sample_and_empty_cache_are_answered_without_torch(feature):
    told = feature.ask("sample")
    assert told["ok"] and told["devices"] == [] and told["host_anon_bytes"] > 10 << 20 and "gc_objects" not in told
    assert feature.ask("sample", objects=True)["gc_objects"] == feature.page.host()["gc_objects"] > 1000
    assert feature.ask("empty_cache") == {"v": 1, "id": 1, "ok": True, "returned_bytes": 0, "took_ms": 0.0}
    assert feature.ask("explain_everything") == {"v": 1, "id": 1, "error": "unknown"}
