"""Does the host memory of plimsoll-llama stay flat? 2,000 completions of unique prompts, four at a time.

    steady.py [--build build/release] [--requests 2000]

After the first tenth (pools and kept beginnings fill up), the anonymous memory of the process that computes is taken
after every twentieth; what is told is the slope of a line through these, in bytes a request, and the span.
"""

import argparse
import http.client
import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from compare import ROOT, Server  # noqa: E402

CLIENTS = 4


def complete(connection, number):
    text = f"{number}: the ship {number * 7919} lay at the quay of harbour {number * 104729}, and its line was dry"
    body = {"prompt": text, "max_tokens": 2, "ignore_eos": True, "stream": number % 2 == 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = reply.read()
    if reply.status != 200 or (number % 2 == 0 and not answer.rstrip().endswith(b"[DONE]")):
        raise RuntimeError(f"{reply.status} {answer[:300]}")


def slope(points):
    n, xs, ys = len(points), [p[0] for p in points], [p[1] for p in points]
    x, y = sum(xs) / n, sum(ys) / n
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a in xs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--autogroup", type=int, help="as in compare.py")
    args = parser.parse_args()
    args.model = args.model or next(Path(os.environ.get("PL_LLAMA_MODEL", "/nowhere")).glob("*.gguf"))
    folder, points, lock, done = Path(tempfile.mkdtemp(prefix="pl-bench-", dir="/tmp")), [], threading.Lock(), [0]
    warm, every = args.requests // 10, max(1, args.requests // 20)
    try:
        with Server("plimsoll", args, CLIENTS, folder, sharing="on") as server:

            def client(index):
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
                for number in range(index, args.requests, CLIENTS):
                    complete(connection, number)
                    with lock:
                        done[0] += 1
                        if done[0] >= warm and done[0] % every == 0:
                            points.append((done[0], server.anon_mib() * 1048576))

            clients = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
            for c in clients:
                c.start()
            for c in clients:
                c.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done[0] != args.requests:
        sys.exit(f"steady: {args.requests - done[0]} requests are missing")
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    print(f"{done[0]} requests, {len(points)} samples: {slope(points):+.0f} bytes a request, "
          f"between {low / 1048576:.2f} and {high / 1048576:.2f} MiB")
    for at, size in points:
        print(f"  {at:6} {size / 1048576:9.2f} MiB")


if __name__ == "__main__":
    main()
