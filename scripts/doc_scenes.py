"""Where the commands of the documentation run: a folder, an environment, servers that go on until the page is done.

A scene is made at its first block of a page and ended after the last. `run` gives what a command said; paths of this
machine are shown as a reader's would be.
"""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rig import host

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
LIMIT_S = 240
SERVER = re.compile(r"^(plimsoll drydock .*-- )?plimsoll serve\b(?!.*--check)")
CLEAN = ("PLIMSOLL", "BENTOML", "PL_", "PROMETHEUS", "PYTEST", "COLUMNS", "LINES")


def environment_named(variable):
    """The Python environment that set-up made, by the variable of scripts/env.sh."""
    folder = Path(os.environ.get(variable, "/nowhere"))
    if not (folder / "bin/python").exists():
        raise RuntimeError(f"{variable} names no Python environment: run through `make`")
    return folder


class Terminal:
    """A server on a terminal: everything it says, until it ends."""

    def __init__(self, command, cwd, env):
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(["bash", "-c", "exec " + command], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                        stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
        os.close(theirs)
        self._said = bytearray()
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, fd):
        with contextlib.suppress(OSError):  # EIO is how a terminal says that nobody is left
            while data := os.read(fd, 65536):
                self._said += data
        os.close(fd)

    def text(self):
        return self._said.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, pattern, limit=LIMIT_S):
        """The text, once the pattern is in it or the server has ended."""
        deadline = time.monotonic() + limit
        while not re.search(pattern, self.text()):
            if self.process.poll() is not None:
                self._reader.join(10)
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {limit} s: {pattern}\n{self.text()}")
            time.sleep(0.05)
        return self.text()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                host.end_processes([self.process.pid, *host.descendants(self.process.pid)])
                self.process.wait()


class Scene:
    """An empty folder. Others add files, variables and steps; PYTHON names the active environment, by its variable."""

    PYTHON = None
    SHOWN = "/srv/app"

    def __init__(self, folder, build):
        self.folder, self.cwd, self.build = folder, folder / "app", build
        for name in ("app", "home", "tmp"):
            (folder / name).mkdir(parents=True)
        self.servers = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(CLEAN)}
        paths = [str(build / "bin"), os.environ["PATH"]]
        if self.PYTHON:
            self.venv = environment_named(self.PYTHON)
            paths.insert(1, str(self.venv / "bin"))
            self.env["VIRTUAL_ENV"] = str(self.venv)
        self.env.update({
            "PATH": ":".join(paths), "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"),
            "NO_COLOR": "1", "TERM": "xterm",
            "PLIMSOLL__RUN_DIR": str(folder / "run"), "PLIMSOLL__STATE_DIR": str(folder / "state"),
            "PLIMSOLL__CACHE_DIR": str(folder / "cache"), "PLIMSOLL_ADMIN": str(folder / "run/admin.sock"),
            "PLIMSOLL_CACHE": str(folder / "dock"), "BENTOML_HOME": str(folder / "bentoml"),
            "BENTOML_DO_NOT_TRACK": "True",
            "PYTHONDONTWRITEBYTECODE": "1", "FLAGS": str(folder), "LANG": "C.UTF-8",
        })  # fmt: skip
        self.stage()

    def stage(self):
        """Files and variables of this scene."""

    def copy(self, source, name=""):
        source = ROOT / source
        if source.is_dir():
            shutil.copytree(source, self.cwd / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, self.cwd / (name or source.name))

    SERVE = "plimsoll serve"

    def is_served(self):
        """A server of this scene, unless a block has started one."""
        if not self.servers:
            _, status = self.run(self.SERVE)
            if status != 0:
                raise RuntimeError(self.servers[-1].text())

    def run(self, command):
        """What it said, and its exit status."""
        if SERVER.match(command):
            server = Terminal(command, self.cwd, self.env)
            self.servers.append(server)
            text = server.wait_for(r"(?m)^  guarded: .*\n")
            status = 0 if server.process.poll() is None else server.process.returncode
            return self.shown(banner(text) if status == 0 else text), status
        done = subprocess.run(["bash", "-c", command], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)  # fmt: skip
        return self.shown(done.stdout.decode(errors="replace")), done.returncode

    def shown(self, text):
        for real, seen in (
            (str(self.folder / "run"), "/run/plimsoll/default"),
            (str(self.folder / "state"), "/var/lib/plimsoll/default"),
            (str(self.folder / "cache"), "/var/cache/plimsoll/default"), (str(self.cwd), self.SHOWN),
            (str(self.folder / "bin"), "/usr/local/bin"), (str(self.folder / "home"), "~"), (str(self.folder), "/srv"),
            (str(getattr(self, "venv", "/nowhere/")), f"{self.SHOWN}/.venv"), (str(self.build / "bin"), "/usr/bin"),
            (str(ROOT), "/usr/src/plimsoll"),
        ):  # fmt: skip
            text = text.replace(real, seen)
        return text

    def must(self, command):
        output, status = self.run(command)
        if status != 0:
            raise RuntimeError(f"`{command}` ended with {status}:\n{output}")
        return output

    def wait_until(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {LIMIT_S} s: {what}")
            time.sleep(0.2)
        return value

    def events(self, *words):
        """Events that were told so far, as text."""
        return self.run(f"plimsoll events {' '.join(words)}")[0]

    def end(self):
        for server in reversed(self.servers):
            server.end()


def banner(text):
    """From our own first line to the line of what is guarded: what stands around it are log lines."""
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if re.match(r"plimsoll \d", line))
    last = next(i for i, line in enumerate(lines) if line.startswith("  guarded: "))
    return "".join(line for line in lines[first : last + 1] if not re.match(r"\d\d:\d\d:\d\d", line))


class Digits(Scene):
    """examples/digits with its model in a store."""

    PYTHON, SHOWN = "PL_TEST_ENV", "/srv/digits"

    def stage(self):
        self.copy("examples/digits")
        (self.folder / "bentoml").mkdir()
        (self.folder / "bentoml/models").symlink_to(Path(os.environ["PL_DIGITS_HOME"]) / "models")

    def the_next_worker_is_ready(self):
        self.wait_until(lambda: "worker.replaced" in self.events("--event worker.replaced"), "the next worker")

    def the_lane_is_told(self):
        self.wait_until(lambda: "fast lane" in self.must("plimsoll status"), "the table of the lane")

    def has_a_zygote(self):
        self.is_served()
        self.wait_until(lambda: "zygote.ready" in self.events("--event 'zygote.*'"), "the zygote")


class Leaky(Scene):
    """examples/leaky, to be served in a dry dock."""

    PYTHON, SHOWN = "PL_TORCH_ENV", "/srv/leaky"
    SERVE = "plimsoll drydock -q --gpu l4 -- plimsoll serve"

    def stage(self):
        self.copy("examples/leaky")

    def has_answered_a_few(self):
        self.is_served()
        self.must("python3 load.py 20")
        metrics = "curl -s localhost:3000/metrics"
        self.wait_until(lambda: "plimsoll_memory_allocated_bytes{" in self.must(metrics), "the first sample")

    def the_leak_is_confirmed(self):
        self.is_served()

        def confirmed():
            self.must("python3 load.py 250")
            return 'confidence="confirmed"' in self.events("--event memory.verdict")

        self.wait_until(confirmed, "a confirmed verdict")

    def the_holder_is_known(self):
        """A certain verdict has the worker looked at twice, and requests must come between the looks."""
        self.the_leak_is_confirmed()

        def known():
            self.must("python3 load.py 100")
            if "HISTORY" in self.events("--event memory.holder"):
                return True
            if "explain.done" in self.events("--event explain.done"):  # it ran out of time on a busy machine
                self.run("python3 load.py 600 >load.log & plimsoll explain --history on --force --deadline 60s; wait")
            return False

        self.wait_until(known, "the holder")


class Models(Scene):
    """Configurations of a few models, as a hub has them, and nothing else of them."""

    SHOWN = "/srv/models"

    def stage(self):
        for name in ("llama-2-13b", "llama-3.1-8b", "llama-3.1-70b"):
            self.copy(f"tests/data/plan/configs/{name}", name)


class Snapshots(Scene):
    """Recorded memory snapshots of PyTorch's allocator."""

    def stage(self):
        self.copy("tests/data/snapshots/max_split.pickle")
        self.copy("tests/data/snapshots/stress/seed1_900_default.pickle", "oom.pickle")


class Tutorials(Scene):
    """Small services with one mistake each, and the same without it."""

    PYTHON = "PL_TORCH_ENV"

    def stage(self):
        for name in ("bad/gpu_cache.py", "good/gpu_snapshot.py", "bad/load_in_handler.py"):
            self.copy(f"tests/data/tutorials/{name}")


class Docked(Scene):
    """The examples, below a folder of that name, with PyTorch."""

    PYTHON, SHOWN = "PL_TORCH_ENV", "/srv/plimsoll"

    def stage(self):
        self.copy("examples", "examples")


class Slow(Scene):
    """A service that takes nine seconds to load, on a machine that has no room for two."""

    PYTHON = "PL_TEST_ENV"

    def stage(self):
        self.copy("tests/e2e/services/timed_boot")
        self.env["BOOT_S"] = "9"
        (self.cwd / "plimsoll.yaml").write_text(
            "services:\n  timedboot:\n    run: service:TimedBoot\n"
            "    replace: { mode: handover, hold: 5s }\n    zygote: { use: off }\n"
        )


class Kubernetes(Scene):
    """Manifests with mistakes in them, and a configuration."""

    PYTHON, SHOWN = "PL_TEST_ENV", "/srv/digits"

    def stage(self):
        self.copy("examples/digits")
        (self.cwd / "deploy").mkdir()
        self.copy("tests/data/kubernetes/bad/01-same-probe.yaml", "deploy/deployment.yaml")
        shutil.copy(DATA / "kubernetes/inputs/one-gpu-bentoml.json", self.cwd / "measured.json")


class Legacy(Scene):
    """A service that only BentoML's own server can run."""

    PYTHON, SERVE = "PL_TEST_ENV", "plimsoll serve service:svc"

    def stage(self):
        self.copy("tests/python/services/legacy")


class Downloads(Scene):
    """A service that fetches its weights when it starts."""

    PYTHON = "PL_TEST_ENV"

    def stage(self):
        self.copy("tests/e2e/services/downloads")


class Remote(Scene):
    """A server on port 8000 that somebody else runs."""

    PYTHON = "PL_TEST_ENV"

    def stage(self):
        server = Terminal(f"{self.venv}/bin/python {ROOT}/tests/e2e/servers/small.py --port 8000", self.cwd, self.env)
        self.servers.append(server)


class Vllm(Scene):
    """The stand-in of the tests under the name of what it stands in for; it says what vLLM was recorded to say."""

    PYTHON = "PL_TEST_ENV"

    def stage(self):
        (self.folder / "bin").mkdir()
        (self.folder / "bin/vllm").symlink_to(ROOT / "tests/e2e/servers/vllm")
        self.env["PATH"] = f"{self.folder / 'bin'}:{self.env['PATH']}"
        self.env.update({"GATE": str(self.folder / "gate"), "JOURNAL": str(self.folder / "journal")})
        (self.folder / "gate").touch()
        self.copy("tests/data/plan/configs/llama-3.1-8b", "llama-3.1-8b")

    SERVE = "plimsoll serve -- vllm serve tiny"

    def the_engine_has_died(self):
        self.is_served()
        engine = next(self.folder.glob("engine.*"))
        os.kill(int(engine.suffix[1:]), signal.SIGKILL)
        self.wait_until(lambda: "worker.death" in self.events("--event worker.death"), "its death")


class Chat(Scene):
    """SmolLM2 as chat.gguf."""

    PYTHON = "PL_TEST_ENV"

    def stage(self):
        model = next(Path(os.environ["PL_LLAMA_MODEL"]).glob("*.gguf"))
        shutil.copyfile(model, self.cwd / "chat.gguf")


class Storm(Scene):
    """A service whose memory grows with its input, 64 KiB a byte of text; it dies when it runs out, as engines do."""

    PYTHON, SHOWN = "PL_TORCH_ENV", "/srv/embed"

    def stage(self):
        self.copy("tests/e2e/services/sized")
        self.env["DIE"] = "1"
        (self.cwd / "long.json").write_text('{"text": "' + "x" * 20000 + '"}')
        (self.cwd / "short.json").write_text('{"text": "hello"}')

    def it_has_died(self):
        self.wait_until(lambda: "worker.death" in self.events("--event worker.death"), "its death")
        self.wait_until(lambda: self.run("plimsoll status")[1] == 0, "the next worker")

    def it_is_served_anew(self):
        self.servers[-1].end()
        _, status = self.run("plimsoll drydock -q --gpu small:10GiB -- plimsoll serve service:Sized")
        assert status == 0
        for _ in range(10):
            self.must("curl -sf -o /dev/null localhost:3000/predict -H 'content-type: application/json' -d @long.json")


SCENES = {"shell": Scene, **{scene.__name__.lower(): scene for scene in Scene.__subclasses__()}}

if __name__ == "__main__":
    for name, scene in SCENES.items():
        print(f"{name:12} {scene.__doc__.splitlines()[0]}")
    sys.exit(0)
