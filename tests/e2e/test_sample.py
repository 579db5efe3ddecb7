"""`plimsoll sample`: a real request becomes the warm-up of the next worker."""

import threading

from rig import paths, request
from rig.server import ROOT

BODY = b'{"name": "sampled"}'


def test_a_request_is_kept_and_warms_the_successor(serve):
    s = serve("service:Feature", "--workers", "1", "--warmup.examples", "off").ready()
    assert s.log.find("worker.unwarmed")
    done = []
    waiting = threading.Thread(target=lambda: done.append(s.verb("sample", "/text", "--from-next", "--json")))
    waiting.start()
    s.wait_for("operator.action", {"verb": "sample"})
    assert s.post("/text", BODY, headers={"content-type": "application/json"}).status == 200
    waiting.join(60)
    assert done and done[0].returncode == 0, done
    assert s.wait_for("sample.recorded")["bytes"] == len(BODY)

    listed = s.verb("sample", "--list")
    assert listed.returncode == 0 and "/text" in listed.stdout and f"{len(BODY)} bytes" in listed.stdout
    folder = s.folder / "state/samples/feature"
    assert {p.suffix for p in folder.iterdir()} == {".json", ".body"}
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in folder.iterdir())
    assert next(folder.glob("*.body")).read_bytes() == BODY

    assert s.verb("restart", "feature").returncode == 0
    ready = s.wait_for("worker.ready", count=2)  # the verb's answer may overtake the log
    assert s.log.find("worker.warming")[-1]["source"] == "recorded" and ready["warm"] is True

    sample = next(folder.glob("*.json")).stem
    assert s.verb("sample", "--remove", sample).returncode == 0
    assert not list(folder.iterdir())
    assert s.verb("sample", "--remove", sample).returncode == 1


def test_a_file_is_kept_and_what_makes_no_sense_is_refused(serve, tmp_path):
    s = serve("service:Feature", "--workers", "1").ready()
    body = tmp_path / "body.json"
    body.write_bytes(BODY)
    kept = s.verb("sample", "/text", "--file", str(body))
    assert kept.returncode == 0 and f"{len(BODY)} bytes" in kept.stdout
    assert s.verb("sample", "text", "--file", str(body)).returncode == 2
    assert s.verb("sample", "/text").returncode == 2
    assert s.verb("sample", "nobody", "/text", "--file", str(body)).returncode == 2
    assert s.verb("sample", "/text", "--file", "/none").returncode == 5
    assert s.verb("sample", "--list", "--json").returncode == 0
    # a number that is none is never taken for "all of them"
    before = s.workers()
    for words in (["restart", "feature", "--worker", "two"], ["restart", "--all", "--worker", "0"], ["logs", "--worker", "1x"],
                  ["logs", "--tail", "many"], ["explain", "--worker", "-1"], ["sample", "/text", "--from-next", "0"]):
        done = s.verb(*words)
        assert done.returncode == 2 and "is no number from" in done.stderr, (words, done)
    assert s.workers() == before


TWO = """
services:
  left: {{command: [{python}, {small}, --socket, "{{socket}}"], route: {{path: /left}}}}
  right: {{command: [{python}, {small}, --socket, "{{socket}}"], route: {{path: /right}}}}
"""


def test_two_orders_are_two_whoever_asks_and_the_later_one_for_a_service_counts(serve, tmp_path):
    small = ROOT / "tests/e2e/servers/small.py"
    (tmp_path / "plimsoll.yaml").write_text(TWO.format(python=paths.python, small=small))
    s = serve(None, service=tmp_path, python=None).ready(workers=2)

    def order(service):
        return request(s.run_dir / "admin.sock", "POST", "/sample", {"service": service, "route": f"/{service}/x", "count": 1}).json()["id"]

    def state(action):
        told = request(s.run_dir / "admin.sock", "GET", f"/actions/{action}").json()
        return told["state"], told.get("message", "")

    left, right = order("left"), order("right")
    assert s.post("/left/x").status == 200
    s.wait_until(lambda: state(left)[0] == "done", what="the one that was asked for")
    assert "samples/left/" in state(left)[1] and state(right) == ("running", "")
    again = order("right")
    assert state(right) == ("failed", "another order for this service has taken its place")
    assert s.post("/right/x").status == 200
    s.wait_until(lambda: state(again)[0] == "done", what="the later one")
