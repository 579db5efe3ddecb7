"""What a service manager hears: sd_notify(3) from the keeper's own process, and from nobody else."""

import os
import pathlib
import socket
import struct

import keeper_wire as wire
import pytest
from keeper_rig import SLEEP


@pytest.fixture
def manager(tmp_path):
    """A socket as systemd has one; `hear()` gives the text of the next message and the process that sent it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        s.bind(str(tmp_path / "notify"))
        s.settimeout(20)

        def hear():
            text, more, _, _ = s.recvmsg(4096, 256)
            [pid] = [struct.unpack("iII", data)[0] for level, kind, data in more if kind == socket.SCM_CREDENTIALS]
            return text.decode(), pid

        hear.path = str(tmp_path / "notify")
        hear.socket = s
        yield hear


def tell(main, text):
    return main.ask(wire.TELL, struct.pack("320s", text.encode()))


def test_what_main_tells_is_told_by_the_keeper(keeper, manager):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": manager.path})
    main = k.main()
    assert tell(main, "READY=1\nSTATUS=ready").kind == wire.DONE
    assert manager() == ("READY=1\nSTATUS=ready", k.pid)
    assert k.stop(main) == 0
    assert manager() == ("STOPPING=1\nSTATUS=stopping", k.pid)


def test_a_stop_is_told_without_main(keeper, manager):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": manager.path})
    k.main().kill()
    k.main(hello=False)
    k.signal(15)
    assert manager()[0].startswith("STOPPING=1")
    k.signal(15)  # the new main does not answer: at once
    assert k.wait() == 0


def test_neither_mains_nor_workers_know_the_socket(keeper, manager):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": manager.path})
    main = k.main()
    assert b"NOTIFY_SOCKET" not in pathlib.Path(f"/proc/{main.pid}/environ").read_bytes()
    worker = main.spawn(*SLEEP)
    main.wait(wire.RUNNING, worker.generation)  # before its exec it looks like the keeper
    assert b"NOTIFY_SOCKET" not in pathlib.Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert k.stop(main) == 0


def test_an_abstract_socket_is_spoken_to(keeper):
    name = f"plimsoll-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind("\0" + name)
        s.settimeout(20)
        k = keeper(env={**os.environ, "NOTIFY_SOCKET": "@" + name})
        main = k.main()
        tell(main, "READY=1")
        assert s.recv(100) == b"READY=1"
        assert k.stop(main) == 0


def test_a_manager_that_does_not_listen_for_a_while_misses_no_ready(keeper, manager):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": manager.path})
    main = k.main()
    filler, full = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), 0
    filler.setblocking(False)
    try:
        while True:
            filler.sendto(b"filler", manager.path)
            full += 1
    except BlockingIOError:
        pass
    filler.close()
    assert tell(main, "READY=1").kind == wire.DONE and tell(main, "STATUS=later").kind == wire.DONE  # the keeper waits for nobody
    assert tell(main, "STATUS=" + "x" * 300).kind == wire.DONE  # no room beside what waits: that stays
    for _ in range(full):
        assert manager()[0] == "filler"
    assert manager() == ("READY=1\nSTATUS=later", k.pid)
    assert k.stop(main) == 0


def test_a_name_that_is_no_socket_is_said_and_nothing_else(keeper):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": "vsock:2:1234"})
    k.line("event=keeper.notify error=bad_socket_name")
    main = k.main()
    assert tell(main, "READY=1").kind == wire.DONE
    assert k.stop(main) == 0


def test_a_main_without_the_helm_tells_nothing(keeper, manager):
    k = keeper(env={**os.environ, "NOTIFY_SOCKET": manager.path})
    main = k.main()
    with open(os.path.realpath("/usr/bin/python3"), "rb") as binary:
        main.done(wire.UPGRADE, fds=[binary.fileno()])
    candidate = k.main()
    got = tell(candidate, "STOPPING=1")
    assert (got.kind, got.error) == (wire.REFUSED, "EPERM")
    tell(main, "STATUS=mine")
    assert manager()[0] == "STATUS=mine"
    candidate.bye(1)
    assert k.stop(main) == 0
