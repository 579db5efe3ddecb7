"""What a request leaves on the page: a begin record when it reaches user code, an end record when it is really over.

Two places feed a Call. The outermost ASGI layer (Edge) makes it, hands it down in a contextvar and sees the reply go
out; the wrappers around handlers begin and end in the very thread that runs the handler, so they see the true exception
and the true end: a handler that outlives its timed-out request keeps its Call open. The end record is written when no
handler runs any more and the reply was handed over, or the application was done with the request.

Where a handler cannot know its request, or user code runs before any handler, the Call begins at the edge: batchable
endpoints (the batcher's task carries the context of the first request it ever saw), the submitting of tasks, services
with ASGI middleware of their own, and mounted applications.
"""

import contextvars
import functools
import inspect
import re

from plimsoll import page as pages

current = contextvars.ContextVar("plimsoll_call", default=None)

ID_HEADER = b"x-plimsoll-id"
WARMUP_HEADER = b"x-plimsoll-warmup"
ID_FORM = re.compile(rb"[0-9a-fA-F]{16}")

# Answered by the server itself, without user code that could have side effects
SYSTEM_PATHS = ("/", "/livez", "/healthz", "/readyz", "/metrics", "/docs.json", "/schema.json")
SYSTEM_FOLDERS = ("/static_content/", "/assets/")


class Call:
    """One request, or one handler call that belongs to no request (`request` 0)."""

    __slots__ = ("request", "flags", "endpoint", "begun_us", "handlers", "finished", "cut", "ended", "status",
                 "outcome", "error")  # fmt: skip

    def __init__(self, request=0, flags=0, endpoint=None, finished=False):
        self.request = request
        self.flags = flags
        self.endpoint = endpoint
        self.begun_us = None
        self.handlers = 0
        self.finished = finished  # the reply was handed over, or the application is done
        self.cut = False  # given up while a handler may still run
        self.ended = False
        self.status = 0
        self.outcome = 0
        self.error = ""

    @property
    def route(self):
        return pages.NO_ROUTE if self.endpoint is None else self.endpoint.index


class Endpoint:
    """One API of the service. `batches` counts running calls of a batchable one; `waiting` are Calls that were given up
    while a batch that may hold their data was running. `ended` counts its Calls."""

    def __init__(self, index, path, kind, batchable):
        self.index = index
        self.path = path
        self.kind = kind
        self.batchable = batchable
        self.at_edge = batchable
        self.batches = 0
        self.waiting = []
        self.ended = 0
        self.error = None


def outcome_of(error):
    """What an exception that left a handler means for its request."""
    if isinstance(error, GeneratorExit) or type(error).__name__ == "CancelledError":
        return pages.CANCELLED
    status = getattr(getattr(error, "error_code", None), "value", None)  # BentoMLException
    if status is None and type(error).__module__.startswith("pydantic") and type(error).__name__ == "ValidationError":
        status = 400
    return pages.CLIENT_ERROR if isinstance(status, int) and 400 <= status < 500 else pages.ERROR


class Recorder:
    """All bookkeeping of Calls; thread-safe. `history` tags what PyTorch allocates while it is `tagging`."""

    def __init__(self, page, history=None):
        self.page = page
        self.history = history

    # --- with the page's lock held

    def _begin(self, call):
        if call.begun_us is None:
            call.begun_us = self.page.begin(call.request, call.flags, call.route)

    def _settle(self, call):
        if call.handlers > 0 or not call.finished or call.ended:
            return
        call.ended = True
        if call.flags & pages.ZOMBIE:
            self.page.add("zombies", -1)
        if call.begun_us is None:
            if call.request == 0:
                return
            call.flags |= pages.UNBEGUN
        if call.endpoint is not None:
            call.endpoint.ended += 1
        if call.flags & pages.BATCHED and call.status >= 500 and not call.error:
            call.error = call.endpoint.error or ""
        outcome = call.outcome or self._judge(call)
        self.page.end(call.request, call.flags, call.route, call.begun_us, call.status, outcome, call.error)

    def _judge(self, call):
        """The outcome of a Call whose handlers raised nothing."""
        if call.cut or call.status == 0 and call.request != 0:
            return pages.CANCELLED
        if call.status < 400:
            return pages.OK
        return pages.CLIENT_ERROR if call.status < 500 else pages.ERROR

    def _zombie(self, call):
        if not call.flags & pages.ZOMBIE:
            call.flags |= pages.ZOMBIE
            self.page.add("zombies")

    def _fail(self, call, error):
        call.outcome = outcome_of(error)
        call.error = type(error).__name__

    # --- the edge

    def arrived(self, call, at_edge):
        with self.page.lock:
            self.page.stamp("serving_ms")
            self.page.add("progress")
            if call.flags & pages.TASK:
                self.page.add("tasks")
            if at_edge:
                self._begin(call)

    def sent(self, call, last):
        """A piece of the reply was handed to the transport. A task goes on behind its reply, and a reply that says that
        the request was given up is not its end."""
        with self.page.lock:
            self.page.add("progress")
            if last and not call.cut and not call.flags & pages.TASK:
                call.finished = True
                self._settle(call)

    def left(self, call, error):
        """The application returned. Handlers that still run do so on their own."""
        with self.page.lock:
            self.page.add("progress")
            if call.flags & pages.TASK:
                self.page.add("tasks", -1)
            if call.ended:
                return
            if error is not None and call.outcome == 0:
                self._fail(call, error)
            if call.flags & pages.BATCHED and call.cut and call.endpoint.batches > 0:
                call.handlers += 1
                call.endpoint.waiting.append(call)
            if call.handlers > 0:
                self._zombie(call)
            call.finished = True
            self._settle(call)

    # --- handlers

    def handler_begins(self, endpoint):
        call = current.get()
        with self.page.lock:
            if call is None or call.ended:
                call = self._orphan(call, endpoint)
            call.handlers += 1
            self._begin(call)
            self.page.add("progress")
        return call

    def _orphan(self, stale, endpoint):
        """A handler without an open request: called by code of the user's own, or started in the moment in which its
        request was given up. The second keeps the request's number."""
        call = Call(endpoint=endpoint, finished=True)
        if stale is not None and stale.cut:
            call.request = stale.request
            self._zombie(call)
        return call

    def handler_ends(self, call, error):
        with self.page.lock:
            call.handlers -= 1
            self.page.add("progress")
            if error is not None:
                self._fail(call, error)
            elif call.handlers == 0:  # the last one decides: it may have dealt with another's failure
                call.outcome, call.error = 0, ""
            self._settle(call)

    def batch_begins(self, endpoint):
        with self.page.lock:
            endpoint.batches += 1
            self.page.add("batches")
            self.page.add("progress")

    def batch_ends(self, endpoint, error):
        with self.page.lock:
            endpoint.batches -= 1
            endpoint.error = None if error is None else type(error).__name__
            self.page.add("progress")
            if endpoint.batches > 0:
                return
            waiting, endpoint.waiting = endpoint.waiting, []
            for call in waiting:
                call.handlers -= 1
                self._settle(call)


class Span:
    """One run of a handler, as a context manager: tells the recorder when it begins and how it ends. `own_thread`: it has
    its thread for itself, so that what the thread allocates is the request's."""

    __slots__ = ("recorder", "endpoint", "call", "own_thread")

    def __init__(self, recorder, endpoint, own_thread=False):
        self.recorder = recorder
        self.endpoint = endpoint
        self.own_thread = own_thread

    def __enter__(self):
        if self.endpoint.batchable:
            self.recorder.batch_begins(self.endpoint)
        else:
            self.call = self.recorder.handler_begins(self.endpoint)
            if self.own_thread and self.recorder.history is not None and self.recorder.history.tagging:
                self.recorder.history.tag(self.endpoint.path, self.call.request)

    def __exit__(self, kind, error, where):
        if self.own_thread and self.recorder.history is not None and self.recorder.history.tagging:
            self.recorder.history.tag("", 0)
        if self.endpoint.batchable:
            self.recorder.batch_ends(self.endpoint, error)
        else:
            self.recorder.handler_ends(self.call, error)
        return False


def wrap(func, recorder, endpoint):
    """A wrapper of the same kind as `func`: BentoML looks at the kind again on every call."""
    if inspect.isasyncgenfunction(func):

        @functools.wraps(func)
        async def wrapper(*args, **kwargs):
            with Span(recorder, endpoint):
                items = func(*args, **kwargs)
                try:
                    async for item in items:
                        yield item
                finally:
                    await items.aclose()

    elif inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with Span(recorder, endpoint):
                yield from func(*args, **kwargs)

    elif inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def wrapper(*args, **kwargs):
            with Span(recorder, endpoint):
                return await func(*args, **kwargs)

    else:

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with Span(recorder, endpoint, own_thread=True):
                return func(*args, **kwargs)

    return wrapper


def request_of(headers):
    """(id, flags) from the headers; an id that is not 16 hex digits is none."""
    request, flags = 0, 0
    for name, value in headers:
        if name == ID_HEADER and request == 0 and ID_FORM.fullmatch(value):
            request = int(value, 16)
        elif name == WARMUP_HEADER:
            flags |= pages.WARMUP
    return request, flags


class Routes:
    """From method and path to what a Call has to know: (endpoint or None, flags, whether it begins at the edge)."""

    def __init__(self, endpoints, prefix, everything_at_edge, mounts):
        self._plain, self._patterns = {}, []
        self._everything = everything_at_edge
        self._mounts = mounts
        self._system = frozenset(prefix + p for p in SYSTEM_PATHS) | {prefix or "/"}
        self._folders = tuple(prefix + f for f in SYSTEM_FOLDERS)
        for e in endpoints:
            self._add(e.path, e, 0)
            if e.kind == "task":
                for verb in ("/submit", "/retry"):
                    self._add(e.path + verb, e, pages.TASK)
                for verb in ("/status", "/get", "/cancel"):
                    self._add(e.path + verb, None, 0)

    def _add(self, path, endpoint, flags):
        if "{" in path:
            names = re.split(r"\{[^}]*\}", path)
            self._patterns.append((re.compile("[^/]+".join(map(re.escape, names))), (endpoint, flags)))
        else:
            self._plain[path] = (endpoint, flags)

    def find(self, method, path):
        hit = self._plain.get(path)
        if hit is None:
            hit = next((h for form, h in self._patterns if form.fullmatch(path)), None)
        if hit is None:
            ours = path in self._system or path.startswith(self._folders)
            return None, 0, (self._everything or self._mounts) and not ours
        endpoint, flags = hit
        if endpoint is None or method != "POST":
            return None, 0, self._everything
        if endpoint.kind == "stream":
            flags |= pages.STREAM
        if endpoint.batchable:
            flags |= pages.BATCHED
        return endpoint, flags, self._everything or endpoint.at_edge or bool(flags & pages.TASK)


class Edge:
    """The outermost ASGI layer: makes a Call for each request and watches its reply leave."""

    def __init__(self, app, recorder, routes):
        self.app = app
        self.recorder = recorder
        self.routes = routes

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self._lifespan(scope, receive, send)
        request, flags = request_of(scope.get("headers", ()))
        endpoint, more, at_edge = self.routes.find(scope.get("method", "GET"), scope["path"])
        flags |= more
        if at_edge and not flags & (pages.BATCHED | pages.TASK):
            flags |= pages.EDGE
        call = Call(request, flags, endpoint)
        current.set(call)
        self.recorder.arrived(call, at_edge)

        async def watched_send(message):
            await send(message)
            kind = message["type"]
            if kind == "http.response.start":
                call.status = message["status"]
            self.recorder.sent(call, kind == "http.response.body" and not message.get("more_body", False))

        error = None
        try:
            await self.app(scope, receive, watched_send)
        except BaseException as exc:
            error = exc
            call.cut = call.cut or type(exc).__name__ == "CancelledError"
            raise
        finally:
            self.recorder.left(call, error)

    async def _lifespan(self, scope, receive, send):
        async def watched_send(message):
            if message["type"] == "lifespan.startup.complete":
                with self.recorder.page.lock:
                    self.recorder.page.stamp("loaded_ms")
            await send(message)

        await self.app(scope, receive, watched_send)
