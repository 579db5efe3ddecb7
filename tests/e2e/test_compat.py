"""Other versions of BentoML than the one the tests are made with. scripts/compat.sh serves the example with each."""

import os
import subprocess

import pytest

from rig.server import ROOT, paths


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_example_is_served_by_the_oldest_the_middle_and_the_newest_bentoml():
    """An environment each, in the cache folder; minutes when they are not there yet."""
    done = subprocess.run([ROOT / "scripts/compat.sh"], env={**os.environ, "PLIMSOLL_BUILD": str(paths.build)}, text=True,
                          capture_output=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| 1.")]
    page = (ROOT / "docs/compat.md").read_text()
    assert len(rows) == 3
    for row in rows:  # Python's own number may be another one here
        version, _, *rest = [cell.strip() for cell in row.strip("| ").split("|")]
        told = [[c.strip() for c in line.strip("| ").split("|")] for line in page.splitlines() if line.startswith(f"| {version} ")]
        assert told and told[0][2:] == rest, f"docs/compat.md tells something else than {row}"
