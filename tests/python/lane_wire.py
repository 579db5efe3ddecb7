"""The same bytes to two workers, and what about their answers must agree."""

import re
import socket
import struct

PATIENCE_S = 20
ADDRESS = re.compile(rb"0x[0-9a-f]{6,}")
LOGGED = re.compile(r"(\[ERROR\] \[\S+\] Exception on \S+ \[\w+\]).*(sampled=\d,service\.name=\w+)")


class Connection:
    """A connection that is kept as long as the worker keeps it."""

    def __init__(self, worker):
        self.path = f"/proc/self/fd/{worker._folder()}/s"
        self.sock = None
        self.buf = b""

    def close(self):
        if self.sock is not None:
            self.sock.close()
        self.sock, self.buf = None, b""

    def send(self, data, pieces=0):
        if self.sock is None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(PATIENCE_S)
            self.sock.connect(self.path)
        try:
            for at in range(0, len(data), pieces or len(data)):
                self.sock.sendall(data[at : at + (pieces or len(data))])
        except OSError:
            pass  # answered and closed before it had all; the reply tells

    def vanish(self):
        """Closes so that the other end sees a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def _more(self):
        data = self.sock.recv(1 << 18)
        self.buf += data
        return data

    def _exactly(self, n):
        while len(self.buf) < n and self._more():
            pass
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def _line(self):
        while b"\r\n" not in self.buf and self._more():
            pass
        line, _, self.buf = self.buf.partition(b"\r\n")
        return line

    def reply(self, head_only=False):
        """A dictionary; `line` b"" when the connection ended first."""
        try:
            got = self._reply(head_only)
        except OSError as exc:
            got = {"line": type(exc).__name__.encode(), "headers": [], "body": self.buf, "kept": False}
        if not got["kept"]:
            self.close()
        return got

    def _reply(self, head_only):
        line = self._line()
        if line.startswith(b"HTTP/1.1 100"):
            self._line()
            return {**self._reply(head_only), "continued": True}
        headers = []
        while line:
            text = self._line()
            if not text:
                break
            name, _, value = text.partition(b":")
            headers.append((name, value.strip()))
        fields = {k.lower(): v for k, v in headers}
        kept = bool(line) and fields.get(b"connection", b"").lower() != b"close"
        body = b""
        if head_only:
            pass
        elif line[9:12] == b"204":
            # with one that a handler sets, BentoML sends a length and a body
            body, kept = self._exactly(int(fields.get(b"content-length", b"0"))), False
        elif fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            while True:
                size = self._line()
                if not size:
                    kept = False
                    break
                body += self._exactly(int(size, 16))
                self._exactly(2)
                if int(size, 16) == 0:
                    break
        elif b"content-length" in fields:
            body = self._exactly(int(fields[b"content-length"]))
            kept = kept and len(body) == int(fields[b"content-length"])
        else:
            while self._more():
                pass
            body, self.buf, kept = self.buf, b"", False
        return {"line": line, "headers": headers, "body": body, "kept": kept}


def raw(case, request):
    """The bytes of a case, with the request's number."""
    body = case.get("body")
    data = body if isinstance(body, bytes) else (body or "").encode("utf-8", "surrogatepass")
    lines = [f"{case['method']} {case['path']} HTTP/{case.get('version', '1.1')}", "host: x", f"x-plimsoll-id: {request:016x}"]
    lines += [f"{name}: {value}" for name, value in case["headers"].items()]
    if "chunked" in case:
        sizes, out, at, i = case["chunked"], b"", 0, 0
        while at < len(data):
            part = data[at : at + sizes[min(i, len(sizes) - 1)]]
            out += b"%x\r\n%b\r\n" % (len(part), part)
            at += len(part)
            i += 1
        data = out + b"0\r\n\r\n"
    elif body is not None:
        lines.append(f"content-length: {len(data)}")
    elif case["method"] not in ("GET", "HEAD"):
        lines.append("content-length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


def simplified(got):
    """Without what differs between any two answers: the date, the reply's own id, addresses of objects."""
    body, headers = got["body"], []
    for name, value in got["headers"]:
        name = name.lower()
        if name == b"date":
            value = b"*"
        if name == b"x-bentoml-request-id":
            body = body.replace(value, b"<own request id>")
            value = b"*" * len(value)
        headers.append((name, value))
    return {**got, "headers": headers, "body": ADDRESS.sub(b"0xADDR", body)}


def exchange(connections, case, request):
    """The answers of both workers to one case."""
    times = 2 if case.get("twice") else 1
    used = [c.sock is not None for c in connections]
    for connection in connections:
        connection.send(raw(case, request) * times, case.get("pieces", 0))
    out = []
    for connection, old in zip(connections, used):
        got = [connection.reply(case["method"] == "HEAD")]
        if old and not got[0]["line"].startswith(b"HTTP"):  # it was being closed behind the last reply
            connection.send(raw(case, request) * times, case.get("pieces", 0))
            got = [connection.reply(case["method"] == "HEAD")]
        got += [connection.reply() for _ in range(times - 1)]
        out.append([simplified(g) for g in got])
    return out


def logged(worker):
    """What BentoML said about failures: where, and how it was traced."""
    return [m.groups() for m in map(LOGGED.search, worker.log().splitlines()) if m]


def ends(worker):
    """{request: what the end record says of how it went}. The tag and the flags of what it met are left out: they tell of the way."""
    names = ("kind", "route", "status", "outcome", "error_class", "input_bytes")
    return {r["id"]: {n: r[n] for n in names} for r in worker.page.ends()}


def counted(worker):
    """BentoML's own counts: {(family, endpoint, code): value}."""
    out = {}
    for line in worker.request("GET", "/metrics")[2].decode().splitlines():
        m = re.match(r"bentoml_service_(request_total|request_duration_seconds_count|request_in_progress)\{(.*)\} (\S+)", line)
        if m:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', m[2]))
            out[m[1], labels["endpoint"], labels.get("http_response_code", "")] = float(m[3])
    return out
