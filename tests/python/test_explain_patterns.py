"""Who holds it: leaks and what looks like leaks, in a real BentoML worker with PyTorch's real allocator on the dry dock.

Several patterns share a worker, as several leaks share a service. Each is called 24 times before READY, and then in four
windows with a look after the second and the fourth.
"""

import json

import pytest
from docked import dock, torch_python  # noqa: F401
from harness import SERVICES, Worker

pytestmark = pytest.mark.timeout(240)
EXPECTED = json.loads((SERVICES / "leaks/expected.json").read_text())
WARM, WINDOW = 24, 10
# What shares a worker; alone are those that change the process for the others.
WORKERS = [
    ["global_list_inference", "deque_unbounded", "exception_traceback", "generator_disconnect", "lru_cache_method",
     "closure_callbacks", "logger_handler", "class_dict", "asyncio_tasks", "ok_deque_bounded", "ok_cycle_del"],
    ["thread_local", "module_hook", "metrics_collector", "kv_cache_dict", "small_view", "retry_queue", "cuda_graph_pools",
     "default_argument", "ok_lru_bounded", "ok_plateau", "ok_dynamic_shapes", "ok_evicting_dict"],
    ["global_list_graph", "loss_accumulation", "recurrent_state", "pinned_host", "growing_tensor", "parameter_list",
     "service_attribute", "ok_lazy_model"],
    ["slots_store", "context_var", "async_generator", "partial_callbacks", "thread_worker", "linked_list", "heap_queue",
     "bound_methods", "helper_module", "finalizers", "metaclass_registry", "ok_weak_values", "ok_ring"],
    ["frozen"],
]  # fmt: skip
HOME = {name: i for i, group in enumerate(WORKERS) for name in group}
QUICK = (0, 3, 4)  # the rest, and all of it in the process itself, is for `make test-full`


def ask(worker, verb, **more):
    worker.say(id=1, ask=verb, **more)
    return worker.line()


def observe(worker, names, mode):
    """Two reports of one worker whose patterns are called in turn."""
    call = lambda name, start, count: worker.post("/run", {"pattern": name, "start": start, "count": count})[0]  # noqa: E731
    for name in names:
        assert call(name, 0, WARM) == 200, worker.log()
    assert ask(worker, "explain", census="ready")["baseline"] is True
    reports = []
    for window in range(4):
        for i in range(WINDOW):
            for name in names:
                assert call(name, WARM + window * WINDOW + i, 1) == 200, worker.log()
        ask(worker, "explain", census=True)
        if window in (1, 3):
            said = ask(worker, "explain", mode=mode, again=window == 3, deadline_ms=30000)
            assert said.get("ok") and "report" in said, said
            reports.append(said["report"])
    return reports


@pytest.fixture(scope="module")
def reports(dock, tmp_path_factory):  # noqa: F811
    """reports(name, mode): the second report of the worker in which a pattern runs; each worker is started once."""
    known = {}

    def of(name, mode="fork"):
        home = HOME[name]
        if (home, mode) not in known:
            where = tmp_path_factory.mktemp("leaks")
            worker = Worker(SERVICES / "leaks", "service:Leaks", where, go={"deploy": True}, python=torch_python(),
                            env=dock.environment)  # fmt: skip
            try:
                known[home, mode] = observe(worker, WORKERS[home], mode)
            finally:
                worker.close()
        first, second = known[home, mode]
        assert first["complete"] and second["complete"], second
        return second

    return of


def rows_of(name, report):
    """Growing rows that are this pattern's: by file, by holder, or by where the chain passes."""
    expect = EXPECTED[name]
    files = {f"{name}.py", expect.get("file", "")}
    out = []
    for row in report["findings"]:
        near = {row["file"], (row["via"] or {}).get("file"), *(g["file"] for g in row["grown_at"])}
        if row["growing"] and (near & files or expect.get("name", "?") in row["holder"]):
            out.append(row)
    return out


def wrongs(name, row):
    expect = EXPECTED[name]
    out = []
    if expect["name"] not in row["holder"] or row["kind"] not in expect["kinds"]:
        out.append(f"{row['kind']} {row['holder']}")
    if "line" in expect and row["line"] != expect["line"]:
        out.append(f"line {row['line']}")
    if "grown" in expect and expect["grown"] not in [g["line"] for g in row["grown_at"]]:
        out.append(f"grown at {row['grown_at']}")
    if "via" in expect and (row["via"] or {}).get("kind") != expect["via"]:
        out.append(f"via {row['via']}")
    if "via_name" in expect and expect["via_name"] not in str((row["via"] or {}).get("name")):
        out.append(f"via {row['via']}")
    if "hint" in expect and not any(expect["hint"] in h for h in row["hints"]):
        out.append(f"hints {row['hints']}")
    return out


def check(name, report):
    expect = EXPECTED[name]
    if expect.get("section") == "pinned_host":
        rows = [dict(r, via=None, hints=[]) for r in report["pinned_host"]]
    else:
        rows = rows_of(name, report)
    shown = json.dumps(report, indent=1)
    if not expect["leak"]:
        assert rows == [], shown
        return
    assert rows, f"nothing is named\n{shown}"
    problems = [(wrongs(name, row), row) for row in rows]
    assert any(not wrong for wrong, _ in problems), f"{problems}\n{shown}"


def test_every_pattern_is_run():
    files = {p.stem for p in (SERVICES / "leaks/patterns").glob("*.py")} - {"helper_cache"}
    assert set(HOME) == set(EXPECTED) == files | {"service_attribute"}


def cases(mode):
    quick = QUICK if mode == "fork" else ()
    return [pytest.param(name, mode, id=name if mode == "fork" else f"{name}-{mode}",
                         marks=[] if HOME[name] in quick else [pytest.mark.full])
            for name in HOME if mode == "fork" or name != "frozen"]  # fmt: skip


@pytest.mark.parametrize("name, mode", cases("fork") + cases("inline"))
def test_pattern(reports, name, mode):
    check(name, reports(name, mode))


def test_what_users_put_into_keys_stays_with_them(reports):
    text = json.dumps(reports("generator_disconnect"))
    assert "STREAMS" in text and "Sessions.by_request" in text
    assert "req-2" not in text and '"r2' not in text and "bad request" not in text


def test_history_gives_the_allocating_line_and_snapshots_have_names(dock, tmp_path):  # noqa: F811
    worker = Worker(SERVICES / "leaks", "service:Leaks", tmp_path / "w", python=torch_python(), env=dock.environment,
                    go={"deploy": True, "snapshots": str(tmp_path)})  # fmt: skip
    try:
        assert worker.post("/innocent")[0] == 200
        assert ask(worker, "explain", census="ready")["baseline"] is True
        assert ask(worker, "explain", census="ready")["baseline"] is False
        assert ask(worker, "record_history", on=True) == {"v": 1, "id": 1, "ok": True, "on": True}
        for i in range(24):
            worker.post("/run", {"pattern": "exception_traceback", "start": i, "count": 1})
            if i % 8 == 7:
                ask(worker, "explain", census=True)
        row = ask(worker, "explain")["report"]["findings"][0]
        assert row["allocated_at"][0]["func"] == "run_model" and row["allocated_at"][0]["line"] == 8
        assert row["tagged"] == {"/run": 24} and row["route"] == "/run"
        assert ask(worker, "record_history", on=False)["on"] is False
        said = ask(worker, "dump_snapshot")
        assert (tmp_path / said["name"]).stat().st_size == said["bytes"] > 1000
        assert ask(worker, "release_traceback")["released"] == []
        # at an OOM main is told without having asked
        assert "out of memory" in worker.post("/full")[2].decode()
        told = worker.line()["snapshot"]
        assert told["why"] == "oom" and (tmp_path / told["name"]).stat().st_size == told["bytes"]
        assert not list(tmp_path.glob("*.part"))
    finally:
        worker.close()


def test_the_users_own_history_is_left_alone(dock, tmp_path):  # noqa: F811
    worker = Worker(SERVICES / "leaks", "service:Leaks", tmp_path / "w", python=torch_python(), go={"deploy": True},
                    env={**dock.environment, "OWN_HISTORY": "1"})  # fmt: skip
    try:
        said = ask(worker, "record_history", on=True)
        assert said["refused"] == "the service records its memory history itself"
        assert "main has not said" in ask(worker, "dump_snapshot")["refused"]
    finally:
        worker.close()
