"""Why a worker died, told in one sentence: by the log, by `status`, by the metrics, by the last word of a container."""

import ctypes
import os
import re
import signal

import pytest

from rig import memory_group
from rig.memory_group import GIB


@pytest.fixture
def group(tmp_path):
    return memory_group.make(tmp_path)


def kill_worker(server):
    mark = server.log.mark()
    (pid,) = server.workers().values()
    os.kill(pid, signal.SIGKILL)
    death = server.wait_for("worker.death", since=mark)
    server.wait_for("worker.ready", since=mark)
    return death


def deaths_metric(server, cause):
    text = server.get("/metrics").text()
    found = re.search(rf'^plimsoll_worker_deaths_total\{{service="simple",cause="{cause}"\}} (\d+)', text, re.M)
    return int(found.group(1)) if found else 0


def test_a_worker_that_the_kernel_killed_for_memory_is_told_so(serve, group):
    s = serve("service:Simple", "--workers", "1", service="simple", before=group.before).ready()
    group.write(current=3 * GIB, peak=8 * GIB, max=412, oom=1, oom_kill=1)
    death = kill_worker(s)
    assert death["cause"] == "killed_by_kernel_oom" and death["scope"] == "worker", death
    assert death["sentence"].startswith("killed by the kernel, which had no memory left: peak 8.00 GiB of limit 8.00 GiB")
    assert s.log.find("host.oom_kill")[0]["count"] == 1
    last = s.status()["services"][0]["last_death"]
    assert (last["cause"], last["sentence"]) == (death["cause"], death["sentence"])
    assert "8.00 GiB of limit 8.00 GiB" in s.verb("status").stdout
    assert "killed_by_kernel_oom" in s.verb("events").stdout
    assert deaths_metric(s, "killed_by_kernel_oom") == 1 and deaths_metric(s, "killed") == 0

    # The same count explains no other death.
    death = kill_worker(s)
    assert death["cause"] == "killed" and "scope" not in death
    assert "the kernel has counted no kill for memory here" in death["sentence"]
    assert deaths_metric(s, "killed_by_kernel_oom") == 1 and deaths_metric(s, "killed") == 1


def test_a_sigkill_with_the_group_nearly_full_is_probably_the_kernels(serve, group):
    s = serve("service:Simple", "--workers", "1", service="simple", before=group.before).ready()
    group.write(current=int(7.76 * GIB), max=90)
    pressure = s.wait_for("host.pressure")
    assert pressure["current_bytes"] == int(7.76 * GIB) and pressure["max_bytes"] == 8 * GIB
    death = kill_worker(s)
    assert death["cause"] == "killed"
    assert "probably the kernel, for memory: 97 % of the limit" in death["sentence"]


def test_a_start_that_the_kernel_ends_is_a_failed_start_for_want_of_memory(serve, group):
    s = serve("service:SlowBoot", "--backoff.initial", "60s", service="slow_boot", before=group.before).started()
    pid = s.wait_for("worker.spawned")["pid"]
    s.wait_for("worker.imported")
    group.write(current=3 * GIB, peak=8 * GIB, oom=1, oom_kill=1)
    os.kill(pid, signal.SIGKILL)
    failed = s.wait_for("worker.start_failed")
    assert failed["cause"] == "killed_by_kernel_oom" and failed["scope"] == "worker"
    assert "while it was starting" in failed["sentence"]
    assert "GPU" not in failed["sentence"] and "CUDA" not in failed["sentence"]
    ready = s.get("/readyz").json()
    assert ready["services"]["slowboot"]["why"] == "backoff", ready


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_worker_that_does_not_end_is_told_stuck_and_its_place_is_filled_when_it_does(serve):
    s = serve("service:Simple", "--workers", "1", "--stop_timeout", "1s", "--replace.mode", "handover",
              service="simple").ready()
    (pid,) = s.workers().values()
    if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, pid, 0, 0) != 0:  # PTRACE_SEIZE: who traces reaps first
        pytest.skip("ptrace is not allowed here")
    assert s.verb("restart", "simple", "--now", timeout=120).returncode == 1
    stuck = s.wait_for("worker.stuck", {"service": "simple"})
    assert stuck["pid"] == pid and "SIGKILL had no effect" in stuck["remedy"]
    death = s.wait_for("worker.death")
    assert death["cause"] == "stuck" and "does not end, 30 s after SIGKILL" in death["sentence"]
    assert deaths_metric(s, "stuck") == 1
    assert s.workers("stuck") == {1: pid} and s.get("/livez").status == 200
    ready = s.get("/readyz")
    assert ready.status == 503, ready.text()
    os.waitpid(pid, 0x40000000)  # __WALL: let go
    s.wait_for("worker.ready", count=2)
    assert s.post("/predict", {"text": "again"}, timeout=60).text() == "AGAIN"
    assert deaths_metric(s, "stuck") == 1 and len(s.log.find("worker.death")) == 1


# A /dev of its own with what Kubernetes puts there: the file whose text `kubectl describe pod` shows as the reason.
OWN_DEV = """
set -e
mount -t tmpfs none "$0/dev"
for name in null zero full random urandom; do touch "$0/dev/$name"; mount --bind "/dev/$name" "$0/dev/$name"; done
mkdir "$0/dev/shm"; mount --rbind /dev/shm "$0/dev/shm"
touch "$0/dev/termination-log"; mount --bind "$0/last-word" "$0/dev/termination-log"
mount --move "$0/dev" /dev
exec "$@"
"""


def test_a_container_that_ends_says_why_in_its_termination_message(serve, group, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "last-word").touch()
    before = (*memory_group.unshare(), "sh", "-c", OWN_DEV, str(tmp_path))
    s = serve("service:BadInit", "--backoff.initial", "1ms", "--backoff.attempts", "1", "--failed_exit", "1s",
              service="bad_init", before=before).started()
    failed = s.wait_for("worker.start_failed")
    assert s.wait_exit() == 6
    word = (tmp_path / "last-word").read_text()
    assert word == f"badinit: {failed['sentence']} ({failed['cause']}, d{failed['generation']})\n"
