"""The short form of `make chaos` (tests/chaos): faults by a seed, clients that check every reply, nothing left behind."""

import os
import re
import subprocess

import pytest

from rig.server import ROOT, paths

CHAOS = ROOT / "tests/chaos/chaos.py"
SEED = 20261130


def chaos(*words, timeout):
    env = {**os.environ, "PLIMSOLL_BUILD": str(paths.build)}
    return subprocess.run([str(paths.python), str(CHAOS), *map(str, words)], env=env, capture_output=True, text=True, timeout=timeout)


@pytest.mark.timeout(240)
def test_a_minute_of_faults_loses_nothing(record_property):
    done = chaos("--seed", SEED, "--seconds", 60, "--clients", 8, timeout=220)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    (row,) = re.findall(r"^seed \d+: (\d+) faults, (\d+) requests, lost 0, wrong 0, orphaned 0, other 0$", done.stdout, re.M)
    record_property("faults", int(row[0]))
    record_property("requests", int(row[1]))
    assert int(row[0]) >= 8 and int(row[1]) >= 1000


@pytest.mark.full
@pytest.mark.timeout(600)
def test_four_minutes_of_faults_with_a_bentoml_service_lose_nothing():
    done = chaos("--seconds", 240, "--bento", timeout=580)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
