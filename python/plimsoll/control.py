"""The control socket: JSON lines with `v`, both ways.

First the worker describes its service and waits for `go`. A `wait` in between says that somebody has heard it, and that
`go` takes as long as it takes: what it depends on is not ready yet. Then a daemon thread answers what main asks, also
while an async handler blocks the event loop. The other end may go away at any time (main was killed): the worker goes
on.
"""

import json
import socket
import sys
import threading
import time
import traceback

VERSION = 1
LINE_BYTES = 1 << 20
STACK_BYTES = 64 * 1024


def stacks():
    """What every thread is doing: files, lines and function names, never values."""
    names = {t.ident: t.name for t in threading.enumerate()}
    out = []
    for ident, frame in sys._current_frames().items():
        out.append(f"thread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(out)[:STACK_BYTES]


class Control:
    """`asks` is what can be asked: {verb: function of the question, a dict, that gives the answer, a dict}."""

    def __init__(self, fd, asks):
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._pending = b""
        self._asks = {"stacks": lambda _: {"stacks": stacks()}, **asks}
        self._sending = threading.Lock()  # answers and news come from different threads

    def _send(self, document):
        line = json.dumps({"v": VERSION, **document}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError:
            return False
        return True

    def tell(self, news):
        """Something that nobody has to answer. From any thread."""
        self._send({news: True})

    def _line(self, deadline=None):
        """The next line; None at the end of file, at the deadline, or when a line has no end."""
        while b"\n" not in self._pending:
            if len(self._pending) > LINE_BYTES:
                return None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            try:
                self._socket.settimeout(left)
                chunk = self._socket.recv(65536)
            except (OSError, ValueError):
                return None
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _answer(self, line):
        """Answers one question. Whatever is not one is told so, and no question can end the thread."""
        try:
            asked = json.loads(line)
        except ValueError:
            return self._send({"error": "malformed"})
        if not isinstance(asked, dict) or "ask" not in asked:
            return self._send({"error": "unknown"})
        reply = {"id": asked["id"]} if "id" in asked else {}
        verb = self._asks.get(asked["ask"]) if isinstance(asked["ask"], str) else None
        if verb is None:
            return self._send({**reply, "error": "unknown"})
        try:
            said = verb(asked)
            return self._send({**reply, **({} if "error" in said else {"ok": True}), **said})
        except Exception as exc:
            return self._send({**reply, "error": f"{type(exc).__name__}: {exc}"[:200]})

    def describe(self, description, wait_s=30.0):
        """Sends the description; returns what `go` says, or None when nobody answers in time."""
        if not self._send({"describe": description}):
            return None
        deadline = time.monotonic() + wait_s
        while True:
            line = self._line(deadline)
            if line is None:
                return None
            try:
                said = json.loads(line)
            except ValueError:
                said = None
            if isinstance(said, dict) and isinstance(said.get("go"), dict):
                return said["go"]
            if isinstance(said, dict) and "wait" in said:
                deadline = None  # the next main will say `go` if this one dies
            else:
                self._answer(line)

    def fallback(self, reason):
        """Says that this service is another kind's, and waits to be ended: returns only when nobody is there. A main
        that comes later says `go` first, and is told again."""
        while self._send({"fallback": {"reason": reason}}) and self._line() is not None:
            pass

    def serve(self):
        """Answers on a daemon thread from now on, until the other end closes."""
        threading.Thread(target=self.serve_here, name="plimsoll-control", daemon=True).start()

    def serve_here(self):
        while True:
            line = self._line()
            if line is None or not self._answer(line):
                break
        self._socket.close()
