"""One HTTP request at a time: over http.client where a well-behaved client will do, over a raw socket where not."""

import dataclasses
import http.client
import json as jsonlib
import socket
import struct


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict  # names in lower case
    body: bytes

    def json(self):
        return jsonlib.loads(self.body)

    def text(self):
        return self.body.decode()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Secure(tuple):
    """(host, port) where TLS is spoken, with the ssl.SSLContext to do it with: Secure(address, context)."""

    def __new__(cls, address, context):
        made = super().__new__(cls, address)
        made.context = context
        return made


def connection(address, timeout=30):
    """`address`: (host, port), Secure, or the path of a Unix socket."""
    if isinstance(address, Secure):
        return http.client.HTTPSConnection(*address, timeout=timeout, context=address.context)
    if isinstance(address, tuple):
        return http.client.HTTPConnection(*address, timeout=timeout)
    return _UnixConnection(address, timeout)


def exchange(conn, method, path, body=None, headers=None):
    """On an open connection. A dict or list is sent as JSON. A reply that is cut raises as http.client does."""
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = jsonlib.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    conn.request(method, path, body=body, headers=headers)
    response = conn.getresponse()
    data = response.read()
    return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, data)


def request(address, method, path, body=None, headers=None, timeout=30):
    conn = connection(address, timeout)
    try:
        return exchange(conn, method, path, body, headers)
    finally:
        conn.close()


def connect(address, timeout=30):
    sock = socket.create_connection(address, timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def send_head(sock, method, path, headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: test", *(f"{k}: {v}" for k, v in headers), "", ""]
    sock.sendall("\r\n".join(lines).encode())


def read_reply(sock, method="POST"):
    """(Reply, whole): what came on this socket. Not whole: the connection ended before the reply did."""
    response = http.client.HTTPResponse(sock, method=method)
    response.begin()
    try:
        body, whole = response.read(), True
    except http.client.IncompleteRead as e:
        body, whole = e.partial, False
    except ConnectionResetError:
        body, whole = b"", False
    return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, body), whole


def leave(sock):
    """A reset, as from a client that was killed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
