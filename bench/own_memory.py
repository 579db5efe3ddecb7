"""Do main, keeper and watch stay as large as they are? A million requests through main, their memory beside it.

    bench/own_memory.py [--requests N] [--out FILE]

The worker behind answers at once. Slices of a few seconds go round four ways of asking: kept connections, a new
connection for each request, streams, and requests that are refused. As many requests (--warm) come first: caches, pools
and arenas are filled by then, last of all what SQLite keeps of the flight record's pages (2 MiB). From then on RSS and
PSS of each process are told, with what a request left behind. Ends with 1 when one of the three has grown by more than
512 KiB.
"""

import argparse
import dataclasses
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import stack

FLAT_KIB = 512
SLICES = (("kept connections", ["-c64"], "/size/100", "chat.lua"),
          ("a connection each", ["-c16", "-H", "Connection: close"], "/size/4096", "chat.lua"),
          ("streams", ["-c32"], "/sse/20/0", None),
          ("refused", ["-c16", "-H", "Expect: what"], "/size/100", None))  # fmt: skip


@dataclasses.dataclass
class Sample:
    requests: int
    rss: int  # KiB
    pss: int


def memory(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) for name in ("Rss", "Pss")]


def own(target):
    """{name: pid} of main, keeper and watch."""
    keeper, main = target.own
    watch = next(p for p in stack.tree(keeper) if os.readlink(f"/proc/{p}/exe").endswith("/watch"))
    return {"main": main, "keeper": keeper, "watch": watch}


def ask(port, words, path, script, seconds):
    """How many requests were answered."""
    command = ["wrk", "-t1", *words, f"-d{seconds}s", "--timeout", "30s"]
    command += ["-s", stack.HERE / script] if script else []
    out = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True,
                         preexec_fn=stack.pinned(stack.LOAD_CORE)).stdout  # fmt: skip
    return int(re.search(r"(\d+) requests in", out)[1])


def slope(samples):
    """Bytes a request, by least squares."""
    xs, ys = [s.requests for s in samples], [s.rss * 1024 for s in samples]
    if len(samples) < 2:
        return 0.0
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)  # noqa: B905


def measure(args, folder):
    stack.compile_parts(folder)
    target = stack.plimsoll(folder, access=True)
    pids, done, turn = own(target), 0, 0
    samples, ways = {name: [] for name in pids}, {}
    while done < args.warm + args.requests:
        name, words, path, script = SLICES[turn % len(SLICES)]
        turn += 1
        answered = ask(target.port, words, path, script, args.slice)
        ways[name] = ways.get(name, 0) + answered
        done += answered
        for process, pid in pids.items():
            samples[process].append(Sample(done, *memory(pid)))
        print(f"{done:9,} requests, main {samples['main'][-1].rss:,} KiB", flush=True)
    return samples, ways


def table(samples, ways, warm):
    done = samples["main"][-1].requests
    kinds = ", ".join(f"{n:,} {way}" for way, n in ways.items())
    lines = [f"{done:,} requests, the first {warm:,} to warm up: {kinds}.", "",
             "| process | RSS at the start | when warm | at the end | PSS at the end | growth when warm | a request |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    worst = 0
    for process, all_of_it in samples.items():
        rest = [s for s in all_of_it if s.requests >= warm]
        growth = rest[-1].rss - rest[0].rss
        worst = max(worst, growth)
        lines.append(f"| {process} | {all_of_it[0].rss:,} KiB | {rest[0].rss:,} | {rest[-1].rss:,} | {rest[-1].pss:,} "
                     f"| {growth:+,} KiB | {slope(rest):+.3f} bytes |")  # fmt: skip
    return "\n".join(lines), worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--warm", type=int, default=1_000_000, help="requests before those")
    parser.add_argument("--slice", type=int, default=3, help="seconds of one way of asking")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if shutil.which("wrk") is None:
        sys.exit("bench: wrk is not here: apt-get install wrk")
    folder = Path(tempfile.mkdtemp(prefix="pl-bench-", dir="/tmp"))
    try:
        samples, ways = measure(args, folder)
    finally:
        stack.end_all()
        shutil.rmtree(folder, ignore_errors=True)
    text, worst = table(samples, ways, args.warm)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    return 1 if worst > FLAT_KIB else 0


if __name__ == "__main__":
    sys.exit(main())
