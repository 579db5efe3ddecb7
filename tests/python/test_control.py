"""The control socket, without a worker around it."""

import json
import os
import socket
import threading

import pytest
from harness import until

from plimsoll.control import LINE_BYTES, Control


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    control = Control(theirs.detach(), {"ping": lambda _: {"pid": os.getpid(), "in_flight": 3}})
    yield control, ours.makefile("rwb", buffering=0), ours
    ours.close()


def ask(f, text):
    f.write(text if isinstance(text, bytes) else json.dumps(text).encode() + b"\n")
    return json.loads(f.readline())


def handshake(control, description, **more):
    said = []
    thread = threading.Thread(target=lambda: said.append(control.describe(description, **more)))
    thread.start()
    return thread, said


def test_describe_waits_for_go(pair):
    control, f, _ = pair
    thread, said = handshake(control, {"name": "x"})
    assert json.loads(f.readline()) == {"v": 1, "describe": {"name": "x"}}
    f.write(b'{"v":1,"go":{"deploy":true,"timeout_ms":31000}}\n')
    thread.join(20)
    assert said == [{"deploy": True, "timeout_ms": 31000}]


def test_questions_before_go_are_answered(pair):
    control, f, _ = pair
    thread, said = handshake(control, {})
    f.readline()
    assert ask(f, {"v": 1, "id": 7, "ask": "ping"})["id"] == 7
    f.write(b'{"v":1,"go":{}}\n')
    thread.join(20)
    assert said == [{}]


def test_end_of_file_means_go_on(pair):
    control, f, ours = pair
    thread, said = handshake(control, {})
    f.readline()
    ours.shutdown(socket.SHUT_RDWR)
    thread.join(20)
    assert said == [None]


def test_silence_means_go_on_after_a_while(pair):
    control, f, _ = pair
    thread, said = handshake(control, {}, wait_s=0.05)
    thread.join(20)
    assert said == [None]


def test_ping_and_stacks(pair):
    control, f, _ = pair
    control.serve()
    assert ask(f, {"v": 1, "id": 1, "ask": "ping"})["in_flight"] == 3
    reply = ask(f, {"v": 1, "id": "two", "ask": "stacks"})
    assert reply["ok"] and reply["id"] == "two" and "plimsoll-control" in reply["stacks"]
    assert "test_ping_and_stacks" in reply["stacks"]


@pytest.mark.parametrize(
    "line, error",
    [
        (b'{"v":1,"id":7,"ask":"explode"}\n', "unknown"),
        (b'{"v":1,"id":7,"ask":["ping"]}\n', "unknown"),
        (b'{"v":1}\n', "unknown"),
        (b"[]\n", "unknown"),
        (b"\n", "malformed"),
        (b"\xff\xfe{\n", "malformed"),
    ],
)
def test_what_is_no_question_is_told_so_and_ends_nothing(pair, line, error):
    control, f, _ = pair
    control.serve()
    assert ask(f, line)["error"] == error
    assert ask(f, {"v": 1, "id": 8, "ask": "ping"})["ok"] is True


def test_a_question_that_fails_is_answered(pair):
    control, f, _ = pair
    control._asks["ping"] = lambda _: 1 / 0
    control.serve()
    assert ask(f, {"v": 1, "id": 8, "ask": "ping"}) == {"v": 1, "id": 8, "error": "ZeroDivisionError: division by zero"}


def test_a_line_without_end_closes(pair):
    control, f, ours = pair
    control.serve()
    blob = b"x" * 65536
    with pytest.raises(OSError):
        for _ in range(2 * LINE_BYTES // len(blob)):
            ours.sendall(blob)
        while ours.recv(1):
            pass
        raise OSError
    until(lambda: not any(t.name == "plimsoll-control" for t in threading.enumerate()), "the thread's end")


def test_further_questions_get_what_was_asked_and_may_refuse():
    ours, theirs = socket.socketpair()
    asks = {"double": lambda asked: {"twice": 2 * asked["of"]}, "busy": lambda _: {"error": "busy"}}
    Control(theirs.detach(), asks).serve()
    with ours, ours.makefile("rwb", buffering=0) as f:
        assert ask(f, {"v": 1, "id": 1, "ask": "double", "of": 21}) == {"v": 1, "id": 1, "ok": True, "twice": 42}
        assert ask(f, {"v": 1, "id": 2, "ask": "busy"}) == {"v": 1, "id": 2, "error": "busy"}


def test_lines_may_come_in_pieces_and_together(pair):
    control, f, _ = pair
    control.serve()
    f.write(b'{"v":1,"id":1,"a')
    f.write(b'sk":"ping"}\n{"v":1,"id":2,"ask":"ping"}\n')
    assert [json.loads(f.readline())["id"] for _ in range(2)] == [1, 2]
