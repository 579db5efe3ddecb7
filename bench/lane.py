"""What a worker spends on a request: `bentoml serve`, Plimsoll with the fast lane and without it, and uvicorn alone.

All of them run at once and are idle but for the one that is measured: one run each a round, so that the machine's load
meets all. Counted is the on-CPU time of the process that runs the service, whoever is in front of it.
"""

import os
import sys
import time
from pathlib import Path

import bentos
from stack import LOAD_CORE, PROXY_CORE, ROOT, end, free_port, running, start, whole_cpu_us

IMAGE = [[float(16 * ((i + j) % 3 == 0)) for j in range(8)] for i in range(8)]
SMALL, FLOATS, DIGIT = '{"x":1}', str([i / 7 for i in range(1000)]).replace(" ", ""), str(IMAGE).replace(" ", "")
# (title, service, path, body, connections)
SETUPS = (
    ("sync, 1 connection", "trivial", "/sync", SMALL, 1),
    ("sync, 32", "trivial", "/sync", SMALL, 32),
    ("async, 1", "trivial", "/asynchronous", SMALL, 1),
    ("async, 32", "trivial", "/asynchronous", SMALL, 32),
    ("1,000 floats, 8", "trivial", "/floats", f'{{"v":{FLOATS}}}', 8),
    ("digits, 8", "digits", "/predict", f'{{"image":{DIGIT}}}', 8),
)
KINDS = (("bentoml serve", "auto"), ("plimsoll", "auto"), ("plimsoll, fast_lane: off", "off"))


def services():
    """{name: (folder, target, settings of the environment)}"""
    home = os.environ.get("PL_DIGITS_HOME")
    found = {"trivial": (ROOT / "bench/service", "trivial:Trivial", {})}
    if home and (Path(home) / "models").exists():
        found["digits"] = (ROOT / "examples/digits", "service:Digits", {"BENTOML_HOME": home})
    else:
        print("bench: the model of examples/digits is not made (make run): that column is left out")
    return found


def script(folder, path, body):
    """What wrk sends, as its Lua."""
    name = folder / f"post{path.replace('/', '-')}.lua"
    name.write_text(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = '{body}'\n")
    return name


def uvicorn(folder):
    port = free_port()
    words = [sys.executable, "-m", "uvicorn", "echo:app", "--app-dir", ROOT / "bench/service", "--port", str(port),
             "--no-access-log", "--log-level", "warning"]
    return start(folder, "uvicorn", list(map(str, words)), port, PROXY_CORE), port


def cost(port, pid, path, body, connections, folder, wrk, seconds):
    """us of CPU of process `pid` for a request, or None when some were not answered with 200."""
    before = whole_cpu_us(pid)
    run = wrk(port, path, connections, seconds, script=script(folder, path, body), core=LOAD_CORE)
    time.sleep(0.1)  # the load's last requests end
    if run["errors"] or run["requests"] < 20:
        return None
    return (whole_cpu_us(pid) - before) / run["requests"]


def measure(folder, rounds, wrk, seconds=2):
    """{(setup, name): [{"us": ...} of each round]}"""
    found, there = {}, services()
    bare, bare_port = uvicorn(folder)
    bento = {(s, name): bentos.Bento(folder, name, target, cwd=cwd, env=env, lane=word, log=f"{s}-{word}")
             for s, (cwd, target, env) in there.items() for name, word in KINDS}  # fmt: skip
    try:
        for one in bento.values():
            one.ready()
        for i in range(rounds + 1):  # the first only warms
            for title, service, path, body, connections in SETUPS:
                for name, _ in KINDS if service in there else ():
                    one = bento[service, name]
                    us = cost(one.port, one.worker(), path, body, connections, folder, wrk, seconds if i else 1)
                    note(found, i, title, name, us)
                if path == "/asynchronous":
                    us = cost(bare_port, bare.pid, "/", SMALL, connections, folder, wrk, seconds if i else 1)
                    note(found, i, title, "uvicorn alone", us)
    finally:
        for one in bento.values():
            one.stop()
        running.remove(bare)
        end(bare)
    return found


def note(found, i, title, name, us):
    if us is None:
        print(f"bench: {name}, {title}: errors, left out")
    elif i > 0:
        found.setdefault((title, name), []).append({"us": us})
