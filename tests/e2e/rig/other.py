"""Programs that stand for another version of main: a whole installation beside the one under test, with other words in
its binary, or a Python that speaks the keeper's protocol and does one thing wrong on cue."""

import os
import shutil
import sys
from pathlib import Path

from .server import ROOT, paths


def installation(folder, changes=()):
    """bin/, libexec/ and share/ as `make install` lays them out; `changes`: (old, new) bytes of one length in the
    program. Returns the program's path."""
    folder = Path(folder)
    text = paths.plimsoll.read_bytes()
    for old, new in changes:
        assert len(old) == len(new) and old in text, (old, new)
        text = text.replace(old, new)
    version = version_of(text)
    for part in ("bin", "share/plimsoll"):
        (folder / part).mkdir(parents=True)
    (folder / "libexec").symlink_to(paths.build / "libexec")
    shutil.copytree(ROOT / "python/plimsoll", folder / "share/plimsoll" / f"python-{version}" / "plimsoll",
                    ignore=shutil.ignore_patterns("__pycache__"))
    program = folder / "bin/plimsoll"
    program.write_bytes(text)
    program.chmod(0o755)
    return program


def version_of(text):
    at = text.index(b"share/plimsoll/python-") + len(b"share/plimsoll/python-")
    return text[at:text.index(b"\0", at)].decode()


def new_version(folder):
    """The same program, which calls itself a later version. Returns (program, version)."""
    old = version_of(paths.plimsoll.read_bytes())
    new = f"{old[:-1]}{(int(old[-1]) + 7) % 10}"
    return installation(folder, [(old.encode(), new.encode())]), new


# What the stand-in says and does, line by line: HELLO with its protocol versions, then `then`.
SCRIPT = """
import os, socket, struct, sys, time
HEAD = struct.Struct("<IHHII")
link = socket.socket(fileno=3)
beat = None
def send(kind, body=b"", serial=1):
    link.send(HEAD.pack(0x4B4D4C50, 1, kind, HEAD.size + len(body), serial) + body)
def receive():
    data, fds, _, _ = socket.recv_fds(link, 8192, 4)
    if not data:
        sys.exit(9)
    return HEAD.unpack_from(data)[2], data[HEAD.size:]
def hello(oldest, newest):
    send(1, struct.pack("<II32s", oldest, newest, b"stand-in"))
    while True:
        kind, body = receive()
        if kind in (65, 71):
            return kind
def take():
    send(9)
    while receive()[0] not in (70, 71):
        pass
def bye(status, words):
    send(11, struct.pack("<II320s", status, 0, words.encode()))
"""


def stand_in(server, then):
    """A real program that can be main: Python itself. The keeper starts it as `plimsoll main ...` in its own working
    folder, where the file `main` says what to do. Returns the program."""
    (server.cwd / "main").write_text(SCRIPT + then)
    return Path(os.path.realpath(sys.executable))
