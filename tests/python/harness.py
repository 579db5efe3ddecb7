"""Starts `-m plimsoll.worker` as main will: listener on descriptor 3, page on 4, control socket on 5."""

import contextlib
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = pathlib.Path(__file__).resolve().parent / "services"
PACKAGE = ROOT / "python"
sys.path.insert(0, str(PACKAGE))

from plimsoll import page as pages  # noqa: E402

PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON", sys.executable)
OUT_OF_THE_WAY = 200


def has_bentoml(python):
    asked = subprocess.run([python, "-c", "import bentoml"], capture_output=True, cwd="/")
    return asked.returncode == 0


def until(condition, what="", limit_s=30):
    """The first true value of condition(); fails after limit_s."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come within {limit_s} s: {what or condition}")
        select.select([], [], [], 0.005)


KIND = 127  # the flags that tell what a request is, not what it met


class PageReader:
    """Reads a page that somebody else writes; every record is checked."""

    def __init__(self, fd):
        import mmap

        self.map = mmap.mmap(fd, pages.PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)

    def head(self):
        return pages.HEAD.unpack_from(self.map, 0)

    def __getitem__(self, name):
        return struct.unpack_from("<Q", self.map, pages.COUNTERS_AT + 8 * pages.COUNTERS.index(name))[0]

    def _records(self, at, form, names, count):
        out = []
        for n in range(max(0, count - pages.RECORDS), count):
            raw = self.map[at + n % pages.RECORDS * form.size :][: form.size]
            record = dict(zip(names, form.unpack(raw)))
            assert record["seq"] == 2 * n + 2, record
            assert record["crc"] == zlib.crc32(raw[4:]), record
            record["kind"] = record["flags"] & KIND
            out.append(record)
        return out

    def begins(self, request=None):
        names = ("crc", "flags", "seq", "id", "at_us", "thread", "in_flight", "route", "tag", "device",
                 "allocated", "reserved")  # fmt: skip
        found = self._records(pages.BEGINS_AT, pages.BEGIN, names, self["begun"])
        return [r for r in found if request in (None, r["id"])]

    def ends(self, request=None):
        names = ("crc", "flags", "seq", "id", "at_us", "duration_us", "thread", "in_flight", "route", "status",
                 "outcome", "tag", "device", "batch", "error_class", "allocated_before", "allocated", "reserved",
                 "peak", "input_bytes", "host_anon", "begun")  # fmt: skip
        found = self._records(pages.ENDS_AT, pages.END, names, self["ended"])
        for record in found:
            record["error_class"] = record["error_class"].rstrip(b"\0").decode()
        return [r for r in found if request in (None, r["id"])]

    def tags(self):
        out = []
        for i in range(pages.TAGS):
            raw = self.map[pages.TAGS_AT + i * pages.TAG.size :][: pages.TAG.size]
            crc, _, text = pages.TAG.unpack(raw)
            if not any(text):
                break
            assert crc == zlib.crc32(text)
            out.append(text.rstrip(b"\0").decode())
        return out

    def host(self):
        return dict(zip(pages.HOST_FIELDS, pages.HOST.unpack_from(self.map, pages.HOST_AT)))

    def device(self, i):
        index, at, *numbers, uuid = pages.DEVICE.unpack_from(self.map, pages.DEVICES_AT + i * pages.DEVICE.size)
        numbers = dict(zip(pages.DEVICE_FIELDS, numbers))
        return {"index": index, "sampled_us": at, **numbers, "uuid": uuid.rstrip(b"\0").decode()}

    def end(self, request):
        return until(lambda: self.ends(request), f"end record of {request:x}")[0]

    def begin(self, request):
        return until(lambda: self.begins(request), f"begin record of {request:x}")[0]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("worker", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def far(fd):
    """A copy of the descriptor that cannot collide with 3, 4 and 5."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)


class Worker:
    """One start of the launcher. `go` None: the handshake is the test's business."""

    def __init__(self, folder, ident, where, args=(), env=None, go=None, python=PYTHON):
        self.where = pathlib.Path(where)
        self.where.mkdir(parents=True, exist_ok=True)
        self.home = self.where / "home"
        (self.where / "prom").mkdir(exist_ok=True)
        self.log_path = self.where / "log"
        self.socket_path = self.where / "s"
        self.number = 0
        page_fd = os.memfd_create("page", os.MFD_CLOEXEC)
        os.ftruncate(page_fd, pages.PAGE_BYTES)
        self.page = PageReader(page_fd)
        self.control, theirs = socket.socketpair()
        self.control.settimeout(60)
        self.pending = b""
        with contextlib.ExitStack() as stack:
            # a short name: the path of a Unix socket holds 107 bytes
            folder_fd = os.open(self.where, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder_fd)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"/proc/self/fd/{folder_fd}/s")
            listener.listen(2048)
            log = stack.enter_context(open(self.log_path, "wb"))
            stack.enter_context(theirs)
            stack.callback(os.close, page_fd)
            sources = {3: listener.fileno(), 4: page_fd, 5: theirs.fileno(), 1: log.fileno(), 2: log.fileno()}
            copies = {to: far(fd) for to, fd in sources.items()}
            argv = ["/usr/bin/env", "-C", str(folder), python, "-m", "plimsoll.worker", ident, "--fd", "3",
                    "--worker-id", "1", "--timeout-graceful-shutdown", "20", *args]  # fmt: skip
            actions = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in copies.items()]
            actions.insert(0, (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
            self.pid = os.posix_spawn(argv[0], argv, self._environment(env or {}), file_actions=actions)
            for fd in copies.values():
                os.close(fd)
        self.status = None
        if go is not None:
            self.description = self.described()
            self.say(go={"deploy": False, "timeout_ms": 31000, **go})
            self.wait_ready()

    def _environment(self, env):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PLIMSOLL", "BENTOML", "PYTHON"))}
        own = {"PYTHONPATH": str(PACKAGE), "PLIMSOLL_PAGE_FD": "4", "PLIMSOLL_CONTROL_FD": "5",
               "PLIMSOLL_GENERATION": "ab12.7", "PROMETHEUS_MULTIPROC_DIR": str(self.where / "prom"),
               "BENTOML_HOME": str(self.home), "BENTOML_DO_NOT_TRACK": "True",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        return {k: v for k, v in {**inherited, **own, **env}.items() if v is not None}

    # --- control socket

    def line(self):
        while b"\n" not in self.pending:
            chunk = self.control.recv(65536)
            if not chunk:
                raise AssertionError("the control socket was closed:\n" + self.log())
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def described(self):
        return self.line()["describe"]

    def say(self, **document):
        self.control.sendall(json.dumps({"v": 1, **document}).encode() + b"\n")

    def ask(self, verb, number=1, **more):
        self.say(id=number, ask=verb, **more)
        return self.line()

    # --- HTTP

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body)."""
        connection = UnixConnection(f"/proc/self/fd/{self._folder()}/s", timeout)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body=body, headers={**sent, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def _folder(self):
        if not hasattr(self, "folder_fd"):
            self.folder_fd = os.open(self.where, os.O_RDONLY | os.O_DIRECTORY)
        return self.folder_fd

    def new_id(self):
        self.number += 1
        return 0xFEED000000000000 + self.number

    def post(self, path, body=None, request=None, headers=None):
        """Posts JSON with a request id: (status, headers, body, id)."""
        request = request or self.new_id()
        return (*self.request("POST", path, body if body is not None else {},
                              {"x-plimsoll-id": f"{request:016x}", **(headers or {})}), request)  # fmt: skip

    # --- life

    def log(self):
        return self.log_path.read_text(errors="replace")

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self.status = os.waitstatus_to_exitcode(status)
        return True

    def wait_exit(self, limit_s=60):
        until(self.ended, "exit:\n" + self.log(), limit_s)
        return self.status

    def wait_ready(self):
        def ready():
            if self.ended():
                raise AssertionError(f"ended with {self.status}:\n{self.log()}")
            try:
                return self.request("GET", "/readyz")[0] == 200
            except OSError:
                return False

        until(ready, "readiness:\n" + self.log(), 60)

    def stop(self, sig=signal.SIGTERM):
        if not self.ended():
            os.kill(self.pid, sig)
        try:
            return self.wait_exit()
        finally:
            if self.status is None:
                os.kill(self.pid, signal.SIGKILL)
                self.wait_exit()

    def close(self):
        self.stop(signal.SIGKILL)
        self.control.close()
        if hasattr(self, "folder_fd"):
            os.close(self.folder_fd)


def cmake_version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return text.partition("project(plimsoll VERSION ")[2].split()[0]


def bentoml_version(python):
    code = "import importlib.metadata as m; print(m.version('bentoml'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
