"""Dependencies that run apart: what main is told of them, and what a worker does with where they are."""

import json
import socket
import tempfile
from pathlib import Path

import pytest
from harness import PACKAGE, SERVICES, until
from test_describe import run

from plimsoll import control
from plimsoll import page as pages


@pytest.fixture
def short():
    """A folder with a short name: the path of a Unix socket holds 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def family(start, tmp_path, short):
    """Middle in a process of its own, Front that was told where it is, and the URI."""
    env = {"TRACE": str(tmp_path / "trace")}
    middle = start("apart", "service:Front", args=("--service-name", "middle"), env=env)
    middle.description = middle.described()
    middle.say(go={"deploy": True, "timeout_ms": 31000, "runner_map": {}})
    until(lambda: middle.page["loaded_ms"], "loaded:\n" + middle.log())
    (short / "a socket").symlink_to(middle.socket_path)
    uri = f"file://{short}/a%20socket"
    front = start("apart", "service:Front", env=env, go={"runner_map": {"middle": uri}})
    return front, middle, uri


def pids(worker):
    return json.loads(worker.post("/pids")[2])


def test_calls_go_to_the_process_that_was_named_and_the_rest_stays(family):
    front, middle, uri = family
    # Deep was not named to Middle, Limited not to Front: each is made by who wants it
    assert pids(front) == [front.pid, middle.pid, middle.pid, front.pid]
    assert front.post("/by_sync")[2] == str(middle.pid).encode()
    assert json.loads(front.post("/child_sees")[2]) == {"middle": uri}


def test_its_records_are_on_its_own_page(family):
    front, middle, _ = family
    request = front.post("/by_sync")[3]
    assert front.page.end(request)["route"] != pages.NO_ROUTE
    until(lambda: middle.page["ended"] == 1 and middle.page["in_flight"] == 0)
    assert [r["id"] for r in middle.page.begins()] == [0]  # nobody gave it a number


def test_limits_of_a_dependency_stay_with_bentoml(family):
    front, middle, _ = family
    assert middle.page["features"] == pages.F_RECORDS | pages.F_DEADLINE | pages.F_CONTROL
    front.post("/by_sync")
    until(lambda: "path=/who" in middle.log(), "BentoML's own access line")
    assert "path=/by_sync" not in front.log()


def test_the_first_process_deploys_for_all_of_them(family, tmp_path):
    _, middle, _ = family
    assert (tmp_path / "trace").read_text() == f"deployed {middle.pid}\n"


def test_what_main_is_told(family):
    front, middle, _ = family
    assert sorted(front.description["dependencies"], key=lambda d: d["rank"]) == [
        {"name": "Limited", "separate": True, "workers": 1, "rank": 1},
        {"name": "middle", "separate": True, "workers": 3, "rank": 2},
        {"name": "Deep", "separate": False, "workers": 1, "rank": 3},
    ]
    assert middle.description["name"] == "middle"
    assert [d["name"] for d in middle.description["dependencies"]] == ["Deep"]
    assert front.description["wants_deployment"] is True


def test_bentoml_s_configuration_by_name_counts_too(tmp_path):
    overrides = {"services": {"workers": 9, "Deep": {"threads": 2}, "middle": {"workers": "cpu_count"}}}
    out = run("service:Front", SERVICES / "apart", BENTOML_CONFIG_OVERRIDES=json.dumps(overrides),
              BENTOML_HOME=str(tmp_path))  # fmt: skip
    found = {d["name"]: d for d in json.loads(out.stdout)["describe"]["dependencies"]}
    assert found["Deep"]["separate"] is True and found["Deep"]["workers"] == 1
    assert found["middle"]["workers"] == "cpu_count"


def test_those_that_run_already_are_left_alone(start, tmp_path):
    elsewhere = json.dumps({"middle": "http://127.0.0.1:1"})
    w = start("apart", "service:Front", env={"TRACE": str(tmp_path / "trace"), "BENTOML_RUNNER_MAP": elsewhere})
    assert sorted(d["name"] for d in w.described()["dependencies"]) == ["Deep", "Limited"]
    w.say(go={"deploy": True, "runner_map": {"Limited": "file:///nowhere"}})
    until(lambda: w.page["loaded_ms"], "loaded:\n" + w.log())
    assert json.loads(w.post("/child_sees")[2]) == {"middle": "http://127.0.0.1:1", "Limited": "file:///nowhere"}
    assert not (tmp_path / "trace").exists()  # whoever started it has deployed it


@pytest.mark.parametrize("runner_map", [None, [], {}, "x"])
def test_without_a_map_everything_is_made_here(start, tmp_path, runner_map):
    w = start("apart", "service:Front", env={"TRACE": str(tmp_path / "trace")}, go={"runner_map": runner_map})
    assert set(pids(w)) == {w.pid}
    assert w.post("/child_sees")[2] == b""


def test_after_wait_it_waits_as_long_as_it_takes():
    ours, theirs = socket.socketpair()
    with ours:
        c = control.Control(theirs.detach(), {})
        ours.sendall(b'{"v":1,"wait":true}\n[]\n{"ask":"ping"}\n')
        # the deadline is over at once: only `wait` can have lifted it
        lines = [b'{"v":1,"wait":true}', b"[]", b'{"v":1,"go":{"deploy":false}}']
        asked = []

        def line(deadline=None):
            asked.append(deadline)
            return lines.pop(0)

        c._line = line
        assert c.describe({}, wait_s=5.0) == {"deploy": False}
        assert asked[0] is not None and asked[1:] == [None, None]
        c._socket.close()


def test_our_folder_is_what_is_tested():
    assert control.__file__.startswith(str(PACKAGE))
