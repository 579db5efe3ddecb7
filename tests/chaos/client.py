"""Clients that believe nothing. Each is a thread with a random generator of its own, one connection, and one request after
the other (or several at once, pipelined); every request ends with exactly one Outcome, which the books keep."""

import dataclasses
import json
import random
import socket
import struct
import threading
import time

import backend

HANG_S = 45  # longer than any limit of the server under test: no answer until then is none
REFUSED = {429, 502, 503, 504, 413}


@dataclasses.dataclass
class Outcome:
    """`what`: ok, left (we went), closed (the answer before it said that no other comes), refused (no connection), cut, hang,
    wrong, or the status of a clean refusal."""

    id: str
    kind: str
    began: float
    what: str
    detail: str = ""
    ended: float = 0.0
    kept_since: float | None = None  # cut before a byte of it came, on a connection that was used before: when that was opened


class Closed(Exception):
    """Told in time: what was sent behind that request is not looked at (RFC 9112, 9.6), and may be sent again."""


class Cut(Exception):
    """The connection ended before the reply did: nothing that came looks whole."""


class Wrong(Exception):
    """What came cannot be explained by any end of a connection."""


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Wire:
    """One connection, read strictly: framing as RFC 9112 has it, nothing forgiven."""

    def __init__(self, address):
        self.sock = socket.create_connection(address, timeout=HANG_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data, self.told_to_close, self.used, self.opened = b"", False, False, time.monotonic()

    def send(self, data):
        """False: the other side takes no more. What it said before that is still read."""
        try:
            self.sock.sendall(data)
            return True
        except TimeoutError:
            raise
        except OSError:
            return False

    def _more(self):
        try:
            got = self.sock.recv(262144)
        except TimeoutError:
            raise
        except OSError as e:
            raise Cut(repr(e)) from None
        if not got:
            raise Cut(f"end after {len(self.data)} bytes")
        self.data += got

    def until(self, mark, limit=70000):
        while mark not in self.data:
            if len(self.data) > limit:
                raise Wrong(f"no {mark!r} in {limit} bytes")
            self._more()
        head, _, self.data = self.data.partition(mark)
        return head

    def exactly(self, count):
        while len(self.data) < count:
            self._more()
        out, self.data = self.data[:count], self.data[count:]
        return out

    def reply(self):
        while True:
            head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            version, _, rest = head[0].partition(" ")
            if version != "HTTP/1.1" or not rest[:3].isdigit():
                raise Wrong(f"status line {head[0][:80]!r}")
            status = int(rest[:3])
            if status >= 200:
                break
        headers = {}
        for line in head[1:]:
            name, colon, value = line.partition(":")
            if not colon or name.lower() in headers and name.lower() in ("content-length", "transfer-encoding"):
                raise Wrong(f"header {line[:80]!r}")
            headers[name.lower()] = value.strip()
        self.told_to_close = headers.get("connection", "").lower() == "close"
        return Reply(status, headers, self._body(status, headers))

    def _body(self, status, headers):
        if status in (204, 304):
            return b""
        if "transfer-encoding" in headers:
            if "content-length" in headers or headers["transfer-encoding"] != "chunked":
                raise Wrong(f"framing {headers}")
            return self._chunks()
        if "content-length" not in headers:
            raise Wrong("a reply without a framing")
        return self.exactly(int(headers["content-length"]))

    def _chunks(self):
        parts = []
        while True:
            size = self.until(b"\r\n").split(b";")[0]
            if int(size, 16) == 0:
                while self.until(b"\r\n"):
                    pass
                return b"".join(parts)
            parts.append(self.exactly(int(size, 16)))
            if self.exactly(2) != b"\r\n":
                raise Wrong("a chunk that does not end")

    def nothing_more(self):
        """Between two requests nothing may come."""
        if self.data:
            raise Wrong(f"bytes that nobody asked for: {self.data[:80]!r}")

    def leave(self):
        """A reset, as from a client that was killed."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def head(method, path, request_id, *lines):
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: chaos", f"X-Chaos: {request_id}", *lines, "", "")).encode()


def with_length(path, request_id, body, *lines):
    return head("POST", path, request_id, f"Content-Length: {len(body)}", *lines) + body


def chunked(path, request_id, body, rng):
    parts, at = [head("POST", path, request_id, "Transfer-Encoding: chunked")], 0
    while at < len(body):
        size = rng.randrange(1, 1 + min(40000, len(body) - at))
        parts.append(b"%x\r\n%s\r\n" % (size, body[at:at + size]))
        at += size
    return [*parts, b"0\r\n\r\n"]


def is_refusal(reply):
    """One of ours says why, in the shape of its service."""
    if reply.status not in REFUSED:
        return False
    try:
        return "error" in json.loads(reply.body)
    except ValueError:
        return False


class Client(threading.Thread):
    """`mix`: {kind: weight} of the methods below."""

    def __init__(self, number, seed, address, books, stop, mix, think_s):
        super().__init__(daemon=True, name=f"client {number}")
        self.number, self.address, self.books, self.stop, self.think_s = number, address, books, stop, think_s
        self.rng = random.Random(f"{seed}/{number}")
        self.kinds, self.weights = list(mix), list(mix.values())
        self.seed, self.count, self.wire = seed, 0, None

    def new_id(self):
        self.count += 1
        return f"{self.seed}-{self.number}-{self.count}"

    def run(self):
        while not self.stop.is_set():
            kind = self.rng.choices(self.kinds, self.weights)[0]
            getattr(self, kind)(kind)
            self.stop.wait(self.rng.random() * self.think_s)
        self._drop()

    def _drop(self):
        if self.wire is not None:
            self.wire.sock.close()
            self.wire = None

    def _note(self, outcome):
        outcome.ended = time.monotonic()
        self.books.note(outcome)

    def _connect(self):
        if self.wire is None:
            self.wire = Wire(self.address)

    def _ask(self, kind, parts_of, check, count=1, after=None, fresh=False):
        """Sends `count` requests at once and reads as many replies. `parts_of(id)`: what is sent; `check(id, reply)` raises
        Wrong, or returns the outcome's word for a reply that came whole."""
        ids = [self.new_id() for _ in range(count)]
        began = time.monotonic()
        if fresh:
            self._drop()
        try:
            self._connect()
        except OSError as e:
            for i in ids:
                self._note(Outcome(i, kind, began, "hang" if isinstance(e, TimeoutError) else "refused", repr(e)))
            time.sleep(0.02)  # who refuses must not be stormed
            return
        wire, at = self.wire, 0
        used, wire.used = wire.used, True
        try:
            for i in ids:
                for part in parts_of(i):
                    if not wire.send(part):
                        break
            if after is not None:
                after(wire)
            for i in ids:
                self._note(Outcome(i, kind, began, *self._judge(i, wire.reply(), check)))
                at += 1
                if wire.told_to_close and at < count:
                    raise Closed
            wire.nothing_more()
            if wire.told_to_close or after is not None:
                self._drop()
        except Closed:
            self._rest(ids[at:], kind, began, "closed", "")
        except Cut as e:
            detail = f"{e} on a connection of {time.monotonic() - wire.opened:.2f} s, {'used' if used else 'new'}"
            self._rest(ids[at:], kind, began, "cut", detail, kept_since=wire.opened if used and at == 0 and not wire.data else None)
        except TimeoutError:
            self._rest(ids[at:], kind, began, "hang", f"nothing for {HANG_S} s, after {wire.data[:60]!r}")
        except Wrong as e:
            self._rest(ids[at:] or ids[-1:], kind, began, "wrong", str(e))

    def _judge(self, request_id, reply, check):
        if is_refusal(reply) and "x-chaos" not in reply.headers:
            return str(reply.status), f"{reply.headers.get('x-plimsoll-reason')}: {reply.body[:160]!r}"
        told = reply.headers.get("x-chaos")
        if told is not None and told != request_id:
            raise Wrong(f"the reply of {told}")
        return check(request_id, reply), ""

    def _rest(self, ids, kind, began, what, detail, **more):
        for i in ids:
            self._note(Outcome(i, kind, began, what, detail, **more))
        self._drop()

    # ---- kinds of requests

    def _echo(self, kind, path, body, parts=None, **more):
        def check(request_id, reply):
            if reply.status != 200 or reply.body != backend.echo_of(request_id, body):
                raise Wrong(f"status {reply.status}, {len(reply.body)} bytes: {reply.body[:100]!r}")
            return "ok"

        self._ask(kind, parts or (lambda i: [with_length(path, i, body)]), check, **more)

    def _body(self, most):
        return self.rng.randbytes(self.rng.randrange(most))

    def small(self, kind):
        self._echo(kind, "/echo/echo", self._body(400))

    def again(self, kind):
        """May be sent again: its service is idempotent."""
        self._echo(kind, "/again/echo", self._body(4000))

    def large(self, kind):
        self._echo(kind, "/echo/echo", self._body(2_500_000 if self.rng.random() < 0.1 else 200_000))

    def slow(self, kind):
        self._echo(kind, f"/echo/echo?ms={self.rng.randrange(100, 1500)}", self._body(400))

    def chunks(self, kind):
        body = self._body(300_000 if self.rng.random() < 0.2 else 20_000)
        self._echo(kind, "/echo/echo", body, lambda i: chunked("/echo/echo", i, body, self.rng))

    def pipelined(self, kind):
        self._echo(kind, "/echo/echo", self._body(400), count=self.rng.randrange(2, 9))

    def half_closed(self, kind):
        """Says all it has to say, then no more: the answer still comes whole."""
        self._echo(kind, "/echo/echo?ms=20", self._body(400), fresh=True, after=lambda wire: wire.sock.shutdown(socket.SHUT_WR))

    def big(self, kind):
        count = self.rng.randrange(3_000_000 if self.rng.random() < 0.1 else 300_000)

        def check(request_id, reply):
            if reply.status != 200 or reply.body != backend.big_of(request_id, count):
                raise Wrong(f"status {reply.status}, {len(reply.body)} bytes of {count}")
            return "ok"

        self._ask(kind, lambda i: [with_length(f"/echo/big?bytes={count}", i, i.encode())], check)

    def stream(self, kind):
        n, ms = self.rng.randrange(2, 40), self.rng.randrange(0, 60)

        def check(request_id, reply):
            if reply.status != 200 or reply.body != b"".join(backend.stream_of(request_id, n)):
                raise Wrong(f"status {reply.status}, {len(reply.body)} bytes: {reply.body[-100:]!r}")
            return "ok"

        self._ask(kind, lambda i: [with_length(f"/echo/stream?n={n}&ms={ms}", i, i.encode())], check)

    def bento(self, kind):
        self._bento(kind, "/bento/echo")

    def card(self, kind):
        self._bento(kind, "/card/echo")

    def _bento(self, kind, path):
        text = self.rng.randbytes(self.rng.randrange(200)).hex()

        def parts(request_id):
            return [with_length(path, request_id, json.dumps({"id": request_id, "text": text}).encode(),
                                "Content-Type: application/json")]

        def check(request_id, reply):
            if reply.status == 500:  # the service says so itself
                return "500"
            if reply.status != 200 or reply.body.decode() != f"{backend.digest(request_id, text.encode()).decode()} {request_id} {text}":
                raise Wrong(f"status {reply.status}: {reply.body[:200]!r}")
            return "ok"

        self._ask(kind, parts, check)

    def ours(self, kind):
        """What main answers by itself, whatever workers do."""
        path = self.rng.choice(["/livez", "/metrics"])

        def check(_, reply):
            if reply.status != 200 or not reply.body:
                raise Wrong(f"{path}: status {reply.status}")
            return "ok"

        self._ask(kind, lambda i: [head("GET", path, i)], check)

    def leaving(self, kind):
        """Goes at some byte, as a client that was killed."""
        request_id, began = self.new_id(), time.monotonic()
        self._drop()
        try:
            self._connect()
        except OSError as e:
            self._note(Outcome(request_id, kind, began, "refused", repr(e)))
            return
        data = with_length("/echo/echo?ms=50", request_id, self._body(20000))
        self.wire.send(data[:self.rng.randrange(1, len(data) + 1)])
        self.stop.wait(self.rng.random() * 0.1)
        (self.wire.leave if self.rng.random() < 0.5 else self.wire.sock.close)()
        self.wire = None
        self._note(Outcome(request_id, kind, began, "left"))

    def lie(self, kind):
        """The upstream lies. What may come of it is in TRUTHS: a whole reply only where there is one."""
        which = self.rng.choice(sorted(backend.LIES))
        status, body = TRUTHS.get(which, (None, None))

        def check(_, reply):
            if (reply.status, reply.body) != (status, body):
                raise Wrong(f"{which} became status {reply.status} and {reply.body[:80]!r}")
            return "ok"

        self._ask(kind, lambda i: [with_length(f"/liar/lie?kind={which}", i, i.encode())], check)

    def early(self, kind):
        """Answered before its body was read. No two are alike: what was in hand at two deaths is refused."""
        body = self.rng.randbytes(1000) * self.rng.randrange(100, 12_000)

        def check(_, reply):
            if reply.status != 413:
                raise Wrong(f"status {reply.status}: {reply.body[:80]!r}")
            return "ok"

        self._ask(kind, lambda i: [with_length("/liar/early", i, body)], check, fresh=True)


# The lies of backend.py that hold a whole reply all the same.
TRUTHS = {
    "extra": (200, backend.WHOLE),
    "interim": (200, backend.WHOLE),
    "until_the_end": (200, backend.WHOLE),
    "no_content_with_body": (204, b""),
}
EXPECTED = {"lie": {"cut", "502", "504"}, "early": {"cut", "502"}, "leaving": {"left"}, "card": {"429"}}
