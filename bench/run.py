"""`make bench`: Plimsoll beside nginx, HAProxy and `bentoml serve`, in interleaved rounds. Writes docs/bench.md,
and docs/growth.md: how its cost grows (growth.py).

Rates and tail latencies on a shared machine are noise, so what is counted is CPU: the scheduler's nanoseconds of the
proxy's processes, divided by requests (chunks). Proxy on one core, load and worker on another; every target has one
run a round, so that a change of the machine's load meets all; medians and minima are over the rounds.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import accounting
import bentos
import growth
import growth_page
import lane
import report
import stack
from stack import HERE, LOAD_CORE, pinned

SETUPS = (("c=1, 100 B", 1, 100), ("c=1, 4 KiB", 1, 4096), ("c=32, 100 B", 32, 100), ("c=32, 4 KiB", 32, 4096))
STREAMS = (("steady", 100, "/sse/100/10000", 2), ("burst", 32, "/sse/100/0", 20))
IDLE = 4000
PARTS = ("requests", "streams", "idle", "bentoml", "lane", "accounting", "growth")
NOT_IDLE = ("plimsoll, access log on",)  # the same as with it off


def wrk(port, path, connections, seconds, script="chat.lua", core=LOAD_CORE):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "--latency",
                          "-s", HERE / script, f"http://127.0.0.1:{port}{path}"],
                         capture_output=True, text=True, preexec_fn=pinned(core)).stdout  # fmt: skip
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", out).groups()
    return {"requests": int(re.search(r"(\d+) requests in", out)[1]),
            "p50_us": float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit],
            "errors": "Non-2xx" in out or "Socket errors" in out}


def asked(target, size):
    """Path and script of a request whose reply has `size` bytes."""
    if not target.llm_only:
        return f"/size/{size}", "chat.lua"
    return ("/v1/chat/completions", "chat.lua") if size == 100 else ("/v1/completions", "complete.lua")


def requests(targets, rounds, seconds):
    """{(setup, name): [figures of each round]}"""
    rows = {}
    for _ in range(rounds):
        for setup, connections, size in SETUPS:
            for target in targets:
                before = target.cpu_us()
                path, script = asked(target, size)
                run = wrk(target.port, path, connections, seconds, script)
                if run["errors"] or run["requests"] < 50:
                    print(f"bench: {target.name}, {setup}: errors, left out")
                    continue
                run["cpu_us"] = (target.cpu_us() - before) / run["requests"]
                rows.setdefault((setup, target.name), []).append(run)
    return rows


def streams(folder, targets, rounds):
    rows = {}
    for _ in range(rounds):
        for setup, count, path, repeats in STREAMS:
            for target in targets:
                before = target.cpu_us()
                out = subprocess.run([folder / "streams", str(target.port), path, str(count), str(repeats)],
                                     capture_output=True, text=True, preexec_fn=pinned(LOAD_CORE)).stdout
                found = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", out)}
                if not found or found["broken"]:
                    print(f"bench: {target.name}, {setup}: broken streams, left out")
                    continue
                found["cpu_us"] = (target.cpu_us() - before) / found["chunks"]
                rows.setdefault((setup, target.name), []).append(found)
    return rows


def idle(targets):
    """Bytes of private memory for each of many connections that have served one request."""
    rows = {}
    for target in targets:
        before, held = stack.private_bytes(target.own), []
        for _ in range(IDLE):
            sock = socket.create_connection(("127.0.0.1", target.port))
            sock.sendall(b"GET /size/100 HTTP/1.1\r\nHost: x\r\n\r\n")
            while not sock.recv(4096).endswith(b"a" * 100):
                pass
            held.append(sock)
        rows[target.name] = (stack.private_bytes(target.own) - before) / IDLE
        for sock in held:
            sock.close()
        time.sleep(0.5)
    return rows


def load_now():
    return os.getloadavg()[0]


def measure(parts, args, folder, found, loads):
    stack.compile_parts(folder)
    targets = []
    if parts & {"requests", "streams", "idle"}:
        targets.append(stack.direct(folder))
        targets += filter(None, (stack.peer(folder, name) for name in ("nginx", "haproxy")))
        targets += filter(None, (stack.WHEEL_PEERS[name](folder, targets[0]) for name in args.peers))
        targets += [stack.plimsoll(folder, access=False), stack.plimsoll(folder, access=True)]
    if "requests" in parts:
        found["requests"] = requests(targets, args.rounds, args.seconds)
        loads.append(load_now())
    if "streams" in parts:
        found["streams"] = streams(folder, [t for t in targets if not t.llm_only], args.rounds)
        loads.append(load_now())
    if "idle" in parts:
        found["idle"] = idle([t for t in targets if t.name not in ("direct", *NOT_IDLE) and not t.llm_only])
    stack.end_all()
    if "bentoml" in parts:
        found["bentoml"] = bentos.measure(folder, args.rounds, wrk)
        loads.append(load_now())
    if "lane" in parts:
        found["lane"] = lane.measure(folder, args.rounds, wrk, args.seconds)
        loads.append(load_now())
    if "accounting" in parts:
        found["accounting"] = accounting.measure(folder, args.rounds, wrk)
        loads.append(load_now())
    if "growth" in parts:
        short = {"ms": 300, "only": ("connections", "services")} if args.short else {}
        found["growth"] = growth.measure(folder, args.rounds, **short)
        loads.append(load_now())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--short", action="store_true",
                        help="requests, lane and some of growth, for short: ends with 1 when a ratio is grossly worse")
    parser.add_argument("--peers", type=lambda text: [w for w in text.split(",") if w], default=[],
                        help=f"further ones, separated by commas: {', '.join(stack.WHEEL_PEERS)}")  # fmt: skip
    parser.add_argument("--out", type=Path, help="the page of the tables, growth.md goes beside it; else: the terminal")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    if args.short:
        args.rounds, args.seconds, args.only = 2, 1, "requests,lane,growth"
    parts = set(args.only.split(","))
    unknown = [*(parts - set(PARTS)), *(set(args.peers) - set(stack.WHEEL_PEERS))]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    if shutil.which("wrk") is None:
        sys.exit("bench: wrk is not here: apt-get install wrk")
    folder = Path(tempfile.mkdtemp(prefix="pl-bench-", dir="/tmp"))
    found, began, loads = {}, time.monotonic(), [load_now()]
    try:
        measure(parts, args, folder, found, loads)
    finally:
        stack.end_all()
        shutil.rmtree(folder, ignore_errors=True)
    tables, took_s = found.copy(), time.monotonic() - began
    grown = tables.pop("growth", None)
    pages = {}
    if tables:
        pages["bench.md"] = report.page(tables, loads, args.rounds, took_s - (grown[1] if grown else 0))
    if grown:
        pages["growth.md"] = growth_page.page(grown[0], args.rounds, grown[1])
    for name, text in pages.items():
        if args.out:
            path = args.out if name == "bench.md" else args.out.with_name(name)
            path.write_text(text)
            print(f"bench: wrote {path}")
        else:
            print(text)
    worse = [*report.grossly_worse(tables), *growth_page.grossly_worse(grown[0])] if args.short else []
    for line in worse:
        print(f"bench: {line}")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
