"""What a handler can see of its request, made only when it looks: context variables, ctx.request, ctx.response, and
where OpenTelemetry's span would stand.

Private names of BentoML: bentoml._internal.context._request_var, ._response_var, .request_tempdir_pool,
.trace_context._request_id_var. fingerprint.py watches the code around them.
"""

import random

from bentoml._internal import context as bentoml_context
from bentoml._internal.context import ServiceContext, trace_context
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation import set_span_in_context
from starlette.requests import Request

from plimsoll import records

bits = random.Random().getrandbits
set_request_id = type(trace_context)._request_id_var.set
set_request = bentoml_context._request_var.set
set_response = bentoml_context._response_var.set
set_call = records.current.set
EMPTY = otel_context.Context()


class Span(trace.NonRecordingSpan):
    """In place of OpenTelemetry's server span; has a trace when somebody asks for it."""

    def __init__(self, span_id, parent):
        self._span_id = span_id
        self._parent = parent
        self._made = None

    def get_span_context(self):
        if self._made is None:
            parent = self._parent
            if parent is not None and parent.is_valid:
                self._made = SpanContext(parent.trace_id, self._span_id, False, parent.trace_flags, parent.trace_state)
            else:
                self._made = SpanContext(bits(128) or 1, self._span_id, False, TraceFlags(0))
        return self._made


class LazyRequest(Request):
    """A Starlette request that is made from the raw head when somebody looks at it."""

    def __init__(self, run):
        object.__setattr__(self, "_lane_run", run)

    def __getattr__(self, name):
        run = self.__dict__.get("_lane_run")
        if run is None or name.startswith("__"):
            raise AttributeError(name)
        del self.__dict__["_lane_run"]
        body = run.body

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        Request.__init__(self, scope_of(run), receive)
        self._body = body  # as after `await request.body()`
        self._stream_consumed = True
        self.metadata = self.headers
        return getattr(self, name)


class LazyResponse(ServiceContext.ResponseContext):
    """BentoML's ctx.response, filled when somebody looks at it: then BentoML words the reply."""

    __slots__ = ("touched",)

    def __init__(self):
        pass

    def __getattr__(self, name):
        if name == "touched":
            return False
        if name.startswith("__"):
            raise AttributeError(name)
        ServiceContext.ResponseContext.__init__(self)
        object.__setattr__(self, "touched", True)
        return getattr(self, name)

    def __setattr__(self, name, value):
        if name != "touched" and not self.touched:
            object.__setattr__(self, "touched", True)
            ServiceContext.ResponseContext.__init__(self)
        object.__setattr__(self, name, value)


def headers_of(head):
    found = []
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.append((name.lower(), value.strip(b" \t")))
    return found


def scope_of(run):
    """As uvicorn and BentoML's middlewares leave it."""
    path, _, query = run.head.split(b" ", 2)[1].partition(b"?")
    connection = run.connection
    return {
        "type": "http",
        "asgi": {"version": connection.asgi_version, "spec_version": "2.3"},
        "http_version": "1.1",
        "server": connection.server,
        "client": connection.client,
        "scheme": connection.scheme,
        "root_path": connection.root_path,
        "headers": headers_of(run.head),
        "state": connection.app_state.copy(),
        "method": "POST",
        "path": path.decode("ascii"),
        "raw_path": path,
        "query_string": query,
        "request_id": trace_context.request_id,
        "trace_id": trace_context.trace_id,
    }


def enter(run):
    """Sets what BentoML's middlewares would have set, in the context that this runs in."""
    span_id = run.span_id = bits(64) or 1
    base, parent = EMPTY, None  # never that of the connection: it may be an earlier request's
    if run.traced:
        carrier = {}
        for name, value in headers_of(run.head):
            carrier.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        base = propagate.extract(carrier, EMPTY)
        parent = trace.get_current_span(base).get_span_context()
    otel_context.attach(set_span_in_context(Span(span_id, parent), base))
    set_request_id(span_id)
    set_call(run.call)
    run.request = LazyRequest(run)
    run.response = LazyResponse()
    set_request(run.request)
    set_response(run.response)


def leave(run):
    request, run.request = run.request, None  # else the two keep each other alive
    if request is not None and "_lane_run" not in request.__dict__ and hasattr(request.state, "temp_dir"):
        bentoml_context.request_tempdir_pool.release(request.state.temp_dir)
