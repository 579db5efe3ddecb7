"""The server under test and what the faults need of it: who its processes are, whether all is well, how many loads are
excused, and the tools to do harm with."""

import collections
import ctypes
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rig import host, paths, wire
from rig.server import Server, clean_environment

HERE = Path(__file__).resolve().parent
CRASHES, CRASH_WINDOW_S = 3, 62  # of main; the fifth within a minute ends the instance, on purpose
HEALTHY_S = 60  # only a failure waits for its end
PYTHON = sys.executable
SANITIZERS = {"TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", f"suppressions={HERE.parent / 'support/tsan.supp'}")}

CONFIG = """
limits: {{connections: 11000}}
main: {{hang_after: 3s}}
upgrade: {{drain: 20s}}
drain_timeout: 20s
device: {{sample: 300ms}}
record: {{max_bytes: 8MiB}}
logs: {{access: off}}
http: {{head_timeout: {head}s}}
services:
  echo:
    command: [{python}, {backend}, --socket, '{{socket}}', --name, echo, --generation, '{echo_generation}']
    workers: 2
    gpus: 0
    route: {{path: /echo}}
    traffic: {{timeout: 10s, stall: 10s, max_concurrency: 64, queue: {{max_requests: 512, max_wait: 10s}}}}
    memory: {{budget: 1GiB, per_request: 8MiB, charge: worst, settle: 3s}}
  again:
    command: [{python}, {backend}, --socket, '{{socket}}', --name, again]
    workers: 2
    route: {{path: /again}}
    traffic: {{timeout: {timeout}s, idempotent: true}}
    memory: {{settle: 3s}}
  liar:
    command: [{python}, {backend}, --port, '{{port}}', --name, liar]
    gpus: 0
    route: {{path: /liar}}
    traffic: {{timeout: 2s, stall: 2s, max_concurrency: 64}}
    memory: {{settle: 3s}}
"""
BENTO = """
  bento:
    run: service:Bento
    python: {python}
    working_dir: {here}
    route: {{path: /bento}}
    traffic: {{timeout: 20s, queue: {{max_wait: 20s}}}}
    zygote: {{after: 1s}}
"""
CARD = """
  card:
    run: card:Card
    python: {torch}
    working_dir: {here}
    workers: 1
    route: {{path: /card}}
    warmup: {{examples: off}}
    traffic: {{timeout: 20s, queue: {{max_wait: 60s}}}}
    zygote: {{after: 1s}}
    replace: {{max_per_hour: 60, hold: 60s}}
"""
GROWN = {"budget", "leak", "forecast"}  # why the card's worker is replaced without any fault


def can_mount():
    return subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode == 0


SMALL_DISK = """
for word; do [ "$before" = --state_dir ] && state=$word; before=$word; done
mkdir -p "$state" && mount -t tmpfs -o size=24m tmpfs "$state" && exec "$@"
"""


class Yard:
    def __init__(self, books, rng, short, bento, card, dock):
        self.books, self.rng, self.short, self.bento, self.card = books, rng, short, bento, card
        self.folder = Path(tempfile.mkdtemp(prefix="pl-chaos-", dir="/tmp"))
        self.receipts, self.clock_path = self.folder / "receipts", self.folder / "clock"
        self.receipts.touch()
        self.config = self.folder / "plimsoll.yaml"
        self.torch = Path(os.environ.get("PL_TORCH_ENV", "/nowhere")) / "bin/python"
        self.settings = {"torch": self.torch, "python": PYTHON, "backend": HERE / "backend.py", "echo_generation": 1, "timeout": 10, "head": 10}
        self.write_config()
        self.crashes = []
        self.grown = collections.Counter()  # replacements by their reason, of GROWN
        self.killed = set()  # workers, until main knows
        self.why_not = {}
        self.dock_env = {}
        before = self._before(dock)
        if card and ("dock" in self.why_not or not self.torch.exists()):
            raise RuntimeError(f"--card wants a stand-in device and PyTorch: {self.why_not.get('dock', f'no {self.torch}')}")
        self.server = Server(None, "-c", self.config, service=HERE, before=before, python=None,
                             env={"RECEIPTS": str(self.receipts), "PYTHONPATH": str(HERE), **SANITIZERS, **self.dock_env})
        self.loads_allowed = collections.Counter({"echo": 2, "again": 2, "liar": 1, **({"bento": 2} if bento else {}), **({"card": 1} if card else {})})
        self.workers_of = dict(self.loads_allowed)

    def _before(self, dock):
        before, program = [], paths.plimsoll.read_bytes()
        sanitized = b"__asan_init" in program or b"__tsan_init" in program
        shim = paths.build / "tests/chaos_clock.so"
        if sanitized:
            self.why_not["clock"] = self.why_not["dock"] = "nothing can be preloaded into a sanitized main"
            self.why_not["addresses"] = "a sanitized main wants more of them than any limit"
        elif not shim.exists():
            self.why_not["clock"] = f"no {shim}"
        else:
            self.clock_path.write_bytes(struct.pack("<q", 0))
            with open(self.clock_path, "r+b") as f:
                self.clock = mmap.mmap(f.fileno(), 8)
            before += ["env", f"CHAOS_CLOCK={self.clock_path}", f"LD_PRELOAD={shim}"]
        if can_mount():
            before += ["unshare", "-m", "sh", "-c", SMALL_DISK, "sh"]
        else:
            self.why_not["disk"] = "no mount namespaces here"
        if os.geteuid() != 0:
            self.why_not["trace"] = "not root: main cannot be traced"
        if not dock:
            self.why_not.setdefault("dock", "not asked for")
        if "dock" not in self.why_not:
            self.dock_env = {"PLIMSOLL_CACHE": str(self.folder / "cache"), "PLIMSOLL_DRYDOCK_SHM": f"chaos-dock-{os.getpid()}"}
            if self.card:  # whose CUDA libraries it stands in for
                before += ["env", f"PATH={self.torch.parent}:{os.environ['PATH']}"]
            before += [paths.plimsoll, "drydock", "-q", "--gpu", "mine:4GiB", "--"]
        return before

    def write_config(self):
        text = CONFIG + (BENTO if self.bento else "") + (CARD if self.card else "")
        self.config.write_text(text.format(here=HERE, **self.settings))

    def reload(self):
        return self.server.verb("reload", timeout=HEALTHY_S)

    # ---- who is who

    def status(self, timeout=5):
        """None while nobody answers."""
        try:
            reply = wire.request(self.server.run_dir / "admin.sock", "GET", "/status", timeout=timeout)
            return reply.json() if reply.status == 200 else None
        except (OSError, ValueError, wire.http.client.HTTPException):
            return None

    def sure(self):
        return self.until(self.status, "somebody answers /status")

    def main(self):
        return self.sure()["pid"]["main"]

    def keeper(self):
        return self.sure()["pid"]["keeper"]

    def watch(self):
        return host.watch_of(self.keeper())

    def workers(self, name):
        (service,) = [s for s in self.sure()["services"] if s["name"] == name]
        return [w["pid"] for w in service["workers"] if w["state"] == "ready"]

    def zygote(self):
        (service,) = [s for s in self.sure()["services"] if s["name"] == "bento"]
        return service.get("zygote", {}).get("pid")

    def threads(self, pid):
        """[(name, tid)], the main one first."""
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
        return [(Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip(), tid) for tid in tids]

    # ---- whether all is well

    def is_well(self):
        status = self.status()
        if status is None or not status["ready"]:
            return False
        for s in status["services"]:
            if any(w.get("pid") in self.killed for w in s["workers"]):
                return False
            ready = sum(w["state"] == "ready" for w in s["workers"])
            others = sum(w["state"] not in ("ready", "gone") for w in s["workers"])
            if ready != self.workers_of[s["name"]] or others:
                return False
        return not self.killed or not self.leaving(status["pid"]["main"])

    def leaving(self, main):
        """Mains before this one that finish what they have: a worker that was killed is missed there for as long, since
        its successor is this one's alone."""
        return [p for p in host.mains_of(self.keeper()) if p != main]

    def until(self, condition, what, timeout=HEALTHY_S):
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if not self.server.alive():
                raise RuntimeError(f"the server has ended with {self.server.process.returncode}, waiting until {what}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {timeout} s: {what}; status: {self.status()}")
            time.sleep(0.05)
        return value

    def well(self):
        self.until(self.is_well, "every service has its workers again")
        self.killed.clear()

    def kill_worker(self, name, pid):
        self.loads_allowed[name] += 1
        self.killed.add(pid)
        host_signal(pid, signal.SIGKILL)

    # ---- crashes of main are rationed

    def may_crash(self):
        now = time.monotonic()
        self.crashes = [at for at in self.crashes if now - at < CRASH_WINDOW_S]
        return len(self.crashes) < CRASHES

    def crash(self, act):
        """`act(main)` ends main; until its successor serves."""
        main = self.main()
        self.crashes.append(time.monotonic())
        act(main)
        self.until(lambda: (s := self.status()) and s["pid"]["main"] != main, "another main answers")

    # ---- tools

    def pause(self, least, most):
        """Part of a fault: how long it lasts."""
        time.sleep(self.rng.uniform(least, most) * (0.5 if self.short else 1))

    def stopped(self, pid, least, most):
        host_signal(pid, signal.SIGSTOP)
        try:
            self.pause(least, most)
        finally:
            host_signal(pid, signal.SIGCONT)

    def clock_offset(self, seconds):
        self.clock[:8] = struct.pack("<q", seconds)

    def on_disk(self, *words):
        """A command in the mount namespace of the state folder."""
        return subprocess.run(["nsenter", "-t", str(self.keeper_pid()), "-m", *map(str, words)], capture_output=True, text=True)

    def keeper_pid(self):
        return next(p for p in [self.server.pid, *host.descendants(self.server.pid)]
                    if os.path.basename(os.readlink(f"/proc/{p}/exe")) == "keeper")

    @property
    def state(self):
        return self.server.folder / "state"

    def fault(self, text):
        env = {**clean_environment(), **self.dock_env}
        done = subprocess.run([paths.plimsoll, "drydock", "--fault", text], capture_output=True, text=True, env=env)
        if done.returncode != 0:
            raise RuntimeError(f"drydock --fault {text}: {done.stderr}")

    def verb(self, *words):
        return self.server.verb(*words, timeout=HEALTHY_S)

    def crowd(self, count):
        """A process that holds so many connections, each of which has been served once."""
        address = self.server.address
        return subprocess.Popen([PYTHON, HERE / "crowd.py", address[0], str(address[1]), str(count)], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def loads(self):
        return collections.Counter(line.split()[1] for line in self.server.journal() if line.startswith("load "))

    def metrics(self):
        """{series: value} of /metrics."""
        text = wire.request(self.server.address, "GET", "/metrics", timeout=30).text()
        return {k: float(v) for k, _, v in (line.rpartition(" ") for line in text.splitlines()) if not k.startswith("#")}

    def drop(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def host_signal(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Limit:
    """A limit of a process that is lower for a while."""

    def __init__(self, pid, which, value):
        self.pid, self.which, self.before = pid, which, resource.prlimit(pid, which)
        resource.prlimit(pid, which, (value, self.before[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            resource.prlimit(self.pid, self.which, self.before)
        except ProcessLookupError:
            pass


class Traced:
    """One thread that does not run for a while. SIGSTOP stops a whole process, so it is held as a debugger would."""

    SEIZE, INTERRUPT, DETACH, ALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, tid):
        self.tid, self.libc = tid, ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long

    def _call(self, request):
        if self.libc.ptrace(request, self.tid, None, None) == -1:
            raise OSError(ctypes.get_errno(), f"ptrace of thread {self.tid}")

    def __enter__(self):
        self._call(self.SEIZE)
        self._call(self.INTERRUPT)
        os.waitpid(self.tid, self.ALL)
        return self

    def __exit__(self, *_):
        try:
            self._call(self.DETACH)
        except OSError:  # it was killed meanwhile, and is ours to reap before its parent hears of it
            try:
                os.waitpid(self.tid, self.ALL)
            except ChildProcessError:
                pass


