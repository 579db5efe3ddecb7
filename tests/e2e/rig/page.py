"""The pages of a server's workers, as the tests of the launcher read them."""

import os
import sys
from pathlib import Path

from .server import ROOT

sys.path.append(str(ROOT / "tests/python"))
sys.path.append(str(ROOT / "python"))

from harness import PageReader, until  # noqa: E402, F401

from plimsoll import page as pages  # noqa: E402, F401


def find_page(holder, worker_pid):
    for link in sorted(Path(f"/proc/{holder}/fd").iterdir(), key=lambda p: int(p.name)):
        try:
            if not os.readlink(link).startswith("/memfd:plimsoll-page"):
                continue
            fd = os.open(link, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if os.fstat(fd).st_size < pages.PAGE_BYTES:
                continue  # of another writer, such as the one that looks at devices
            reader = PageReader(fd)
        finally:
            os.close(fd)
        if reader.head()[7] == worker_pid:
            return reader
    return None


def open_page(holder, worker_pid):
    """The page in which this process is the writer, once it has written there. The keeper holds it (main, when somebody
    else runs the server), and the test may look at what that holds."""
    return until(lambda: find_page(holder, worker_pid), f"a page of {worker_pid}")
