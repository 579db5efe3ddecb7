"""What workers print: byte for byte, line by line, in three forms, and by `plimsoll logs`."""

import datetime
import json
import os
import signal
import subprocess
import textwrap

from rig import Load
from rig.server import clean_environment, paths

JSON_SERVICE = textwrap.dedent("""
    import json, os, sys
    import bentoml

    @bentoml.service(threads=4)
    class Talker:
        @bentoml.api
        def say(self, number: int) -> int:
            os.write(1, (json.dumps({"n": number, "pid": os.getpid(), "text": "ä\\u2028 \\" " + "x" * (number % 300)}) + "\\n").encode())
            return number

        @bentoml.api
        def die(self, status: int) -> str:
            print("last words", flush=True)
            os._exit(status)
""")


def talker(serve, tmp_path, *flags):
    (tmp_path / "service.py").write_text(JSON_SERVICE)
    return serve("service:Talker", "--working-dir", tmp_path, *flags).ready()


def said(text, pid=None):
    """The JSON lines of the service; what BentoML prints of itself is none."""
    documents = [json.loads(line) for line in text.splitlines() if line.startswith('{"n"')]
    return [d["n"] for d in documents if pid is None or d["pid"] == pid]


def test_json_lines_arrive_as_the_same_json_lines_under_load_and_across_a_crash(serve, tmp_path):
    s = talker(serve, tmp_path, "--logs.workers", "raw", "--traffic.queue.max_wait", "60s")
    first = s.workers()[1]
    with Load(s.address, lambda number: ("POST", "/say", {"number": number}, lambda reply: True), connections=8) as load:
        load.wait_for(300)
        os.kill(first, signal.SIGKILL)
        s.wait_for("worker.ready", count=2)
        load.wait_for_more(300)
    served = {o.number for o in load.outcomes if o.kind == "ok"}
    s.wait_until(lambda: served <= set(said(s.stdout())), what="every line of a request that was answered")
    assert len(said(s.stdout())) == len(set(said(s.stdout()))), "a line came twice"


def test_no_line_is_lost_or_told_twice_when_main_is_killed_under_load(serve, tmp_path):
    s = talker(serve, tmp_path, "--logs.workers", "raw", "--traffic.queue.max_wait", "60s")
    with Load(s.address, lambda number: ("POST", "/say", {"number": number}, lambda reply: True), connections=8) as load:
        for _ in range(4):
            load.wait_for_more(150)
            mark = s.log.mark()
            os.kill(s.main_pid(), signal.SIGKILL)
            s.wait_for("main.adopted", since=mark)
            s.wait_until(s.try_status)
        load.wait_for_more(150)
    served = {o.number for o in load.outcomes if o.kind == "ok"}
    assert set(load.kinds()) <= {"ok", "cut"}, load.kinds()
    s.wait_until(lambda: served <= set(said(s.stdout())), timeout=20,
                 what=f"lost: {sorted(served - set(said(s.stdout())))}")
    assert len(said(s.stdout())) == len(set(said(s.stdout()))), "a line came twice"


def test_prefix_and_json_name_the_worker(serve, tmp_path):
    s = talker(serve, tmp_path, "--logs.workers", "prefix")
    assert s.post("/say", {"number": 7}).status == 200
    s.wait_until(lambda: "talker/1.1 | {\"n\": 7" in s.stdout(), what="the line with its prefix")
    s.terminate()
    assert s.wait_exit() == 0
    s = talker(serve, tmp_path, "--logs.workers", "json")
    assert s.post("/say", {"number": 8}).status == 200
    s.wait_until(lambda: '\\"n\\": 8' in s.stdout(), what="the line inside a line")
    line = next(json.loads(x) for x in s.stdout().splitlines() if '\\"n\\": 8' in x)
    assert (line["service"], line["worker"], line["generation"]) == ("talker", 1, 1)
    assert json.loads(line["line"])["n"] == 8


def test_the_verb_shows_the_tail_the_previous_life_and_what_comes(serve, tmp_path):
    s = talker(serve, tmp_path)
    for number in range(1, 6):
        assert s.post("/say", {"number": number}).status == 200
    s.wait_until(lambda: said(s.verb("logs").stdout) == [1, 2, 3, 4, 5], what="all lines by the verb")
    assert said(s.verb("logs", "talker", "--tail", "2").stdout) == [4, 5]
    assert s.verb("logs", "--tail", "0").stdout == ""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert said(s.verb("logs", "--since", "1h").stdout) == [1, 2, 3, 4, 5]
    assert said(s.verb("logs", "--since", "1h", "--tail", "2").stdout) == [4, 5]
    assert (s.verb("logs", "--since", now).stdout, s.verb("logs", "--since", now).returncode) == ("", 0)
    assert s.post("/say", {"number": 6}).status == 200
    s.wait_until(lambda: said(s.verb("logs", "--since", now).stdout) == [6], what="only what came since")
    wrong = s.verb("logs", "--since", "yesterday")
    assert wrong.returncode == 2 and "--since: 'yesterday' is no time" in wrong.stderr and "10m" in wrong.stderr
    assert s.post("/die", {"status": 3}).status == 502
    s.wait_for("worker.ready", count=2)
    assert "last words" in s.verb("logs", "--previous").stdout
    assert s.verb("logs", "nobody").returncode == 1
    following = subprocess.Popen([paths.plimsoll, "logs", "-f", "--admin", s.run_dir / "admin.sock"], text=True,
                                 stdout=subprocess.PIPE, env=clean_environment())
    try:
        assert s.post("/say", {"number": 77}).status == 200
        assert any(line.startswith('{"n": 77') for line in following.stdout)
    finally:
        following.terminate()
        following.wait(10)
