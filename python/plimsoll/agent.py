"""plimsoll.watch(): a server that is not of our making tells Plimsoll what its requests do to memory.

    app = plimsoll.watch(app)                  any ASGI application; or app.add_middleware(plimsoll.watch)
    with plimsoll.watch("embed", batch):       any code, such as a handler of another framework

The server goes on as before when Plimsoll is not there. When it is, an agent thread connects to run_dir/agents.sock at
the first request (PLIMSOLL_AGENTS says where, or `socket=`), is given the page of the worker that this process belongs
to, and answers what main asks. It comes again when main was restarted, and when another process of the worker has the
page: a page has one writer. Of several processes of one worker one is seen.
"""

import array
import json
import os
import socket
import sys
import threading
import time

from plimsoll import control, page, records, shapes

AGAIN_S = 1.0  # main is away for as long as its restart takes
TAKEN_S = 15.0  # another process has the page, or we are nobody's worker
ANSWER_S = 10.0
LINE_BYTES = 4096
EMPTY_CACHE_WAIT_MS = 60_000


class Refused(Exception):
    pass


def answers(recorder):
    """{verb: function}: what every agent can be asked."""
    mine = recorder.page

    def counters():
        with mine.lock:
            return {name: mine.get(name) for name in ("in_flight", "zombies", "tasks", "begun", "ended")}

    def ping(_):
        return {"pid": os.getpid(), **counters()}

    def configure(asked):
        """Settings that a running worker takes over; also those that come with `go`."""
        if asked.get("memory_sync") in ("off", "sampled", "always"):
            recorder.memory.sync = asked["memory_sync"]
        return {}

    def sample(asked):
        told = {**counters(), **recorder.sample()}
        if asked.get("objects") is True:
            told["gc_objects"] = recorder.count_objects()
        return told

    def empty_cache(asked):
        wait_ms = asked.get("wait_ms", 0)
        wait_s = min(max(wait_ms, 0), EMPTY_CACHE_WAIT_MS) / 1000 if isinstance(wait_ms, int) else 0
        return recorder.empty_cache(wait_s) or {"error": "busy"}

    return {"ping": ping, "configure": configure, "sample": sample, "empty_cache": empty_cache}


class Agent:
    """This process, as Plimsoll sees it."""

    def __init__(self, path=None):
        self.path = path
        self.recorder = self._new()
        self._thread = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def _new(self):
        mine = page.Page()
        mine.open(*page.generation())
        return records.Recorder(mine, self._degrade)

    def _degrade(self, feature, reason):
        print(f"event=worker.degraded feature={feature} reason={json.dumps(reason)}", file=sys.stderr, flush=True)

    def _forget(self):
        """In a fork: it is a process of its own, and speaks for itself when it serves."""
        self._thread, self._lock = None, threading.Lock()
        self.recorder = self._new()

    def wake(self):
        """From the first request on there is a thread; not before, since a parent that forks servers serves nobody."""
        if self._thread is not None:
            return
        with self._lock:
            path = self.path or os.environ.get("PLIMSOLL_AGENTS")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(path,), name="plimsoll-agent", daemon=True)
                if path:
                    self._thread.start()

    def _run(self, path):
        while True:
            wait = AGAIN_S
            try:
                self._meet(path)
            except Refused:
                wait = TAKEN_S
            except (OSError, ValueError):
                pass
            time.sleep(wait)

    def _meet(self, path):
        """One acquaintance with main: returns when it is over."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(path)
            self._take_page(connection)
            asks = answers(self.recorder)
            there = control.Control(connection.detach(), asks)
        there.serve_here()

    def _take_page(self, connection):
        fds = array.array("i")
        line, more, _, _ = connection.recvmsg(LINE_BYTES, socket.CMSG_SPACE(fds.itemsize), socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in more:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        try:
            said = json.loads(line)
            if "error" in said or not fds:
                raise Refused(said.get("error"))
            mine = self.recorder.page
            mine.move(fds[0], *page.generation())
            with mine.lock:
                mine.set("features", mine.get("features") | page.F_CONTROL)
        finally:
            for fd in fds:
                os.close(fd)


class Anything:
    """Routes of an application that nobody has described: whatever comes is user code from the edge on."""

    def find(self, method, path):
        return None, 0, True


def template(scope):
    """The path as its route is written, where the framework tells (Starlette, FastAPI); else as it came."""
    found = getattr(scope.get("route"), "path", None)
    return found if isinstance(found, str) else scope.get("path", "")


class Watched(records.Edge):
    """The application with accounts. Probes and pages that only show something (GET without a number of ours) are left
    out: they are not what a server is for."""

    def __init__(self, app, agent, name):
        super().__init__(app, agent.recorder, Anything())
        self.agent = agent
        self.name = name
        self.endpoints = {}

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        self.agent.wake()
        self.recorder = self.agent.recorder  # another one in a fork
        if scope.get("method") in ("GET", "HEAD", "OPTIONS") and records.request_of(scope.get("headers", ()))[0] == 0:
            return await self.app(scope, receive, send)
        await super().__call__(scope, receive, send)

    def before_end(self, scope, call):
        """Its route is known by now. An error's reply goes out before the exception comes out: that is waited for."""
        if call.tag == page.NO_TAG and not call.ended:
            path = template(scope)
            endpoint = self.endpoints.get(path)
            if endpoint is None:
                endpoint = records.Endpoint(page.NO_ROUTE, path, "sync", False, self.name)
                if len(self.endpoints) < page.TAGS:
                    self.endpoints[path] = endpoint
            self.recorder.name(call, endpoint, shapes.of_size(call.input_bytes))

    def is_last(self, call, message):
        return super().is_last(call, message) and call.status < 500


_agent = None
_blocks = {}


def _the_agent(path):
    global _agent
    if _agent is None:
        _agent = Agent(path)
    elif path is not None:
        _agent.path = path
    return _agent


class Block(records.Span):
    """Some code, as a request or as a part of the one around it."""

    def __init__(self, agent, endpoint, values):
        agent.wake()
        super().__init__(agent.recorder, endpoint, (None, *values), {})

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *what):
        return self.__exit__(*what)


def watch(app=None, *values, name=None, socket=None):
    """With an ASGI application: the application, watched. With a text: a context manager for a block of code of that
    name; `values` are its input, and only their shapes are looked at. `name`: of the service, in tags."""
    agent = _the_agent(socket)
    name = name or os.environ.get("PLIMSOLL_WORKER_NAME", "app")
    if callable(app):
        return Watched(app, agent, name)
    title = app if isinstance(app, str) else "block"
    endpoint = _blocks.get((name, title))
    if endpoint is None:
        names = tuple(f"arg{i}" for i in range(len(values)))
        endpoint = records.Endpoint(page.NO_ROUTE, title, "sync", False, name, names)
        if len(_blocks) < page.TAGS:
            _blocks[name, title] = endpoint
    return Block(agent, endpoint, values)

