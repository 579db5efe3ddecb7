"""What is compared: how each target is started, where it listens, which processes are its own, what they cost."""

import dataclasses
import getpass
import glob
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROXY_CORE, LOAD_CORE = 0, 1 if os.cpu_count() > 1 else 0
SETTLE_S = 20
running = []  # every process that was started here and has not been ended


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


def tool(name):
    """nginx and haproxy as set-up brought them, or the system's; None: not there."""
    tools = Path(os.environ.get("PL_PEERS", "/nonexistent"))
    path = f"{tools}/usr/sbin:{os.environ['PATH']}:/usr/sbin:/sbin"
    return shutil.which(name, path=path)


def tool_env():
    libraries = glob.glob(f"{os.environ.get('PL_PEERS', '/nonexistent')}/usr/lib/*-linux-gnu")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else dict(os.environ)


def tree(pid):
    """A process and everything below it."""
    children = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            children += [int(word) for word in Path(path).read_text().split()]
        except OSError:
            pass
    return [pid, *(p for child in children for p in tree(child))]


def cpu_us(pids):
    """On-CPU time of these processes, from the scheduler: nanoseconds exact, and the same whatever else runs."""
    total = 0
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            try:
                total += int(Path(path).read_text().split()[0])
            except OSError:
                pass  # a thread that has just ended
    return total / 1000


def whole_cpu_us(pid):
    """The same for one process, with the threads that have ended meanwhile (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2) * 1e6


def private_bytes(pids):
    kib = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Dirty:", "Private_Clean:")):
                kib += int(line.split()[1])
    return kib * 1024


@dataclasses.dataclass
class Target:
    """`own` are the processes whose cost is counted; a worker behind is not one of them."""

    name: str
    port: int
    own: list

    def cpu_us(self):
        return cpu_us(self.own)


def end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_all():
    while running:
        end(running.pop())


def wait_port(process, port, name, log):
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise SystemExit(f"bench: {name} did not start:\n{log.read_text()[-2000:]}")


def start(folder, name, words, port, core, env=None):
    log = folder / f"{name.replace(' ', '-')}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   env=env or dict(os.environ), preexec_fn=pinned(core))
    running.append(process)
    wait_port(process, port, name, log)
    return process


def compile_parts(folder):
    """The test worker and the stream client."""
    for name in ("worker", "streams"):
        words = ["cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", HERE / f"{name}.c", "-o", folder / name]
        subprocess.run(words, check=True)


def direct(folder):
    port = free_port()
    words = [folder / "worker", "--listen", str(port), folder / "worker.sock"]
    process = start(folder, "direct", words, port, LOAD_CORE)
    return Target("direct", port, [process.pid])


def peer(folder, name):
    binary, port = tool(name), free_port()
    if binary is None:
        print(f"bench: {name} is not here: skipped (make bench brings it on Debian)")
        return None
    template = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[name]
    text = (HERE / f"{template}.in").read_text().replace("@FOLDER@", str(folder)).replace("@PORT@", str(port))
    if name == "nginx" and os.getuid() == 0:
        text = f"user {getpass.getuser()};\n" + text
    (folder / template).write_text(text)
    options = ["-p", folder, "-c"] if name == "nginx" else ["-db", "-f"]
    process = start(folder, name, [binary, *options, folder / template], port, PROXY_CORE, tool_env())
    time.sleep(0.3)  # nginx forks its worker
    return Target(name, port, tree(process.pid))


def plimsoll_words(folder, name, port, python, service="service:Double"):
    run = folder / f"run-{name.replace(' ', '-')}"
    build = Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/release")).resolve()
    return [build / "bin/plimsoll", "serve", service, "--python", python, "--host", "127.0.0.1", "--port",
            str(port), "--admin", "none", "--run_dir", run, "--state_dir", folder / "state", "--cache_dir",
            folder / "cache"], run


def plimsoll_env(folder):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML"))}
    return {**keep, "BENCH_CORE": str(LOAD_CORE), "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": str(folder / "bentoml")}


def plimsoll(folder, access):
    """In front of the test worker, with admission, accounting and metrics on. Its own: keeper and main."""
    name, port = f"plimsoll, access log {'on' if access else 'off'}", free_port()
    words, run = plimsoll_words(folder, "log" if access else "quiet", port, folder / "worker")
    words += ["--max-concurrency", "1000", "--logs.access", "on" if access else "off"]
    process = start(folder, name, words, port, PROXY_CORE, plimsoll_env(folder))
    main = wait_event(folder / f"{name.replace(' ', '-')}.log", "main.ready", "main.started")["pid"]
    return Target(name, port, [process.pid, main])


def wait_event(log, until, wanted):
    """The event `wanted` of a log, once it also holds `until`."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        events = {}
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                event = json.loads(line)
                events[event["event"]] = event
        if until in events and wanted in events:
            return events[wanted]
        time.sleep(0.05)
    raise SystemExit(f"bench: no {until} in {log}:\n{log.read_text()[-2000:]}")
