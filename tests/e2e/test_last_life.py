"""Keeper, main and workers die at once, as in a container over its limit: the next start says so, once."""

import json
import os
import signal
import subprocess
import threading

from rig import host, memory_group
from rig.memory_group import GIB


def last_life(server):
    path = server.folder / "state" / "last-life.json"
    return json.loads(path.read_text()) if path.exists() else {}


def workers_of(life):
    return [w for s in life.get("services", []) for w in s["workers"]]


def kill_everything(server):
    """All stopped first, so that nobody sees another one die."""
    pids = [server.pid, *host.descendants(server.pid)]
    for sig in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, sig)
    assert server.wait_exit() == 128 + signal.SIGKILL
    for pid in pids[1:]:
        os.waitpid(pid, 0)  # orphans become children of the test: conftest made it a subreaper


def test_the_end_of_everything_is_told_once_by_the_next_start(serve):
    s = serve("service:Feature", "--workers", "1").ready()
    client = threading.Thread(target=lambda: s.try_post("/work", {"number": 1, "seconds": 25.0}))
    client.start()
    known = s.wait_until(lambda: (life := last_life(s)) and any(w["in_flight"] for w in workers_of(life)) and life,
                         what="the request in flight is in the file")
    assert "goodbye" not in known
    assert [(w["worker"], w["state"], w["in_flight"]) for w in workers_of(known)] == [(1, "ready", 1)]
    kill_everything(s)
    client.join()

    s.again().ready()
    (died,) = s.log.find("instance.died")
    assert (died["workers"], died["in_flight"], died["cause"]) == (1, 1, "unknown"), died
    assert "1 of 1 workers were ready, 1 requests in flight" in died["sentence"]
    assert s.status()["last_life"]["sentence"] == died["sentence"]
    assert died["sentence"] in s.verb("status").stdout
    assert died["seen"] >= known["seen"]

    # Another main of the same life has nothing to tell, and an orderly end leaves nothing to tell.
    mark = s.log.mark()
    os.kill(s.main_pid(), signal.SIGKILL)
    s.wait_for("main.adopted", since=mark)
    s.wait_until(s.try_status)
    s.terminate()
    assert s.wait_exit() == 0
    assert last_life(s)["goodbye"] == {"status": 0}
    s.again().ready()
    assert len(s.log.find("instance.died")) == 1
    assert "last_life" not in s.status()


def test_kills_that_were_counted_meanwhile_name_the_cause(serve, tmp_path):
    group = memory_group.make(tmp_path)
    s = serve("service:Simple", service="simple", before=group.before).ready()
    s.wait_until(lambda: any(w["state"] == "ready" for w in workers_of(last_life(s))))
    kill_everything(s)
    group.write(current=GIB, peak=8 * GIB, oom=1, oom_kill=4, oom_group_kill=1)
    s.again().ready()
    (died,) = s.log.find("instance.died")
    assert (died["cause"], died["scope"]) == ("killed_by_kernel_oom", "container"), died
    assert "killed by the kernel, which had no memory left" in died["sentence"]


def test_a_file_that_is_damaged_or_a_living_keepers_tells_nothing(serve, tmp_path):
    alone = ("--record.path", "memory")  # the flight record would know of it, too
    s = serve("service:Simple", *alone, service="simple").ready()
    path = s.folder / "state" / "last-life.json"
    s.wait_until(lambda: workers_of(last_life(s)))
    other = serve("service:Simple", *alone, "--state_dir", s.folder / "state", service="simple", state=False).ready()
    assert other.log.find("instance.died") == []
    assert last_life(s)["keeper_pid"] == s.pid, "it is not the other's to write"
    other.terminate()
    assert other.wait_exit() == 0
    assert "goodbye" not in last_life(s)
    kill_everything(s)
    path.write_bytes(path.read_bytes()[:-40])
    s.again().ready()
    assert s.log.find("instance.died") == []
    assert last_life(s)["keeper_pid"] == s.pid
    assert subprocess.run(["find", str(path.parent), "-name", "*.new"], capture_output=True).stdout == b""
