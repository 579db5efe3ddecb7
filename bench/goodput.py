"""What an LLM engine gets done with Plimsoll in front of it, and without.

    bench/goodput.py PLIMSOLL [--rounds N] [--seconds S]

The engine is batcher.py: vLLM's contract, a scheduler over KV blocks, recompute on preemption. No request has
max_tokens; half of them stream. Clients are closed loops: the next request when the last one has ended, after Retry-
After where it was refused. Goodput is tokens of complete answers for a second of the engine's own time, so that what
else the machine does is left out. `mix`: as many clients as the engine can take at once. `overload`: ten times as
many, who leave after PATIENCE_S; what was computed for them is lost, as in life. Rounds are interleaved: ratios are
of the same round.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_S = 10
MAX_WAIT_S = 3  # of traffic.queue: what clients are known to bear, less what an answer takes
CLIENTS = {"mix": 24, "overload": 240}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def wait_ready(port, path, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as s:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
                if b" 200 " in s.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"nobody became ready on {port}")


def start(setup, plimsoll, folder):
    """(port, process)"""
    port = free_port()
    engine = [sys.executable, str(HERE / "batcher.py"), "serve", "tiny"]
    if setup == "direct":
        process = subprocess.Popen([*engine, "--port", str(port)], start_new_session=True)
        wait_ready(port, "/health", process)
    else:
        words = [
            plimsoll,
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--admin",
            "none",
            "--engine",
            "vllm",
            "--traffic.queue.max_wait",
            f"{MAX_WAIT_S}s",
            "--run_dir",
            f"{folder}/run",
            "--state_dir",
            f"{folder}/state",
            "--logs.access",
            "off",
            "--",
            *engine,
            "--uds",
            "{socket}",
        ]
        process = subprocess.Popen(words, start_new_session=True, stderr=open(f"{folder}/log", "wb"))
        wait_ready(port, "/readyz", process)
    return port, process


class Counts:
    def __init__(self):
        self.tokens = self.complete = self.refused = self.left = self.broken = 0


async def read_head(reader):
    status, length, retry_ms = int((await reader.readline()).split()[1]), None, None
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        if name.lower() == "content-length":
            length = int(value)
        elif name.lower() == "retry-after-ms":
            retry_ms = int(value)
    return status, length, retry_ms


async def one(port, rng, counts, end):
    """One request; seconds to wait before the next."""
    answer = min(800, max(8, int(rng.lognormvariate(4.7, 0.8))))
    prompt = min(1000, max(20, int(rng.lognormvariate(5.3, 0.7))))
    stream = rng.random() < 0.5
    asked = {"model": "tiny", "prompt": f"{answer} " + "word " * (prompt - 1), "stream": stream}
    data = json.dumps(asked).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
        )
        status, length, retry_ms = await read_head(reader)
        body = await (reader.readexactly(length) if length is not None else reader.read(-1))
        if status in (429, 503):
            counts.refused += 1
            return min(5.0, (retry_ms or 1000) / 1000)
        whole = body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if stream else b'"finish_reason":"stop"' in body
        if status != 200 or not whole:
            counts.broken += 1
        elif time.monotonic() < end:
            counts.tokens += answer
            counts.complete += 1
        return 0
    finally:
        writer.close()


async def client(port, seed, counts, end, patient):
    rng = random.Random(seed)
    while time.monotonic() < end:
        try:
            pause = await asyncio.wait_for(one(port, rng, counts, end), None if patient else PATIENCE_S)
        except asyncio.TimeoutError:
            counts.left, pause = counts.left + 1, 0
        except (ConnectionError, asyncio.IncompleteReadError, IndexError):
            counts.broken, pause = counts.broken + 1, 0.1
        await asyncio.sleep(pause)


async def load(port, kind, seconds, counts, seed):
    end = time.monotonic() + seconds
    tasks = [
        asyncio.ensure_future(client(port, seed * 1000 + i, counts, end, kind == "mix")) for i in range(CLIENTS[kind])
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def page_of(port):
    page = b""
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while piece := s.recv(65536):
            page += piece
    return page.decode().splitlines()


def engine_says(port):
    """Of its latest scrape: Plimsoll's page is as old as metrics.refresh."""
    page_of(port)
    time.sleep(1)
    return {
        line.partition("{")[0].partition(" ")[0]: float(line.rpartition(" ")[2])
        for line in page_of(port)
        if line.startswith(("batcher_seconds", "vllm:num_preemptions_total{"))
    }


def run(setup, kind, plimsoll, warm_s, seconds, seed):
    with tempfile.TemporaryDirectory(prefix="pl-bench-", dir="/tmp") as folder:
        port, process = start(setup, plimsoll, folder)
        try:
            asyncio.run(load(port, kind, warm_s, Counts(), seed + 7))
            counts, before = Counts(), engine_says(port)
            asyncio.run(load(port, kind, seconds, counts, seed))
            after = engine_says(port)
            counts.seconds = after["batcher_seconds"] - before["batcher_seconds"]
            counts.preemptions = int(after["vllm:num_preemptions_total"] - before["vllm:num_preemptions_total"])
            counts.rate = counts.tokens / counts.seconds
            return counts
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plimsoll")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--warm", type=float, default=15)
    parser.add_argument("--kinds", default="mix,overload")
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        ratios = []
        for i in range(args.rounds):
            row = {}
            for setup in ("direct", "plimsoll") if i % 2 == 0 else ("plimsoll", "direct"):
                c = row[setup] = run(setup, kind, args.plimsoll, args.warm, args.seconds, 100 * i + 1)
                print(
                    f"{kind:9} {setup:9} {c.rate:7.0f} tokens/s  complete {c.complete}  refused {c.refused}  "
                    f"engine {c.seconds:.1f} s  left {c.left}  broken {c.broken}  preemptions {c.preemptions}",
                    flush=True,
                )
            ratios.append(row["plimsoll"].rate / row["direct"].rate)
        each = ", ".join(f"{r:.3f}" for r in ratios)
        print(f"{kind:9} plimsoll / direct: median {statistics.median(ratios):.3f}  of {each}", flush=True)


if __name__ == "__main__":
    main()
