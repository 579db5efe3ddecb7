"""docs/growth.md out of what growth.py has measured: a table an axis, and its growth in words, from the figures."""

import datetime
import math
import statistics

from report import lines_of, machine, version
from stack import tool, tool_env

TITLE = """# How cost grows

Made by `make bench` (`bench/growth.py`); nothing here is written by hand. us of CPU from the scheduler's own count, in
interleaved rounds: median (least to most of the rounds). Plimsoll is main and keeper, with admission, accounting,
metrics and the flight record on and the access log off, in its release build. Where nginx and HAProxy can be asked for
the same they stand beside it, in the same rounds.

**A doubling** is what one doubling of the first line multiplies the cost by: over the whole way, and in its steepest
step. x 1 is a cost that does not grow, x 2 one that grows with what it is for; above x 2 it grows faster.
"""

# name: (heading, what was done, what x counts, how x is written)
AXES = {
    "busy": ("Connections that all ask", """A chat request of 330 bytes, a reply of 100, all connections without a pause. The more ask at once the
more is found ready in one turn of the loop.""",
             "connections", "{:,}"),
    "quiet": ("Connections that are open", "The same, where 32 of the connections ask and the others are kept, each of which has asked once.",
              "connections", "{:,}"),
    "workers": ("Workers", "32 connections, and that many workers on Unix sockets, each request for the one with the fewest at hand.",
                "workers", "{}"),
    "workers_idle": ("", "us of CPU in a second without any request: workers are probed and looked at. Plimsoll alone.",
                     "workers", "{}"),
    "asked": ("Size of the request", """8 connections, a POST of so many bytes, a reply of 100. From 1 MiB on nginx neither keeps requests nor replies
(`proxy_request_buffering off; proxy_buffering off`): with files in between it does something else. Plimsoll reads
JSON for what admission must know and keeps it until its end, which may forbid it; peers read nothing. What is kept is
memory that is new each time, and beyond some MiB more than the processor's caches hold.""",
              "bytes", "size"),
    "answered": ("Size of the reply", "8 connections, a GET, a reply of so many bytes.", "bytes", "size"),
    "steady": ("Streams at once", "us for an event of about 140 bytes; each stream sends one every 10 ms.", "streams", "{}"),
    "burst": ("", "The same, as fast as they go: a proxy that comes late finds several events in one read.", "streams", "{}"),
    "services": ("Services, routes, models", """32 connections that ask each service in turn, of which all are one server on a TCP port, told apart by path
(`route.path`; nginx: locations and upstreams, HAProxy: `path_beg` and backends) or, Plimsoll alone, by the model
that the body names (`route.models`, an OpenAI route, tokens counted).""", "services", "{}"),
    "scrape": ("", """us for a scrape of `/metrics` of so many services, on one connection. *After a request*: one request to one service
between two scrapes, its own cost taken off. HAProxy's is its Prometheus exporter.""", "services", "{}"),
    "services_idle": ("", "us of CPU in a second without any request. Plimsoll alone: services of other servers are probed.",
                      "services", "{}"),
    "keys": ("API keys", """32 connections that show one key of so many (`api_keys.file`). Plimsoll alone. Every hash is compared, at the same
length whichever it is, so that the time tells nothing of a key.""", "keys", "{:,}"),
}  # fmt: skip
SWITCHES = """## Access log and flight record

32 connections, a reply of 100 bytes. Logs go to a file. The record cannot be switched off: it is in a file (the
default) or in memory, and keeps at most 100 good answers a second whatever the load. *Main's loop* is the one thread that
every request goes through; beside it are those that write log and record.
"""
ORDER = ("busy", "quiet", "workers", "workers_idle", "asked", "answered", "steady", "burst", "services", "scrape",
         "services_idle", "keys")  # fmt: skip


GROSS = 2.6  # what no noise explains, a doubling


def size(x):
    for unit, bytes_of in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if x >= bytes_of:
            return f"{x / bytes_of:g} {unit}"
    return f"{x} B"


def text_of(x, how):
    return size(x) if how == "size" else how.format(x)


def number(value):
    """Three digits that say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(values):
    if not values:
        return "-"
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def doubling(x0, y0, x1, y1):
    """What one doubling of x multiplies y by."""
    return (y1 / y0) ** (1 / math.log2(x1 / x0))


def verdict(factor):
    for most, word in ((0.95, "falls"), (1.05, "does not grow"), (1.9, "grows slower than what it is for"),
                       (2.1, "grows with what it is for")):  # fmt: skip
        if factor <= most:
            return word
    return "**grows faster than what it is for**"


def steps_of(points, of=statistics.median):
    """The figures in order of x, and (what a doubling does, from, to) of each step."""
    known = sorted((x, of(v)) for x, v in points.items() if v and of(v) > 0)
    return known, [(doubling(*a, *b), a[0], b[0]) for a, b in zip(known, known[1:])]


def grossly_worse(found):
    """Sentences about costs of ours that grow faster than what they are for, beyond all noise: the best of rounds."""
    out = []
    for name in ORDER:
        for row, points in found.get(name, {}).items() if not name.endswith("_idle") else ():
            for factor, low, high in steps_of(points, min)[1] if row.startswith("plimsoll") else ():
                if factor > GROSS:
                    out.append(f"{name}: {row} costs {factor:.1f} times as much with each doubling from {low} to {high}")
    return out


def growth(row, points, unit, how):
    """A sentence about medians, or None where there are too few."""
    known, steps = steps_of(points)
    if len(known) < 2:
        return None
    (x0, y0), (x1, y1) = known[0], known[-1]
    worst, low, high = max(steps)
    whole = doubling(x0, y0, x1, y1)
    same = worst > 1 and min(points[high]) <= max(points[low])
    return (f"- {row}: {number(y0)} us at {text_of(x0, how)}, {number(y1)} at {text_of(x1, how)} {unit}: x {whole:.2f} "
            f"a doubling, at the steepest x {worst:.2f} ({text_of(low, how)} to {text_of(high, how)}): there it "
            f"{'grows by no more than rounds differ' if same else verdict(worst)}.")  # fmt: skip


def against(ours, theirs):
    """Median of the ratios of each round, each x."""
    return {x: statistics.median(a / b for a, b in zip(ours[x], theirs[x])) for x in ours if theirs.get(x)}


def table(found, name):
    heading, what, unit, how = AXES[name]
    rows = found[name]
    xs = sorted({x for points in rows.values() for x in points})
    out = [f"## {heading}", ""] if heading else []
    out += [what, ""]
    lines = []
    for row, points in rows.items():
        lines.append([row, *(cell(points.get(x)) for x in xs)])
        if row.startswith("plimsoll") and "haproxy" in rows:
            ratios = against(points, rows["haproxy"])
            lines.append([f"{row}, of HAProxy's", *(f"**{ratios[x]:.2f}**" if x in ratios else "-" for x in xs)])
    out += lines_of([unit if how != "size" else "", *(text_of(x, how) for x in xs)], lines)
    said = [growth(row, points, unit if how != "size" else "", how) for row, points in rows.items()]
    return out + [line.replace("  ", " ").replace(" :", ":") for line in said if line] + [""]


def pages(found):
    """How large the pages of the scrape are."""
    lines = []
    for name, by_count in found["pages"].items():
        lines.append([name, *(f"{series:,} series, {size(length) if length < 1024 else f'{length / 1024:,.0f} KiB'}"
                              for length, series in by_count.values())])  # fmt: skip
    counts = next(iter(found["pages"].values()))
    return ["What a page of it holds:", "", *lines_of(["services", *map(str, counts)], lines)]


def switches(found):
    runs = {name: points[0] for name, points in found["switches"].items()}
    rows = [[name, *(cell(values) for values in zip(*of_rounds)), *[""] * (2 - len(of_rounds[0]))]
            for name, of_rounds in runs.items()]  # fmt: skip
    out = [SWITCHES, *lines_of(["", "us a request", "of it main's loop"], rows)]
    for what, without, with_it, clock in (
        ("The access log of nginx", "nginx, log off", "nginx, log on", 0),
        ("The access log of HAProxy", "haproxy, log off", "haproxy, log on", 0),
        ("The access log of Plimsoll", "plimsoll, log off, record in a file", "plimsoll, log on, record in a file", 0),
        ("In main's loop alone", "plimsoll, log off, record in a file", "plimsoll, log on, record in a file", 1),
        ("A record in a file instead of memory", "plimsoll, log off, record in memory", "plimsoll, log off, record in a file", 0)):
        if without in runs and with_it in runs:
            more = statistics.median(b[clock] - a[clock] for a, b in zip(runs[without], runs[with_it]))
            out.append(f"- {what}: {more:+.1f} us a request (median of the differences of each round).")
    return [*out, ""]


def page(found, rounds, took_s):
    commit = version(["git", "rev-parse", "--short", "HEAD"])
    out = [TITLE, f"{datetime.date.today()}, commit {commit}, {machine()}; {rounds} rounds, {took_s:.0f} s.", ""]
    out += [f"- {version([tool(name), '-v'], tool_env())}" for name in ("nginx", "haproxy") if tool(name)]
    out.append("")
    for name in ORDER:
        if name not in found:
            continue
        out += table(found, name)
        if name == "scrape" and "pages" in found:
            out += pages(found)
    if "switches" in found:
        out += switches(found)
    return "\n".join(out).rstrip("\n") + "\n"
