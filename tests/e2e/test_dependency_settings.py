"""What is set for a service holds for its dependencies that run apart: reload, mode, drain, and what the guard looks at."""

import pytest

from rig import paths
from test_dependencies import all_apart, below

YAML = """
services:
  front:
    run: service:Front
    env: {{NEWS: "{news}"{more}}}
    traffic: {{timeout: {timeout}}}
    dependencies: {dependencies}
    mode: {mode}
    replace: {{host_rss: {rss}}}
    backoff: {{attempts: 1}}
"""


class Apart:
    def __init__(self, serve, tmp_path, **first):
        self.path = tmp_path / "plimsoll.yaml"
        self.write(**first)
        self.server = serve(None, "-c", self.path, "--working-dir", paths.services / "apart")

    def write(self, news="old", more="", timeout="30s", dependencies="auto", mode="guard", rss="90%"):
        self.path.write_text(YAML.format(news=news, more=more, timeout=timeout, dependencies=dependencies, mode=mode,
                                         rss=rss))

    def everybody(self):
        return {"front": self.server.workers(), **below(self.server)}


@pytest.fixture
def apart(serve, tmp_path):
    def start(**first):
        a = Apart(serve, tmp_path, **first)
        a.server.ready()
        all_apart(a.server)
        return a
    return start


def pids_of(everybody):
    return {pid for workers in everybody.values() for pid in workers.values()}


def test_a_reload_that_needs_a_new_generation_makes_one_of_every_dependency_first(apart):
    a = apart()
    before, s = a.everybody(), a.server
    a.write(news="new")
    done = s.verb("reload", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    all_apart(s)
    assert not pids_of(before) & pids_of(a.everybody())
    s.wait_for("worker.replaced", {"service": "front"})
    replaced = [e["service"] for e in s.log.find("worker.replaced")]
    assert sorted(replaced) == ["front", "front.Deep", "front.Scale", "front.Scale"] and replaced[-1] == "front"
    assert {e["reason"] for e in s.log.find("worker.replaced")} == {"generation"}
    assert s.post("/by_sync", {"x": 2}).json()["x"] == 4


def test_a_reload_of_live_keys_leaves_them_alone(apart):
    a = apart()
    before = a.everybody()
    a.write(timeout="20s")
    assert a.server.verb("reload").returncode == 0
    assert a.everybody() == before


def test_a_dependency_that_does_not_become_ready_rolls_the_whole_reload_back(apart):
    a = apart()
    before, s = a.everybody(), a.server
    a.write(news="new", more=', SCALE_FAILS: "1"')
    done = s.verb("reload", timeout=240)
    assert done.returncode == 1 and "rolled back" in done.stdout and "the scale is broken" in done.stdout, done.stdout
    s.wait_until(lambda: not s.log.find("worker.replace") or all_apart(s))
    after = a.everybody()
    assert after["front"] == before["front"] and after["front.Scale"] == before["front.Scale"]
    assert s.post("/by_async", {"x": 2}).json()["x"] == 4
    again = s.verb("reload", "--check")
    assert "SCALE_FAILS" in again.stdout, "the old settings are in force"


def test_a_reload_changes_where_they_run(apart):
    a = apart()
    s = a.server
    a.write(dependencies="inline")
    assert s.verb("reload", timeout=240).returncode == 0
    assert set(s.post("/pids").json().values()) == {s.workers()[1]}
    s.wait_until(lambda: below(s) == {}, what="what ran apart is gone")
    a.write(dependencies="process")
    assert s.verb("reload", timeout=240).returncode == 0
    s.wait_until(lambda: sorted(n for n, pids in below(s).items() if pids) == ["front.Deep", "front.Near", "front.Scale"])
    assert len(set(s.post("/pids").json().values())) == 3


def test_mode_and_drain_are_their_callers(apart):
    s = apart().server
    done = s.verb("enforce", "front.Scale")
    assert done.returncode == 2 and "has the mode of front" in done.stderr, (done.returncode, done.stderr)
    done = s.verb("drain", "front.Scale")
    assert done.returncode != 0 and "drain those" in done.stderr, (done.returncode, done.stderr)
    assert s.verb("enforce", "front", "observe").returncode == 0
    assert s.status()["services"][0]["mode"] == "observe"
    # drained, its dependencies stay as they are: they have what is under way to finish
    before = below(s)
    assert s.verb("drain", "front").returncode == 0
    assert s.post("/by_sync").status == 503
    assert s.verb("drain", "front", "--undo").returncode == 0
    assert s.post("/by_sync").status == 200 and below(s) == before


def test_its_memory_is_judged_by_its_callers_mode(apart):
    a = apart(mode="observe", rss="1MiB")
    s = a.server
    would = s.wait_for("would.replace", {"service": "front.Scale"})
    assert (would["reason"], would["mode"]) == ("host_rss", "observe")
    assert s.log.find("worker.replace") == []
    before = below(s)
    assert s.verb("enforce", "front", "guard").returncode == 0
    begun = s.wait_for("worker.replace", {"service": "front.Scale"})
    assert (begun["reason"], begun["mode"]) == ("host_rss", "overlap")
    s.wait_for("worker.replaced", {"service": "front.Scale"})
    s.wait_until(lambda: (now := below(s)) and not set(before["front.Scale"].values()) <= set(now["front.Scale"].values()))
