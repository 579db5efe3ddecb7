"""`plimsoll snapshot` against pickle.load on one large file: CPU, time, resident memory.

    python3 bench/snapshot.py [--build build/release] [--events 2000000 --frames 80 --stacks 20000] [--file KEEP.pickle]

Marks: 5 times as fast as pickle.load in the same run, resident memory at most 0.35 x file + 64 MiB. Needs some 3 GiB of
memory and a quiet machine; exit status 1 when a mark is missed.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def measure(words):
    """Seconds of CPU, seconds, peak resident bytes of one run; the children of this process run one at a time."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        sys.exit(f"{words[0]}: status {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - began, used.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=HERE.parent / "build/release")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--frames", type=int, default=80)
    parser.add_argument("--stacks", type=int, default=20_000)
    parser.add_argument("--file", type=Path, help="made when it is not there, and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "mem.pickle"
        if not path.exists():
            shape = ["--events", options.events, "--frames", options.frames, "--stacks", options.stacks]
            subprocess.run([sys.executable, HERE / "make_snapshot.py", path, *map(str, shape)], check=True)
        size = path.stat().st_size
        # Both find it in the page cache. In pieces: a child's peak memory begins with ours.
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
        ours = [measure([options.build / "bin/plimsoll", "snapshot", path, "--json"]) for _ in range(3)]
        theirs = measure([sys.executable, "-c", LOAD, path])
    cpu, seconds, rss = min(run[0] for run in ours), min(run[1] for run in ours), max(run[2] for run in ours)
    allowed = 0.35 * size + (64 << 20)
    print(f"file {size / 1e6:.0f} MB")
    for name, run in (("plimsoll snapshot --json", (cpu, seconds, rss)), ("pickle.load", theirs)):
        print(f"{name:25} cpu {run[0]:6.2f} s  wall {run[1]:6.2f} s  {run[2] / 2**20:6.0f} MiB")
    print(f"{size / 1e6 / seconds:.0f} MB/s, the report included")
    print(f"cpu {theirs[0] / cpu:.1f} x, wall {theirs[1] / seconds:.1f} x; memory allowed {allowed / 2**20:.0f} MiB")
    return 0 if theirs[1] / seconds >= 5 and rss <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
