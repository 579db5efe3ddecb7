"""The example that leaks, as its README starts it: on the dry dock, with PyTorch's real allocator."""

import json
import subprocess
import sys

import pytest

from rig import dock, paths
from rig.server import ROOT

FOLDER = ROOT / "examples/leaky"


MIB = 1 << 20


@pytest.mark.timeout(300)
@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_the_example_leaks_what_its_readme_says_and_the_record_has_every_request(serve, tmp_path):
    server = serve(None, service=FOLDER, python=dock.torch_python(), env={"PLIMSOLL_CACHE": str(tmp_path)},
                   before=[paths.plimsoll, "drydock", "--gpu", "card:8GiB", "--"]).ready()
    first = server.post("/clean", {}).json()
    for route, kept in (("/clean", 0), ("/predict", 40)):
        done = subprocess.run([sys.executable, FOLDER / "load.py", "40", route, server.url], capture_output=True, text=True)
        assert done.stdout == "{200: 40}\n", done.stdout + done.stderr
        now = server.post("/clean", {}).json()
        assert now["kept"] - first["kept"] == kept
        assert now["allocated_bytes"] - first["allocated_bytes"] == kept * 3 * MIB // 2
    doc = server.wait_until(lambda: reported(server))
    assert doc["numbers"][0]["outcomes"] == {"ok": 83}
    assert {"host", "gpu0"} <= {m["scope"] for m in doc["memory"]}


def reported(server):
    doc = json.loads(server.verb("report", "--json", "--since", "1h").stdout)
    scopes = {m["scope"] for m in doc["memory"]}
    return doc if {"host", "gpu0"} <= scopes and doc["numbers"] and doc["numbers"][0]["requests"] >= 83 else None
