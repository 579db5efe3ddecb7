"""The pages of a server's workers, as the tests of the launcher read them."""

import os
import sys
from pathlib import Path

from .server import ROOT

sys.path.append(str(ROOT / "tests/python"))
sys.path.append(str(ROOT / "python"))

from harness import PageReader, until  # noqa: E402, F401

from plimsoll import page as pages  # noqa: E402, F401


def open_page(keeper, worker_pid):
    """The page in which this process is the writer. The keeper holds it, and the test may look at what it holds."""
    for link in sorted(Path(f"/proc/{keeper}/fd").iterdir(), key=lambda p: int(p.name)):
        try:
            if not os.readlink(link).startswith("/memfd:plimsoll-page"):
                continue
            fd = os.open(link, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            reader = PageReader(fd)
        finally:
            os.close(fd)
        if reader.head()[7] == worker_pid:
            return reader
    raise AssertionError(f"no page of {worker_pid}")
