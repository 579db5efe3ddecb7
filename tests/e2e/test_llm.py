"""In front of an LLM engine: what is charged, what pickers and clients of vLLM read, several models behind one port."""

import json
import os
import signal
import threading

import openai
import pytest

from rig import connect, read_reply
from rig.door import KeyFile
from rig.server import ROOT
from test_command import VLLM, family_of, send, vllm

MODELS = """
services:
  small:
    command: [{vllm}, serve, tiny, --served-model-name, tiny, fast]
    route: {{models: [tiny, fast]}}
    compat: [vllm, kserve]
  large:
    command: [{vllm}, serve, huge, --served-model-name, huge, --max-model-len, "4096"]
    route: {{models: [huge]}}
"""


def lines_of(server, family):
    return [line for line in server.get("/metrics").text().splitlines() if line.startswith((family + "{", family + " "))]


def value_of(server, family):
    (line,) = lines_of(server, family)
    return float(line.rpartition(" ")[2])


def stream(server, **more):
    sock = send(server, "/v1/completions", {"prompt": "a b", "stream": True, "wait": True, **more})
    data = b""
    while b"data: " not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return sock, data


def rest_of(sock):
    """What still comes until the connection ends."""
    data = b""
    while piece := sock.recv(65536):
        data += piece
    sock.close()
    return data


@pytest.mark.parametrize("role", ["engine", "worker"])
def test_a_stream_whose_engine_died_never_looks_complete(serve, role):
    server = vllm(serve).ready()
    sock, _ = stream(server)
    os.kill(family_of(server)[role], signal.SIGKILL)
    data = rest_of(sock)
    assert b"[DONE]" not in data and not data.endswith(b"0\r\n\r\n")
    assert data.count(b'data: {"error":') == 1 and b"worker_failed" in data and b"EngineCore" in data
    told = server.wait_for("engine.in_band_error")
    assert told["message"].startswith("EngineCore encountered an issue")
    assert server.wait_for("request.cut")["why"] == "error"
    text = server.get("/metrics").text()
    assert 'plimsoll_streams_total{service="vllm",end="error"} 1' in text
    server.wait_for("worker.ready", count=2)


def test_a_plain_request_in_a_dying_engine_goes_to_the_next_one(serve):
    server = vllm(serve, "--traffic.queue.max_wait", "60s").ready()
    sock = send(server, "/v1/completions", {"prompt": "a", "wait": True})
    server.wait_until(lambda: server.status()["services"][0]["workers"][0]["in_flight"] == 1, what="in flight")
    os.kill(family_of(server)["engine"], signal.SIGKILL)
    server.wait_for("request.replayed")
    server.gate.touch()
    reply, whole = read_reply(sock)
    sock.close()
    assert whole and reply.status == 200 and reply.json()["choices"][0]["finish_reason"] == "length"


def test_the_cache_that_the_engine_tells_of_is_the_budget(serve):
    """Recorded: 8192 tokens in 16 MiB, so 2 KiB a token, blocks of 128."""
    server = vllm(serve).ready()
    server.wait_until(lambda: lines_of(server, "plimsoll_budget_bytes"), what="the engine told of its cache")
    assert value_of(server, "plimsoll_budget_bytes") == 16 << 20
    sock, _ = stream(server, prompt=[7] * 1000, max_tokens=200)
    assert value_of(server, "plimsoll_budget_charged_bytes") == (1280 << 11), "1200 tokens are ten blocks"
    assert "budget of host: 2.5 MiB of 16.0 MiB charged" in server.verb("status").stdout
    server.gate.touch()
    rest = b""
    while not rest.endswith(b"0\r\n\r\n"):
        rest += sock.recv(65536)
    sock.close()
    server.wait_until(lambda: value_of(server, "plimsoll_budget_charged_bytes") == 0, what="given back")


def test_the_context_that_the_engine_tells_of_is_held(serve):
    server = vllm(serve).ready()
    server.wait_until(lambda: server.get("/v1/models").json()["data"], what="its models are known")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30)
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="tiny", prompt=[7] * 2048)
    assert e.value.code == "context_length_exceeded" and "maximum context length is 2048 tokens" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.completions.create(model="tiny", prompt=[7] * 2000, max_tokens=49)
    assert e.value.code == "context_length_exceeded"
    assert client.completions.create(model="tiny", prompt=[7] * 2000, max_tokens=48).usage.completion_tokens == 48


def test_a_cache_that_is_not_what_was_planned_is_told(serve):
    server = vllm(serve, command=("--kv-cache-memory-bytes", "32M")).ready()
    checked, drift = server.wait_for("plan.checked"), server.wait_for("plan.drift")
    assert (checked["planned_bytes"], checked["actual_bytes"], checked["capacity"], checked["length"]) == (32 << 20, 16 << 20, 4, 2048)
    assert drift["ratio"] == -0.5 and "--kv-cache-memory-bytes" in drift["likely"]
    assert 'plimsoll_plan_drift_ratio{service="vllm"} -0.5' in server.get("/metrics").text()
    assert server.verb("restart", "--all").returncode == 0
    again = server.wait_for("plan.checked", count=2)
    assert again["last_bytes"] == 16 << 20


def test_a_model_keeps_its_name_whoever_has_not_told_it_yet(serve):
    """Between READY and an engine's answer to /v1/models its requests count to the model of the service, not to one of
    another name; so do those that wait while no engine is there."""
    server = vllm(serve, "--workers", 2).ready(workers=2)

    def names():
        return [line.partition('model_name="')[2].partition('"')[0] for line in lines_of(server, "vllm:num_requests_running")]

    server.wait_until(lambda: names() == ["tiny"], what="they have told")
    (server.folder / "models_untold").touch()
    os.kill(server.workers()[1], signal.SIGKILL)
    server.wait_for("worker.ready", count=3)
    assert names() == ["tiny"], "one has not told"
    (server.folder / "hold").touch()
    for pid in server.workers().values():
        os.kill(pid, signal.SIGKILL)
    server.wait_until(lambda: not server.status()["services"][0]["ready"], what="none is there")
    assert names() == ["tiny"], "none is there"
    (server.folder / "hold").unlink()
    server.wait_for("worker.ready", count=4)
    assert names() == ["tiny"], "none has told"


def test_picker_metrics_stand_once_and_count_our_queue(serve):
    server = vllm(serve, "--workers", 2, "--traffic.max_concurrency", 4, command=("--max-num-seqs", "1")).ready(workers=2)
    families = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                "vllm:gpu_cache_usage_perc", "vllm:cache_config_info")
    server.wait_until(lambda: 'model_name="tiny"' in "".join(lines_of(server, families[0])), what="both have told")
    for family in families:
        assert len(lines_of(server, family)) == 1, family
        assert server.get("/metrics").text().count(f"# TYPE {family} ") == 1
    threads = [threading.Thread(target=server.try_post, args=("/v1/completions", {"prompt": "a", "wait": True}), daemon=True)
               for _ in range(7)]
    for thread in threads:
        thread.start()
    # two run, one in each engine; two wait in the engines, three with us
    server.wait_until(lambda: (value_of(server, families[0]), value_of(server, families[1])) == (2, 5), what="all are counted")
    assert server.get("/load").json() == {"server_load": 7}
    server.gate.touch()
    for thread in threads:
        thread.join(30)
    server.wait_until(lambda: value_of(server, families[1]) == 0 and value_of(server, families[0]) == 0, what="none is left")
    blocks = json.loads("[" + lines_of(server, families[4])[0].partition('num_gpu_blocks="')[2].partition('"')[0] + "]")
    assert blocks == [128], "of two engines"
    series = [line.rpartition(" ")[0] for line in server.get("/metrics").text().splitlines() if line and line[0] != "#"]
    assert len(series) == len(set(series)), "a series is exported twice"
    own = lines_of(server, "vllm:num_preemptions_total")
    assert len(own) == 2 and all('worker="' in line for line in own), "the rest of an engine's families stays its own"


def test_one_engine_keeps_its_own_words_of_its_cache(serve):
    server = vllm(serve).ready()
    server.wait_until(lambda: lines_of(server, "vllm:cache_config_info"), what="told")
    recorded = next(line for line in (ROOT / "tests/data/vllm/metrics.txt").read_text().splitlines()
                    if line.startswith("vllm:cache_config_info{"))
    server.wait_until(lambda: lines_of(server, "vllm:cache_config_info") == [recorded], what="as recorded")


def test_health_is_ours_and_means_ready(serve):
    server = vllm(serve)
    (server.folder / "hold").touch()
    server.started()
    server.wait_for("worker.spawned")
    assert (server.get("/health").status, server.get("/ping").status) == (503, 503)
    (server.folder / "hold").unlink()
    server.ready()
    reply = server.get("/health")
    assert (reply.status, reply.body) == (200, b"")
    assert server.post("/ping", {}).status == 200, "the engine's: only GET is ours"
    assert server.get("/v2/health/ready").status == 404, "not asked for"


def test_several_models_behind_one_port(serve, tmp_path):
    (tmp_path / "plimsoll.yaml").write_text(MODELS.format(vllm=VLLM))
    keys = KeyFile(tmp_path / "keys.yaml").write({"all": ("sk-all-0123456789abcdef",),
                                                  "one": ("sk-one-0123456789abcdef", {"services": "[large]"})})
    server = serve(None, "-c", tmp_path / "plimsoll.yaml", "--api_keys.file", keys, python=None).ready(workers=2)

    def client(key):
        return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=30)

    every = client("sk-all-0123456789abcdef")
    names = {}
    server.wait_until(lambda: names.update({m.id: m for m in every.models.list()}) or
                      all(getattr(m, "max_model_len", 0) for m in names.values()), what="both have described their models")
    assert {name: m.max_model_len for name, m in names.items()} == {"tiny": 2048, "fast": 2048, "huge": 4096}
    assert server.get("/v1/models").status == 401
    for model, told in (("tiny", "tiny"), ("fast", "tiny"), ("huge", "huge")):
        assert every.completions.create(model=model, prompt="a b c").model == told
    with pytest.raises(openai.NotFoundError) as e:
        every.completions.create(model="nope", prompt="a")
    assert e.value.code == "model_not_found" and "tiny, fast, huge" in e.value.message
    reply = server.post("/v1/completions", {"prompt": "a"}, headers={"Authorization": "Bearer sk-all-0123456789abcdef"})
    assert reply.status == 400 and reply.json()["error"]["code"] == "invalid_value"
    one = client("sk-one-0123456789abcdef")
    assert one.completions.create(model="huge", prompt="a b").usage.prompt_tokens == 2
    with pytest.raises(openai.PermissionDeniedError):
        one.completions.create(model="tiny", prompt="a")
    text = server.get("/metrics").text()
    assert 'plimsoll_key_tokens_total{key="one",service="large"} 18' in text, "two of the prompt, sixteen of the answer"
    assert 'plimsoll_tokens_total{service="large",model="huge",direction="input",source="exact"} 5' in text
    assert len([line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]) == 2
    ready = server.get("/v2/models/fast/ready", headers={"Authorization": "Bearer sk-all-0123456789abcdef"})
    assert (ready.status, ready.json()) == (200, {"name": "fast", "ready": True})
    assert server.get("/v2/health/live").json() == {"live": True} and server.get("/v2/health/ready").json() == {"ready": True}
    missing = server.get("/v2/models/nope/ready", headers={"Authorization": "Bearer sk-all-0123456789abcdef"})
    assert missing.status == 404


JSON = {"Content-Type": "application/json"}
IDS = json.dumps([7] * 100)
BAD = {
    "a_hundred_megabytes": (b'{"prompt":"' + b"word " * 19_999_990 + b'"}', {}, "context_length_exceeded"),
    "deeply_nested": (b'{"prompt":' + b"[" * 100000, {}, "invalid_value"),
    "cut_short": (b'{"prompt":"a"', {}, "invalid_json"),
    "two_values": (b'{"prompt":"a"}{}', {}, "invalid_json"),
    "the_larger_of_two_demands": (f'{{"prompt":{IDS},"max_tokens":2000,"max_tokens":1}}'.encode(), {}, "context_length_exceeded"),
    "an_escaped_key": (f'{{"prompt":{IDS},"max_\\u0074okens":2000}}'.encode(), {}, "context_length_exceeded"),
    "a_huge_number": (f'{{"prompt":{IDS},"max_tokens":1e400}}'.encode(), {}, "context_length_exceeded"),
    "a_number_as_text": (f'{{"prompt":{IDS},"max_tokens":"99999999999999999999"}}'.encode(), {}, "context_length_exceeded"),
    "compressed": (b"\x1f\x8b\x08\x00", {"Content-Encoding": "gzip"}, "invalid_value"),
    "a_model_that_is_no_text": (b'{"model":5,"prompt":"a"}', {}, 404),
    "an_unknown_model": (b'{"model":"nope","prompt":"a"}', {}, 404),
    "a_very_long_model": (b'{"model":"' + b"m" * 100000 + b'","prompt":"a"}', {}, 404),
    "an_unknown_type": (b'{"prompt":"a"}', {"Content-Type": "text/plain"}, 400),
    "no_type": (b'{"prompt":"a"}', {"Content-Type": ""}, 400),
    "a_negative_number": (b'{"prompt":"a","max_tokens":-1}', {}, 400),
    "nothing": (b"{}", {}, 400),
}


def test_bodies_that_are_bad_harm_nobody(serve):
    """A code: refused by us, in OpenAI's shape; a status: the engine's own answer to bytes that we only read."""
    server = vllm(serve).ready()
    server.wait_until(lambda: server.get("/v1/models").json()["data"] and lines_of(server, "plimsoll_budget_bytes"), what="told")
    pids = server.workers()
    for name, (body, headers, want) in BAD.items():
        reply = server.post("/v1/completions", body, headers={**JSON, **headers})
        if isinstance(want, str):
            assert (reply.status, reply.json()["error"]["code"]) == (400, want), name
            assert reply.headers["x-plimsoll-reason"] in ("context_length", "invalid"), name
        else:
            assert reply.status == want and "x-plimsoll-reason" not in reply.headers, (name, reply)
    sock = connect(server.address)
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
                 b'{"prompt":"a"}')
    sock.close()
    server.wait_until(lambda: 'requests_total{service="vllm",code="499"} 1' in server.get("/metrics").text(), what="it left")
    assert server.workers() == pids and value_of(server, "plimsoll_budget_charged_bytes") == 0
    assert server.post("/v1/completions", {"prompt": "a"}).status == 200
