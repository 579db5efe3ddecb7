"""How main's cost grows: with connections, workers, sizes of bodies, streams, services and their series; and what the
record and the access log cost. nginx and HAProxy in the same interleaved rounds wherever the same can be asked of them.

    growth.py [--rounds 3] [--ms 400] [--only AXES] [--out docs/growth.md]

Part of `make bench`. Every cell has one run a round; counted is on-CPU time from the scheduler, as in run.py. Each
figure is divided by requests that were all answered within it (load.c waits for the last one).
"""

import argparse
import dataclasses
import hashlib
import http.client
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import growth_page
import stack
from stack import LOAD_CORE, Behind, pinned

CHAT, OCTETS = "application/json", "application/octet-stream"
CHAT_BYTES = 330
KIB = 1024
SIZES = (100, 4 * KIB, 64 * KIB, 1024 * KIB, 16 * 1024 * KIB)
SERVICES = (1, 10, 100)
KEYS = (1, 10, 100, 1000)
EVENTS = 100  # of a stream that sends one every 10 ms
IDLE_S = 3
PEERS = ("nginx", "haproxy")


@dataclasses.dataclass
class Cell:
    """One figure of a table: `row` at `x`. `measure` gives it, or None when something went wrong."""

    row: str
    x: int
    measure: Callable


@dataclasses.dataclass
class Bench:
    folder: Path
    rounds: int
    ms: int

    def load(self, target, paths, *how, **more):
        """us of the target's CPU for a request."""
        found = self.load_by((target.cpu_us,), target, paths, *how, **more)
        return found and found[0]

    def load_by(self, clocks, target, paths, connections=32, idle=0, body=CHAT_BYTES, kind=CHAT):
        """The same by several clocks of the target."""
        words = [self.folder / "load", str(target.port), str(connections), str(idle), str(self.ms), str(body), kind]
        process = subprocess.Popen([*words, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=pinned(LOAD_CORE))  # fmt: skip
        try:
            if process.stdout.readline() != "ready\n":
                return None
            time.sleep(0.02)  # what opening them has begun is over
            before = [clock() for clock in clocks]
            process.stdin.write("go\n")
            process.stdin.flush()
            found = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", process.stdout.readline())}
            spent = [clock() - began for clock, began in zip(clocks, before)]
        finally:
            process.stdin.close()
            process.wait()
        if not found or found["failed"] or found["broken"]:
            return None
        return [us / found["requests"] for us in spent]

    def streams(self, target, path, count, repeats):
        """us of the target's CPU for an event of a stream."""
        before = target.cpu_us()
        out = subprocess.run([self.folder / "streams", str(target.port), path, str(count), str(repeats)],
                             capture_output=True, text=True, preexec_fn=pinned(LOAD_CORE)).stdout  # fmt: skip
        found = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", out)}
        if not found or found["broken"]:
            return None
        return (target.cpu_us() - before) / found["chunks"]

    def nothing(self, targets):
        """{x: [us of CPU in a second without requests, of each round]} of targets by x, all at the same time."""
        table = {}
        for _ in range(self.rounds):
            began = {x: (t.cpu_us(), time.monotonic()) for x, t in targets.items()}
            time.sleep(IDLE_S)
            for x, t in targets.items():
                table.setdefault(x, []).append((t.cpu_us() - began[x][0]) / (time.monotonic() - began[x][1]))
        return {"plimsoll": table}

    def peers(self, tag, behind=None):
        found = (stack.peer(self.folder, name, f"-{tag}", behind) for name in PEERS)
        return [target for target in found if target is not None]

    def plimsoll(self, name, tag, *more, config=None, log="off"):
        words = ["--max-concurrency", "10000"] if config is None else []
        return stack.plimsoll_with(self.folder, name, tag, [*words, "--logs.access", log, *more], config)


def in_rounds(bench, cells):
    """{row: {x: [figure of each round]}}"""
    table = {}
    for _ in range(bench.rounds):
        for cell in cells:
            value = cell.measure()
            if value is None:
                print(f"bench: {cell.row} at {cell.x}: errors, left out")
            else:
                table.setdefault(cell.row, {}).setdefault(cell.x, []).append(value)
    return table


# --- the axes: each starts what it compares, measures and leaves it running; measure() ends it


def three(bench):
    """nginx, HAProxy and us in front of one worker on a socket."""
    stack.direct(bench.folder)
    return [*bench.peers("one"), bench.plimsoll("plimsoll", "one")]


def connections(bench):
    targets = three(bench)
    busy = [Cell(t.name, n, lambda t=t, n=n: bench.load(t, ["/size/100"], n))
            for n in (1, 8, 64, 512, 4096) for t in targets]  # fmt: skip
    quiet = [Cell(t.name, n, lambda t=t, n=n: bench.load(t, ["/size/100"], 32, idle=n - 32))
             for n in (32, 512, 4096) for t in targets]  # fmt: skip
    return {"busy": in_rounds(bench, busy), "quiet": in_rounds(bench, quiet)}


def bodies(bench):
    targets = three(bench)
    ours = targets[-1]
    asked, answered = [], []
    for size in SIZES:
        path = "/flow/size/{}" if size > 64 * KIB else "/size/{}"  # nginx: without files in between
        for t in targets:
            asked.append(Cell(t.name, size, lambda t=t, s=size, p=path: bench.load(
                t, [p.format(100)], 8, body=s, kind=OCTETS)))  # fmt: skip
            answered.append(Cell(t.name, size, lambda t=t, s=size, p=path: bench.load(t, [p.format(s)], 8, body=0)))
        asked.append(Cell("plimsoll, JSON", size, lambda s=size, p=path: bench.load(ours, [p.format(100)], 8, body=s)))
    return {"asked": in_rounds(bench, asked), "answered": in_rounds(bench, answered)}


def streams(bench):
    targets = three(bench)
    steady = [Cell(t.name, n, lambda t=t, n=n: bench.streams(t, f"/sse/{EVENTS}/10000", n, 1))
              for n in (1, 32, 256) for t in targets]  # fmt: skip
    burst = [Cell(t.name, n, lambda t=t, n=n: bench.streams(t, "/sse/100/0", n, max(1, bench.ms // n)))
             for n in (1, 32, 256) for t in targets]  # fmt: skip
    return {"steady": in_rounds(bench, steady), "burst": in_rounds(bench, burst)}


def workers(bench):
    counts = (1, 2, 4, 8)
    for i in range(max(counts)):
        stack.direct(bench.folder, i)
    cells, idle = [], {}
    for n in counts:
        ours = bench.plimsoll("plimsoll", f"workers-{n}", "--workers", str(n))
        idle[n] = ours
        cells += [Cell(t.name, n, lambda t=t: bench.load(t, ["/size/100"]))
                  for t in (*bench.peers(f"workers-{n}", Behind(workers=n)), ours)]  # fmt: skip
    return {"workers": in_rounds(bench, cells), "workers_idle": bench.nothing(idle)}


def config_of(bench, port, count, by_model):
    """A file of services that are all the same worker, told apart by path or by the model that is asked for."""
    lines = ["services:"]
    for i in range(1, count + 1):
        route = f"models: [m{i}]" if by_model else f"path: /s{i}"
        lines.append(f'  s{i}: {{url: "http://127.0.0.1:{port}", route: {{{route}}}}}')
    path = bench.folder / f"services-{count}{'-models' if by_model else ''}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def page_of(target):
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read()
    connection.close()
    return len(text), sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


def after_request(bench, target, path):
    """us for a scrape with a request before it: what has changed must be written anew."""
    both = bench.load(target, ["/metrics", path], 1, body=0)
    alone = bench.load(target, [path], 1, body=0)
    return 2 * both - alone if both is not None and alone is not None else None


def services(bench):
    worker = stack.direct(bench.folder)
    cells, scrapes, pages, idle = [], [], {}, {}
    for n in SERVICES:
        ours = bench.plimsoll("plimsoll", f"services-{n}", config=config_of(bench, worker.port, n, False))
        paths = [f"/s{i}/size/100" for i in range(1, n + 1)]
        peers = bench.peers(f"services-{n}", Behind(routes=n, port=worker.port))
        cells += [Cell(t.name, n, lambda t=t, p=paths: bench.load(t, p)) for t in (*peers, ours)]
        models = bench.plimsoll("plimsoll, by model", f"models-{n}", config=config_of(bench, worker.port, n, True))
        chats = [f"/v1/chat/completions m{i}" for i in range(1, n + 1)]
        cells.append(Cell(models.name, n, lambda t=models, p=chats: bench.load(t, p)))
        idle[n] = ours
        scrapes.append(Cell("plimsoll, nothing changed", n, lambda t=ours: bench.load(t, ["/metrics"], 1, body=0)))
        scrapes.append(Cell("plimsoll, after a request", n, lambda t=ours: after_request(bench, t, "/s1/size/100")))
        for t in peers:
            if t.name == "haproxy":
                scrapes.append(Cell("haproxy", n, lambda t=t: bench.load(t, ["/metrics"], 1, body=0)))
                pages.setdefault("haproxy", {})[n] = page_of(t)
        bench.load(ours, paths)  # every service has all its series
        pages.setdefault("plimsoll", {})[n] = page_of(ours)
    return {"services": in_rounds(bench, cells), "scrape": in_rounds(bench, scrapes),
            "services_idle": bench.nothing(idle), "pages": pages}  # fmt: skip




def keys(bench):
    stack.direct(bench.folder)
    cells = []
    for n in KEYS:
        path, shown = bench.folder / f"keys-{n}.yaml", [f"sk-{i:040}" for i in range(n)]
        path.write_text("".join(f"- {{name: team-{i}, hash: 'sha256:{hashlib.sha256(key.encode()).hexdigest()}'}}\n"
                                for i, key in enumerate(shown)))  # fmt: skip
        path.chmod(0o600)
        ours = bench.plimsoll("plimsoll", f"keys-{n}", "--api_keys.file", str(path))
        kind = f"{CHAT}\r\nAuthorization: Bearer {shown[n // 2]}"
        cells.append(Cell("plimsoll", n, lambda t=ours, k=kind: bench.load(t, ["/size/100"], kind=k)))
    return {"keys": in_rounds(bench, cells)}


def switches(bench):
    """Figures of ours are pairs: all threads, and main's loop alone."""
    stack.direct(bench.folder)
    cells = []
    for log in ("off", "on"):
        for name in PEERS:
            t = stack.peer(bench.folder, name, f"-log-{log}", Behind(access_log=log == "on"))
            if t is not None:
                cells.append(Cell(f"{name}, log {log}", 0, lambda t=t: bench.load_by((t.cpu_us,), t, ["/size/100"])))
        for record, place in (("memory", "memory"), ("a file", "auto")):
            t = bench.plimsoll("plimsoll", f"switch-{log}-{place}", "--record.path", place, log=log)
            cells.append(Cell(f"plimsoll, log {log}, record in {record}", 0,
                              lambda t=t: bench.load_by((t.cpu_us, t.loop_us), t, ["/size/100"])))  # fmt: skip
    return {"switches": in_rounds(bench, cells)}


AXES = {"connections": connections, "bodies": bodies, "streams": streams, "workers": workers, "services": services,
        "keys": keys, "switches": switches}  # fmt: skip


def measure(folder, rounds, ms=400, only=tuple(AXES)):
    """Tables by name, and the seconds it took."""
    found, began_all = {}, time.monotonic()
    stack.compile_parts(folder)
    for axis in only:
        began = time.monotonic()
        place = folder / f"axis-{axis}"
        place.mkdir()
        for part in stack.PARTS:
            shutil.copy(folder / part, place)
        bench = Bench(place, rounds, ms)
        try:
            found |= AXES[axis](bench)
        finally:
            stack.end_all()
        print(f"bench: growth with {axis}: {time.monotonic() - began:.0f} s", flush=True)
    return found, time.monotonic() - began_all


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ms", type=int, default=400, help="of one run")
    parser.add_argument("--only", default=",".join(AXES), help="axes, separated by commas")
    parser.add_argument("--out", type=Path, help="where the page goes; without it: the terminal")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    folder = Path(tempfile.mkdtemp(prefix="pl-bench-", dir="/tmp"))
    try:
        found, took = measure(folder, args.rounds, args.ms, args.only.split(","))
    finally:
        stack.end_all()
        shutil.rmtree(folder, ignore_errors=True)
    text = growth_page.page(found, args.rounds, took)
    if args.out:
        args.out.write_text(text)
        print(f"bench: wrote {args.out}")
    else:
        print(text)


if __name__ == "__main__":
    main()
