"""`plimsoll drydock`: the binary, the small C programs that run over it, and the PyTorch of the test environment."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from .server import ROOT, clean_environment, paths

programs = ROOT / "tests/drydock"


def built(name):
    return paths.build / "tests" / f"drydock_{name}"


def sanitized():
    """The binary under test is built with ASan: it wants to be loaded first, and more addresses than any limit."""
    return paths.plimsoll.exists() and b"__asan_init" in paths.plimsoll.read_bytes()


def torch_python(which="PL_TORCH_ENV"):
    """The interpreter with PyTorch. Left out on purpose: the test is skipped and says so."""
    if os.environ.get("PLIMSOLL_NO_TORCH"):
        pytest.skip("PyTorch over the dry dock is not tested: PLIMSOLL_NO_TORCH is set")
    python = Path(os.environ.get(which, "/nowhere")) / "bin/python"
    assert python.exists(), f"{which} names no environment: run through `make`, or set PLIMSOLL_NO_TORCH=1"
    return python


class Dock:
    """A folder for one test's reports and written libraries; `run` is one dry dock."""

    def __init__(self, folder, cache):
        self.folder, self.cache = folder, cache

    def environment(self, env=None):
        return {**clean_environment(), "PLIMSOLL_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}

    def words(self, *words, flags=()):
        return [str(paths.plimsoll), "drydock", *map(str, flags), "--", *map(str, words)]

    def run(self, *words, flags=(), env=None, timeout=110, stdin=""):
        """Runs to the end; `report` is the JSON, None when nothing was started."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        done = subprocess.run(self.words(*words, flags=["--report", report, *flags]), env=self.environment(env), text=True,
                              input=stdin, capture_output=True, timeout=timeout)
        done.report = json.loads(report.read_text()) if report.exists() else None
        return done

    def start(self, *words, flags=(), env=None):
        """Goes on; speak to it through its pipes."""
        return subprocess.Popen(self.words(*words, flags=flags), env=self.environment(env), text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def tables():
    return sorted(p.name for p in Path("/dev/shm").glob("plimsoll-drydock-*"))
