"""The parts of explain without a worker around them: plain objects instead of tensors, since the ways to them are the same."""

import collections
import functools
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref

import pytest
from harness import PACKAGE, until

from plimsoll import census, explain, heap, history, host, names, ways
from plimsoll.control import Control

# --- control: questions that take long


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    control = Control(theirs.detach(), {})
    yield control, ours.makefile("rwb", buffering=0)
    ours.close()


def say(f, **document):
    f.write(json.dumps(document).encode() + b"\n")


def test_a_long_question_keeps_nobody_waiting(pair):
    control, f = pair
    gate = threading.Event()
    control.add("long", lambda asked: gate.wait(20) and {"heard": asked["word"]})
    control.serve()
    say(f, id=1, ask="long", word="x")
    say(f, id=2, ask="ping")
    assert json.loads(f.readline())["id"] == 2
    say(f, id=3, ask="long", word="y")
    assert json.loads(f.readline()) == {"v": 1, "id": 3, "error": "running"}
    gate.set()
    assert json.loads(f.readline()) == {"v": 1, "id": 1, "ok": True, "heard": "x"}


def test_a_long_question_that_fails_is_answered_and_may_be_asked_again(pair):
    control, f = pair
    control.add("long", lambda asked: 1 / asked["n"] and {"fine": True})
    control.serve()
    say(f, id=1, ask="long", n=0)
    assert json.loads(f.readline())["error"].startswith("ZeroDivisionError")
    until(lambda: not control._slow["long"][1].locked())
    say(f, id=2, ask="long", n=1)
    assert json.loads(f.readline())["fine"] is True


# --- census


class Allocator:
    """As much of torch as a census wants: blocks that the test decides."""

    def __init__(self):
        self.blocks = {}
        self._C = types.SimpleNamespace(_cuda_memorySnapshot=lambda what: {"segments": [
            {"address": a, "segment_pool_id": (0, 0), "blocks": [{"address": a, "size": s, "state": "active_allocated"}]}
            for a, s in self.blocks.items()]})  # fmt: skip


def test_a_block_is_as_old_as_its_first_sight_and_a_new_size_is_a_new_block():
    torch, c = Allocator(), census.Census()
    torch.blocks = {1: 512, 2: 512}
    c.take(torch, {})
    torch.blocks = {1: 512, 2: 1024, 3: 512}
    c.take(torch, {"/a": 10})
    assert c.first == {1: 0, 2: 1, 3: 1}
    torch.blocks[4] = 512
    c.take(torch, {})  # nobody has asked anything since: the same window
    assert c.first[4] == 1 and len(c.windows) == 2 and c.windows[1]["requests"] == {"/a": 10}


def test_many_windows_are_joined_and_no_request_is_lost():
    torch, c = Allocator(), census.Census()
    c.take(torch, {})
    for i in range(200):
        torch.blocks[i] = 512
        c.take(torch, {"/a": 1, "/b": 2})
    assert len(c.windows) <= census.WINDOWS + 1
    assert sum(w["requests"].get("/a", 0) for w in c.windows) == 200 and c.windows[0]["requests"] == {}
    assert min(c.first.values()) >= 1 and sorted(c.first, key=lambda a: (c.first[a], a)) == list(range(200))


def test_without_torch_all_that_comes_later_is_not_the_models():
    keeper = census.Keeper(lambda: (0, {"/a": 3}))
    assert keeper.baseline() is True and keeper.baseline() is False
    assert keeper.census.windows[0]["blocks"] == 0


# --- names

SOURCE = '''
CACHE = []
TABLE: dict = {}
class Box:
    shared = set()
    def __init__(self):
        self.rows = []
        self.total = 0
    def put(self, x):
        self.rows.append(x)
        self.total = self.total + x
        self.table["k"] = x
        self.rows = []
def f(x, memo={}):
    CACHE.append(x)
    TABLE[x] = x
    TABLE.setdefault(x, []).append(x)
    memo[x] = x
    global LAST
    LAST = (x, LAST)
    CACHE.clear()
'''


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return str(path)


def test_definitions_and_growing_lines(source):
    s = names.Source()
    lines = SOURCE.splitlines()
    at = lambda text: 1 + next(i for i, line in enumerate(lines) if text in line)  # noqa: E731
    assert s.definition(source, "CACHE") == at("CACHE = []") and s.definition(source, "TABLE") == at("TABLE:")
    assert s.definition(source, "rows", "Box") == at("self.rows = []") and s.definition(source, "shared", "Box") == 5
    assert s.definition(source, "nothing") is None and s.definition("/nowhere.py", "x") is None
    grown = lambda name, attr: [g["line"] for g in s.growers(source, name, attr)]  # noqa: E731
    assert grown("CACHE", False) == [at("CACHE.append")]
    assert grown("TABLE", False) == [at("TABLE[x]"), at("TABLE.setdefault")]
    assert grown("rows", True) == [at("self.rows.append")] and grown("total", True) == [at("self.total = self.total")]
    assert grown("table", True) == [at('self.table["k"]')] and grown("LAST", False) == [at("LAST = (x")]
    assert s.growers(source, "CACHE", False)[0] == {"file": "mine.py", "line": at("CACHE.append"), "func": "f",
                                                    "code": "CACHE.append(x)"}  # fmt: skip
    assert "code" not in names.Source(code=False).growers(source, "CACHE", False)[0]


def test_whose_file_it_is(source):
    assert names.is_user_file(source)
    for path in (None, "", "<string>", os.__file__, pytest.__file__, explain.__file__):
        assert not names.is_user_file(path)


# --- the heap, with plain objects


class Leaf:
    """Stands for a tensor."""


class Slots:
    __slots__ = ("inside", "__weakref__")


class Owner:
    shared = {}

    def __init__(self):
        self.rows = []

    @property
    def trap(self):
        raise AssertionError("a property was run")


KEPT = []


def climb(leaf):
    found = heap.Heap({}, time.monotonic() + 60)
    key = found.keep(leaf)
    found.own.add(id(sys._getframe().f_locals))
    found.climb([key])
    return found, key


def anchor_of(build):
    """(anchor, via) of a leaf that `build` hands to something; nothing but that holds it."""
    leaf = Leaf()
    undo = build(leaf)
    reference = weakref.ref(leaf)
    del leaf
    found = heap.Heap({}, time.monotonic() + 60)
    key = found.keep(reference())
    found.climb([key])
    path = found.ends(key)[0][1]
    anchor, via, way = ways.Ways(found, names.Source()).describe(path, 0)
    del found
    assert reference() is not None
    undo()
    return anchor, via, way


def test_ways_have_names():
    owner = KEPT
    a, _, _ = anchor_of(lambda leaf: (owner.append(leaf), owner.clear)[1])
    assert (a["kind"], a["name"]) == ("module_global", "KEPT")
    a, _, _ = anchor_of(lambda leaf: (Owner.shared.update(k=leaf), Owner.shared.clear)[1])
    assert (a["kind"], a["name"]) == ("class_attribute", "Owner.shared")

    def in_instance(leaf):
        mine = Owner()
        mine.rows.append(leaf)
        KEPT.append(mine)
        return KEPT.clear

    a, _, way = anchor_of(in_instance)
    assert (a["kind"], a["name"]) == ("instance_attribute", "Owner.rows") and a["line"] is not None

    def in_slot(leaf):
        mine = Slots()
        mine.inside = leaf
        KEPT.append(mine)
        return KEPT.clear

    a, _, _ = anchor_of(in_slot)
    assert a["name"] == "Slots.inside"

    def in_closure(leaf):
        KEPT.append(lambda: leaf)
        return KEPT.clear

    a, via, _ = anchor_of(in_closure)
    assert a["name"] in ("KEPT", "test_ways_have_names.<locals>.in_closure.<locals>.<lambda> (closure variable leaf)")
    assert via is None or via["kind"] == "closure"

    def in_error(leaf):
        def fail(held):
            raise ValueError("secret")

        try:
            fail(leaf)
        except ValueError as error:
            KEPT.append(error)
        return KEPT.clear

    a, via, way = anchor_of(in_error)
    assert a["name"] == "KEPT" and via["kind"] == "traceback_frame" and "secret" not in str(way)

    def in_cache(leaf):
        cached = functools.lru_cache(maxsize=7)(lambda x: x)
        cached(leaf)
        KEPT.append(cached)
        return KEPT.clear

    a, via, _ = anchor_of(in_cache)
    assert via is None or via["kind"] == "lru_cache"


def test_keys_of_users_are_not_named():
    _, _, way = anchor_of(lambda leaf: (KEPT.append({"alice@example.org": leaf}), KEPT.clear)[1])
    assert way[0] == "dict" and way[-1] == "dict .KEPT"


def test_a_weak_reference_holds_nothing():
    leaf = Leaf()
    table = weakref.WeakValueDictionary(k=leaf)
    found, key = climb(leaf)
    assert all(type(found.obj(k)) is not weakref.WeakValueDictionary for k in found.index) and len(table) == 1


def test_locals_of_running_functions_are_ids_and_are_let_go():
    begun, go, dropped, over = (threading.Event() for _ in range(4))
    seen = []

    def work():
        held = Leaf()
        seen.append(weakref.ref(held))
        begun.set()
        go.wait(20)
        del held
        dropped.set()
        over.wait(20)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    begun.wait(20)
    found = explain.running_locals()
    spot = found[id(seen[0]())]
    assert spot["name"] == "held" and spot["thread"] == "worker" and spot["func"].endswith("work")
    go.set()
    dropped.wait(20)
    assert seen[0]() is None
    over.set()
    thread.join()


# --- the child


def in_fresh_process(text):
    """Runs code that forks or changes the process for good."""
    code = f"import sys\nsys.path.insert(0, {str(PACKAGE)!r})\n" + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_child_that_hangs_is_killed_and_reaped():
    done = in_fresh_process("""
        import os, time
        from plimsoll import explain
        explain.KILL_AFTER_S = 0.2
        os.register_at_fork(after_in_child=lambda: time.sleep(1000))
        child = explain.Child(lambda: {}, 0.1)
        assert child.read() is None
        try:
            os.waitpid(child.pid, 0)
        except ChildProcessError:
            print("reaped")
    """)
    assert done.stdout == "reaped\n", done.stderr


def test_a_child_that_fails_says_why_and_one_that_dies_says_nothing():
    done = in_fresh_process("""
        import os
        from plimsoll import explain
        print(explain.Child(lambda: {"a": 1}, 5).read())
        print(explain.Child(lambda: 1 / 0, 5).read())
        print(explain.Child(lambda: os._exit(3), 5).read())
        print(explain.Child(lambda: {"big": "x" * 1000000}, 5).read()["big"] == "x" * 1000000)
    """)
    assert done.stdout.splitlines() == ["{'a': 1}", "{'error': 'ZeroDivisionError: division by zero'}", "None", "True"], done.stderr


def test_the_child_lets_go_of_sockets():
    done = in_fresh_process("""
        import os, socket
        from plimsoll import explain
        a, b = socket.socketpair()
        child = explain.Child(lambda: {"open": [n for n in os.listdir("/proc/self/fd")]}, 5)
        assert str(b.fileno()) not in child.read()["open"]
        print("closed")
    """)
    assert done.stdout == "closed\n", done.stderr


def test_the_gap_sees_who_keeps_the_interpreter():
    code = "sum(range(10**7))"
    with explain.Gap() as gap:
        sum(range(2 * 10**7))  # one call, which no other thread interrupts
    assert gap.longest > 0.02, code


# --- the looks


def looker(in_flight=0, counts=None):
    state = {"in_flight": in_flight, "counts": counts if counts is not None else {"/a": 1}}
    get = lambda: (state["in_flight"], dict(state["counts"]))  # noqa: E731
    return explain.Explainer(census.Keeper(get), get, history.History()), state


def test_looks_are_limited_forced_and_refused(monkeypatch):
    monkeypatch.setattr(explain, "TRY_S", 0.06)
    e, state = looker()
    assert e.look({"mode": "off"})["refused"] == "off" and e.look({"mode": "sideways"})["refused"] == "off"
    first = e.look({"mode": "inline"})["report"]
    assert first["looks"] == 1 and first["complete"] and first["mode"] == "inline" and first["findings"] == []
    assert e.look({"mode": "inline"})["refused"] == "limit"
    assert e.look({"mode": "inline", "again": True})["report"]["looks"] == 2
    monkeypatch.setattr(explain, "EVERY_S", 0)
    assert "report" in e.look({"mode": "inline"}) and "report" in e.look({"mode": "inline"})
    refused = e.look({"mode": "inline"})
    assert refused["refused"] == "limit" and "--force" in refused["hint"]
    state["in_flight"] = 1
    assert e.look({"mode": "inline", "force": True})["report"]["complete"]
    e._runs = 0
    assert e.look({"mode": "inline"})["refused"] == "busy"


def test_fork_or_inline_or_neither(monkeypatch):
    e, state = looker()
    anon = {"bytes": 1 << 30}
    room = {"bytes": None}
    monkeypatch.setattr(host, "status_bytes", lambda *wanted: anon["bytes"])
    monkeypatch.setattr(explain, "memory_room", lambda: room["bytes"])
    assert e._choose("auto") == "fork"
    anon["bytes"] = 20 << 30  # 0.8 s of fork
    assert e._choose("auto") == "inline" and e._choose("fork") == "fork"
    state["in_flight"] = 1
    with pytest.raises(explain.Refused, match="fork would take 0.8 s"):
        e._choose("auto")
    anon["bytes"], room["bytes"] = 1 << 30, 100 << 20
    for mode in ("auto", "fork"):
        with pytest.raises(explain.Refused) as refused:
            e._choose(mode)
        assert refused.value.reason == "memory"
    state["in_flight"] = 0
    assert e._choose("auto") == "inline"


def windows(*counts):
    return [{"requests": {}}, *({"requests": c} for c in counts)]


def test_a_child_that_was_made_in_a_bad_moment_is_made_again(monkeypatch):
    """One that stands still over a lock that another thread had is killed; the look is not lost, nor the growth."""
    e, _ = looker()
    monkeypatch.setattr(e, "_fork", lambda args, budget_s, found=[None, {"findings": []}]: found.pop(0))
    assert e._forked((None, {}), 1) == {"findings": []}


@pytest.mark.parametrize(
    "ages, rows, route",
    [
        ([5, 10, 20, 30, 0], windows({"/a": 10}, {"/a": 20}, {"/a": 30}), "/a"),
        ([0, 10, 2, 30, 0], windows({"/a": 10, "/b": 9}, {"/a": 2, "/b": 30}, {"/a": 30, "/b": 1}), "/a"),
        ([0, 10, 10, 10, 0], windows({"/a": 10, "/b": 10}, {"/a": 10, "/b": 10}, {"/a": 10, "/b": 10}), None),
        ([0, 5, 5, 0], windows({"/a": 5, "/b": 9}, {"/a": 5}), None),  # too few to tell
        ([3, 0, 0, 0, 0], windows({"/a": 1, "/b": 1}, {"/a": 1}, {"/b": 2}), None),
        ([0, 0], windows(), None),
    ],
)
def test_the_route_that_explains_when_blocks_came(ages, rows, route):
    assert explain.route_of(ages, rows) == route


def test_growth_is_between_two_looks():
    e, _ = looker()
    row = lambda size, kind="module_global": {"kind": kind, "holder": "X", "file": "f.py", "line": 1, "container": "list", "ages": [],  # noqa: E731
                                              "shapes": [], "blocks": size // 512, "bytes": size}
    growing = []
    for size, total in ((51200, 100), (51200 + 512 * 50, 150), (51200 + 512 * 51, 250)):
        report = {"complete": True, "findings": [row(size)]}
        e._growth(report, {"/a": total})
        growing.append((report["findings"][0]["growing"], report["findings"][0].get("blocks_per_request")))
    assert growing == [(None, None), (True, 1.0), (False, 0.01)]
    report = {"complete": True, "findings": [row(512), row(1 << 20, "garbage_cycle")]}
    e._growth(report, {"/a": 300})
    report = {"complete": True, "findings": [row(1 << 21, "garbage_cycle")]}
    e._growth(report, {"/a": 400})
    assert report["findings"][0]["growing"] is False  # late, and not kept
    assert report["findings"][0]["words"].startswith("f.py:1 X[list] -> 4096 blocks, 2.00 MiB")


def test_a_look_that_has_not_seen_all_is_nothing_to_compare_with():
    """Else the next one would be a second look, at which nothing grows because nothing was seen before."""
    e, _ = looker()
    row = lambda size: {"kind": "module_global", "holder": "X", "file": "f.py", "line": 1, "container": "list", "ages": [],  # noqa: E731
                        "shapes": [], "blocks": size // 512, "bytes": size}  # fmt: skip
    told = []
    for complete, rows, total in ((False, [], 100), (False, [row(512)], 110), (True, [row(51200)], 120), (False, [row(512)], 130),
                                  (True, [row(51200 + 512 * 50)], 170)):  # fmt: skip
        report = {"complete": complete, "findings": rows}
        e._growth(report, {"/a": total})
        told.append((report["looks"], rows[0].get("blocks_per_request") if rows else None, rows[0]["growing"] if rows else None))
    assert told == [(1, None, None), (1, None, None), (1, None, None), (2, -9.9, False), (2, 1.0, True)]


def test_the_host_too_is_compared_with_what_has_seen_all(monkeypatch):
    e, _ = looker()
    walks = iter([{"complete": False, "host": {}, "stats": {}, "findings": [], "_lengths": {"1": 5}},
                  {"complete": True, "host": {}, "stats": {"objects": 7}, "findings": [], "_lengths": {"1": 50}},
                  {"complete": False, "host": {}, "stats": {}, "findings": []}])  # fmt: skip
    monkeypatch.setattr(e, "_walk", lambda *args, **more: next(walks))
    seen = []
    for _ in range(3):
        e.look({"mode": "inline", "force": True})
        seen.append((e._host_last and e._host_last["lengths"], e._objects))
    assert seen == [(None, 0), ({1: 50}, 7), ({1: 50}, 7)]


def test_a_look_that_is_taken_again_belongs_to_the_same_explanation():
    e, _ = looker()
    assert "report" in e.look({"mode": "inline"}) and e._runs == 1
    assert e.look({"mode": "inline"})["refused"] == "limit"
    assert "report" in e.look({"mode": "inline", "retry": True}) and "report" in e.look({"mode": "inline", "retry": True}) and e._runs == 1
    fresh, _ = looker()
    assert "report" in fresh.look({"mode": "inline", "retry": True}) and fresh._runs == 1, "the one before came to no look"


@pytest.mark.parametrize("gained, requests, growing", [(300, 300, True), (0, 300, False), (15, 20, False), (40, 300, False), (-20, 300, False)])
def test_a_leak_that_has_gone_on_for_long_still_grows(gained, requests, growing):
    """1 % more in the hundreds of requests between two looks, and one block for each of them."""
    e, _ = looker()
    for blocks, total in ((30_000, 30_000), (30_000 + gained, 30_000 + requests)):
        report = {"complete": True, "findings": [{"kind": "module_global", "holder": "X", "file": "f.py", "line": 1, "container": "list",
                                                  "ages": [], "shapes": [], "blocks": blocks, "bytes": 8192 * blocks}]}  # fmt: skip
        e._growth(report, {"/a": total})
    assert report["findings"][0]["growing"] is growing


def test_a_report_has_its_size():
    rows = [{"way": ["x" * 100] * 12, "words": "y" * 200, "n": n, "more": "z" * 4000} for n in range(40)]
    report = explain.fitted({"findings": rows})
    assert len(json.dumps(report)) <= explain.REPORT_BYTES and report["cut"] is True
    assert [r["n"] for r in report["findings"]] == list(range(len(report["findings"]))) and "way" not in report["findings"][0]


# --- the host

MIB = 1 << 20


@pytest.mark.parametrize(
    "anon, used, free, word",
    [(1, 0, 0, "stable"), (100, 90, 5, "malloc"), (100, 2, 95, "fragmentation"), (100, 5, 5, "python")],
)
def test_what_grew_on_the_host(anon, used, free, word):
    base = {"anon_bytes": 0, "malloc_used_bytes": 0, "malloc_free_bytes": 0}
    now = {"anon_bytes": anon * MIB, "malloc_used_bytes": used * MIB, "malloc_free_bytes": free * MIB}
    assert host.judge(now, base) == word
    assert host.judge({"anon_bytes": 100 * MIB}, {"anon_bytes": 0}) == "unknown"


GROWS = {}
QUEUE = collections.deque()


def test_a_container_that_grew_is_named():
    walk = lambda before, types, n: host.HostWalk(before, types, n, {}, time.monotonic() + 60).run()  # noqa: E731
    for i in range(50):
        GROWS[i] = i
        QUEUE.append("x" * 1000 + str(i))
    first, lengths, types = walk(None, None, 0)
    assert first["holders"] == []
    for i in range(100):
        GROWS[50 + i] = i  # a dictionary of numbers is not the collector's
        QUEUE.append("x" * 1000 + str(i))
    second, _, _ = walk(lengths, types, 100)
    found = {r["holder"]: r for r in second["holders"]}
    assert {"GROWS", "QUEUE"} <= found.keys()
    assert found["QUEUE"]["grown"] == found["GROWS"]["grown"] == 100
    assert 100_000 < found["QUEUE"]["bytes_grown"] < 120_000 and found["QUEUE"]["file"] == "test_explain.py"


def test_tracemalloc_on_demand():
    done = in_fresh_process("""
        import tracemalloc
        from plimsoll import explain, host
        verbs = explain.Verbs(lambda: (0, {}))
        assert host.traced() == []
        assert verbs.record_history({"what": "host", "on": True}) == {"on": True}
        kept = [bytes(100) for _ in range(1000)]
        found = host.traced()
        assert found[0]["bytes"] > 100000, found
        assert verbs.record_history({"what": "host", "on": False}) == {"on": False} and not tracemalloc.is_tracing()
        print(verbs.record_history({"on": True})["refused"], verbs.dump_snapshot({})["refused"], sep="; ")
    """)
    assert done.stdout == "CUDA is not in use yet; main has not said where snapshots go\n", done.stderr


def test_the_last_traceback_is_forgotten():
    leaf = Leaf()
    gone = weakref.ref(leaf)
    sys.last_value = ValueError(leaf)
    del leaf
    assert history.release_traceback() == ["last_value"] and gone() is None and not hasattr(sys, "last_value")


