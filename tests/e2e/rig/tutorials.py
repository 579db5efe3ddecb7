"""The services that tutorials teach, good and bad, and what tests/data/tutorials/expected.json says of each."""

import json

import pytest

from .server import ROOT

folder = ROOT / "tests/data/tutorials"
expected = json.loads((folder / "expected.json").read_text())
# Under the worker entry that Plimsoll uses there is one import, and one copy: expected.json says so in its notes.
ONE_COPY = {"bad/module_level_load.py", "bad/tutorial_service.py"}
# BentoML 1.4.40 ends at its start over the schema of Shape((None, 3)), under `bentoml serve` as well.
NOT_SERVED = {"bad/batch_without_cap.py", "good/one_gpu_worker.py"}


def cases(quick):
    """(name, verdict) of every service that a soak judges; those that are not `quick` are for `make test-full`."""
    for name, row in sorted(expected.items()):
        word = row.get("soak", {}).get("verdict")
        if word is not None and name not in NOT_SERVED:
            word = "stable" if name in ONE_COPY else word
            yield pytest.param(name, word, id=name, marks=[] if name in quick else [pytest.mark.full])


def target(name):
    """"bad/gpu_cache.py" as `serve` and `soak` take it from within its folder."""
    return f"{name.split('/')[1].removesuffix('.py')}:{expected[name]['service']}"


def body(name):
    """Of one good request."""
    row = expected[name]
    return {"batch": [[0.5] * (3 * 224 * 224)]} if row["service"] == "InferenceService" else row["request"]["body"]
