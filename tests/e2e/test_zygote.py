"""Workers forked from a process that has imported already: they are what they would be by exec, or they are by exec."""

import os
import signal

import pytest

from rig import host


def wait_zygote(server, count=1):
    """The pid of the zygote, once it is ready for the count-th time."""
    return server.wait_for("zygote.ready", count=count)["pid"]


def forked(event):
    return event["way"] in ("standby", "fork")


def parent(pid):
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rpartition(")")[2].split()[1])


def restart(server, service="simple"):
    """By a person; the spawn of the new worker."""
    mark = server.log.mark()
    done = server.verb("restart", service)
    assert done.returncode == 0, done.stderr
    return server.wait_for("worker.spawned", since=mark)


@pytest.fixture
def soon(serve):
    """A service whose zygote does not wait until things have calmed down."""
    def start(target="service:Simple", *flags, env=None, **more):
        more.setdefault("service", "simple")
        return serve(target, *flags, env={f"PLIMSOLL__SERVICES__{target.partition(':')[2].upper()}__ZYGOTE__AFTER": "0s", **(env or {})}, **more)
    return start


def test_a_second_worker_is_forked_and_answers_like_the_first(soon):
    server = soon().ready()
    zygote = wait_zygote(server)
    first = server.post("/predict", {"text": "same"}).body
    spawned = restart(server)
    assert forked(spawned), spawned
    assert server.post("/predict", {"text": "same"}).body == first
    pid = spawned["pid"]
    assert parent(pid) == server.pid
    assert os.getsid(pid) == pid
    status = server.status()["services"][0]
    assert status["zygote"]["state"] == "ready" and status["zygote"]["pid"] == zygote
    assert [w["way"] for w in status["workers"] if w["pid"] == pid] == [spawned["way"]]
