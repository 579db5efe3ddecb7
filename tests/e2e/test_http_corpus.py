"""Malformed, edge and good HTTP of both sides, byte for byte, against the real gateway: no difference is the mark."""

import threading

import pytest

from http_corpus import judge_reply, judge_request, load, play
from rig import FakeWorker


@pytest.fixture
def worker():
    with FakeWorker(play(load("replies.jsonl")), read_bodies=False) as worker:
        yield worker


@pytest.fixture
def server(serve, worker):
    return serve("service:Any", "--logs.access", "off", python=worker.python, env=worker.env).ready()


def differences(judged):
    lines = [f"{case['id']}: {'; '.join(problems)}  ({case['note']})" for case, problems in judged if problems]
    return "\n".join(lines)


def cases(timing):
    return [c for c in load("requests.jsonl")
            if (c["group"] == "timing") == timing]


@pytest.mark.asan
def test_the_client_side_of_the_corpus_shows_no_difference(server, worker):
    judged = [(case, judge_request(server.address, worker, case)) for case in cases(timing=False)]
    assert judged and differences(judged) == ""
    assert server.get("/echo").body == b"ok"


@pytest.mark.asan
def test_the_worker_side_of_the_corpus_shows_no_difference(server, worker):
    judged = [(case, judge_reply(server.address, worker, case)) for case in load("replies.jsonl")]
    assert judged and differences(judged) == ""
    assert server.get("/echo").body == b"ok"


def test_the_slow_cases_of_the_corpus_show_no_difference(server, worker):
    """With the limits as they come (10 s for a head and for a body that stops), all at a time."""
    judged = []

    def judge(case):
        judged.append((case, judge_request(server.address, worker, case)))

    threads = [threading.Thread(target=judge, args=(case,)) for case in cases(timing=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(judged) == len(threads) and differences(judged) == ""
