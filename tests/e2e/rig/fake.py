"""A worker that the test itself is: what no real one does on cue. Only the process is real; its listener is ours.

    with FakeWorker(handler) as worker:
        server = serve("service:Any", python=worker.python, env=worker.env).ready()

`handler(request, sock)` answers one request on the raw socket; True keeps the connection. /readyz and /metrics are
answered here. Every request that reaches the worker is in `take()`.
"""

import dataclasses
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path

READY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def ok(_request, sock, body=b"ok"):
    """The usual answer: 200."""
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return True


@dataclasses.dataclass
class Request:
    connection: int
    method: str
    target: str
    headers: list  # (name in lower case, value), in order
    reader: object  # of the rest of the connection
    body: bytes = b""

    def header(self, name):
        return dict(self.headers).get(name)

    def read_body(self):
        """False: it broke off."""
        if "chunked" in (self.header("transfer-encoding") or ""):
            self.body, whole = read_chunks(self.reader)
            return whole
        length = int(self.header("content-length") or 0)
        self.body = self.reader.read(length)
        return len(self.body) == length


def read_chunks(reader):
    """Body of a chunked message and whether its last chunk came."""
    body = b""
    while True:
        try:
            size = int(reader.readline().split(b";")[0], 16)
        except ValueError:
            return body, False
        if size == 0:
            while line := reader.readline():
                if line == b"\r\n":
                    return body, True
            return body, False
        part = reader.read(size)
        body += part
        if len(part) < size or reader.read(2) != b"\r\n":
            return body, False


class FakeWorker:
    def __init__(self, handler=ok, read_bodies=True):
        self.handler, self.read_bodies = handler, read_bodies
        self.folder = Path(tempfile.mkdtemp(prefix="pl-fake-", dir="/tmp"))
        self.python = self.folder / "python"
        self.python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E {Path(__file__).with_name('fake_python.py')}"
                               ' "$@"\n')
        self.python.chmod(0o755)
        self.env = {"FAKE_WORKER": str(self.folder / "socket")}
        self._seen, self._lock, self._open = [], threading.Lock(), []
        self.connections = 0
        self._home = socket.socket(socket.AF_UNIX)
        self._home.bind(self.env["FAKE_WORKER"])
        self._home.listen(8)
        threading.Thread(target=self._take_workers, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._home.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        with self._lock:
            held, self._open = self._open, []
        for sock in held:
            sock.close()

    def take(self):
        """What reached the worker since the last call."""
        with self._lock:
            out, self._seen = self._seen, []
        return out

    def listen(self):
        """The path of a socket where it answers whoever comes: for a proxy that is not ours."""
        path = self.folder / "worker.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(64)
        self._hold(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return path

    def seen(self):
        """How many requests have reached it since take()."""
        with self._lock:
            return len(self._seen)

    def _hold(self, sock):
        with self._lock:
            self._open.append(sock)

    def _take_workers(self):
        while True:
            try:
                process, _ = self._home.accept()
                _, fds, _, _ = socket.recv_fds(process, 16, 1)
            except OSError:
                return
            listener = socket.socket(fileno=fds[0])
            listener.setblocking(True)
            self._hold(process)
            self._hold(listener)
            threading.Thread(target=self._ends, args=(process, listener), daemon=True).start()
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _ends(self, process, listener):
        """A worker that has ended listens no more."""
        try:
            process.recv(1)
        except OSError:
            pass
        try:
            listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                number = self.connections
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        with sock, sock.makefile("rb") as reader:
            try:
                while self._one(sock, reader, number):
                    pass
            except OSError:
                pass

    def _one(self, sock, reader, number):
        words = reader.readline().decode("latin-1").split()
        if len(words) != 3:
            return False
        headers = []
        while (line := reader.readline().decode("latin-1").strip("\r\n")) != "":
            name, _, value = line.partition(":")
            headers.append((name.lower(), value.strip(" \t")))
        request = Request(number, words[0], words[1], headers, reader)
        if request.target in ("/readyz", "/metrics"):
            sock.sendall(READY)
            return True
        if self.read_bodies and not request.read_body():
            return False
        with self._lock:
            self._seen.append(request)
        return self.handler(request, sock)
