"""A client that believes nothing: it reads what came, and says where it ended and how."""

import dataclasses
import socket
import time


@dataclasses.dataclass
class Seen:
    """One final reply. `outcome`: complete, cut, or not HTTP."""

    status: int
    headers: list = dataclasses.field(default_factory=list)
    body: bytes = b""
    outcome: str = "complete"

    def names(self):
        return dict(self.headers)


class Client:
    """One connection; `closed` once the other side has ended it."""

    def __init__(self, address):
        self.sock = socket.create_connection(address, timeout=5)
        self.data, self.closed = b"", False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data, step=None):
        """In pieces of `step` bytes, each a packet. A server that refuses meanwhile has answered: that is read."""
        try:
            if not step:
                self.sock.sendall(data)
                return
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(data), step):
                self.sock.sendall(data[at:at + step])
                time.sleep(0.003)  # so that the pieces are read apart
        except OSError:
            pass

    def more(self, deadline):
        """Whether bytes came before the deadline."""
        left = deadline - time.monotonic()
        if self.closed or left <= 0:
            return False
        self.sock.settimeout(left)
        try:
            got = self.sock.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            got = b""
        self.closed = not got
        self.data += got
        return bool(got)

    def until(self, mark, deadline):
        while mark not in self.data:
            if not self.more(deadline):
                return None
        head, _, self.data = self.data.partition(mark)
        return head

    def exactly(self, count, deadline):
        while len(self.data) < count:
            if not self.more(deadline):
                return None
        out, self.data = self.data[:count], self.data[count:]
        return out

    def interim(self, deadline):
        head = self.until(b"\r\n\r\n", deadline)
        return int(head.split(b" ")[1]) if head else None

    def reply(self, is_head, deadline):
        """The next final reply, or None when there is none."""
        while True:
            head = self.until(b"\r\n\r\n", deadline)
            if head is None:
                return None
            lines = head.split(b"\r\n")
            try:
                status = int(lines[0].split(b" ")[1])
            except (IndexError, ValueError):
                return Seen(-1, outcome="not HTTP")
            if not 100 <= status < 200 or status == 101:
                break
        pairs = (line.partition(b":") for line in lines[1:])
        seen = Seen(status, [(n.decode("latin-1").lower(), v.decode("latin-1").strip(" \t")) for n, _, v in pairs])
        if not is_head and status not in (204, 304):
            self._body(seen, deadline)
        return seen

    def _body(self, seen, deadline):
        names = seen.names()
        if "chunked" in names.get("transfer-encoding", "").lower():
            seen.body, whole = self._chunks(deadline)
        elif "content-length" in names:
            body = self.exactly(int(names["content-length"]), deadline)
            whole = body is not None
            seen.body = body if whole else self.data
        else:
            while self.more(deadline):
                pass
            seen.body, self.data, whole = self.data, b"", self.closed
        seen.outcome = "complete" if whole else "cut"

    def _chunks(self, deadline):
        body = b""
        while True:
            line = self.until(b"\r\n", deadline)
            try:
                size = int(line.split(b";")[0], 16)
            except (AttributeError, ValueError):
                return body, False
            if size == 0:
                while line := self.until(b"\r\n", deadline):
                    pass
                return body, line is not None
            part = self.exactly(size, deadline)
            if part is None or self.exactly(2, deadline) != b"\r\n":
                return body + (part or self.data), False
            body += part
