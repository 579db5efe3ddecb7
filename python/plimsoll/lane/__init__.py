"""The fast lane: BentoML's JSON endpoints without BentoML's ASGI layers, with BentoML's own models and serialisers.

A small request costs BentoML about 1.1 ms of CPU, nine tenths of it in middleware, routing and contexts. Here the bytes
that arrive go through the endpoint's own input model to the service's own method, and what it returns through the
endpoint's own output model to the socket. Everything around that stays BentoML's and uvicorn's.

Only a plain 200 is answered here. Whatever else comes out (input that is not valid, an exception, a Response object, a
generator, a context that was written to, time that is up) is an *outcome*: the same bytes go through uvicorn and
BentoML's whole application, which finds the outcome instead of running the handler. So every other reply, its log
lines, metrics and background tasks are BentoML's, and no handler runs twice.

    fingerprint.py, known.py   is this the code that the lane was compared with
    eligible.py                which services and endpoints may use it, and why not
    endpoint.py                parse and encode; giving an outcome back
    context.py                 what a handler can see of its request
    run.py                     one request: from its bytes to the reply, and its deadline
    pool.py                    the handler threads
    protocol.py                uvicorn's HTTP protocol with the lane in front
    serving.py                 a run on its connection
    again.py                   what the lane does not answer, for BentoML's application
    lending.py                 who owns a connection that handler threads use
    counts.py                  BentoML's own metrics

This module imports nothing of BentoML: the others are imported once the service is there.
"""

import sys

OLDEST_PYTHON = (3, 11)  # create_task(context=), Task.cancelling()


class Lane:
    """One for a worker. `table()` is what main is told: {path: "sync", "async" or "off: why"}."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.reasons = {}
        self.lanes = {}
        self.all_off = "the service does not run yet"
        self.tell = None  # told the table, once it is known
        self._endpoints = []

    def table(self):
        out = {}
        for e in self._endpoints:
            lane = self.lanes.get(e.path.encode())
            if lane is not None and lane.record is e:
                out[e.path] = "async" if lane.is_async else "sync"
            else:
                out.setdefault(e.path, f"off: {self.all_off or self.reasons.get(e.index, 'not known')}")
        return out

    def prepare(self, service, endpoints, why_not, deadline_s):
        """Before BentoML makes its application. `why_not`: None, or why it is not wanted. `deadline_s`: what
        BentoML's own timeout is moved to. What is missing in BentoML costs the lane, and nothing else."""
        self._endpoints = endpoints
        self.all_off = why_not or self._not_here()
        if self.all_off is None:
            try:
                self._put_in_place(service, deadline_s)
            except (ImportError, AttributeError) as exc:
                self.all_off = f"BentoML or uvicorn is not as we know it: {exc}"
        if self.all_off is not None:
            self._told()

    def _told(self):
        if self.tell is not None:
            self.tell(self.table())

    def _not_here(self):
        if sys.version_info < OLDEST_PYTHON:
            return f"Python {sys.version_info[0]}.{sys.version_info[1]} is older than 3.11"
        from plimsoll.lane import fingerprint

        return fingerprint.why_not()

    def _put_in_place(self, service, deadline_s):
        """The protocol goes where uvicorn looks for it; it takes no request until the instance was made."""
        import uvicorn.protocols.http.auto as auto
        from _bentoml_impl.server.app import ServiceAppFactory

        from plimsoll.lane import protocol

        auto.AutoHTTPProtocol = protocol.of(auto.AutoHTTPProtocol)
        original = ServiceAppFactory.create_instance

        async def create_instance(factory, app):
            await original(factory, app)
            if factory.service is service:
                self._open(factory, app, deadline_s)

        ServiceAppFactory.create_instance = create_instance

    def _open(self, factory, app, deadline_s):
        """The instance is there. A service of a shape that nobody thought of is one for BentoML's own way."""
        try:
            from plimsoll.lane import eligible, protocol

            self.all_off, lanes, self.reasons = eligible.compile_service(factory, self._endpoints)
            if lanes:
                protocol.open_lane(factory, app, lanes, self.recorder, deadline_s)
                self.lanes = lanes
        except Exception as exc:
            self.all_off = f"{type(exc).__name__}: {exc}"
        self._told()
