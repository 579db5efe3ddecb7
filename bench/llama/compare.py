"""`make bench-llama`: plimsoll-llama behind Plimsoll, beside llama-server of the same source, in interleaved rounds.

Both wait passively (OpenMP), with the same threads, cells and sequences, no shared beginnings and no prompt cache. A
round has one run of each for 1, 4 and 8 streams, and the next one begins with the other, so that a change of the
machine's load meets both; ratios are of the same round. CPU comes from the scheduler's own count and is what counts:
rates and latencies of a shared machine are noise, and are shown only.

    compare.py --build build/release [--rounds 5] [--out docs/bench-llama.md]
"""

import argparse
import datetime
import http.client
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

from stack import cpu_us, free_port, tree  # noqa: E402

PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "GGML_NO_BACKTRACE": "1"}
STREAMS, PER_STREAM, TOKENS, CELLS, THREADS, BATCH = (1, 4, 8), 2, 48, 4096, 2, 512
MARK = 1.05
QUESTION = "Write a short story about a ship and its load line."


def ask(port, number, tokens=TOKENS):
    """One streamed chat: what came, and when."""
    body = {"messages": [{"role": "user", "content": f"{number}. {QUESTION}"}], "max_tokens": tokens, "stream": True,
            "temperature": 0.8, "seed": 7, "ignore_eos": True, "cache_prompt": False,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    began, times, used = time.monotonic(), [], 0
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status} {reply.read()[:300]}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(event["error"])
        if event.get("usage"):
            used = event["usage"]["completion_tokens"]
        if event.get("choices") and event["choices"][0]["delta"].get("content"):
            times.append(time.monotonic())
    connection.close()
    return {"tokens": used, "first": times[0] - began, "gaps": [b - a for a, b in zip(times, times[1:])]}


def load(port, streams):
    results, failed, began = [], [], time.monotonic()

    def client(index):
        try:
            for turn in range(PER_STREAM):
                results.append(ask(port, index * 100 + turn))
        except (RuntimeError, OSError, http.client.HTTPException) as e:
            failed.append(repr(e))

    clients = [threading.Thread(target=client, args=(i,)) for i in range(streams)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    if failed:
        sys.exit(f"bench: {failed}")
    gaps = sorted(g for r in results for g in r["gaps"])
    tokens = sum(r["tokens"] for r in results)
    assert len(results) == streams * PER_STREAM and tokens == len(results) * TOKENS, "answers are missing"
    return {"tokens": tokens, "rate": tokens / (time.monotonic() - began),
            "first_ms": statistics.median(r["first"] for r in results) * 1e3, "gap_ms": statistics.median(gaps) * 1e3,
            "gap99_ms": gaps[int(len(gaps) * 0.99)] * 1e3}


class Server:
    """Started, ready, with the process that computes known; ended with its `with`."""

    def __init__(self, kind, args, streams, folder, sharing="off"):
        self.port, self.kind, began = free_port(), kind, time.monotonic()
        sizes = {"ctx_size": CELLS, "parallel": streams, "threads": THREADS, "batch_size": BATCH,
                 "ubatch_size": BATCH}
        if kind == "plimsoll":
            words = [args.build / "bin/plimsoll", "serve", args.model, "--name", "chat", "--port", self.port,
                     "--host", "127.0.0.1", "--admin", "none", "--logs.access", "off",
                     "--llama.prefix_sharing", sharing,
                     "--run_dir", folder / "run", "--state_dir", folder / "state", "--cache_dir", folder / "cache"]
            for key, value in sizes.items():
                words += [f"--llama.{key}", value]
        else:
            words = [args.peer, "--model", args.model, "--host", "127.0.0.1", "--port", self.port, "--kv-unified",
                     "--cache-ram", "0", "--no-webui", "--threads-batch", THREADS]
            for key, value in sizes.items():
                words += ["--" + key.replace("_", "-"), value]
        self.process = subprocess.Popen([str(w) for w in words], env={**os.environ, **PASSIVE}, start_new_session=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() - began > 120:
                sys.exit(f"bench: {kind} does not start")
            time.sleep(0.01)
        self.ready_s = time.monotonic() - began
        self.engine = next(p for p in tree(self.process.pid) if self._computes(p))
        if args.autogroup:
            Path(f"/proc/{self.engine}/autogroup").write_text(str(args.autogroup))

    def _ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz" if self.kind == "plimsoll" else "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _computes(self, pid):
        return self.kind != "plimsoll" or os.readlink(f"/proc/{pid}/exe").endswith("libexec/plimsoll/llama")

    def anon_mib(self):
        """Of the process that computes: what it needs and nobody else can use."""
        lines = Path(f"/proc/{self.engine}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "VmSwap:"))) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def one_run(kind, args, streams):
    folder = Path(tempfile.mkdtemp(prefix="pl-bench-", dir="/tmp"))
    try:
        with Server(kind, args, streams, folder) as server:
            ask(server.port, 1, 4)  # connections and first pages are not what is measured
            others = [p for p in tree(server.process.pid) if p != server.engine]
            engine, beside = cpu_us([server.engine]), cpu_us(others)
            run = load(server.port, streams)
            run["cpu_s"] = (cpu_us([server.engine]) - engine) / 1e6 / run["tokens"] * 1000
            run["beside_s"] = (cpu_us(others) - beside) / 1e6 / run["tokens"] * 1000
            run.update(ready_s=server.ready_s, anon_mib=server.anon_mib())
            return run
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ROWS = (("CPU s per 1,000 tokens", "cpu_s", "{:.2f}"), ("tokens/s", "rate", "{:.1f}"),
        ("first token, ms", "first_ms", "{:.0f}"), ("between tokens, ms", "gap_ms", "{:.1f}"),
        ("the same, 99 %, ms", "gap99_ms", "{:.0f}"), ("ready after, s", "ready_s", "{:.2f}"),
        ("anonymous memory, MiB", "anon_mib", "{:.0f}"))
TITLE = """# Bench of plimsoll-llama

Made by `make bench-llama` (`bench/llama`): p"""
BELOW = """
Median of the rounds; the ratio is the median of the rounds' ratios, with the smallest and the largest. The mark for
CPU is {mark}. What Plimsoll's own processes (keeper, gateway, watch) take beside the engine stands in the last row.

| streams | | plimsoll | llama-server | ratio |
|---|---|---|---|---|"""


def commit():
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def page(rows, args, loads, took):
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "?")
    shares = f", both at autogroup nice {args.autogroup}" if args.autogroup else ""
    head = __doc__.split("\n\n    compare.py")[0].replace("`make bench-llama`: p", TITLE)
    text = [head, f"\n{datetime.date.today()}, commit {commit()}, {os.cpu_count()} cores of {cpu}, "
            f"Linux {platform.release()}; load average {min(loads):.1f} to {max(loads):.1f}; "
            f"{args.rounds} rounds, {took:.0f} s{shares}.",
            f"{args.model.name}, {THREADS} threads, {CELLS} cells, {TOKENS} tokens an answer, "
            f"{PER_STREAM} answers a stream.",
            BELOW.format(mark=MARK)]
    for streams in args.streams:
        ours, theirs = rows[streams, "plimsoll"], rows[streams, "llama-server"]
        for label, key, form in ROWS:
            ratios = [a[key] / b[key] for a, b in zip(ours, theirs)]
            figures = [form.format(statistics.median(r[key] for r in runs)) for runs in (ours, theirs)]
            middle = f"{statistics.median(ratios):.2f}"
            if key == "cpu_s":
                middle = f"**{middle}**"
            text.append(f"| {streams} | {label} | {figures[0]} | {figures[1]} | {middle} "
                        f"({min(ratios):.2f} to {max(ratios):.2f}) |")
        beside = statistics.median(r["beside_s"] for r in ours)
        text.append(f"| {streams} | CPU s beside the engine | {beside:.2f} | | |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    peer = Path(os.environ.get("PL_LLAMA_PEER", "/nowhere")) / "bin/llama-server"
    parser.add_argument("--peer", type=Path, default=peer)
    parser.add_argument("--model", type=Path, help="GGUF; SmolLM2 of set-up without it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default=list(STREAMS))
    parser.add_argument("--autogroup", type=int, help="nice value of both engines' sessions, where others are at work")
    parser.add_argument("--out", type=Path, help="where the page goes; without it: the terminal")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.model = args.model or next(Path(os.environ.get("PL_LLAMA_MODEL", "/nowhere")).glob("*.gguf"), None)
    for needed in (args.build / "libexec/plimsoll/llama", args.peer, args.model):
        if needed is None or not needed.exists():
            sys.exit(f"bench: {needed} is not there: run through `make bench-llama`")
    rows, loads, began = {}, [], time.monotonic()
    for turn in range(args.rounds):
        for streams in args.streams:
            for kind in ("plimsoll", "llama-server")[:: 1 if turn % 2 == 0 else -1]:
                run = one_run(kind, args, streams)
                rows.setdefault((streams, kind), []).append(run)
                loads.append(os.getloadavg()[0])
                print(f"bench: round {turn + 1}, {streams} streams, {kind}: {run['cpu_s']:.2f} CPU s per 1,000 tokens, "
                      f"{run['rate']:.1f} tokens/s", file=sys.stderr)
    text = page(rows, args, loads, time.monotonic() - began)
    if args.out:
        args.out.write_text(text)
        print(f"bench: wrote {args.out}")
    else:
        print(text)


if __name__ == "__main__":
    main()
