"""What README, docs/ and examples/ show is what the commands say, page by page (`make doc-outputs` writes it anew)."""

import os
import subprocess
import sys

import pytest

from rig import dock, paths
from rig.server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import doc_outputs  # noqa: E402

# Pages whose commands are over in a moment are looked at by `make test` as well.
QUICK = {"docs/plan.md", "docs/snapshot.md", "docs/lint.md"}
NAMES = [str(page.relative_to(ROOT)) for page in doc_outputs.pages()]


@pytest.mark.timeout(900)
@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
@pytest.mark.parametrize("page", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.full]) for n in NAMES])
def test_a_page_shows_what_is_said(page):
    if subprocess.run(["unshare", "--net", *(["--map-root-user"] if os.geteuid() else []), "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    if "llama" in page and os.environ.get("PLIMSOLL_NO_LLAMA"):
        pytest.skip("plimsoll-llama is left out: PLIMSOLL_NO_LLAMA is set")
    if page not in QUICK - {"docs/lint.md"}:
        dock.torch_python()
    done = subprocess.run([sys.executable, ROOT / "scripts/doc_outputs.py", "--check", ROOT / page], capture_output=True, text=True,
                          env={**os.environ, "PLIMSOLL_BUILD": str(paths.build)})
    assert done.returncode == 0, done.stdout + done.stderr
