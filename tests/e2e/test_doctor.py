"""`plimsoll doctor`: one line a check, with the remedy; the exit status is the answer."""

import json
import socket

from rig.door import Authority, KeyFile
from rig.server import clean_environment, paths, run_plimsoll

FREE = ("--admin", "none", "--host", "127.0.0.1", "--port", "0")


def doctor(folder, *words):
    env = {**clean_environment(), "XDG_STATE_HOME": str(folder / "state")}
    return run_plimsoll("doctor", *words, "--run_dir", folder / "run", "--state_dir", folder / "state", cwd=paths.services / "simple", env=env)


def test_a_machine_that_can_serve_is_all_ok(tmp_path):
    done = doctor(tmp_path, "service:Simple", "--python", paths.python, *FREE)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.split()[1] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert names[:5] == ["plimsoll", "parts", "config", "python", "bentoml"]
    assert {"gpu", "cgroup", "limits", "run_dir", "state_dir", "listen"} <= set(names)
    assert "fail" not in done.stdout


def test_what_is_wrong_is_named_with_its_remedy(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = doctor(tmp_path, "service:Simple", "--python", "/none/python", "--admin", "none", "--host", "127.0.0.1",
                      "--port", port)
    assert done.returncode == 1
    fails = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert any("/none/python" in line for line in fails) and any(str(port) in line for line in fails)
    assert done.stdout.count("->") >= len(fails)


def test_an_interpreter_without_bentoml_and_the_json_form(tmp_path):
    done = doctor(tmp_path, "service:Simple", "--json", "--python", "/usr/bin/python3", *FREE)
    document = json.loads(done.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert document["kind"] == "doctor" and checks["python"]["state"] == "ok"
    if checks["bentoml"]["state"] == "fail":
        assert done.returncode == 1 and "pip install bentoml" in checks["bentoml"]["remedy"]


def test_a_bad_file_fails_and_says_where(tmp_path):
    file = tmp_path / "plimsoll.yaml"
    file.write_text("services:\n  a:\n    run: service:Simple\n    memroy: {}\n")
    done = doctor(tmp_path, "-c", file, *FREE)
    assert done.returncode == 1 and f"{file}:4:5" in done.stdout and "memory" in done.stdout


def test_keys_and_certificates_are_looked_at(tmp_path):
    good = Authority(tmp_path / "ca").issue("localhost")
    late = Authority(tmp_path / "late").issue("localhost", days=3)
    keys = KeyFile(tmp_path / "keys").write({"a": ("sk-0123456789abcdef",), "b": ("sk-fedcba9876543210",)})
    common = ("service:Simple", "--python", paths.python, *FREE)
    done = doctor(tmp_path, *common, "--api_keys.file", keys, "--ssl-certfile", good[0], "--ssl-keyfile", good[1])
    assert done.returncode == 0 and "ok   api_keys     2\n" in done.stdout and "ok   tls          certificates hold until 2" in done.stdout
    done = doctor(tmp_path, *common, "--ssl-certfile", late[0], "--ssl-keyfile", late[1])
    assert done.returncode == 0 and "warn tls " in done.stdout and "taken without a restart" in done.stdout
    done = doctor(tmp_path, *common, "--ssl-certfile", good[0], "--ssl-keyfile", late[1])
    assert done.returncode == 1 and "fail door " in done.stdout and "does not belong to the certificate" in done.stdout
