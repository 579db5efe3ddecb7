"""What a request leaves on the page: a begin record when it reaches user code, an end record when it is really over.

Two places feed a Call. The outermost ASGI layer (Edge) makes it, hands it down in a contextvar and sees the reply go
out; the wrappers around handlers begin and end in the very thread that runs the handler, so they see the true exception
and the true end: a handler that outlives its timed-out request keeps its Call open. The end record is written when no
handler runs any more and the reply was handed over, or the application was done with the request.

Where a handler cannot know its request, or user code runs before any handler, the Call begins at the edge: batchable
endpoints (the batcher's task carries the context of the first request it ever saw), the submitting of tasks, services
with ASGI middleware of their own, and mounted applications.
"""

import _thread
import asyncio
import contextvars
import functools
import inspect
import re
import threading
import time

from plimsoll import looking, memory, shapes
from plimsoll import page as pages

current = contextvars.ContextVar("plimsoll_call", default=None)

OPEN = "plimsoll.call"  # in the scope of a request that has a Call already: the fast lane gives it back

ID_HEADER = b"x-plimsoll-id"
WARMUP_HEADER = b"x-plimsoll-warmup"
LENGTH_HEADER = b"content-length"
ID_FORM = re.compile(rb"[0-9a-fA-F]{16}")

# Answered by the server itself, without user code that could have side effects
SYSTEM_PATHS = ("/", "/livez", "/healthz", "/readyz", "/metrics", "/docs.json", "/schema.json")
SYSTEM_FOLDERS = ("/static_content/", "/assets/")


class Call:
    """One request, or one handler call that belongs to no request (`request` 0)."""

    __slots__ = ("request", "flags", "endpoint", "begun_us", "handlers", "finished", "cut", "ended", "status",
                 "outcome", "error", "account", "number", "tag", "batch", "input_bytes", "streams")  # fmt: skip

    def __init__(self, request=0, flags=0, endpoint=None, finished=False, input_bytes=0):
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
        self.account = None  # of memory, from its begin on; batches have their own
        self.number = 0  # of its begin record, counted from 1
        self.tag = pages.NO_TAG
        self.batch = 0
        self.input_bytes = input_bytes
        self.streams = ()  # of a thread-bound stream: its open Stream, to be closed if the client leaves

    @property
    def route(self):
        return pages.NO_ROUTE if self.endpoint is None else self.endpoint.index


class Endpoint:
    """One API of the service. `batches` counts running calls of a batchable one; `waiting` are Calls that were given up
    while a batch that may hold their data was running. `names` are the handler's parameters without self; `ended`
    counts its Calls."""

    def __init__(self, index, path, kind, batchable, service="", names=()):
        self.index = index
        self.path = path
        self.kind = kind
        self.batchable = batchable
        self.at_edge = batchable
        self.batches = 0
        self.waiting = []
        self.ended = 0
        self.error = None
        self.oom = False
        self.title = f"{service} {path} "
        self.names = names
        self.wrapper = None  # what stands in the place of the handler
        self.tags = {}  # by bucket; as many as the page has
        self.buckets = {}  # by tag
        self.batch_tag = None  # of the last batch
        self.batch_done = None  # (figures, items) of batches that no request has carried to the page yet


def outcome_of(error):
    """What an exception that left a handler means for its request."""
    if isinstance(error, GeneratorExit) or type(error).__name__ == "CancelledError":
        return pages.CANCELLED
    status = getattr(getattr(error, "error_code", None), "value", None)  # BentoMLException
    if status is None and type(error).__module__.startswith("pydantic") and type(error).__name__ == "ValidationError":
        status = 400
    return pages.CLIENT_ERROR if isinstance(status, int) and 400 <= status < 500 else pages.ERROR


NOTHING = memory.Figures(0)


class Recorder:
    """All bookkeeping of Calls; thread-safe. `history` tags what PyTorch allocates while it is `tagging`."""

    def __init__(self, page, degrade=None, history=None):
        self.page = page
        self.history = history
        self.memory = memory.Memory(page, degrade)
        self.quiet = threading.Condition(page.lock)  # no user code runs
        self.waits = 0  # who waits for that
        self.served = False  # a request has come by the fast lane

    # --- with the page's lock held

    def _begin(self, call):
        if call.begun_us is not None:
            return
        flags, found = call.flags, (0, 0, 0)
        if not flags & pages.BATCHED:
            call.account = self.memory.begin()
            found = self.memory.at_begin(call.account)
            flags |= pages.ALONE if call.account.alone else 0
        if call.tag == pages.NO_TAG:
            call.tag = self._tag(call.endpoint, shapes.of_size(call.input_bytes))
        call.begun_us = self.page.begin(call.request, flags, call.route, call.tag, found)
        call.number = self.page.begun()

    def _tag(self, endpoint, bucket):
        if endpoint is None:
            return pages.NO_TAG
        tag = endpoint.tags.get(bucket)
        if tag is None:
            tag = self.page.tag(endpoint.title + bucket, endpoint.index)
            if tag != pages.OTHER:
                endpoint.tags[bucket] = tag
                endpoint.buckets[tag] = bucket
        return tag

    def _run_ends(self, account):
        figures = self.memory.end(account)
        if self.waits > 0 and self.memory.running == 0:
            self.quiet.notify_all()
        return figures

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
        figures = self._figures(call)
        outcome = call.outcome or self._judge(call)
        if figures.ooms and figures.flags & pages.ALONE and outcome != pages.OK:
            call.flags |= pages.OOM  # the handler dealt with the exception, but did not succeed
        began = call.begun_us is not None
        self.page.end(call.request, call.flags | figures.flags, call.route, call.begun_us, call.status, outcome,
                      call.error, call.tag, figures.device, call.batch, figures.memory, call.input_bytes,
                      self.memory.host_anon() if began else 0, call.number)  # fmt: skip

    def _figures(self, call):
        """What the end record says of memory."""
        if call.account is not None:
            return self._run_ends(call.account)
        if not call.flags & pages.BATCHED or call.begun_us is None:
            return NOTHING
        endpoint = call.endpoint
        if call.status >= 500 and not call.error:
            call.error = endpoint.error or ""
            call.flags |= pages.OOM if endpoint.oom else 0
        if endpoint.batch_tag is not None:
            call.tag = endpoint.batch_tag
        if endpoint.batch_done is None:
            return NOTHING
        (figures, call.batch), endpoint.batch_done = endpoint.batch_done, None
        return figures

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

    def _fail(self, call, error, oom):
        call.outcome = outcome_of(error)
        call.error = type(error).__name__
        if oom:
            call.flags |= pages.OOM

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
            if call.flags & pages.STREAM:
                self.memory.look()
            if last and not call.cut and not call.flags & pages.TASK:
                call.finished = True
                self._settle(call)

    def left(self, call, error):
        """The application returned. Handlers that still run do so on their own."""
        oom = error is not None and memory.is_oom(error)
        with self.page.lock:
            self.page.add("progress")
            if call.flags & pages.TASK:
                self.page.add("tasks", -1)
            if call.ended:
                return
            if error is not None and call.outcome == 0:
                self._fail(call, error, oom)
            if call.flags & pages.BATCHED and call.cut and call.endpoint.batches > 0:
                call.handlers += 1
                call.endpoint.waiting.append(call)
            if call.handlers > 0:
                self._zombie(call)
            call.finished = True
            self._settle(call)

    # --- handlers

    def handler_begins(self, endpoint, args, kwargs):
        call = current.get()
        bucket = shapes.of_call(endpoint.names, args[1:], kwargs) if self.memory.enabled else None
        self.memory.settle()
        with self.page.lock:
            if call is None or call.ended:
                call = self._orphan(call, endpoint)
            call.handlers += 1
            if bucket is not None and call.endpoint is endpoint:
                call.tag = self._tag(endpoint, bucket)
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

    def _in_the_middle(self, what, *args):
        """True: this thread holds the lock already. A garbage collection has come over it while a record was written,
        and closes a generator or coroutine of the user's, whose end is to be recorded: by another thread, behind this
        one."""
        if not self.page.lock._is_owned():
            return False
        _thread.start_new_thread(what, args)
        return True

    def handler_ends(self, call, error):
        if self._in_the_middle(self.handler_ends, call, error):
            return
        oom = error is not None and memory.is_oom(error)
        self.memory.settle()
        with self.page.lock:
            call.handlers -= 1
            self.page.add("progress")
            if error is not None:
                self._fail(call, error, oom)
            elif call.handlers == 0:  # the last one decides: it may have dealt with another's failure
                call.outcome, call.error = 0, ""
                call.flags &= ~pages.OOM
            self._settle(call)

    # --- the fast lane: as arrived() and handler_begins(), and as handler_ends() and sent(), in one each

    def lane_begins(self, call, endpoint, args, kwargs):
        bucket = shapes.of_call(endpoint.names, args, kwargs) if self.memory.enabled else None
        self.memory.settle()
        with self.page.lock:
            if not self.served:
                self.page.stamp("serving_ms")
                self.served = True
            if call.ended:
                call = self._orphan(call, endpoint)
            call.handlers += 1
            if bucket is not None:
                call.tag = self._tag(endpoint, bucket)
            self._begin(call)
        return call

    def lane_ends(self, call):
        """It was answered with 200."""
        self.memory.settle()
        with self.page.lock:
            call.handlers -= 1
            if call.handlers == 0:
                call.outcome, call.error = 0, ""
                call.flags &= ~pages.OOM
            call.status = 200
            call.finished = True
            self._settle(call)

    def batch_begins(self, endpoint, args):
        """Returns what batch_ends() wants to have back."""
        bucket = shapes.of_batch(args[1:]) if self.memory.enabled else None
        self.memory.settle()
        with self.page.lock:
            endpoint.batches += 1
            endpoint.batch_tag = self._tag(endpoint, bucket or "batch")
            self.page.add("batches")
            self.page.add("progress")
            return self.memory.begin(), shapes.items_of(args[1:])

    def batch_ends(self, endpoint, begun, error):
        if self._in_the_middle(self.batch_ends, endpoint, begun, error):
            return
        account, items = begun
        oom = error is not None and memory.is_oom(error)
        self.memory.settle()
        with self.page.lock:
            endpoint.batches -= 1
            endpoint.error = None if error is None else type(error).__name__
            endpoint.oom = oom
            figures = self._run_ends(account)
            if endpoint.batch_done is not None:  # several batches for one request that was cut into pieces
                first, more = endpoint.batch_done
                figures, items = first.and_then(figures), items + more
            endpoint.batch_done = figures, items
            self.page.add("progress")
            if endpoint.batches > 0:
                return
            waiting, endpoint.waiting = endpoint.waiting, []
            for call in waiting:
                call.handlers -= 1
                self._settle(call)

    def name(self, call, endpoint, bucket):
        """For a Call that came before its route was known."""
        with self.page.lock:
            if not call.ended:
                call.endpoint, call.tag = endpoint, self._tag(endpoint, bucket)

    # --- what main asks

    def sample(self):
        with self.page.lock:
            return self.memory.sample()

    def count_objects(self):
        """Slow: every object is looked at."""
        count = looking.count_objects()
        with self.page.lock:
            self.page.gc_objects(count)
        return count

    def empty_cache(self, wait_s=0.0):
        """Gives unused blocks back while no user code runs, and lets none begin meanwhile: it would wait for the device
        anyway. Waits that long for such a moment; a dict, or None when it did not come."""
        with self.quiet:
            self.waits += 1
            try:
                if not self.quiet.wait_for(lambda: self.memory.running == 0, wait_s):
                    return None
            finally:
                self.waits -= 1
            return self.memory.empty_cache() or {"returned_bytes": 0, "took_ms": 0.0}


class Span:
    """One run of a handler, as a context manager: tells the recorder when it begins and how it ends. `own_thread`: it
    has its thread for itself, so that what the thread allocates is the request's."""

    __slots__ = ("recorder", "endpoint", "begun", "given", "own_thread", "over")

    def __init__(self, recorder, endpoint, args, kwargs, own_thread=False):
        self.recorder = recorder
        self.endpoint = endpoint
        self.given = args, kwargs
        self.own_thread = own_thread
        self.over = threading.Lock()  # taken by the end, which comes once

    def __enter__(self):
        args, kwargs = self.given
        self.given = None  # they are the handler's: nothing here may keep them alive
        if self.endpoint.batchable:
            self.begun = self.recorder.batch_begins(self.endpoint, args)
        else:
            self.begun = self.recorder.handler_begins(self.endpoint, args, kwargs)
            if self.own_thread and self.recorder.history is not None and self.recorder.history.tagging:
                self.recorder.history.tag(self.endpoint, self.begun)

    def __exit__(self, kind, error, where):
        if not self.over.acquire(blocking=False):
            return False
        if self.own_thread and self.recorder.history is not None and self.recorder.history.tagging:
            self.recorder.history.untag()
        if self.endpoint.batchable:
            self.recorder.batch_ends(self.endpoint, self.begun, error)
        else:
            self.begun.streams = ()  # a cycle otherwise
            self.recorder.handler_ends(self.begun, error)
        return False


class Stream:
    """A generator of the user's that BentoML steps through in threads. When the client leaves, nobody closes it, and
    the exceptions of the cut hold its frames in cycles: it would end with a garbage collection, and its request too."""

    __slots__ = ("items", "span")

    def __init__(self, items, span):
        self.items = items
        self.span = span

    def close(self):
        """Blocks: while a step runs, and in what the user's `finally` does. Never raises."""
        pause_s = 0.005
        while True:
            try:
                self.items.close()
            except ValueError:  # "generator already executing"
                if self.items.gi_running:
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, 0.1)
                    continue
            except Exception as error:  # the user's own, on the way out: the request was given up anyway
                self.span.__exit__(type(error), error, None)
            self.span.__exit__(GeneratorExit, GeneratorExit(), None)
            return


def wrap(func, recorder, endpoint):
    """A wrapper of the same kind as `func`: BentoML looks at the kind again on every call."""
    if inspect.isasyncgenfunction(func):

        @functools.wraps(func)
        async def wrapper(*args, **kwargs):
            with Span(recorder, endpoint, args, kwargs):
                items = func(*args, **kwargs)
                try:
                    async for item in items:
                        yield item
                finally:
                    await items.aclose()

    elif inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            span = Span(recorder, endpoint, args, kwargs)
            with span:
                items = func(*args, **kwargs)
                if not endpoint.batchable:
                    span.begun.streams += (Stream(items, span),)
                yield from items

    elif inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def wrapper(*args, **kwargs):
            with Span(recorder, endpoint, args, kwargs):
                return await func(*args, **kwargs)

    else:

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            with Span(recorder, endpoint, args, kwargs, own_thread=True):
                return func(*args, **kwargs)

    return wrapper


def request_of(headers):
    """(id, flags, bytes of the body) from the headers; an id that is not 16 hex digits is none."""
    request, flags, length = 0, 0, 0
    for name, value in headers:
        if name == ID_HEADER and request == 0 and ID_FORM.fullmatch(value):
            request = int(value, 16)
        elif name == WARMUP_HEADER:
            flags |= pages.WARMUP
        elif name == LENGTH_HEADER and value.isdigit() and len(value) < 19:
            length = int(value)
    return request, flags, length


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

    def __init__(self, app, recorder, routes, drain=None):
        self.app = app
        self.recorder = recorder
        self.routes = routes
        self.drain = drain  # None: this one shares its socket with nobody

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self._lifespan(scope, receive, send)
        call = scope.pop(OPEN, None) or self._arrives(scope)
        current.set(call)

        async def watched_send(message):
            await send(message if self.drain is None else self.drain.head(message))
            kind = message["type"]
            if kind == "http.response.start":
                call.status = message["status"]
            last = self.is_last(call, message)
            if last:
                self.before_end(scope, call)
            self.recorder.sent(call, last)

        error = None
        if self.drain is not None:
            self.drain.arrived()
        try:
            await self.app(scope, receive, watched_send)
        except BaseException as exc:
            error = exc
            call.cut = call.cut or type(exc).__name__ == "CancelledError"
            raise
        finally:
            self.before_end(scope, call)
            self.recorder.left(call, error)
            if call.handlers > 0:
                for stream in call.streams:
                    asyncio.get_running_loop().run_in_executor(None, stream.close)
            if self.drain is not None:
                self.drain.left()

    def _arrives(self, scope):
        request, flags, length = request_of(scope.get("headers", ()))
        endpoint, more, at_edge = self.routes.find(scope.get("method", "GET"), scope["path"])
        flags |= more
        if at_edge and not flags & (pages.BATCHED | pages.TASK):
            flags |= pages.EDGE
        call = Call(request, flags, endpoint, input_bytes=length)
        self.recorder.arrived(call, at_edge)
        return call

    def is_last(self, call, message):
        """Whether this piece of the reply is its last, and may be the end of the Call."""
        return message["type"] == "http.response.body" and not message.get("more_body", False)

    def before_end(self, scope, call):
        """The record is about to be written; for who knows more about it now."""

    async def _lifespan(self, scope, receive, send):
        async def watched_send(message):
            if message["type"] == "lifespan.startup.complete":
                with self.recorder.page.lock:
                    self.recorder.page.stamp("loaded_ms")
                    self.recorder.memory.sample()  # the model, before the first request
            await send(message)

        await self.app(scope, receive, watched_send)
