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
    file.write(timeout="6s")
    assert s.verb("reload").returncode == 0
    assert b"plimsoll_config_rejected 0" in s.get("/metrics").body


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
