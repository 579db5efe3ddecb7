"""One keeper in a folder of its own, and its mains, for which the test speaks. Everything waits for an event with a limit."""

import contextlib
import dataclasses
import errno
import mmap
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import keeper_wire as wire
import pytest

PYTHON = os.path.realpath("/usr/bin/python3")
STUB = pathlib.Path(__file__).with_name("main_stub.py")
BUILD = pathlib.Path(os.environ.get("PLIMSOLL_BUILD", pathlib.Path(__file__).parents[3] / "build" / "dev")).resolve()
KEEPER = BUILD / "libexec" / "plimsoll" / "keeper"
PATIENCE_S = 20


def alive(pid):
    """Exists and is not a zombie."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def wait_dead(pid):
    """A process that is not our child: its pidfd becomes readable."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        ended = select.select([fd], [], [], PATIENCE_S)[0]
        os.close(fd)
        assert ended, f"process {pid} lives on"


def wait_file(path):
    """The content of a small file, as soon as it ends with a newline. Only for what a worker writes of itself."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            text = pathlib.Path(path).read_text()
            if text.endswith("\n"):
                return text.strip()
        time.sleep(0.005)
    raise AssertionError(f"{path} was never written")


def memfd(content):
    fd = os.memfd_create("recipe")
    os.write(fd, content)
    return fd


@dataclasses.dataclass
class Answer:
    kind: int
    body: bytes
    fds: list
    error: str = ""  # name of the errno of a refusal


@dataclasses.dataclass
class Worker:
    generation: int
    pid: int
    page_fd: int
    ring_fd: int

    def output(self):
        """What its ring holds; for less than the ring is large."""
        with mmap.mmap(self.ring_fd, 0, access=mmap.ACCESS_READ) as ring:
            head = struct.unpack_from("<Q", ring, wire.RING_HEAD_AT)[0]
            return ring[wire.RING_DATA_AT:wire.RING_DATA_AT + head].decode()


class Main:
    """The test's side of one main: asks, and keeps the news that come meanwhile."""

    def __init__(self, link):
        self.link = link
        pid, fds, _, _ = socket.recv_fds(link, 64, 1)
        self.pid_inside = int(pid)
        self.pid = struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.channel = socket.socket(fileno=fds[0])
        self.channel.settimeout(PATIENCE_S)
        self.serial = 0
        self.news = []
        self.beat = None
        self.fds = []

    # --- talking ---

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.channel, 8192, 4)
        assert data, "the keeper closed the channel"
        _, _, kind, length, serial = wire.HEAD.unpack_from(data)
        assert length == len(data)
        self.fds += fds
        return kind, serial, data[wire.HEAD.size:], fds

    def post(self, kind, body=b"", fds=()):
        """Asks and does not wait."""
        self.serial += 1
        socket.send_fds(self.channel, [wire.message(kind, body, self.serial)], list(fds))
        return self.serial

    def answer(self, serial):
        while True:
            kind, got, body, fds = self.receive()
            if got == serial:
                error = errno.errorcode[struct.unpack_from("<I", body)[0]] if kind == wire.REFUSED else ""
                return Answer(kind, body, fds, error)
            self.news.append((kind, body))

    def ask(self, kind, body=b"", fds=()):
        return self.answer(self.post(kind, body, fds))

    def done(self, kind, body=b"", fds=()):
        got = self.ask(kind, body, fds)
        assert (got.kind, got.error) == (wire.DONE, ""), got

    def wait(self, kind, generation=None):
        """The body of the first such news; others are kept."""
        while True:
            for i, (got, body) in enumerate(self.news):
                if got == kind and (generation is None or struct.unpack_from("<Q", body)[0] == generation):
                    del self.news[i]
                    return body
            got, serial, body, _ = self.receive()
            assert serial == 0
            self.news.append((got, body))

    def wait_exit(self, kind, worker):
        return wire.Exit(self.wait(kind, worker.generation))

    # --- orders ---

    def hello(self):
        got = self.ask(wire.HELLO, wire.hello())
        assert got.kind == wire.WELCOME
        names = ("boot", "main_id", "other_main_id", "role", "crashes", "keeper_pid", "hang_ms", "after_hang")
        for name, value in zip(names, struct.unpack_from("<QQQIIIII", got.body)):
            setattr(self, name, value)
        self.beat = mmap.mmap(got.fds[0], 4096)
        return self

    def beats(self):
        struct.pack_into("<Q", self.beat, 8, struct.unpack_from("<Q", self.beat, 8)[0] + 1)

    def spawn(self, *words, env=(), folder="/", fds=(), **order):
        self.recipe = memfd(wire.recipe(words, env, folder))
        got = self.ask(wire.SPAWN, wire.spawn(**order), [self.recipe, *fds])
        os.close(self.recipe)
        assert got.kind == wire.SPAWNED, got
        return Worker(*struct.unpack_from("<QI", got.body), *got.fds)

    def python(self, text, *arguments, **order):
        return self.spawn(PYTHON, "-I", "-S", "-c", text, *arguments, **order)

    def send_signal(self, worker, number, kill_ms=0):
        self.done(wire.SIGNAL, struct.pack("<QII", worker.generation, number, kill_ms))

    def note(self, worker, note):
        self.done(wire.NOTE, struct.pack("<QII", worker.generation, len(note), 0) + note)

    def hold(self, name, *fds):
        return self.ask(wire.HOLD, struct.pack("<Q32s", 0, name.encode()), fds)

    def forget(self, worker):
        return self.ask(wire.FORGET, struct.pack("<Q", worker.generation))

    def bye(self, status=0):
        self.done(wire.BYE, struct.pack("<II", status, 0))
        self.tell(status)

    def list(self, what):
        after = 0
        while True:
            got = self.ask(wire.LIST, struct.pack("<IIQ", what, 0, after))
            if got.kind == wire.LIST_END:
                return
            after = struct.unpack_from("<Q", got.body)[0]
            yield got

    def generations(self):
        """{generation: (exit, name, note, page and ring)}"""
        out = {}
        for got in self.list(0):
            generation, _, _ = struct.unpack_from("<QQQ", got.body)
            ended = wire.Exit(got.body[24 + 16:])  # its own head is empty
            at = 24 + 16 + wire.Exit.LAYOUT.size
            _, count, name, _ = struct.unpack_from("<II32s32s", got.body, at)
            note = got.body[at + 72:]
            assert len(note) == count
            out[generation] = (ended, name.rstrip(b"\0").decode(), note, got.fds)
        return out

    def held(self):
        return {got.body[8:40].rstrip(b"\0").decode(): got.fds[0] for got in self.list(1)}

    # --- what the process does ---

    def tell(self, word):
        with contextlib.suppress(BrokenPipeError):
            self.link.send(str(word).encode())

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    def close(self):
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.channel.close()
        self.link.close()


class Keeper:
    def __init__(self, *options, prefix=(), main=None, hold=(), verbose=True, stderr=None, run=None, **popen):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pk", dir="/tmp"))
        self.run = pathlib.Path(run or self.folder / "run")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.folder / "brain"))
        self.listener.listen()
        self.listener.settimeout(PATIENCE_S)
        self.mains = []
        self.lines = []
        self.changed = threading.Condition()
        self.words = [*prefix, KEEPER, "--run", self.run, "--hang-ms", 0, *(["--verbose", 1] if verbose else []),
                      *options, "--", *(main or [PYTHON, "-I", "-S", STUB, self.folder / "brain"])]
        self.start(hold=hold, stderr=stderr, **popen)

    def start(self, hold=(), stderr=None, **popen):
        popen.setdefault("stdin", subprocess.DEVNULL)
        self.ended = False
        self.process = subprocess.Popen([str(w) for w in self.words], stdout=subprocess.DEVNULL,
                                        stderr=stderr or subprocess.PIPE, pass_fds=hold, **popen)
        self.pid = self.process.pid
        if stderr is None:
            threading.Thread(target=self.read, args=(self.process.stderr,), daemon=True).start()

    def read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def text(self):
        with self.changed:
            return "\n".join(self.lines)

    def line(self, pattern, count=1):
        """Waits for the count-th line of stderr that matches."""
        def found():
            return [one for one in self.lines if re.search(pattern, one)]
        with self.changed:
            self.changed.wait_for(lambda: len(found()) >= count or self.ended, PATIENCE_S)
            assert len(found()) >= count, f"no line {pattern!r} in\n" + "\n".join(self.lines)
            return found()[count - 1]

    def main(self, hello=True):
        """The next main that the keeper starts."""
        link, _ = self.listener.accept()
        link.settimeout(PATIENCE_S)
        main = Main(link)
        self.mains.append(main)
        return main.hello() if hello else main

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """Its exit status, when all it said was read too."""
        status = self.process.wait(PATIENCE_S)
        with self.changed:
            self.changed.wait_for(lambda: self.ended or self.process.stderr is None, PATIENCE_S)
        return status

    def stop(self, main=None):
        """The orderly way. Its exit status."""
        self.signal(signal.SIGTERM)
        if main is not None:
            main.wait(wire.STOP)
            main.bye()
        return self.wait()

    def left(self):
        return sorted(str(p.relative_to(self.run)) for p in self.run.rglob("*")) if self.run.exists() else None

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def clean(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for main in self.mains:
            main.close()
            wait_dead(main.pid)
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
SLEEP = ("/bin/sleep", "1000")
DEAF = ("/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1000; done")


def wait_output(worker, text):
    """A worker that has printed this has come so far."""
    end = time.monotonic() + 20
    while text not in worker.output():
        assert time.monotonic() < end, worker.output()
        time.sleep(0.005)
