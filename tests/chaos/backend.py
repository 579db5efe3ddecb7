#!/usr/bin/env python3
"""The server behind a service of the chaos suite: what it answers can be checked to the byte, and it writes down every
request that reached it. On --socket PATH or --port N; --name is the first part of every path.

    POST /NAME/echo?ms=N        the digest of the request's id and body, the id, then the body again; after N ms
    POST /NAME/stream?n=N&ms=M  a chunked reply of N numbered lines, M ms apart, and a last one with their digest
    POST /NAME/big?bytes=N      N bytes that follow from the id
    POST /NAME/lie?kind=K       a reply that is none: LIES
    POST /NAME/early            413 before the body was read, and the connection is closed

$JOURNAL gets "load NAME PID" for each start, as if a model was loaded; $RECEIPTS gets "ID NAME PID" when a head came.
"""

import argparse
import asyncio
import hashlib
import os
import signal
import socket
import struct
import time
import urllib.parse

OK = b"HTTP/1.1 200 OK\r\n"
LOAD_S = 0.15  # a model that is quick to load


def digest(request_id, body):
    return hashlib.sha256(request_id.encode() + b"\n" + body).hexdigest().encode()


def echo_of(request_id, body):
    return digest(request_id, body) + b" " + request_id.encode() + b"\n" + body


def line_of(request_id, i):
    return f"{request_id} {i}\n".encode()


def stream_of(request_id, n):
    """The pieces of a whole stream."""
    lines = [line_of(request_id, i) for i in range(n)]
    return [*lines, b"end " + digest(request_id, b"".join(lines)) + b"\n"]


def big_of(request_id, count):
    block = hashlib.sha512(request_id.encode()).digest()
    return (block * (count // len(block) + 1))[:count]


# ---- replies that are none: what is sent, and how the connection ends. {ID} is the request's id.

WHOLE = b"ten bytes!"
FIN, RESET, HOLD, KEEP = "fin", "reset", "hold", "keep"
LIES = {
    "short": (OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 300, FIN),
    "short_held": (OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 300, HOLD),
    "extra": (OK + b"Content-Length: 10\r\n\r\n" + WHOLE + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad" * 4, KEEP),
    "chunk_size": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\nhello\r\n0\r\n\r\n", KEEP),
    "chunk_huge": (OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nhello", KEEP),
    "chunk_cut": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhe", FIN),
    "chunk_unended": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", FIN),
    "chunk_no_crlf": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n", KEEP),
    "both_framings": (OK + b"Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", KEEP),
    "two_lengths": (OK + b"Content-Length: 10\r\nContent-Length: 12\r\n\r\n" + WHOLE + b"ab", KEEP),
    "minus_length": (OK + b"Content-Length: -1\r\n\r\n", KEEP),
    "garbage": (b"SSH-2.0-OpenSSH_9.2p1\r\n", KEEP),
    "nothing": (b"", FIN),
    "reset": (b"", RESET),
    "reset_in_head": (OK + b"Content-Le", RESET),
    "reset_in_body": (OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 5000, RESET),
    "half_a_head": (OK + b"Content-Type: text/pl", HOLD),
    "silent": (b"", HOLD),
    "switch_unasked": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", KEEP),
    "interim": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + OK + b"Content-Length: 10\r\n\r\n" + WHOLE, KEEP),
    "no_content_with_body": (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nbad", KEEP),
    "head_without_end": (OK + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 900) for i in range(400)), HOLD),
    "until_the_end": (OK + b"Connection: close\r\n\r\n" + WHOLE, FIN),
}


class Server:
    def __init__(self, name):
        self.name = name
        self.receipts = os.open(os.environ.get("RECEIPTS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.writers = set()

    async def serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head[:-4].decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:])}
        url = urllib.parse.urlsplit(target)
        if url.path in ("/readyz", "/livez", "/metrics"):
            writer.write(OK + b"Content-Length: 0\r\n\r\n")
            return True
        request_id = headers.get("x-chaos", "")
        os.write(self.receipts, f"{request_id} {self.name} {os.getpid()}\n".encode())
        asked = dict(urllib.parse.parse_qsl(url.query))
        what = url.path.rpartition("/")[2]
        if what == "early":  # answers before it has read the body, as servers do that refuse it
            writer.write(b"HTTP/1.1 413 Too Large\r\nX-Chaos: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % request_id.encode())
            await writer.drain()
            return False
        body = await self.body(reader, headers)
        if what == "lie":
            return await self.lie(writer, LIES[asked["kind"]])
        await asyncio.sleep(int(asked.get("ms", 0)) / 1000 if what == "echo" else 0)
        if what == "stream":
            await self.stream(writer, request_id, int(asked["n"]), int(asked["ms"]) / 1000)
            return True
        whole = big_of(request_id, int(asked["bytes"])) if what == "big" else echo_of(request_id, body)
        writer.write(b"%sX-Chaos: %s\r\nContent-Length: %d\r\n\r\n" % (OK, request_id.encode(), len(whole)))
        writer.write(whole)
        await writer.drain()
        return True

    async def body(self, reader, headers):
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await reader.readexactly(int(headers.get("content-length", 0)))
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            if await reader.readexactly(2) != b"\r\n":
                raise ValueError("a chunk that does not end")
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)

    async def stream(self, writer, request_id, n, pause):
        writer.write(OK + b"X-Chaos: %s\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" % request_id.encode())
        for piece in stream_of(request_id, n):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def lie(self, writer, lie):
        data, end = lie
        writer.write(data)
        if end == RESET:
            await writer.drain()
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        await writer.drain()
        if end == HOLD:
            await asyncio.sleep(60)
        return end == KEEP


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket")
    parser.add_argument("--port", type=int)
    parser.add_argument("--name", required=True)
    parser.add_argument("--generation", help="changes nothing: a reload that changes it makes a new generation")
    args = parser.parse_args()
    with open(os.environ.get("JOURNAL", os.devnull), "a") as journal:
        journal.write(f"load {args.name} {os.getpid()}\n")
    time.sleep(LOAD_S)
    server = Server(args.name)
    if args.socket:
        listening = await asyncio.start_unix_server(server.serve, args.socket, backlog=1024, limit=1 << 22)
    else:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", args.port, backlog=1024, limit=1 << 22)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    listening.close()
    for writer in list(server.writers):
        writer.close()


if __name__ == "__main__":
    asyncio.run(main())
