"""Big files are in memory before a worker wants them: by a child of the keeper, and not when a worker is missed."""

import json
import os
import re
import signal
import subprocess

import pytest

from rig import paths

SIZE = 80 << 20


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.bin"
    with open(path, "wb") as f:
        for _ in range(SIZE >> 20):
            f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())
    return path


def cool(path):
    """Out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def hold(*words, status=0):
    done = subprocess.run([paths.plimsoll, "hold", "--once", *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", done.stdout)}


def test_hold_reads_what_is_cold_and_leaves_what_is_hot(weights):
    cool(weights)
    cold = hold(weights.parent / "*.bin")
    assert (cold["files"], cold["hot"], cold["bytes"]) == (1, 0, SIZE)
    hot = hold(weights)
    assert (hot["files"], hot["hot"], hot["bytes"]) == (0, 1, 0)
    assert hold(weights, "/nowhere", status=1)["failed"] == 1
    assert hold("/dev/zero", status=1)["failed"] == 1, "only files are read"


def start(serve, weights, *flags):
    env = {"PLIMSOLL__SERVICES__FORKABLE__ZYGOTE__AFTER": "0s"}
    server = serve("service:Forkable", *flags, service="forkable", env=env)
    (server.folder / "weights").write_text(str(weights))
    return server.ready()


def test_a_planned_start_from_a_zygote_waits_for_its_files_and_one_after_a_crash_does_not(serve, weights):
    server = start(serve, weights)
    server.wait_for("zygote.ready")
    assert server.log.find("readahead.done") == [], "nothing was known of it"
    cool(weights)
    mark = server.log.mark()
    assert server.verb("restart", "forkable").returncode == 0
    done = server.wait_for("readahead.done", since=mark)
    spawned = server.wait_for("worker.spawned", since=mark)
    assert done["files"] == 1 and done["bytes"] == SIZE and done["ts"] <= spawned["ts"]
    assert spawned["way"] in ("standby", "fork")
    mark = server.log.mark()
    os.kill(spawned["pid"], signal.SIGKILL)
    server.wait_for("worker.ready", since=mark)
    assert server.log.find("readahead.done", since=mark) == []


@pytest.mark.full
def test_by_exec_it_is_read_beside_the_imports(serve, weights):
    cool(weights)
    server = start(serve, weights, "--zygote.use", "off", "--read_ahead.files", json.dumps([str(weights)]))
    done = server.wait_for("readahead.done")
    assert done["files"] + done["hot"] == 1
    assert server.log.find("worker.spawned")[0]["ts"] <= done["ts"]
    assert server.verb("restart", "forkable", "--mode", "handover").returncode == 0
    server.wait_for("readahead.done", count=2)


@pytest.mark.full
def test_off_is_off(serve, weights):
    server = start(serve, weights, "--read_ahead.use", "off", "--read_ahead.files", json.dumps([str(weights)]))
    assert server.verb("restart", "forkable").returncode == 0
    assert server.log.find("readahead.done") == []
