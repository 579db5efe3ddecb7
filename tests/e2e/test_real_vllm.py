"""Against a real vLLM 0.32 (PLIMSOLL_TEST_VLLM=1; docs/vllm.md says how to install it): it still says what was recorded.

PL_VLLM_BIN is the `vllm` of its environment, PL_VLLM_MODEL a folder with the small model of the recording.
"""

import os
import signal
import socket
import subprocess
import time

import pytest

from rig import read_reply
from rig.host import descendants
from test_command import send
from test_fake_vllm import EXCHANGES, STATES, ask, body_of, compare, plain
from test_llm import lines_of, rest_of, stream, value_of

pytestmark = [pytest.mark.full,
              pytest.mark.skipif(os.environ.get("PLIMSOLL_TEST_VLLM") != "1", reason="PLIMSOLL_TEST_VLLM is not 1")]
VLLM, MODEL = os.environ.get("PL_VLLM_BIN", "vllm"), os.environ.get("PL_VLLM_MODEL", "tiny")
# As recorded: exchanges.json was made with these.
FLAGS = ["--served-model-name", "tiny", "--enforce-eager", "--kv-cache-memory-bytes", "16M", "--max-model-len", "2048",
         "--max-num-seqs", "4"]
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
BOOT_S = 300
# Other flags than FLAGS, or a text that is made by the model.
ELSEWHERE = STATES | {"server_info", "load_untracked"}


@pytest.fixture(scope="module")
def real():
    """The port of one that is started alone."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    process = subprocess.Popen([VLLM, "serve", MODEL, "--host", "127.0.0.1", "--port", str(port), *FLAGS], env={**os.environ, **ENV},
                               start_new_session=True)
    end = time.monotonic() + BOOT_S
    while True:
        assert process.poll() is None and time.monotonic() < end, "it did not become ready"
        try:
            if ask(port, {"method": "GET", "path": "/health"}, None)[0] == 200:
                break
        except OSError:
            time.sleep(0.5)
    yield port
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.mark.parametrize("name", sorted(set(EXCHANGES) - ELSEWHERE))
def test_the_recording_still_holds(real, name):
    request = EXCHANGES[name]["request"]
    body = body_of(request)
    if body is None and request.get("body") is not None:
        pytest.skip("its body is only described")
    got = ask(real, request, body)
    want = EXCHANGES[name]["response"]
    if want["status"] == 200 and request["method"] == "POST" and "tokenize" not in request["path"]:
        assert (got[0], got[1]) == (want["status"], want["reason"])  # the words are the model's
        assert plain(got[3]).count("data: ") > 1 if '"stream":true' in (body or "").replace(" ", "") else True
        return
    compare(name, got)


@pytest.fixture
def served(serve):
    return serve(None, "--start_timeout", f"{BOOT_S}s", "--", VLLM, "serve", MODEL, *FLAGS, env=ENV, python=None).ready(timeout=BOOT_S)


def test_it_is_served_and_its_cache_is_the_budget(served):
    served.wait_until(lambda: lines_of(served, "plimsoll_budget_bytes"), what="the engine told of its cache")
    assert value_of(served, "plimsoll_budget_bytes") == 16 << 20
    reply = served.post("/v1/completions", {"model": "tiny", "prompt": "the ship", "max_tokens": 8})
    assert reply.status == 200 and reply.json()["usage"]["completion_tokens"] == 8
    assert served.post("/v1/completions", {"model": "tiny", "prompt": [7] * 2049}).json()["error"]["code"] == "context_length_exceeded"


def test_a_stream_whose_engine_is_killed_never_looks_complete(served):
    sock, _ = stream(served, model="tiny", prompt="the ship", max_tokens=1900, ignore_eos=True, wait=None)
    (pid,) = served.workers().values()
    core = next(p for p in descendants(pid) if "VLLM::EngineCor" in open(f"/proc/{p}/comm").read())
    os.kill(core, signal.SIGKILL)
    data = rest_of(sock)
    assert b"[DONE]" not in data and not data.endswith(b"0\r\n\r\n") and b'data: {"error":' in data
    assert served.wait_for("worker.death", timeout=60)["cause"] == "engine_failed"


def test_a_restart_lets_streams_end(served):
    sock = send(served, "/v1/completions", {"model": "tiny", "prompt": "the ship", "stream": True, "max_tokens": 1000, "ignore_eos": True})
    served.wait_until(lambda: served.status()["services"][0]["workers"][0]["in_flight"] == 1, what="in flight")
    assert served.verb("restart", "--all", timeout=2 * BOOT_S).returncode == 0
    reply, whole = read_reply(sock)
    sock.close()
    assert whole and reply.body.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in reply.body


def test_its_start_is_as_its_command_and_its_plan_say(served):
    checked = served.wait_for("plan.checked")
    assert (checked["against"], checked["actual_bytes"], checked["capacity"]) == ("command", 16 << 20, 4)
    served.wait_until(lambda: 'component="weights",state="planned"' in "".join(lines_of(served, "plimsoll_plan_bytes")), what="a plan")
    assert not served.log.find("plan.drift"), "the planner counts this model's cache as the engine does"
