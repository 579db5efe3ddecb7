"""What a look costs: how long it takes, and for how long a serving thread stands still: the table of docs/explain.md.

    . scripts/env.sh
    PLIMSOLL_BUILD=build/release "$PL_TEST_ENV/bin/python" bench/explain.py [--runs 5] [--tensors 1000,10000]

A real BentoML worker with PyTorch's own allocator in a dry dock keeps that many tensors in a list, after READY. Then it
is looked at, in a forked copy and in the process, while requests to an endpoint that does nothing follow each other.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))

from docked import Dock, torch_python  # noqa: E402
from harness import SERVICES, Worker  # noqa: E402


class Requests:
    """The slowest of the requests that run one after another while this is open, in ms."""

    def __init__(self, worker):
        self.worker, self.slowest, self.over = worker, 0.0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            start = time.perf_counter()
            self.worker.post("/innocent")
            self.slowest = max(self.slowest, (time.perf_counter() - start) * 1e3)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def ask(worker, **more):
    worker.say(id=1, ask="explain", **more)
    said = worker.line()
    assert said.get("ok"), said
    return said


def measure(worker, mode, runs):
    rows = []
    for _ in range(runs):
        quiet = ask(worker, mode=mode, force=True, deadline_ms=60000)["report"]
        with Requests(worker) as idle:
            time.sleep(quiet["cost"]["total_ms"] / 1e3)
        with Requests(worker) as busy:
            report = ask(worker, mode=mode, force=True, deadline_ms=60000)["report"]
        assert report["complete"] and report["findings"], report
        rows.append((quiet["cost"]["total_ms"], quiet["cost"]["fork_ms"], quiet["cost"]["pause_ms"],
                     report["cost"]["total_ms"], busy.slowest, idle.slowest))  # fmt: skip
    return [statistics.median(column) for column in zip(*rows)], report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tensors", default="1000,10000")
    args = parser.parse_args()
    dock = Dock(torch_python())
    print("| tensors | objects | mode | look | fork | longest pause | look beside requests | slowest request then "
          "| and without |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    try:
        for tensors in map(int, args.tensors.split(",")):
            with tempfile.TemporaryDirectory() as where:
                worker = Worker(SERVICES / "leaks", "service:Leaks", where, go={"deploy": True}, python=torch_python(),
                                env=dock.environment)  # fmt: skip
                try:
                    ask(worker, census="ready")
                    for part in range(4):
                        worker.post("/run", {"pattern": "global_list_inference", "start": part, "count": tensors // 4})
                        census = ask(worker, census=True)
                    for mode in ("fork", "inline"):
                        m, report = measure(worker, mode, args.runs)
                        figures = " | ".join(f"{x:.0f} ms" for x in m)
                        print(f"| {tensors:,} | {report['stats']['objects']:,} | {mode} | {figures} |", flush=True)
                    print(f"a census of {tensors:,} tensors: {census['cost_ms']} ms", file=sys.stderr)
                finally:
                    worker.close()
    finally:
        dock.close()


main()
