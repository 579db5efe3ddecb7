"""What endpoint pickers cost: /metrics of Plimsoll in front of stopped engines, asked every 50 ms by several of them.

    bench/scrapers.py PLIMSOLL [--scrapers N] [--seconds S] [--workers N]

The engines are the stand-in of the end-to-end tests, with vLLM's recorded page of 60 KB; they are stopped (SIGSTOP)
before the first look. Told are the longest time to a whole answer, and main's CPU for an answer, from the scheduler's
own count, less what main spends in the same time without scrapers. Every figure must hold: 200 ms is when pickers
call a pod stale.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from goodput import free_port, wait_ready
from stack import cpu_us, tree

HERE = Path(__file__).resolve().parent
STALE_MS, CPU_US, EVERY_S = 200, 500, 0.05


class Scraper(threading.Thread):
    """Keeps its connection, as pickers do."""

    def __init__(self, port, until):
        super().__init__(daemon=True)
        self.port, self.until, self.took, self.size = port, until, [], 0

    def run(self):
        sock = socket.create_connection(("127.0.0.1", self.port))
        due = time.monotonic()
        while time.monotonic() < self.until:
            begin = time.monotonic()
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(1 << 20)
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            while len(body) < length:
                body += sock.recv(1 << 20)
            self.took.append((time.monotonic() - begin) * 1000)
            self.size = length
            due += EVERY_S
            time.sleep(max(0, due - time.monotonic()))
        sock.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plimsoll")
    parser.add_argument("--scrapers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    vllm = HERE.parent / "tests/e2e/servers/vllm"
    with tempfile.TemporaryDirectory(prefix="pl-bench-", dir="/tmp") as folder:
        port = free_port()
        env = {**os.environ, "FLAGS": folder, "GATE": f"{folder}/gate", "JOURNAL": f"{folder}/journal"}
        words = [
            args.plimsoll,
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--admin",
            "none",
            "--run_dir",
            f"{folder}/run",
            "--state_dir",
            f"{folder}/state",
            "--workers",
            str(args.workers),
            "--liveness.silent_after",
            "1h",
            "--logs.access",
            "off",
            "--",
            str(vllm),
            "serve",
            "tiny",
        ]
        keeper = subprocess.Popen(words, env=env, stderr=open(f"{folder}/log", "wb"))
        stopped = []
        try:
            wait_ready(port, "/readyz", keeper)
            time.sleep(2)
            main_pid = next(
                p
                for p in tree(keeper.pid)
                if p != keeper.pid and Path(f"/proc/{p}/comm").read_text().startswith("plimsoll")
            )
            stopped = [p for p in tree(keeper.pid) if b"servers/vllm" in Path(f"/proc/{p}/cmdline").read_bytes()]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            before = cpu_us([main_pid])
            time.sleep(args.seconds)
            idle = cpu_us([main_pid]) - before
            before = cpu_us([main_pid])
            scrapers = [Scraper(port, time.monotonic() + args.seconds) for _ in range(args.scrapers)]
            for s in scrapers:
                s.start()
            for s in scrapers:
                s.join()
            spent = cpu_us([main_pid]) - before - idle
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            keeper.terminate()
            keeper.wait(30)
    took = sorted(t for s in scrapers for t in s.took)
    each = spent / len(took)
    page = f"page of {scrapers[0].size} bytes"
    middle, late = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"{args.scrapers} scrapers, {args.workers} stopped engines, {page}: {len(took)} answers")
    print(f"time to a whole answer, ms: median {middle:.1f}, 99 % {late:.1f}, longest {took[-1]:.1f}")
    print(f"CPU of main for an answer: {each:.0f} us (idle: {idle / args.seconds:.0f} us a second)")
    sys.exit(0 if took[-1] < STALE_MS and each <= CPU_US else 1)


if __name__ == "__main__":
    main()
