"""Beside llama-server: the load that makes it lose streams loses none here; and what Plimsoll in front of it changes.

The peer is the wheel `xllamacpp`; `make test-full` has llama-server out of the same sources as our libllama too."""

import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rig import wire
from rig.page import until
from rig.server import ROOT
from test_llama import STORY, llama, metric, model, together  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("PLIMSOLL_NO_LLAMA")), reason="plimsoll-llama is left out: PLIMSOLL_NO_LLAMA is set"),
]
PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "GGML_NO_BACKTRACE": "1"}
CELL = 23040  # bytes of a token of SmolLM2 in the cache


def words_of(kind):
    """The command that is llama-server, without its options."""
    if kind == "llama-server":
        program = Path(os.environ.get("PL_LLAMA_PEER", "/nowhere")) / "bin/llama-server"
        assert program.exists(), f"{program} is not there: run through `make test-full`"
        return [str(program), "--no-webui"]
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("there is no wheel xllamacpp for this machine")
    return [sys.executable, str(ROOT / "tests/e2e/servers/xllama.py")]


def options(model, cells, slots):  # noqa: F811
    return ["--model", str(model), "--ctx-size", str(cells), "--parallel", str(slots), "--threads", "2", "--kv-unified", "--cache-ram", "0"]


def is_ready(address):
    try:
        return wire.request(address, "GET", "/health").status == 200
    except OSError:
        return False


@pytest.fixture
def bare(model):  # noqa: F811
    """bare(kind, cells, slots): (address, process) of a llama-server without anybody in front of it."""
    started = []

    def start(kind, cells, slots):
        with socket.create_server(("127.0.0.1", 0)) as s:
            address = s.getsockname()
        process = subprocess.Popen([*words_of(kind), *options(model, cells, slots), "--host", address[0], "--port", str(address[1])],
                                   env={**os.environ, **PASSIVE}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   start_new_session=True)
        started.append(process)
        until(lambda: is_ready(address), "llama-server is ready")
        return address, process

    yield start
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait(30)


def stream(address, number, tokens, words=1):
    """(status, whether the stream is whole, reply): of a prompt that shares its beginning with no other."""
    text = f"{number}. " + STORY[0]["content"] * words
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "seed": number, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    try:
        reply = wire.request(address, "POST", "/v1/chat/completions", body, timeout=110)
    except (OSError, http.client.HTTPException):
        return 0, False, None
    whole = reply.status == 200 and reply.text().rstrip().endswith("data: [DONE]") and '"error"' not in reply.text()
    return reply.status, whole, reply


@pytest.mark.parametrize("kind", ["xllamacpp", pytest.param("llama-server", marks=pytest.mark.full)])
def test_overload_beside_llama_server(serve, model, bare, kind):  # noqa: F811
    """Eight streams of about 100 tokens where there are cells for two and a half."""
    load = lambda address: together(8, lambda i: stream(address, i, 60))  # noqa: E731
    address, process = bare(kind, 256, 4)
    theirs = load(address)
    lost = [t for t in theirs if t[0] == 200 and not t[1]]
    assert len(lost) >= 4 and "exceeded" in lost[0][2].text(), theirs
    process.kill()

    server = llama(serve, model, "--llama.parallel", 4, "--traffic.queue.max_requests", 4, ctx=256).ready()
    ours = load(server.address)
    assert {status for status, _, _ in ours} <= {200, 429}, ours
    assert all(whole for status, whole, _ in ours if status == 200)
    assert sum(whole for _, whole, _ in ours) >= 6
    assert all(int(reply.headers["retry-after"]) >= 1 for status, _, reply in ours if status == 429)
    server.wait_until(lambda: metric(server, "plimsoll_llama_requests_done_total") >= 6, what="the scrape after the last answer")
    assert metric(server, "plimsoll_llama_no_kv_slot_total") == 0


def decided_within(server, seconds):
    """Share of the decisions that took at most so long, by our own histogram."""
    counts = {}
    for line in server.get("/metrics").text().splitlines():
        if line.startswith("plimsoll_admission_seconds_bucket{"):
            labels, _, value = line.rpartition(" ")
            counts[labels.partition('le="')[2].partition('"')[0]] = float(value)
    return counts[seconds] / counts["+Inf"], counts["+Inf"]


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["xllamacpp", "llama-server"])
def test_a_storm_at_llama_server(serve, model, bare, kind):  # noqa: F811
    """500 long prompts at once, at a server with cells for eight of them and more slots than that."""
    room, slots, tokens, words, storm = 128, 16, 16, 9, 500
    cells = 8 * room

    # without Plimsoll: all are taken, and the first that it decodes together are lost. The others need not be waited for.
    address, process = bare(kind, cells, slots)
    seen, enough = [], threading.Event()

    def one(i):
        seen.append(stream(address, i, tokens, words))
        if sum(status == 200 and not whole for status, whole, _ in list(seen)) >= 8:
            enough.set()

    clients = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(storm)]
    for client in clients:
        client.start()
    assert enough.wait(100), f"{len(seen)} answers, none of them lost"
    process.kill()
    for client in clients:
        client.join(110)
    lost = [reply for status, whole, reply in seen if status == 200 and not whole]
    assert any("exceeded" in reply.text() for reply in lost)
    assert not any(status == 429 for status, _, _ in seen)

    # with Plimsoll: each is charged the cells it may take
    server = serve(None, "--name", "chat", "--engine", "llama-server", "--memory.budget", f"{cells * CELL // 1024}KiB", "--memory.per_request",
                   f"{room * CELL // 1024}KiB", "--traffic.queue.max_requests", 8, "--traffic.queue.max_wait", "100s", "--",
                   *words_of(kind), *options(model, cells, slots)).ready()
    ours = together(storm, lambda i: stream(server.address, i, tokens, words))
    assert {status for status, _, _ in ours} == {200, 429}
    finished = [reply for status, whole, reply in ours if status == 200]
    assert all(whole for status, whole, _ in ours if status == 200), "every admitted request ends"
    assert len(finished) >= 16
    sizes = [json.loads(line[6:])["usage"]["prompt_tokens"] for r in finished for line in r.text().splitlines() if '"usage":{' in line]
    assert len(sizes) == len(finished) and all(room / 2 < p + tokens <= room for p in sizes), sizes
    assert not server.log.find("worker.death")
    share, decisions = decided_within(server, "0.01")
    assert decisions >= storm and share >= 0.99
    print(f"storm: {len(finished)} finished, {storm - len(finished)} refused; {share:.4f} of {decisions:.0f} decisions within 10 ms; bare: {len(lost)} lost")
