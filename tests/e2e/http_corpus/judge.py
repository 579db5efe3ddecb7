"""One case at a time: sent to the server, judged by what its client and its worker saw. tests/data/http/README.md says
what the fields mean. A judgement is a list of differences; none is the mark."""

import json
import time
from pathlib import Path

from rig.fake import ok

from .client import Client

DATA = Path(__file__).resolve().parents[2] / "data/http"
REPLY_S = 10.0  # only a missing reply waits for its end
CLOSE_S = 10.0
QUIET_S = 0.1  # how long a connection that must stay open is watched
EARLY_S = 0.3  # a worker that answers at the head leaves the body unread for so long


def load(name):
    with open(DATA / name, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def raw(case):
    text = case["bytes"] if "bytes" in case else "".join(part * count for part, count in case["parts"])
    return text.encode("latin-1")


def play(replies):
    """A handler for FakeWorker: /case/ID is answered as replies.jsonl says, everything else with 200."""
    cases = {case["id"]: case for case in replies}

    def handler(request, sock):
        case = cases.get(request.target.rpartition("/case/")[2]) if "/case/" in request.target else None
        early = case is not None and case.get("answer_at") == "head"
        if not early and not request.read_body():
            return False
        if case is None:
            return ok(request, sock, b"" if request.method == "HEAD" else b"ok")
        sock.sendall(raw(case))
        for text, pause in case.get("steps", []):
            sock.sendall(text.encode("latin-1"))
            time.sleep(pause)
        if early:
            time.sleep(EARLY_S)
        return case["then"] == "keep"

    return handler


def judge_request(address, worker, case):
    worker.take()
    with Client(address) as client:
        client.send(raw(case), case.get("step"))
        if case.get("half_close"):
            client.sock.shutdown(1)
        wait = max(case.get("wait_s", 0), REPLY_S)
        problems = []
        if "then" in case:
            interim = client.interim(time.monotonic() + wait)
            if interim not in case["interim"]:
                problems.append(f"interim {interim}, expected {case['interim']}")
            client.send(case["then"].encode("latin-1"))
        problems += _replies(client, case, wait)
        if not problems:
            problems += _end(client, case, wait)
        problems += _at_worker(case, worker.take())
    return problems


def _replies(client, case, wait):
    problems = []
    for i, wanted in enumerate(case["statuses"]):
        accepted = wanted + (case.get("also", []) if i == 0 else [])
        seen = client.reply(i in case.get("head", []), time.monotonic() + wait)
        if seen is None:
            if not (case.get("silent") and client.closed):
                how = "closed without one" if client.closed else "none"
                problems.append(f"reply {i + 1}: {how}, expected {accepted}")
            break
        if seen.status not in accepted:
            problems.append(f"reply {i + 1}: {seen.status}, expected {accepted}")
        if seen.outcome != "complete":
            problems.append(f"reply {i + 1}: {seen.outcome}")
    return problems


def _end(client, case, wait):
    """Nothing more may come; closed or open as the case says."""
    if case["close"] is None:
        return []
    limit = (CLOSE_S if case["statuses"] else wait) if case["close"] else QUIET_S
    if client.more(time.monotonic() + limit) or client.data:
        return [f"more bytes after the last reply: {client.data[:40]!r}"]
    if client.closed != case["close"]:
        return ["the connection was closed" if client.closed else "the connection stays open"]
    return []


def _at_worker(case, seen):
    wanted = case.get("upstream")
    if wanted is None:
        if case["group"] in ("measured", "refuse") and seen:
            return [f"{len(seen)} requests reached the worker: {seen[0].method} {seen[0].target!r}"]
        return []
    if len(seen) != len(wanted):
        return [f"the worker got {len(seen)} requests, expected {len(wanted)}"]
    problems = []
    for want, got in zip(wanted, seen):
        for key in ("method", "target"):
            if key in want and getattr(got, key) != want[key]:
                problems.append(f"worker: {key} {getattr(got, key)!r}, expected {want[key]!r}")
        if "body" in want and got.body != want["body"].encode("latin-1"):
            problems.append(f"worker: body {got.body[:40]!r}")
        problems += [f"worker: header {n} came through" for n in want.get("absent", []) if got.header(n) is not None]
        if "header" in want and got.header(want["header"][0]) != want["header"][1]:
            problems.append(f"worker: {want['header'][0]} is {got.header(want['header'][0])!r}")
        if "not_value" in want and got.header(want["not_value"][0]) == want["not_value"][1]:
            problems.append(f"worker: {want['not_value'][0]} was believed")
    return problems


def judge_reply(address, worker, case):
    worker.take()
    method, body = case.get("method", "GET"), b"x" * case.get("request_body", 0)
    head = f"{method} /case/{case['id']} HTTP/1.1\r\nHost: a\r\n"
    if method == "POST":
        head += f"Content-Length: {len(body)}\r\n"
    with Client(address) as client:
        client.send(head.encode() + b"\r\n" + body)
        seen = client.reply(method == "HEAD", time.monotonic() + REPLY_S)
    if seen is None:
        return [f"no reply, expected {case['status']}"]
    problems = _judge_seen(case, seen)
    at_worker = worker.take()
    if case.get("reuse") is False and at_worker:
        problems += _next_is_well(address, worker, at_worker[-1].connection)
    return problems


def _judge_seen(case, seen):
    also = case.get("also_status", [])
    if seen.status not in case["status"] + also:
        return [f"{seen.status}, expected {case['status'] + also}"]
    if seen.status in also:
        return []
    problems = []
    if seen.outcome != case["outcome"]:
        problems.append(f"{seen.outcome}, expected {case['outcome']}")
    if seen.status < 500 and "body" in case and seen.body != case["body"].encode("latin-1"):
        problems.append(f"body {seen.body[:40]!r}")
    names = seen.names()
    problems += [f"header {n} came through" for n in case.get("absent", []) if n in names]
    if case.get("never", "\0").encode() in seen.body:
        problems.append(f"{case['never']} in a cut stream")
    if "transfer-encoding" in names and "content-length" in names:
        problems.append("both framings passed on")
    return problems


def _next_is_well(address, worker, connection):
    """The worker's connection that broke a rule serves nobody else, and the next client notices nothing."""
    with Client(address) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        seen = client.reply(False, time.monotonic() + REPLY_S)
    if seen is None or seen.body != b"ok":
        return [f"the next client got {seen and seen.body[:40]!r}"]
    if any(request.connection == connection for request in worker.take()):
        return ["the worker's connection was used again"]
    return []
