"""One `plimsoll serve`: started, spoken to, stopped, and looked after for what it left behind."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import host, wire
from .eventlog import EventLog

ROOT = Path(__file__).resolve().parents[3]
# Time a boot may take on a small, busy machine: generous, since only a failure waits for its end.
BOOT_S = 90


class paths:
    """Where the parts under test are; `make` says where through the environment."""

    build = Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/dev")).resolve()
    plimsoll = build / "bin/plimsoll"
    services = ROOT / "tests/e2e/services"
    digits = ROOT / "examples/digits"
    digits_home = os.environ.get("PL_DIGITS_HOME")
    python = Path(sys.executable)
    promtool = shutil.which("promtool") or f"{os.environ.get('PL_TOOLS', '')}/bin/promtool"


def clean_environment():
    """This process's environment without anything that would configure us or BentoML."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML", "PL_", "PROMETHEUS"))}


class Server:
    """`before`: words in front of `plimsoll serve`, such as a dry dock. `service`: a folder of tests/e2e/services or an absolute one. `flags` go to `plimsoll serve` as they are."""

    def __init__(self, target, *flags, service="feature", env=None, python=paths.python, admin="none", listen=True,
                 terminal=None, before=(), state=True):
        # Not pytest's tmp_path: the run folder holds sockets, and a socket's path has 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="pl-e2e-", dir="/tmp"))
        self.run_dir = self.folder / "run"
        self.tmp = self.folder / "tmp"
        self.journal_path = self.folder / "journal"
        self.gate = self.folder / "gate"
        self.stderr_path = self.folder / "stderr"
        self.stdout_path = self.folder / "stdout"
        self.bentoml_home = self.folder / "bentoml"
        self.cwd = paths.services / service
        self.tmp.mkdir()
        self.bentoml_home.mkdir()
        if paths.digits_home and (Path(paths.digits_home) / "models").exists():
            (self.bentoml_home / "models").symlink_to(Path(paths.digits_home) / "models")
        self.log = EventLog(self.stderr_path)
        self.stopped = False
        self.mark = 0
        self.pids = []
        self.env = {
            **clean_environment(), "TMPDIR": str(self.tmp), "BENTOML_HOME": str(self.bentoml_home),
            "BENTOML_DO_NOT_TRACK": "True", "JOURNAL": str(self.journal_path), "GATE": str(self.gate),
            "FLAGS": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", **(env or {}),
        }
        words = [*map(str, before), str(paths.plimsoll), "serve", *([target] if target else []), "--run_dir", str(self.run_dir),
                 *(["--state_dir", str(self.folder / "state")] if state else []), "--cache_dir", str(self.folder / "cache"),
                 "--admin", admin]
        if listen and "--host" in flags:
            words += ["--port", "0"]
        elif listen:
            words += ["--host", "127.0.0.1", "--port", "0"]
        if python:
            words += ["--python", str(python)]
        words += [str(f) for f in flags]
        self.words = words
        self._spawn(terminal)

    def _spawn(self, terminal=None):
        with open(self.stdout_path, "ab") as out, open(self.stderr_path, "ab") as err:
            self.process = subprocess.Popen(self.words, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=terminal if terminal is not None else err)
        self.pid = self.process.pid
        self.stopped = False

    def again(self):
        """The same words once more, after an end: same folders, and the log goes on behind `mark`."""
        assert self.process.poll() is not None
        self.mark = self.log.mark()
        self._spawn()
        return self

    # ---- what it says

    def alive(self):
        return self.process.poll() is None

    def wait_for(self, event, where=None, timeout=BOOT_S, count=1, since=0):
        return self.log.wait_for(event, where, timeout, count, since, self.alive)

    def started(self):
        """Until its listeners are open; sets `address`."""
        event = self.wait_for("main.started", since=self.mark)
        listen = event["listen"]
        first = listen[0] if isinstance(listen, list) else listen.split(",")[0]
        self.address = ("127.0.0.1", int(first.rpartition(":")[2]))
        return self

    def ready(self, workers=1, timeout=BOOT_S):
        """Until /readyz says yes (one worker is enough for that) and that many workers are ready."""
        self.started()
        self.wait_for("main.ready", timeout=timeout, since=self.mark)
        self.wait_for("worker.ready", timeout=timeout, count=workers, since=self.mark)
        return self

    def stdout(self):
        return self.stdout_path.read_text(errors="replace")

    def journal(self):
        """Lines that the service under test wrote about itself."""
        return self.journal_path.read_text().splitlines() if self.journal_path.exists() else []

    # ---- speaking to it

    @property
    def url(self):
        return f"http://{self.address[0]}:{self.address[1]}"

    def get(self, path, **more):
        return wire.request(self.address, "GET", path, **more)

    def post(self, path, body=None, **more):
        return wire.request(self.address, "POST", path, body if body is not None else {}, **more)

    def try_post(self, path, body, **more):
        """None when the connection is lost."""
        try:
            return self.post(path, body, **more)
        except (OSError, ValueError, AssertionError):
            return None

    def verb(self, *words, timeout=120):
        """A verb of the command line, told which server is meant."""
        return run_plimsoll(*words, "--admin", self.run_dir / "admin.sock", timeout=timeout)

    def status(self):
        done = self.verb("status", "--json")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def try_status(self):
        """None while there is no main to answer."""
        try:
            return self.status()
        except (AssertionError, ValueError):
            return None

    def workers(self, state="ready"):
        """{slot: pid} of the workers in that state, newest generation of a slot last."""
        service = self.status()["services"][0]
        rows = [w for w in service["workers"] if w["state"] == state]
        return {w["worker"]: w["pid"] for w in sorted(rows, key=lambda w: w["generation"])}

    def main_pid(self):
        return self.status()["pid"]["main"]

    def wait_until(self, condition, timeout=BOOT_S, what=""):
        """For what no event tells: `condition()` is asked again until it is true; its value is returned."""
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}\n{self.log.tail()}"
            time.sleep(0.05)

    # ---- its end

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, timeout=60):
        """The exit status of the whole; 128+N for a signal."""
        status = self.process.wait(timeout)
        self.stopped = True
        return status if status >= 0 else 128 - status

    def end(self):
        """Ends it if it still runs. Returns what was wrong about its end."""
        problems = []
        if self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(45)
            except subprocess.TimeoutExpired:
                problems.append(f"still there 45 s after SIGTERM: {[host.describe(p) for p in self._family()]}")
                host.end_processes([p for p in self._family() if p != self.pid])
                self.process.kill()
                self.process.wait()
        if not self.stopped and not problems and self.process.returncode != 0:
            problems.append(f"exit status {self.process.returncode} after SIGTERM")
        text = self.log.text()
        for sign in ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer", "runtime error:"):
            if sign in text:
                problems.append(f"{sign} in the log:\n{text[text.index(sign):][:3000]}")
        return problems + self._left_files()

    def _family(self):
        return [self.pid, *host.descendants(self.pid)]

    def _left_files(self):
        problems = []
        if self.run_dir.is_dir():
            left = [p for p in self.run_dir.rglob("*") if p.name != "lock"]
            if left:
                problems.append(f"left in the run folder: {sorted(str(p.relative_to(self.run_dir)) for p in left)}")
        left = sorted(p.name for p in self.tmp.rglob("*"))
        if left:
            problems.append(f"left in TMPDIR: {left}")
        sockets = [str(p) for p in self.folder.rglob("*") if stat.S_ISSOCK(p.lstat().st_mode)]
        if sockets:
            problems.append(f"sockets left: {sockets}")
        # the dry dock's cards are its own tests' business, and those may run beside us
        shm = [p.name for p in Path("/dev/shm").iterdir() if "plimsoll" in p.name and "drydock" not in p.name]
        if shm:
            problems.append(f"left in /dev/shm: {shm}")
        return problems

    def drop(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def run_plimsoll(*words, timeout=120, cwd=None, env=None):
    """A verb that ends by itself; stdout and stderr as text."""
    return subprocess.run([str(paths.plimsoll), *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          cwd=cwd, env=env or clean_environment(), stdin=subprocess.DEVNULL)
