"""The life of a worker: handshake, deployment, environment, exits."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness import PACKAGE, PYTHON, SERVICES, until

from plimsoll import bento, worker
from plimsoll import page as pages


def test_it_waits_for_go_before_it_makes_the_instance(start, tmp_path):
    trace = tmp_path / "trace"
    w = start("feature", "service:Feature", env={"TRACE": str(trace)})
    assert w.described()["name"] == "feature"
    assert trace.read_text() == "import\n"
    assert w.page["imported_ms"] > 0 and w.page["loaded_ms"] == w.page["serving_ms"] == 0
    w.say(go={"deploy": True, "timeout_ms": 31000})
    w.wait_ready()
    assert trace.read_text().splitlines() == ["import", "on_deployment", "init", "on_startup"]
    assert 0 < w.page["imported_ms"] <= w.page["loaded_ms"] <= w.page["serving_ms"]


def test_the_header_names_the_process(feature):
    head = feature.page.head()
    assert head[0] == pages.MAGIC
    assert head[7] == feature.pid
    assert head[9:11] == (7, 0xAB12)
    assert feature.page["features"] == pages.F_RECORDS | pages.F_DEADLINE | pages.F_OVERRIDES | pages.F_CONTROL


def test_deployment_is_done_only_when_asked(start, tmp_path):
    trace = tmp_path / "trace"
    w = start("feature", "service:Feature", go={"deploy": False}, env={"TRACE": str(trace)})
    assert "on_deployment" not in trace.read_text()
    assert w.post("/text")[0] == 200


def test_a_second_worker_keeps_the_tasks_of_the_first(start, tmp_path):
    home = {"BENTOML_HOME": str(tmp_path / "home")}
    first = start("feature", "service:Feature", go={"deploy": True}, env=home)
    gate = tmp_path / "gate"
    gate.touch()
    task = json.loads(first.post("/job/submit", {"gate": str(gate)})[2])["task_id"]
    second = start("feature", "service:Feature", go={"deploy": False}, env=home)
    until(lambda: second.request("GET", f"/job/get?task_id={task}")[2] == b"done")


def test_without_anybody_to_ask_it_goes_on(start):
    w = start("feature", "service:Feature")
    w.described()
    w.control.close()
    w.wait_ready()
    assert w.post("/text")[0] == 200
    assert w.post("/job/submit", {"gate": "/"})[0] == 200  # the table of tasks is there
    assert 'event=worker.degraded feature=handshake reason="nobody said go"' in w.log()


def test_the_end_of_the_control_socket_changes_nothing(start):
    w = start("feature", "service:Feature", go={})
    w.control.close()
    assert w.post("/text")[0] == 200
    assert w.stop() == -signal.SIGTERM


def test_without_page_and_socket_it_serves_and_says_so(start):
    w = start("edge", "service:Edge", env={"PLIMSOLL_PAGE_FD": None, "PLIMSOLL_CONTROL_FD": "77"})
    w.wait_ready()
    assert w.post("/predict")[0] == 200
    assert w.page["begun"] == 0
    assert "feature=page" in w.log() and "feature=control" in w.log()


# --- what the user's code sees


def test_nothing_of_ours_is_left_for_subprocesses(feature):
    seen = json.loads(feature.post("/surroundings")[2])
    assert seen["env"] == ["PLIMSOLL_GENERATION"]
    assert not {4, 5} & set(json.loads(seen["child_fds"]))
    assert str(PACKAGE) not in seen["path"]


def test_folder_and_path_are_as_under_bentoml_serve(feature):
    seen = json.loads(feature.post("/surroundings")[2])
    folder = str(SERVICES / "feature")
    assert seen["cwd"] == folder and seen["path"][0] == folder
    assert seen["main"] == "_bentoml_impl.worker.service"


def test_multiprocessing_can_spawn(feature):
    assert feature.post("/spawns")[2] == b"7"


def test_the_module_is_imported_once(feature):
    assert feature.trace.read_text().splitlines().count("import") == 1


def test_the_user_s_own_paths_and_overrides_stay(start, tmp_path):
    (tmp_path / "lib").mkdir()
    overrides = json.dumps({"services": {"feature": {"metrics": {"enabled": False}}}})
    w = start("feature", "service:Feature", go={},
              env={"PYTHONPATH": f"{PACKAGE}:{tmp_path / 'lib'}", "BENTOML_CONFIG_OVERRIDES": overrides,
                   "BENTOML_CONFIG_OPTIONS": "services.feature.traffic.max_concurrency=1"})  # fmt: skip
    seen = json.loads(w.post("/surroundings")[2])
    assert {"PYTHONPATH", "BENTOML_CONFIG_OVERRIDES", "BENTOML_CONFIG_OPTIONS"} <= set(seen["env"])
    assert str(tmp_path / "lib") in seen["path"]
    assert w.request("GET", "/metrics")[0] == 404  # their override
    assert w.description["settings"]["bentoml_config"] == {"traffic.max_concurrency": "1"}


def test_envs_of_the_decorator_are_set_and_the_environment_wins(start):
    w = start("envs", "service:Envs", env={"FROM_OUTSIDE": "outside", "NEEDED": "here"})
    d = w.described()
    assert d["path_prefix"] == "/v1"
    assert d["settings"]["decorator"] == {"route.path": "/v1"}
    assert d["routes"][0]["path"] == "/v1/deep/env"
    w.say(go={})
    until(lambda: w.page["loaded_ms"], "loaded")
    status, _, body, request = w.post("/v1/deep/env")
    assert status == 200
    assert json.loads(body) == {"WITH_VALUE": "declared", "FROM_OUTSIDE": "outside", "BUILD_ONLY": None, "NEEDED": "here"}
    assert w.page.end(request)["route"] == 0


# --- exits


@pytest.mark.parametrize(
    "service, ident, status, sentence",
    [
        ("bad_import", "service", 1, "cannot load service: the model file is missing"),
        ("feature", "service:Nope", 1, 'cannot load service:Nope: Attribute "Nope" not found in module "service".'),
        ("feature", "nothing:X", 1, "cannot load nothing:X:"),
    ],
)
def test_what_cannot_be_loaded_is_told_first(start, service, ident, status, sentence):
    w = start(service, ident)
    assert w.wait_exit() == status
    assert any(line.startswith(sentence) for line in w.log().splitlines()), w.log()
    assert w.log().index(sentence) < w.log().index("Traceback")


@pytest.mark.parametrize(
    "service, ident, sentence",
    [
        ("envs", "service:Envs", "Environment variable 'NEEDED' is required by service 'Envs' but not set"),
    ],
)
def test_what_is_refused_gets_one_sentence(start, service, ident, sentence):
    w = start(service, ident)
    assert w.wait_exit() == 1
    assert w.log().splitlines()[-1].startswith(sentence)
    assert "Traceback" not in w.log()


def asks_for_the_whole_server(w, reason):
    """It says so, again to a main that comes later and says go, and waits to be ended."""
    for _ in range(2):
        assert w.line()["fallback"] == {"reason": reason}
        w.say(go={})
    assert w.line()["fallback"] == {"reason": reason}
    assert "Traceback" not in w.log()
    assert w.stop() == -signal.SIGTERM


@pytest.mark.parametrize(
    "service, ident, reason",
    [
        ("legacy", "service:svc", "service:svc is a legacy service (bentoml.legacy)"),
        ("own_command", "service:Own", "service:Own starts a command of its own (cmd)"),
    ],
)
def test_a_service_of_another_kind_is_for_bentoml_s_own_server(start, service, ident, reason):
    asks_for_the_whole_server(start(service, ident), reason)


def test_a_failing_init_is_status_3(start):
    w = start("bad_init", "service:BadInit")
    w.described()
    w.say(go={})
    assert w.wait_exit() == 3
    assert "CUDA out of memory (during load)" in w.log()
    assert w.page["loaded_ms"] == 0


def bare_python(tmp_path, version=None):
    """An interpreter without BentoML, or with the shell of an old one."""
    import venv

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    if version:
        packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
        (packages / "bentoml").mkdir()
        (packages / "bentoml" / "__init__.py").touch()
        info = packages / f"bentoml-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bentoml\nVersion: {version}\n")
    return str(python)


def test_bentoml_not_installed(start, tmp_path):
    python = bare_python(tmp_path)
    w = start("edge", "service:Edge", python=python)
    assert w.wait_exit() == 1
    assert w.log() == f"BentoML is not installed in {python}: pip install bentoml\n"


def test_bentoml_too_old(start, tmp_path):
    python = bare_python(tmp_path, "1.1.11")
    w = start("edge", "service:Edge", python=python)
    asks_for_the_whole_server(w, "BentoML 1.1.11 is older than 1.2 and has no worker entry")


def test_bentoml_without_the_entry(start, tmp_path):
    python = bare_python(tmp_path, "1.9.0")
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "_bentoml_impl").mkdir()
    (packages / "_bentoml_impl" / "__init__.py").touch()
    w = start("edge", "service:Edge", python=python)
    asks_for_the_whole_server(w, "BentoML 1.9.0 has no worker entry that we can start")


def test_a_folder_called_bentoml_is_not_bentoml(tmp_path, monkeypatch):
    (tmp_path / "bentoml").mkdir()
    code = f"import sys; sys.path[:0] = [{str(PACKAGE)!r}, {str(tmp_path)!r}]; from plimsoll import bento; bento.require()"
    python = bare_python(tmp_path)
    out = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "is not installed" in out.stderr


# --- pieces


def test_a_private_name_that_is_gone_costs_its_feature_only(capsys, monkeypatch):
    monkeypatch.delenv("PLIMSOLL_PAGE_FD", raising=False)
    launcher = worker.Launcher(["service:X"])
    launcher._patch("records", "json", "Nothing.to_asgi", lambda original: original)
    launcher._patch("load", "no_such_module", "load", lambda original: original)
    assert [d["feature"] for d in launcher.degraded] == ["page", "control", "records", "load"]
    lines = [line for line in capsys.readouterr().err.splitlines() if "feature=records" in line]
    assert len(lines) == 1 and lines[0].startswith("event=worker.degraded feature=records reason=")


@pytest.mark.parametrize(
    "text, number_and_boot",
    [("ab12.7", (7, 0xAB12)), ("", (0, 0)), ("x.y", (0, 0)), ("7", (0, 0)), ("1" * 20 + ".3", (3, int("1" * 16, 16)))],
)
def test_the_keeper_s_name_of_a_start(monkeypatch, text, number_and_boot):
    monkeypatch.setenv("PLIMSOLL_GENERATION", text)
    assert pages.generation() == number_and_boot


def test_limits_are_moved_by_name_and_put_back(monkeypatch):
    monkeypatch.setenv("BENTOML_CONFIG_OVERRIDES", '{"services": {"a": {"traffic": {"timeout": 1, "concurrency": 2}}}}')
    monkeypatch.delenv("BENTOML_CONFIG_OPTIONS", raising=False)
    before = dict(os.environ)
    with bento.limits_moved(["a", "b"], 31):
        seen = json.loads(os.environ["BENTOML_CONFIG_OVERRIDES"])["services"]
    assert seen["a"]["traffic"] == {"timeout": 31, "max_concurrency": None, "concurrency": 2}
    assert seen["b"]["logging"] == {"access": {"enabled": False}}
    assert dict(os.environ) == before


@pytest.mark.skipif(sys.version_info < (3, 9), reason="3.9 is the oldest")
def test_the_interpreter_of_the_tests_is_used(feature):
    assert os.path.exists(PYTHON) and feature.description["python"]
