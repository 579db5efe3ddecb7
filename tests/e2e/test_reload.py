"""`plimsoll reload` and SIGHUP: all or nothing, live keys at once, generations by replacement, rolled back when they fail."""

import os
import signal

YAML = """
services:
  feature:
    run: service:Feature
    workers: 1
    traffic: {{timeout: {timeout}, max_concurrency: {concurrency}}}
    threads: {threads}
{more}
"""


class File:
    def __init__(self, path):
        self.path = path

    def write(self, timeout="20s", concurrency=8, threads=2, more=""):
        self.path.write_text(YAML.format(timeout=timeout, concurrency=concurrency, threads=threads, more=more))
        return self


def started(serve, tmp_path, **first):
    file = File(tmp_path / "plimsoll.yaml").write(**first)
    return file, serve(None, "-c", file.path).ready()


def test_live_keys_act_at_once_and_nothing_is_replaced(serve, tmp_path):
    file, s = started(serve, tmp_path)
    pids = s.workers()
    file.write(timeout="1s")
    done = s.verb("reload")
    assert done.returncode == 0, done.stdout + done.stderr
    assert s.workers() == pids
    assert s.wait_for("config.reloaded")["live"] == 1
    assert s.post("/work", {"number": 1, "seconds": 3}).status == 504


def test_a_generation_key_replaces_and_no_request_is_lost(serve, tmp_path):
    file, s = started(serve, tmp_path)
    pids = s.workers()
    file.write(threads=3)
    s.process.send_signal(signal.SIGHUP)
    event = s.wait_for("config.reloaded")
    assert (event["live"], event["generations"]) == (0, 1)
    assert s.workers() != pids and len(s.workers()) == 1
    assert s.post("/predict").status == 200


def test_a_restart_key_or_an_error_rejects_the_whole_with_its_lines(serve, tmp_path):
    file, s = started(serve, tmp_path)
    pids = s.workers()
    file.write(timeout="5s", more="metrics: {max_series: 500}\nlisten: 127.0.0.1:1\n")
    done = s.verb("reload", "--check")
    assert done.returncode == 3 and "listen" in done.stdout and "traffic.timeout" in done.stdout
    done = s.verb("reload")
    assert done.returncode == 3 and f"{file.path}:" in done.stdout and "listen" in done.stdout
    assert s.wait_for("config.rejected")
    file.write(timeout="five")
    done = s.verb("reload")
    assert done.returncode == 3 and f"{file.path}:6:" in done.stdout, done.stdout
    assert s.workers() == pids
    assert b"plimsoll_config_rejected 1" in s.get("/metrics").body
    assert s.status()["config"]["rejected"] is True
    file.write(timeout="6s")
    assert s.verb("reload").returncode == 0
    assert b"plimsoll_config_rejected 0" in s.get("/metrics").body
    assert s.status()["config"]["rejected"] is False


def test_a_generation_that_does_not_become_ready_is_rolled_back(serve, tmp_path):
    file, s = started(serve, tmp_path)
    pids = s.workers()
    broken = '    warmup: {requests: [{path: /value_error, body: {text: x}}]}'
    file.write(timeout="7s", more=broken)
    done = s.verb("reload")
    assert done.returncode == 1 and "rolled back" in done.stdout, done.stdout + done.stderr
    assert s.workers() == pids and s.post("/predict").status == 200
    again = s.verb("reload", "--check")
    assert "traffic.timeout: '20s' -> '7s'" in again.stdout, again.stdout


def test_lowered_limits_evict_nobody_and_a_new_main_knows_the_accepted_file(serve, tmp_path):
    file, s = started(serve, tmp_path)
    file.write(concurrency=1, timeout="11s")
    assert s.verb("reload").returncode == 0
    main = s.main_pid()
    file.path.write_text("services: {}\n")  # an edited file is nobody's wish until it is reloaded
    os.kill(main, signal.SIGKILL)
    s.wait_until(lambda: (s.try_status() or {}).get("pid", {}).get("main") not in (None, main), what="a new main")
    file.write(concurrency=1, timeout="11s")
    nothing = s.verb("reload", "--check")
    assert "nothing would change" in nothing.stdout, nothing.stdout


def test_a_swapped_link_in_the_watched_folder_reloads(serve, tmp_path):
    """As Kubernetes updates a ConfigMap: a link to a folder is replaced by rename."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    more = "reload: {watch: on, debounce: 100ms}"
    File(tmp_path / "one/plimsoll.yaml").write(timeout="20s", more=more)
    File(tmp_path / "two/plimsoll.yaml").write(timeout="9s", more=more)
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "plimsoll.yaml").symlink_to("data/plimsoll.yaml")
    s = serve(None, "-c", tmp_path / "plimsoll.yaml").ready()
    pids = s.workers()
    (tmp_path / "data.new").symlink_to("two")
    os.replace(tmp_path / "data.new", tmp_path / "data")
    assert s.wait_for("config.reloaded")["live"] == 1
    assert s.workers() == pids


def test_an_edited_service_file_starts_a_new_generation(serve, tmp_path):
    service = tmp_path / "service.py"
    text = "import bentoml\n@bentoml.service\nclass Svc:\n    @bentoml.api\n    def say(self, x: int = 1) -> str:\n        return 'one'\n"
    service.write_text(text)
    s = serve("service:Svc", "--working-dir", tmp_path, "--reload", "--reload.debounce", "100ms").ready()
    assert s.post("/say").body == b"one"
    service.write_text(text.replace("'one'", "'two'"))
    s.wait_for("worker.replaced")
    assert s.post("/say").body == b"two"
    mark = s.log.mark()
    service.write_text("import bentoml\nthis is no python\n")
    s.wait_for("worker.rollback", since=mark)
    assert s.post("/say").body == b"two"
