"""`plimsoll soak`: the tutorials' services get the verdict their authors would, with the real PyTorch in the dry dock."""

import json
import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rig import dock, host, paths
from rig.server import ROOT, clean_environment

torch = pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
pytestmark = [pytest.mark.timeout(400)]
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
TUTORIALS = ROOT / "tests/data/tutorials"
EXPECTED = json.loads((TUTORIALS / "expected.json").read_text())
# What expected.json says of the worker entry that Plimsoll uses: one import, one copy.
ONE_COPY = {"bad/module_level_load.py", "bad/tutorial_service.py"}
# BentoML 1.4.40 ends at its start over the schema of Shape((None, 3)), under `bentoml serve` as well.
NOT_SERVED = {"bad/batch_without_cap.py", "good/one_gpu_worker.py"}
QUICK = {"bad/gpu_cache.py"}
SCENARIOS = {"identical": "identical", "failing": "failing", "mixed_shapes": "shapes", "cancelled_streams": "cancel",
             "start": "identical", "bentoml serve": "identical"}
LEAKS = {"leak", "host_leak", "duplicate_load"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("drydock-cache")


@pytest.fixture(scope="module")
def store(tmp_path_factory, cache):
    """A BentoML store with the two models that some services load."""
    home = tmp_path_factory.mktemp("bentoml")
    done = dock.Dock(home, cache).run(dock.torch_python(), TUTORIALS / "save_model.py",
                                      env={"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"})
    assert done.returncode == 0, done.stderr
    return home


class Soak:
    """`plimsoll soak` in a folder of its own; whatever it started must be gone afterwards."""

    def __init__(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="pl-soak-", dir="/tmp"))

    def run(self, *words, cwd=None, env=None, timeout=380):
        environment = {**clean_environment(), "TMPDIR": str(self.tmp), "BENTOML_DO_NOT_TRACK": "True",
                       "PYTHONDONTWRITEBYTECODE": "1", "BENTOML_HOME": str(self.tmp / "bentoml"), **(env or {})}
        (self.tmp / "bentoml").mkdir(exist_ok=True)
        done = subprocess.run([paths.plimsoll, *map(str, words)], cwd=cwd, env=environment, text=True, capture_output=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)
        left = [p.name for p in self.tmp.glob("plimsoll-soak-*")]
        assert not left, f"left behind: {left}"
        return done

    def json(self, *words, **more):
        done = self.run("soak", "--json", *words, **more)
        lines = done.stdout.splitlines()
        assert lines, done.stderr
        done.progress, done.doc = [json.loads(line) for line in lines[:-1]], json.loads(lines[-1])
        return done


@pytest.fixture
def soak():
    one = Soak()
    before = set(host.descendants(os.getpid()))
    yield one
    assert set(host.descendants(os.getpid())) <= before, "a process was left"
    shutil.rmtree(one.tmp)


def in_dock(cache, *more, gpu="a100-40"):
    return ["--drydock", gpu, "--python", dock.torch_python(), *more], {"PLIMSOLL_CACHE": str(cache)}


def request_of(name):
    row = EXPECTED[name]
    body = row["request"]["body"]
    if row["service"] == "InferenceService":
        body = {"batch": [[0.5] * (3 * 224 * 224)]}
    words = ["--route", row["request"]["path"]]
    if "failing_body" in row["request"]:
        words += ["--failing", json.dumps(row["request"]["failing_body"])]
    return words, body


def cases():
    for name, row in sorted(EXPECTED.items()):
        word = row.get("soak", {}).get("verdict")
        if word is not None and name not in NOT_SERVED:
            word = "stable" if name in ONE_COPY else word
            yield pytest.param(name, word, id=name, marks=[] if name in QUICK else [pytest.mark.full])


@torch
@pytest.mark.parametrize("name, word", list(cases()))
def test_the_tutorials_get_the_verdict_they_deserve(soak, cache, request, tmp_path, name, word):
    row = EXPECTED[name]
    folder, file = name.split("/")
    flags, env = in_dock(cache)
    if "needs" in row["soak"]:
        env["BENTOML_HOME"] = str(request.getfixturevalue("store"))
    words, body = request_of(name)
    (tmp_path / "body.json").write_text(json.dumps(body))
    scenario = SCENARIOS[row["soak"]["scenario"]]
    many = 6000 if scenario == "cancel" and word == "leak" else 2000
    if row["service"] == "InferenceService":
        many = 600  # a request is a megabyte
    done = soak.json(f"{file.removesuffix('.py')}:{row['service']}", *flags, *words, "--body", f"@{tmp_path / 'body.json'}",
                     "--scenario", scenario, "--requests", many, cwd=TUTORIALS / folder, env=env)
    one = done.doc["scenarios"][0]
    verdict = one["verdict"]
    assert verdict["word"] == word, done.doc
    assert done.returncode == (1 if word in LEAKS else 0), done.stderr
    assert one["result"] == ("leak" if word in LEAKS else "clean")
    assert done.doc["dry_run"] is True and done.doc["gpu"]["name"].startswith("NVIDIA A100")
    if word in ("leak", "host_leak"):
        wanted = row["soak"].get("host_kib_per_request") or row["soak"]["kib_per_request"]
        assert verdict["bytes_per_request"] == pytest.approx(wanted * KIB, rel=0.5 if scenario == "cancel" else 0.1)
        assert verdict["low"] <= verdict["bytes_per_request"] <= verdict["high"]
        assert row["soak"]["holder"].split(".")[-1] in one["holder"]
    if word == "leak":
        assert one["failed_share"] == pytest.approx(0 if scenario == "identical" else 1, abs=0.01)
        assert one["requests"] < many + 1000, "it stops when it is certain"
    if word == "duplicate_load":
        assert verdict["copies"] == (4 if name == "bad/workers_on_one_gpu.py" else 2)
