"""A dry dock for a module's tests: `environment` makes any process below it see a stand-in GPU."""

import json
import os
import pathlib
import subprocess

import pytest
from harness import ROOT

HOLD = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"


def torch_python():
    """The interpreter with PyTorch and BentoML. Left out on purpose: the test is skipped and says so."""
    if os.environ.get("PLIMSOLL_NO_TORCH"):
        pytest.skip("PyTorch over the dry dock is not tested: PLIMSOLL_NO_TORCH is set")
    python = pathlib.Path(os.environ.get("PL_TORCH_ENV", "/nowhere")) / "bin/python"
    assert python.exists(), "PL_TORCH_ENV names no environment: run through `make`, or set PLIMSOLL_NO_TORCH=1"
    return str(python)


class Dock:
    def __init__(self, python, gpu="mine:8GiB"):
        plimsoll = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", ROOT / "build/dev")).resolve() / "bin/plimsoll"
        assert plimsoll.exists(), f"{plimsoll} is not there: set PLIMSOLL_BUILD"
        self.process = subprocess.Popen([plimsoll, "drydock", "--gpu", gpu, "--context", "0", "--", python, "-c", HOLD],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.environment = {k: v for k, v in json.loads(self.process.stdout.readline()).items()
                            if k.startswith(("LD_", "PLIMSOLL_DRYDOCK_"))}

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def dock():
    mine = Dock(torch_python())
    yield mine
    mine.close()
