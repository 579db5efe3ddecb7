"""The lane in this process, and a way to stop one of its threads at every single step of some functions.

uvicorn's protocol over a real socket, the event loop on a thread of its own, the pool's own threads, our own records.
Only the endpoint is a stand-in: it gives back the body, and waits for `gate` first when the body says so.
"""

import asyncio
import contextlib
import select
import socket
import sys
import threading
import time

import uvicorn
from harness import PACKAGE
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

from plimsoll import page, records
from plimsoll.lane import pool, protocol
from plimsoll.lane.protocol import Shared

LANE = str(PACKAGE / "plimsoll" / "lane")
PATIENCE_S = 20
TAIL = b"\r\ncontent-type: application/json\r\nx-bentoml-request-id: %016x\r\n\r\n"


def until(condition, what="", limit_s=PATIENCE_S):
    """As harness.until, and looks more often: there are thousands of these."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"did not come: {what or condition}"
        select.select([], [], [], 0.0002)


class Echo:
    """What protocol.py and run.py want of an Endpoint."""

    is_async = False
    reply_tail = TAIL
    counts = None

    quick = property(lambda self: 64, lambda self, value: None)  # lent, however slow the tracing makes it

    def __init__(self, bench, path):
        self.bench = bench
        self.record = records.Endpoint(0, path, "sync", False)

    def parse(self, body):
        if body == b"exits":
            raise SystemExit(3)
        return (body,), {}

    def local(self, body):
        if body == b"wait":
            self.bench.begun.set()
            assert self.bench.gate.wait(PATIENCE_S)
        return body

    def encode(self, output):
        if output == b"leaves":
            raise asyncio.CancelledError
        return output


async def plain(scope, receive, send):
    """Where BentoML's application stands."""
    if scope["type"] == "http":
        await receive()
        status = 504 if "plimsoll.run" in scope else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"asgi"})


class Step:
    """Stops a thread of the kind `who` ("loop" or "pool") at its `at`-th step in `functions`, and lets it go on."""

    def __init__(self, who, functions, at):
        self.who, self.functions, self.at = who, functions, at
        self.count, self.where = 0, None
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._one = threading.Lock()

    def trace(self, frame, event, _):
        if event == "opcode" and frame.f_code.co_name in self.functions and not self.reached.is_set():
            with self._one:
                self.count += 1
                mine = self.count == self.at
            if mine:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                self.reached.set()
                assert self.go_on.wait(2 * PATIENCE_S)


class Bench:
    """`connect()` gives a client's end; `on_loop()` runs something there."""

    def __init__(self, threads=2):
        self.step = None
        self.begun, self.gate = threading.Event(), threading.Event()
        self.errors = []
        self.loop = asyncio.new_event_loop()
        self.state = ServerState()
        self.made = {}
        self.config = uvicorn.Config(plain, log_level="critical", access_log=False, timeout_keep_alive=3600)
        self.config.load()
        self.cls = protocol.of(AutoHTTPProtocol)
        for name, value in (("lanes", {}), ("pool", None), ("counts", None), ("base", None), ("timer", None),
                            ("running", {}), ("deadline_s", 3600)):  # fmt: skip
            setattr(Shared, name, value)
        Shared.recorder = records.Recorder(page.Page())
        self.loop.set_exception_handler(lambda _, what: self.errors.append(what))
        threading.settrace(self._tracer("pool"))
        self.thread = threading.Thread(target=self._run, args=(threads,), daemon=True)
        self.thread.start()
        until(lambda: Shared.lanes)

    def _run(self, threads):
        async def main():
            sys.settrace(self._tracer("loop"))
            Shared.pool = pool.Pool(threads, self.loop)
            Shared.lanes = {b"/echo": Echo(self, "/echo")}
            self.over = asyncio.Event()
            await self.over.wait()

        self.loop.run_until_complete(main())

    def _tracer(self, who):
        def local(frame, event, arg):
            step = self.step
            if step is not None and step.who == who:
                step.trace(frame, event, arg)
            return local

        def tracer(frame, event, arg):
            if threading.current_thread() is not getattr(self, "thread", None) and who == "loop":
                return None
            if not frame.f_code.co_filename.startswith(LANE):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return local

        return tracer

    def close(self):
        threading.settrace(None)
        self.gate.set()
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(PATIENCE_S)

    def on_loop(self, func, *args, wait=True):
        done = threading.Event()
        out = []

        def call():
            try:
                out.append(func(*args))
            except Exception as exc:
                self.errors.append(exc)
            finally:
                done.set()

        self.loop.call_soon_threadsafe(call)
        if wait:
            assert done.wait(PATIENCE_S), "the loop does not run"
            return out[0] if out else None
        return done

    def settle(self):
        """What the loop had to do is done."""
        for _ in range(3):
            self.on_loop(lambda: None)

    def idle(self):
        """All handler threads wait."""
        return not any(Shared.pool._since) and not Shared.pool._jobs

    def connect(self):
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_S)
        theirs.setblocking(False)

        def accept():
            made = self.cls(config=self.config, server_state=self.state, app_state={}, _loop=self.loop)
            self.made[ours] = made
            self.loop.create_task(self.loop.connect_accepted_socket(lambda: made, theirs))

        self.on_loop(accept)
        return ours


def raw(body=b"{}", path=b"/echo"):
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (path, len(body), body)


def replies(sock, count, limit_s=PATIENCE_S):
    """[(status, body)] of that many; None where the connection ended; raises when nothing comes."""
    data, out, deadline = b"", [], time.monotonic() + limit_s
    while True:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if mark:
            length = next(int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length"))
            if len(rest) >= length:
                out.append((int(head[9:12]), rest[:length]))
                data = rest[length:]
                if len(out) == count:
                    assert not data, f"more than {count}: {data!r}"
                    return out
                continue
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([sock], [], [], left)[0]:
            raise TimeoutError(f"no reply, only {out} and {data!r}")
        try:
            more = sock.recv(65536)
        except ConnectionError:
            more = b""
        if not more:
            return [*out, None]
        data += more


def reply(sock):
    return replies(sock, 1)[0]


def ask(sock, body=b"{}", path=b"/echo"):
    sock.sendall(raw(body, path))
    return reply(sock)


def nothing_is_left(bench, sock):
    """The client goes; the connection's descriptor, entries and tasks do, too."""
    mine = bench.made.pop(sock)
    sock.close()
    until(lambda: bench.on_loop(lambda: mine._gone and mine._fd == -1 and not mine._lent and mine._run is None),
          "the connection is given back")  # fmt: skip
    assert mine not in bench.state.connections
    until(lambda: not bench.state.tasks, "no task is left")
    assert not Shared.pool.runs
    assert not bench.errors, bench.errors


@contextlib.contextmanager
def opened(threads):
    bench = Bench(threads)
    try:
        yield bench
    finally:
        bench.close()
