"""The control socket: JSON lines with `v`, both ways.

First the worker describes its service and waits for `go`. A `wait` in between says that somebody has heard it, and that
`go` takes as long as it takes: what it depends on is not ready yet. Then a daemon thread answers what main asks, also
while an async handler blocks the event loop; a question that takes long is answered by a thread of its own, so that the
others are not kept waiting. The other end may go away at any time (main was killed): the worker goes on.
"""

import json
import socket
import threading
import time
import traceback

from plimsoll import looking

VERSION = 1
LINE_BYTES = 1 << 20
STACK_BYTES = 64 * 1024


def stacks():
    """What every thread is doing: files, lines and function names, never values."""
    names = {t.ident: t.name for t in threading.enumerate()}
    out = []
    for ident, frame in looking.frames().items():
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
        self._slow = {}  # name -> function of the question

    def add(self, verb, function):
        """`function(question)` answers on a thread of its own and may take long. Not twice at the same time."""
        self._slow[verb] = (function, threading.Lock())

    def tell(self, **document):
        """Something that nobody has asked for, and nobody has to answer. From any thread."""
        return self._send(document)

    def _send(self, document):
        line = json.dumps({"v": VERSION, **document}, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError:
            return False
        return True

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
        name = asked["ask"] if isinstance(asked["ask"], str) else ""
        if name in self._slow:
            args = name, asked, reply
            threading.Thread(target=self._take_time, args=args, name=f"plimsoll-{name}", daemon=True).start()
            return True
        verb = self._asks.get(name)
        if verb is None:
            return self._send({**reply, "error": "unknown"})
        try:
            said = verb(asked)
            return self._send({**reply, **({} if "error" in said else {"ok": True}), **said})
        except Exception as exc:
            return self._send({**reply, "error": f"{type(exc).__name__}: {exc}"[:200]})

    def _take_time(self, name, asked, reply):
        function, turn = self._slow[name]
        if not turn.acquire(blocking=False):
            self._send({**reply, "error": "running"})
            return
        try:
            said = {"ok": True, **function(asked)}
        except Exception as exc:
            said = {"error": f"{type(exc).__name__}: {exc}"[:200]}
        finally:
            turn.release()
        self._send({**reply, **said})

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
