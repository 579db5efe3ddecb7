"""Fixtures of the end-to-end tests. After every test nothing of it may be left: no process, zombie, socket or file."""

import contextlib
import os

import pytest

from rig import Server, host, paths


@contextlib.contextmanager
def serving():
    """What the fixture `serve` does; fixtures that live longer use it themselves."""
    assert paths.plimsoll.exists(), f"{paths.plimsoll} is not there: run through `make e2e`, or set PLIMSOLL_BUILD"
    servers, before = [], set(host.descendants(os.getpid()))
    host.set_subreaper(True)

    def start(target="service:Feature", *flags, **more):
        server = Server(target, *flags, **more)
        servers.append(server)
        return server

    yield start
    problems = []
    for server in servers:
        problems += server.end()
    if left := host.left_processes(before):
        problems.append(f"processes left: {[host.describe(pid) for pid in left]}")
        host.end_processes(left)
    host.set_subreaper(False)
    for server in servers:  # shown by pytest when the test failed
        print(f"---- {' '.join(server.words)}\n---- stderr\n{server.log.tail(80)}")
        print(f"---- stdout\n{server.stdout()[-4000:]}")
        server.drop()
    assert not problems, "\n".join(problems)


@pytest.fixture
def serve():
    """Starts servers: serve("service:Feature", "--workers", 2, service="feature").ready(). Ends and checks them."""
    with serving() as start:
        yield start


@pytest.fixture
def digits(serve):
    """The example as `make run` starts it: from its plimsoll.yaml. Warm and ready."""
    return serve(None, service=paths.digits).ready()


@pytest.fixture
def feature(serve):
    """The service with an endpoint for every behaviour, ready, with its decorator's two workers."""
    return serve("service:Feature").ready(workers=2)
