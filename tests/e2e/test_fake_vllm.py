"""The stand-in for vLLM says what vLLM 0.32 was recorded to say: status, headers in their order, every byte of the body."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rig.server import ROOT

DATA = ROOT / "tests/data/vllm"
# Those that need the engine in a state of its own: test_command.py and below.
STATES = {"load_while_busy", "error_queue_limit", "error_prefill_token_limit", "error_new_request_while_draining",
          "error_engine_died_non_stream", "sigterm_abort_non_stream"}
EXCHANGES = {e["name"]: e for e in json.loads((DATA / "exchanges.json").read_text())}


@pytest.fixture
def fake(tmp_path):
    """fake("--flag", …): its port, and `fake.said` its lines. It is started alone, without anybody in front of it."""
    started = []

    def start(*flags):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        env = {**os.environ, "FLAGS": str(tmp_path), "GATE": str(tmp_path / "gate"), "JOURNAL": str(tmp_path / "journal")}
        words = [sys.executable, ROOT / "tests/e2e/servers/vllm", "serve", "tiny", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen([*words, *flags], env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        start.said = []
        while not start.said or "startup complete" not in start.said[-1]:
            start.said.append(process.stderr.readline())
            assert start.said[-1], "it ended before it was ready"
        return port

    yield start
    for process in started:
        process.terminate()
        process.wait(30)
        for path in tmp_path.glob("worker.*"):  # Worker outlives the others, as the real one does
            try:
                os.kill(int(path.suffix[1:]), 9)
            except ProcessLookupError:
                pass
        process.stderr.close()


def body_of(request):
    """Long ones are described in the recording."""
    body = request.get("body")
    if body is None:
        return None
    if "token ids shortened" in body:
        return None
    return re.sub(r"the ship \(1500 times\) ", "the ship " * 1500, body)


def ask(port, request, body):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    conn.request(request["method"], request["path"], body, request.get("headers") or {})
    reply = conn.getresponse()
    data = reply.read().decode()
    conn.close()
    headers = [[k, v] for k, v in reply.getheaders() if k != "date"]
    return reply.status, reply.reason, headers, data


def plain(text):
    """What differs from one run to the next: ids, times, what was made up, token ids."""
    text = re.sub(r'"id":"(cmpl|chatcmpl)-[0-9a-f]{16}"', r'"id":"\1"', text)
    text = re.sub(r'"created":\d+', '"created":0', text)
    text = re.sub(r'"text":"(?:[^"\\]|\\.)*"', '"text":""', text)
    return re.sub(r'"tokens":\[[\d,]*\]', '"tokens":[]', text)


def compare(name, got, body_file_is_chunks=True):
    want = EXCHANGES[name]["response"]
    body = (DATA / want["body_file"]).read_text() if "body_file" in want else want["body"]
    status, reason, headers, data = got
    assert (status, reason) == (want["status"], want["reason"]), name
    assert plain(data) == plain(body), name
    assert [h for h in headers if h[0] != "content-length"] == [h for h in want["headers"] if h[0] != "content-length"], name


def test_every_recorded_exchange_is_answered_as_recorded(fake):
    port, compared = fake(), 0
    for name, exchange in EXCHANGES.items():
        request = exchange["request"]
        body = body_of(request)
        if name in STATES or (body is None and request.get("body") is not None):
            continue
        compare(name, ask(port, request, body))
        compared += 1
    assert compared >= 32


def test_what_it_says_while_it_starts_is_what_was_recorded(fake):
    fake()
    assert "".join(fake.said) == (DATA / "boot/cpu_eager.log").read_text()


@pytest.mark.parametrize("name, tokens, limit", [("clamped_max_tokens", 2040, 100), ("error_prompt_equals_limit", 2048, None)])
def test_prompts_of_token_ids_meet_the_limit_as_recorded(fake, name, tokens, limit):
    asked = {"model": "tiny", "prompt": [262, 398] * (tokens // 2)}
    if limit:
        asked["max_tokens"] = limit
    compare(name, ask(fake(), EXCHANGES[name]["request"], json.dumps(asked)))


def test_busy_and_full_it_says_so_as_recorded(fake, tmp_path):
    port = fake("--max-num-queued-reqs", "6", "--enable-server-load-tracking")
    waiting = {"method": "POST", "path": "/v1/completions", "headers": {"Content-Type": "application/json"}}
    body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 2, "wait": True})
    threads = [threading.Thread(target=ask, args=(port, waiting, body), daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    load = EXCHANGES["load_while_busy"]
    while '"server_load":6' not in (got := ask(port, load["request"], None))[3]:
        pass
    compare("load_while_busy", got)
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 6.0' in ask(port, {"method": "GET", "path": "/metrics"}, None)[3]
    full = EXCHANGES["error_queue_limit"]["request"]
    compare("error_queue_limit", ask(port, full, full["body"]))
    Path(tmp_path, "gate").touch()
    for thread in threads:
        thread.join(30)


def test_metrics_are_those_recorded(fake):
    status, _, headers, data = ask(fake(), {"method": "GET", "path": "/metrics"}, None)
    assert status == 200 and data == (DATA / "metrics.txt").read_text()
    assert ["content-type", "text/plain; version=1.0.0; charset=utf-8"] in headers
