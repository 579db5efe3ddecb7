"""How long a plan from a 70B model's headers takes: 30 sparse files with true headers, best and median of 20 runs.

    bench/plan.py BUILD_FOLDER
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e/rig"))
from weights import write_model  # noqa: E402


def main():
    plimsoll = pathlib.Path(sys.argv[1]) / "bin/plimsoll"
    config = json.loads((ROOT / "tests/data/plan/configs/llama-3.1-70b/config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        total = write_model(pathlib.Path(folder), config, shards=30)
        command, took = [plimsoll, "plan", folder, "--gpu", "h100x4", "--max-len", "32768"], []
        for _ in range(20):
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took.append((time.perf_counter() - begin) * 1000)
    print(f"{total} bytes of weights in 30 files (mark: 50 ms)")
    print(f"best {min(took):.1f} ms, median {statistics.median(took):.1f} ms")


main()
