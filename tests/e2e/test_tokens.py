"""Prompts in tokens: learnt from what replies say, kept over a restart, held against limits.input_tokens."""

import json
import re

import pytest

from rig import FakeWorker, wire
from rig.server import ROOT

VLLM = ROOT / "tests/e2e/servers/vllm"


def truth(prompt):
    """The tokenizer of the worker here: a word and its space are two tokens, the template is ten."""
    return 10 + 2 * len(prompt.split())


def engine(request, sock):
    asked = json.loads(request.body or b"{}")
    usage = {"prompt_tokens": truth(asked["prompt"]), "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
    if asked.get("stream"):
        last = f"data: {json.dumps({'choices': [], 'usage': usage})}\r\n\r\n" if asked.get("stream_options") else ""
        events = 'data: {"choices":[{"text":"a"}]}\n\n' + last + "data: [DONE]\n\n"
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (events[:50], events[50:])) + "0\r\n\r\n"
        sock.sendall((head + body).encode())
        return True
    reply = {"choices": [{"text": "a"}]} if asked.get("silent") else {"choices": [], "usage": usage}
    body = json.dumps(reply).encode()
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return True


def tokens(server, model, direction, source):
    wanted = f'plimsoll_tokens_total{{service="any",model="{model}",direction="{direction}",source="{source}"}} '
    return next((float(line.removeprefix(wanted)) for line in server.get("/metrics").text().splitlines()
                 if line.startswith(wanted)), None)


def ask(server, words, **more):
    return server.post("/v1/completions", {"model": "m", "prompt": "word " * words, **more})


@pytest.mark.asan
def test_what_replies_say_is_learnt_and_kept_over_a_restart(serve, tmp_path):
    state = tmp_path / "state"
    with FakeWorker(engine) as worker:
        flags = ("--state_dir", str(state), "--limits.input_tokens", "1000")
        server = serve("service:Any", *flags, python=worker.python, env=worker.env).ready()
        counted = 0
        for words in range(10, 490, 20):
            reply = ask(server, words) if words % 40 == 10 else ask(server, words, stream=True, stream_options={"include_usage": True})
            assert reply.status == 200
            counted += truth("word " * words)
        assert tokens(server, "m", "input", "exact") == counted
        assert tokens(server, "m", "output", "exact") == 24 * 3 and tokens(server, "m", "cached", "exact") == 24
        kept = state / "learnt/any.json"
        server.wait_until(kept.exists, what="what was learnt is on the disk")
        assert json.loads(kept.read_text())["models"][0]["model"] == "m"
        server.terminate()
        assert server.wait_exit() == 0

        server = serve("service:Any", *flags, python=worker.python, env=worker.env).ready()
        assert ask(server, 200, silent=True).status == 200, "a reply without usage"
        assert ask(server, 200, stream=True).status == 200, "a stream without usage"
        estimated = tokens(server, "m", "input", "calibrated")
        assert estimated == pytest.approx(2 * truth("word " * 200), rel=0.05)
        worker.take()
        assert ask(server, 460).status == 200
        reply = ask(server, 540)
        assert reply.status == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
        assert re.search(r"about 1[01]\d\d tokens, more than limits.input_tokens, 1000", reply.json()["error"]["message"])
        assert reply.headers["x-plimsoll-reason"] == "context_length"
        assert server.post("/v1/completions", {"prompt": [7] * 1001}).status == 400, "tokens as numbers are counted exactly"
        assert worker.seen() == 1


def test_a_learnt_file_that_is_none_is_no_trouble(serve, tmp_path):
    kept = tmp_path / "state/learnt/any.json"
    kept.parent.mkdir(parents=True, mode=0o700)
    for text in ("", "[]", '{"v":1,"models":[1,{"model":"m","weights":[1],"covariance":[]}]}', '{"v":1,"models":7}'):
        kept.write_text(text)
        with FakeWorker(engine) as worker:
            server = serve("service:Any", "--state_dir", str(tmp_path / "state"), python=worker.python, env=worker.env).ready()
            assert ask(server, 10).status == 200
            server.terminate()
            assert server.wait_exit() == 0


def test_an_llm_engine_is_counted_and_sees_no_broken_body(serve):
    server = serve(None, "--", str(VLLM), "serve", "tiny").ready()
    for _ in range(3):
        reply = server.post("/v1/completions", {"model": "tiny", "prompt": "the ship carries", "max_tokens": 4, "stream": True,
                                                "stream_options": {"include_usage": True}})
        assert reply.status == 200 and reply.text().endswith("data: [DONE]\n\n")
    page = server.get("/metrics").text()
    for direction, count in (("input", 9), ("output", 12)):
        assert (f'plimsoll_tokens_total{{service="vllm",model="tiny",direction="{direction}",source="exact"}} {count}\n') in page
    reply = server.post("/v1/completions", {"model": "made-up", "prompt": "a"})
    assert reply.status == 404 and "made-up" not in server.get("/metrics").text(), "clients cannot make series"
    broken = wire.request(server.address, "POST", "/v1/completions", b'{"model":"tiny",', headers={"Content-Type": "application/json"})
    assert broken.status == 400 and broken.json()["error"]["code"] == "invalid_json"
