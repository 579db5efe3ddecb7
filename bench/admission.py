#!/usr/bin/env python3
"""What byte admission does for a BentoML service whose memory depends on its input: a storm, batches, a leak.

    bench/admission.py [--requests 500] [--rounds 5] [--leak 5500] [--before BUILD]

with $PL_TORCH_ENV and $PLIMSOLL_BUILD; 0 leaves one out. The card is the dry dock's.

Storm: that many long inputs at once on a card with room for five, without bytes counted and with; an OOM is the
worker's end, as it is for engines. Batches: 64 clients of a batchable endpoint whose batch fits the card where its
requests one by one would not, at the worker's own socket and through Plimsoll, in turn. Leak: examples/leaky, asked
that many times, one request after the other, on a card of 8 GiB, whose starts come from the zygote; and a twelfth as
often for sixteen times as much, slowly, so that it is full before there are enough requests for a verdict; without
`budget` among the reasons to replace a worker, with it, and of another build, to compare.
"""

import argparse
import asyncio
import collections
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from stack import ROOT, end, free_port

PATIENCE_S = 120
SERVICES = ROOT / "tests/e2e/services"
OTHERS = "leak,forecast,host_rss,hang"


async def post(where, path, body):
    """(status, text); 0: no answer."""
    try:
        if isinstance(where, str):
            reader, writer = await asyncio.open_unix_connection(where)
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", where)
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        reply = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        head, _, text = reply.partition(b"\r\n\r\n")
        return (int(head.split()[1]), text.decode()) if head else (0, "")
    except (OSError, asyncio.TimeoutError):
        return 0, ""


class Server:
    def __init__(self, folder, service, target, flags, env=None, card="small:10GiB", build=None):
        python = Path(os.environ["PL_TORCH_ENV"]) / "bin/python"
        build = Path(build or os.environ.get("PLIMSOLL_BUILD", ROOT / "build/release")).resolve()
        self.port, self.run = free_port(), Path(folder) / "run"
        self.log = Path(folder) / "log"
        binary = build / "bin/plimsoll"
        words = [binary, "drydock", "-q", "--gpu", card, "--", binary, "serve", target, "--python", python,
                 "--host", "127.0.0.1", "--port", self.port, "--admin", "none", "--run_dir", self.run, "--state_dir",
                 Path(folder) / "state", "--cache_dir", Path(folder) / "cache", "--warmup.examples", "off", *flags]
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML"))}
        with open(self.log, "wb") as log:
            env = {**keep, "BENTOML_DO_NOT_TRACK": "True", **(env or {})}
            self.binary = binary
            self.process = subprocess.Popen([str(w) for w in words], cwd=SERVICES / service, env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE_S
        while not self.events("main.ready") and time.monotonic() < until and self.process.poll() is None:
            time.sleep(0.1)
        if not self.events("main.ready"):
            raise SystemExit(f"bench: the service is not ready; its log is {self.log}")
        time.sleep(2)  # the card is looked at once a second

    def events(self, name):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if f'"event":"{name}"' in line]
        return [json.loads(line) for line in lines]

    def decision_p99_ms(self):
        """Upper bound of the histogram's bucket that holds the 99th percentile, and how many there were."""
        metrics = asyncio.run(get(self.port, "/metrics"))
        rows = []
        for line in metrics.splitlines():
            if line.startswith("plimsoll_admission_seconds_bucket"):
                rows.append((line.split('le="')[1].split('"')[0], float(line.split()[-1])))
        total = rows[-1][1]
        return next(float(le) * 1000 for le, n in rows if n >= 0.99 * total), int(total)

    def verb(self, *words):
        words = [str(self.binary), *words, "--admin", str(self.run / "admin.sock")]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench: {words}: {done.stderr}")
        return done.stdout

    def stop(self):
        end(self.process)


async def get(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


def storm(with_line, requests):
    flags = ["--memory.charge", "learnt"] if with_line else ["--memory.charge", "none", "--memory.budget", "0"]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, "sized", "service:Sized", [*flags, "--traffic.queue.max_wait", "60s"], {"DIE": "1"})
        try:
            async def all_at_once():
                for _ in range(3):
                    await post(server.port, "/predict", {"text": "x"})
                long = {"text": "x" * 20000}
                return await asyncio.gather(*(post(server.port, "/predict", long) for _ in range(requests)))
            began = time.monotonic()
            statuses = collections.Counter(status for status, _ in asyncio.run(all_at_once()))
            took = time.monotonic() - began
            p99, decisions = server.decision_p99_ms()
            deaths = len(server.events("worker.death"))
            return {"statuses": dict(sorted(statuses.items())), "deaths": deaths, "seconds": took, "p99_ms": p99,
                    "decisions": decisions}
        finally:
            server.stop()


async def clients(where, seconds):
    until = time.monotonic() + seconds

    async def one():
        while time.monotonic() < until:
            status, _ = await post(where, "/embed", {"texts": ["x" * 100]})
            assert status == 200, status
    await asyncio.gather(*(one() for _ in range(64)))


def batches(rounds, charge):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, "batched", "service:Batched", ["--memory.charge", charge])
        try:
            worker = str(next((server.run / "w").iterdir()))

            def mean(where, seconds=4):
                before = json.loads(asyncio.run(post(worker, "/counts", {}))[1])
                asyncio.run(clients(where, seconds))
                after = json.loads(asyncio.run(post(worker, "/counts", {}))[1])
                return (after[1] - before[1]) / (after[0] - before[0])
            mean(server.port)
            mean(worker)
            return [(mean(worker), mean(server.port)) for _ in range(rounds)]
        finally:
            server.stop()


def leak(requests, rows, pause_s, reasons, build=None):
    """What became of requests to a worker that keeps 24 KiB a row of each. Its next start is quick, and known to be."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--replace.when", reasons, "--replace.max_per_hour", "20", "--mode", "guard"]
        server = Server(folder, ROOT / "examples/leaky", ".", flags, card="card:8GiB", build=build)
        try:
            until = time.monotonic() + PATIENCE_S
            while json.loads(server.verb("status", "--json"))["services"][0]["zygote"]["state"] != "ready":
                if time.monotonic() > until:
                    raise SystemExit("bench: there is no zygote")
                time.sleep(0.2)
            for _ in range(3):
                server.verb("restart", "--all", "--now")

            async def one_by_one():
                out = []
                for _ in range(requests):
                    out.append((await post(server.port, "/predict", {"length": rows}))[0])
                    await asyncio.sleep(pause_s)
                return out
            statuses = collections.Counter(asyncio.run(one_by_one()))
            replaced = [e["reason"] for e in server.events("worker.replace") if e["reason"] != "operator"]
            return dict(sorted(statuses.items())), replaced
        finally:
            server.stop()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--requests", type=int, default=500)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--leak", type=int, default=5500)
    args.add_argument("--before", help="build folder of another version: the leak with its reasons, beside this one's")
    args = args.parse_args()
    if args.requests > 0:
        print(f"{args.requests} inputs of 1.22 GiB at once, room for five:")
    for name, with_line in (("without", False), ("with", True)) if args.requests > 0 else ():
        f = storm(with_line, args.requests)
        print(f"  {name:8} answers {f['statuses']}, workers that died {f['deaths']}, {f['seconds']:.1f} s, "
              f"decision p99 <= {f['p99_ms']:g} ms ({f['decisions']})", flush=True)
    for charge in ("none", "learnt") if args.rounds > 0 else ():
        pairs = batches(args.rounds, charge)
        direct, through = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        print(f"mean batch of 64 clients, direct and through, memory.charge {charge}:",
              ", ".join(f"{a:.1f} {b:.1f}" for a, b in pairs))
        print(f"  median {direct:.1f} and {through:.1f}: {through / direct:.2f}", flush=True)
    ways = [("before", OTHERS, args.before)] if args.before else []
    ways += [("without", OTHERS, None), ("with", "budget," + OTHERS, None)]
    for requests, rows, pause_s in ((args.leak, 64, 0), (args.leak // 12, 1024, 0.2)) if args.leak > 0 else ():
        print(f"{requests} requests that leak {rows * 24 / 1024:g} MiB each, {pause_s:g} s between them, 8 GiB:")
        for name, reasons, build in ways:
            statuses, replaced = leak(requests, rows, pause_s, reasons, build)
            print(f"  {name:8} answers {statuses}, replaced for {replaced}", flush=True)


if __name__ == "__main__":
    main()
