"""Servers for a while; after it nothing of them may be left: no process, zombie, socket or file."""

import contextlib
import os

from . import host
from .server import Server, paths

running = []  # servers of every serving() that is open: of a test, and of fixtures that live longer


def of_others(servers):
    """Processes of servers that go on: a zygote or a successor may have been started below one of them meanwhile."""
    return {pid for server in running if server not in servers for pid in host.descendants(server.pid)}


@contextlib.contextmanager
def serving():
    """What the fixture `serve` does; fixtures that live longer use it themselves."""
    assert paths.plimsoll.exists(), f"{paths.plimsoll} is not there: run through `make e2e`, or set PLIMSOLL_BUILD"
    servers, before = [], set(host.descendants(os.getpid()))
    host.set_subreaper(True)

    def start(target="service:Feature", *flags, **more):
        server = Server(target, *flags, **more)
        servers.append(server)
        running.append(server)
        return server

    try:
        yield start
    except BaseException:  # of a fixture that failed while it made its server ready
        for server in servers:
            server.end()
            running.remove(server)
        raise
    problems = []
    for server in servers:
        problems += server.end()
    if left := host.left_processes(lambda: before | of_others(servers)):
        problems.append(f"processes left: {[host.describe(pid) for pid in left]}")
        host.end_processes(left)
    host.set_subreaper(bool(of_others(servers)))
    for server in servers:
        running.remove(server)
    for server in servers:  # shown by pytest when the test failed
        print(f"---- {' '.join(server.words)}\n---- stderr\n{server.log.tail(80)}")
        print(f"---- stdout\n{server.stdout()[-4000:]}")
        server.drop()
    assert not problems, "\n".join(problems)
