"""The reference pages are what the tables say."""

import subprocess
import sys

from rig.server import ROOT, paths


def test_the_reference_pages_are_made_from_the_tables():
    done = subprocess.run([sys.executable, ROOT / "scripts/docs.py", paths.build, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
