"""plimsoll serve FILE.gguf: OpenAI's API on llama.cpp, and nothing that is taken in is ever lost for want of memory."""

import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

import openai
import pytest

from rig import Load, connect, paths, read_reply
from rig.dock import sanitized
from rig.page import open_page
from rig.server import run_plimsoll
from rig.weights import split_gguf

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("PLIMSOLL_NO_LLAMA")), reason="plimsoll-llama is left out: PLIMSOLL_NO_LLAMA is set"),
]
STORY = [{"role": "user", "content": "Write a long story about the sea."}]


@pytest.fixture(scope="session")
def model():
    folder = Path(os.environ.get("PL_LLAMA_MODEL", "/nowhere"))
    files = list(folder.glob("*.gguf"))
    assert files, "PL_LLAMA_MODEL names no model: run through `make`, or set PLIMSOLL_NO_LLAMA=1"
    return files[0]


def llama(serve, model, *flags, ctx=1024, wait="100s", **more):
    return serve(str(model), "--name", "chat", "--llama.ctx_size", ctx, "--traffic.queue.max_wait", wait, *flags, **more)


def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=100)


def chat(server, messages=STORY, **more):
    return server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **more}, timeout=110)


def content(reply):
    assert reply.status == 200, reply
    return reply.json()["choices"][0]["message"]["content"]


def metric(server, name, state=None):
    """A figure of the engine, as its last scrape or its page left it with us: to be waited for."""
    for line in server.get("/metrics").text().splitlines():
        if re.match(rf"{name}[{{ ]", line) and (state is None or f'state="{state}"' in line):
            return float(line.rpartition(" ")[2])
    return None


def cells(server, *states):
    return [metric(server, "plimsoll_kv_cells", state) for state in states]


def together(count, act):
    """act(0) ... act(count - 1) at once; their results in order."""
    results = [None] * count

    def one(i):
        results[i] = act(i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(115)
    return results


def test_the_openai_client(serve, model):
    server = llama(serve, model, "--llama.embeddings", "on", "--llama.alias", "tiny,gpt-4").ready()
    ai = client(server)
    assert [m.id for m in ai.models.list()] == ["tiny", "gpt-4"]
    ask = [{"role": "user", "content": "What is the capital of France?"}]
    whole = ai.chat.completions.create(model="tiny", messages=ask, temperature=0, max_tokens=20)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 20
    # the model's own template begins every chat with a system text
    assert whole.usage.prompt_tokens > 30 and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    stream = ai.chat.completions.create(model="gpt-4", messages=ask, temperature=0, max_tokens=20, stream=True,
                                        stream_options={"include_usage": True}, logprobs=True, top_logprobs=2)
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens and not chunks[-1].choices
    first = chunks[0].choices[0].logprobs.content[0]
    assert first.token == first.top_logprobs[0].token and len(first.top_logprobs) == 2 and first.logprob <= 0
    two = ai.completions.create(model="tiny", prompt="1, 2, 3,", temperature=0, max_tokens=8, n=2, stop=["9"])
    assert two.choices[0].text == two.choices[1].text == " 4, 5, 6"[: len(two.choices[0].text)]
    # usage counts each prompt once, however many answers it has
    one, other = (ai.completions.create(model="tiny", prompt=p, temperature=0, max_tokens=2).usage.prompt_tokens for p in ("a b c", "d e f g h"))
    both = ai.completions.create(model="tiny", prompt=["a b c", "d e f g h"], temperature=0, max_tokens=2, n=2).usage
    assert one != other and both.prompt_tokens == one + other and both.completion_tokens == 8
    vectors = ai.embeddings.create(model="tiny", input=["the sea", "the sea", "a tax form"])
    a, b, c = (d.embedding for d in vectors.data)
    assert a == b and a != c and math.isclose(sum(x * x for x in a), 1, rel_tol=1e-4)
    with pytest.raises(openai.NotFoundError):
        ai.chat.completions.create(model="other", messages=ask)
    with pytest.raises(openai.BadRequestError, match="1024"):
        ai.chat.completions.create(model="tiny", messages=ask, max_tokens=100000)


def test_greedy_answers_are_llama_cpps_own(serve, model):
    """Against a plain loop over llama.h: alone, and while others are in the batch."""
    server = llama(serve, model, ctx=2048).ready()
    prompts = ["Once upon a time", "The capital of Norway is", "def fibonacci(n):"]
    loop = paths.build / "bin/llama_greedy"
    wanted = [subprocess.run([loop, model, "16", p], capture_output=True, text=True, timeout=100, check=True).stdout for p in prompts]

    def complete(prompt):
        return server.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 16}, timeout=110).json()["choices"][0]["text"]

    assert [complete(p) for p in prompts] == wanted
    assert together(3, lambda i: complete(prompts[i])) == wanted


@pytest.mark.parametrize("admission", ["worst", "optimistic"])
def test_more_than_fits_waits_and_all_of_it_is_answered(serve, model, admission):
    """Four answers where there are cells for two: llama-server's default fails every one of them."""
    server = llama(serve, model, "--llama.admission", admission, ctx=256).ready()

    def one(i):
        # each begins in its own way: nothing is shared
        return chat(server, [{"role": "user", "content": f"{i}. Write a long story about the sea."}], max_tokens=80, seed=i, temperature=0.7, ignore_eos=True, stream=i % 2 == 0)

    replies = together(4, one)
    assert [r.status for r in replies] == [200] * 4
    for i, reply in enumerate(replies):
        if i % 2 == 0:
            assert reply.text().rstrip().endswith("data: [DONE]") and reply.text().count("data: {") > 50
        else:
            assert reply.json()["usage"]["completion_tokens"] == 80
    server.wait_until(lambda: metric(server, "plimsoll_llama_requests_done_total") == 4, what="the scrape after the last answer")
    server.wait_until(lambda: cells(server, "used", "reserved", "parked") == [0, 0, 0], what="no cell is held")
    assert metric(server, "plimsoll_llama_no_kv_slot_total") == 0
    assert (metric(server, "plimsoll_kv_preemptions_total") > 0) == (admission == "optimistic")


def test_what_cannot_wait_is_told_to_come_back(serve, model):
    server = llama(serve, model, "--llama.parallel", 1, "--traffic.queue.max_requests", 2).ready()
    replies = together(8, lambda i: chat(server, max_tokens=40, ignore_eos=True))
    statuses = sorted(r.status for r in replies)
    assert set(statuses) == {200, 429} and statuses.count(200) >= 3, statuses
    assert all(int(r.headers["retry-after"]) >= 1 for r in replies if r.status == 429)


def test_what_has_waited_too_long_is_told_to_come_back(serve, model):
    server = llama(serve, model, "--llama.parallel", 1, wait="1s").ready()
    sock = connect(server.address)
    body = json.dumps({"messages": STORY, "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert sock.recv(4096)
    for stream in (False, True):
        late = chat(server, max_tokens=4, stream=stream)
        assert late.status == 429 and "waited 1 s" in late.text() and int(late.headers["retry-after"]) >= 1, late
    sock.close()
    assert chat(server, max_tokens=2).status == 200


def test_a_burst_that_has_places_does_not_wait(serve, model):
    """What answers take is known by the third burst; all of it finds free places, so nobody is told to come back."""
    server = llama(serve, model, "--llama.parallel", 4, wait="500ms").ready()
    for _ in range(4):
        replies = together(4, lambda i: chat(server, max_tokens=16, ignore_eos=True))
        assert [r.status for r in replies] == [200] * 4, replies


def test_equal_beginnings_are_computed_once(serve, model):
    server = llama(serve, model, ctx=2048).ready()
    system = {"role": "system", "content": "You are the keeper of a lighthouse. " * 12}

    def ask(i):
        return chat(server, [system, {"role": "user", "content": f"Question {i}: what is the sea?"}], max_tokens=4).json()["usage"]

    first = ask(0)
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    again = [ask(i) for i in (1, 2)] + together(3, lambda i: ask(3 + i))
    assert all(u["prompt_tokens_details"]["cached_tokens"] > 90 for u in again), again
    server.wait_until(lambda: metric(server, "plimsoll_llama_requests_done_total") == 6, what="the scrape after the last answer")
    server.wait_until(lambda: cells(server, "used") == [0] and 0 < cells(server, "cached")[0] < 2048, what="beginnings are kept")


def test_grammars_bind_and_cannot_kill(serve, model):
    server = llama(serve, model).ready()
    (pid,) = server.workers().values()
    assert content(chat(server, grammar='root ::= "Yes" | "No"', max_tokens=8)) in ("Yes", "No")
    schema = {"type": "object", "required": ["city", "people"],
              "properties": {"city": {"type": "string", "maxLength": 12}, "people": {"type": "integer", "minimum": 10, "maximum": 99},
                             "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}}
    made = json.loads(content(chat(server, max_tokens=80, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})))
    assert 10 <= made["people"] <= 99 and len(made["city"]) <= 12
    # what ends llama-server, or is dropped by it in silence
    for body, words in [({"grammar": "root ::= " + "(" * 20000}, "deeper than 64"), ({"grammar": "root ::= <[999999]>"}, "no token"),
                        ({"grammar": "root ::= ("}, "GBNF"),
                        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array", "uniqueItems": True}}}}, "uniqueItems")]:
        reply = chat(server, max_tokens=8, **body)
        assert reply.status == 400 and words in reply.text(), reply
    bad = server.post("/v1/chat/completions", b'{"messages":[{"role":"user","content":"\xff"}]}', headers={"Content-Type": "application/json"})
    assert bad.status == 400
    assert server.workers() == {1: pid}


def test_clients_that_leave_give_their_cells_back(serve, model):
    server = llama(serve, model, ctx=512).ready()
    body = json.dumps({"messages": STORY, "stream": True, "ignore_eos": True, "max_tokens": 300}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for turn in range(100):
        socks = [connect(server.address) for _ in range(2)]
        for sock in socks:
            sock.sendall(head.encode() + body)
        for sock in socks:
            if turn % 10 == 0:
                assert sock.recv(4096)  # in the middle of its answer
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
    server.wait_until(lambda: metric(server, "plimsoll_llama_requests_cancelled_total"), what="clients that left are noticed")
    server.wait_until(lambda: cells(server, "used", "reserved") == [0, 0] and metric(server, "llamacpp:requests_deferred") == 0,
                      what="no cell is held")
    assert chat(server, max_tokens=3).status == 200


def test_replaced_and_killed_under_load(serve, model):
    """Nothing fails in a replacement. A killed worker's requests are asked again unless something of them was out."""
    server = llama(serve, model).ready()

    def make(number):
        return "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 2, "temperature": 0}, \
            lambda reply: reply.json()["usage"]["completion_tokens"] >= 1

    with Load(server.address, make, connections=4) as load:
        load.wait_for(8)
        assert server.verb("restart", "--all").returncode == 0
        load.wait_for_more(8)
        os.kill(server.workers()[1], signal.SIGKILL)
        server.wait_for("worker.death")
        server.wait_for("worker.ready", count=3)
        load.wait_for_more(8)
    assert load.kinds() == {"ok": len(load.outcomes)}, load.statuses()
    assert server.log.find("worker.death")[0]["cause"] == "killed"


def test_files_that_are_no_model(serve, model, tmp_path):
    data, key = model.read_bytes(), b"\x01" + bytes(7) + b"k"
    files = {
        "cut": (data[: len(data) // 2], "not within the file bounds"),
        "other": (b"PK\x03\x04" + data[4:1000], "magic"),
        # huge metadata: more keys than there are numbers, a text and a list of 2^60
        "keys": (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 62), ""),
        "text": (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + key + struct.pack("<IQ", 8, 1 << 60), ""),
        "list": (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 4, 1 << 60), ""),
    }
    for name, (content, words) in files.items():
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(content)
        server = serve(str(file), "--name", "chat", "--backoff.attempts", 1, "--failed_exit", "1s")
        failed = server.wait_for("worker.start_failed")
        assert failed["cause"] == "init_failed" and words in failed["last_line"] and f"{name}.gguf: " in failed["last_line"], failed
        assert server.wait_exit() == 6


def test_a_context_that_does_not_fit_is_refused_with_what_would(serve, model):
    server = llama(serve, model, "--backoff.attempts", 1, "--failed_exit", "1s", ctx=900_000_000)
    failed = server.wait_for("worker.start_failed")
    assert "does not fit" in failed["last_line"] and "llama.ctx_size" in failed["last_line"], failed
    assert server.wait_exit() == 6


def test_ready_only_when_it_can_answer(serve, model):
    server = llama(serve, model).started()
    refused = server.get("/readyz")
    if refused.status == 503:  # a quick machine may be ready by now
        assert refused.json()["services"]["chat"]["why"] in ("starting", "warming")
    server.ready()
    (worker,) = server.status()["services"][0]["workers"]
    assert worker["warm"] and server.status()["services"][0]["kind"] == "llama"
    sock = connect(server.address)
    body = json.dumps({"messages": STORY, "max_tokens": 120, "ignore_eos": True, "stream": True}).encode()
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert sock.recv(1, socket.MSG_PEEK)  # the head comes with the first token: it computes
    server.terminate()  # what it has begun is finished
    reply, whole = read_reply(sock)
    assert whole and reply.status == 200 and reply.body.endswith(b"data: [DONE]\n\n")
    assert server.wait_exit() == 0


def test_what_it_does_not_do_is_said(serve, model):
    server = llama(serve, model).ready()
    tools = chat(server, tools=[{"type": "function", "function": {"name": "f"}}])
    assert tools.status == 501 and "llama-server" in tools.text()
    assert server.post("/v1/embeddings", {"input": "x"}).status == 501
    assert server.post("/v1/responses", {}).status == 501
    assert server.post("/v1/unknown", {}).status == 404
    counted = server.post("/tokenize", {"content": "hello world", "with_pieces": True}).json()
    assert "".join(t["piece"] for t in counted["tokens"]) == "hello world"
    assert server.post("/detokenize", {"tokens": [t["id"] for t in counted["tokens"]]}).json() == {"content": "hello world"}


def test_measure_is_what_loading_takes(model):
    """The plan before the load, and the load: the same bytes."""
    if sanitized():
        pytest.skip("llama.cpp is not built with sanitizers")
    engine = paths.build / "libexec/plimsoll/llama"
    done = subprocess.run([engine, "--model", model, "--measure", "--ctx-size", "4096", "--parallel", "4"], capture_output=True, text=True, timeout=100)
    plan = json.loads(done.stdout)
    assert plan["kv_bytes"] == 23040 * 4096 and plan["trained"] == 8192
    assert plan["weights_bytes"] > 90e6 and 0 < plan["compute_bytes"] < 64e6


def test_the_page_tells_of_cells_steps_and_requests(serve, model):
    server = llama(serve, model).ready()
    (pid,) = server.workers().values()
    assert chat(server, max_tokens=6, ignore_eos=True).status == 200
    steps = "plimsoll_step_seconds_count"
    server.wait_until(lambda: (metric(server, steps) or 0) >= 6, what="its steps are counted")
    assert cells(server, "total", "used", "parked") == [1024, 0, 0]
    assert metric(server, "plimsoll_kv_preemptions_total") == 0
    page = open_page(server.pid, pid)
    assert page["begun"] == page["ended"] == 1 and page["in_flight"] == 0 and page["loaded_ms"] > 0
    # a main that comes after a crash does not count again what the last one has counted
    before = page["progress"]
    os.kill(server.main_pid(), signal.SIGKILL)
    server.wait_for("main.adopted")
    server.wait_until(lambda: (s := server.try_status()) and s["ready"], what="the next main is ready")
    server.wait_until(lambda: metric(server, steps) == 0, what="only new steps count")
    assert server.workers() == {1: pid} and page["progress"] >= before
    again = lambda: chat(server, max_tokens=4, ignore_eos=True).status == 200  # noqa: E731
    # what it did before the next main has looked for the first time is of the time before
    server.wait_until(lambda: again() and metric(server, steps) >= 4, what="and they do")


def test_plan_asks_llama_cpp_itself(model):
    if sanitized():
        pytest.skip("llama.cpp is not built with sanitizers")
    done = run_plimsoll("plan", model, "--gpu", "card:2GiB", "--max-len", "4096", "--json")
    plan = json.loads(done.stdout)
    measured = plan["measured"]
    assert done.returncode == 0 and measured["cells"] == min(plan["ctx_size"], 65536) and measured["parallel"] == plan["parallel"]
    assert abs(measured["kv_bytes"] / (23040 * measured["cells"]) - 1) < 0.001 and measured["drift_ratio"] < 0.002
    assert measured["weights_bytes"] > 90e6 and measured["compute_bytes"] > 0
    assert "dry run of" in run_plimsoll("plan", model, "--gpu", "card:2GiB", "--max-len", "4096").stdout


def test_a_model_in_several_files(serve, model, tmp_path):
    whole = llama(serve, model, ctx=512).ready()
    prompt = {"prompt": "The capital of Norway is", "temperature": 0, "max_tokens": 8}
    wanted = whole.post("/v1/completions", prompt, timeout=110).json()["choices"][0]["text"]
    whole.end()
    first, second = split_gguf(model, tmp_path, "two")
    server = llama(serve, first, ctx=512).ready()
    assert server.post("/v1/completions", prompt, timeout=110).json()["choices"][0]["text"] == wanted
    server.end()
    second.unlink()
    server = serve(str(first), "--name", "chat", "--backoff.attempts", 1, "--failed_exit", "1s")
    failed = server.wait_for("worker.start_failed")
    assert failed["cause"] == "init_failed" and "two-00002-of-00002.gguf" in failed["last_line"], failed
    assert server.wait_exit() == 6


def test_prompts_that_cannot_be_and_texts_that_are_never_cut(serve, model):
    server = llama(serve, model).ready()
    (pid,) = server.workers().values()
    for path, body in (("/v1/completions", {"prompt": ""}), ("/v1/completions", {"prompt": []}), ("/v1/completions", {}),
                       ("/v1/completions", {"prompt": [[]]}), ("/v1/completions", {"prompt": [999999]}),
                       ("/v1/chat/completions", {"messages": []}), ("/v1/completions", {"prompt": "x", "max_tokens": 0}),
                       ("/v1/completions", {"prompt": "x", "grammar": 'root ::= "a"', "json_schema": {"type": "null"}}),
                       ("/v1/completions", {"prompt": "x", "grammar": 'root ::= "a"', "ignore_eos": True}),
                       ("/v1/completions", {"prompt": "x " * 2000})):
        reply = server.post(path, body, timeout=110)
        assert reply.status == 400 and reply.json()["error"]["type"] == "invalid_request_error", (body, reply)
    # one character is several tokens: every event is whole UTF-8 nevertheless
    text = "😀 Größe 漢字 🏴󠁧󠁢󠁳󠁣󠁴󠁿!"
    reply = chat(server, grammar=f'root ::= "{text}"', max_tokens=100, stream=True)
    events = [json.loads(line[6:]) for line in reply.body.decode("utf-8", "strict").splitlines() if line.startswith("data: {")]
    pieces = [e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]]
    assert "".join(pieces) == text and "\ufffd" not in text and len(pieces) > 5
    # cut by max_tokens in the middle of a character: what is left of it is told as one, never as broken bytes
    cut = content(chat(server, grammar=f'root ::= "{text}"', max_tokens=2))
    assert text.startswith(cut.rstrip("\ufffd"))
    assert server.workers() == {1: pid}


def test_a_grammar_that_takes_for_ever_ends_alone(serve, model):
    """llama.cpp cannot be interrupted in one: the worker ends, who else was there is asked again, and the second time the
    request is refused before anybody sees it."""
    server = llama(serve, model).ready()
    assert chat(server, grammar='root ::= ([a-z]? [0-9]?){0,40} "!"').status == 400
    endless = {"grammar": 'root ::= x{0,40} "!"\nx ::= [a-z]? [0-9]?', "max_tokens": 9}
    first = chat(server, **endless)
    assert first.status in (502, 422), first
    deaths = server.wait_for("worker.death", count=2)
    assert deaths["cause"] == "crashed" and "grammar took more than 2 s" in json.dumps(server.log.find("worker.death")) + server.stdout(), deaths
    server.wait_until(lambda: (s := server.try_status()) and s["ready"], what="it is back")
    again = chat(server, **endless)
    assert again.status == 422 and "request_quarantined" in again.text(), again
    assert chat(server, max_tokens=2).status == 200
