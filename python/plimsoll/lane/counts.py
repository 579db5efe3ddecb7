"""BentoML's own request metrics for what the lane answers: the same Prometheus objects and labels.

Feeding them costs more than the request; so a request adds to plain numbers, and these go over to Prometheus when
somebody reads (/metrics), once a second while requests come, and at the end.

Private names: RunnerTrafficMetricsMiddleware, and Histogram's ._sum, ._buckets and ._upper_bounds. fingerprint.py
watches the code that they are of.
"""

import bisect
import threading
import time

from bentoml._internal.context import server_context
from bentoml._internal.server.http.instruments import RunnerTrafficMetricsMiddleware

EVERY_S = 1.0


class Of:
    """The counts of one endpoint since they were handed over. Only changed with the lock of Counts held."""

    __slots__ = ("layer", "labels", "timed", "bounds", "running", "told", "total", "durations", "total_s", "children")

    def __init__(self, layer, labels, timed):
        self.layer = layer
        self.labels = labels
        self.timed = timed
        self.bounds = layer.metrics_request_duration._upper_bounds
        self.running = self.told = self.total = 0
        self.durations = [0] * len(self.bounds)
        self.total_s = 0.0
        self.children = None  # as with BentoML, a series is there from its first request on

    def hand_over(self):
        if self.children is None:
            of, labels = self.layer, self.labels
            self.children = (
                of.metrics_request_in_progress.labels(**labels),
                of.metrics_request_total.labels(**labels, http_response_code=200),
                of.metrics_request_duration.labels(**labels, http_response_code=200) if self.total else None,
            )
        progress, requests, duration = self.children
        if self.running != self.told:
            progress.inc(self.running - self.told)
            self.told = self.running
        if self.total == 0:
            return
        requests.inc(self.total)
        if duration is None:
            duration = self.layer.metrics_request_duration.labels(**self.labels, http_response_code=200)
            self.children = progress, requests, duration
        duration._sum.inc(self.total_s)
        for i, n in enumerate(self.durations):
            if n:
                duration._buckets[i].inc(n)
                self.durations[i] = 0
        self.total, self.total_s = 0, 0.0


class Counts:
    def __init__(self, layer, lanes):
        common = {
            "service_name": server_context.bento_name,
            "service_version": server_context.bento_version,
            "runner_name": server_context.service_name,
        }
        self._lock = threading.Lock()
        self._last = layer.metrics_last_request_timestamp.labels(**common)
        self._of = []
        for path, endpoint in lanes.items():
            name = path.decode()
            endpoint.counts = Of(layer, {**common, "endpoint": name}, not name.startswith(tuple(layer.skip_paths)))
            self._of.append(endpoint.counts)
        self._changed = False  # a request that BentoML takes the time of
        self._handed_over = 0.0

    def begins(self, endpoint):
        with self._lock:
            endpoint.counts.running += 1

    def ends(self, endpoint, answered, now, began):
        """Of a request that is answered here, or given back to who counts it then."""
        of = endpoint.counts
        with self._lock:
            of.running -= 1
            if answered:
                of.total += 1
                of.total_s += now - began
                of.durations[bisect.bisect_left(of.bounds, now - began)] += 1
            self._changed |= of.timed
        if now - self._handed_over > EVERY_S:
            self.hand_over()

    def hand_over(self):
        with self._lock:
            self._handed_over = time.perf_counter()
            for of in self._of:
                if of.running != of.told or of.total:
                    of.hand_over()
            if self._changed:
                self._last.set_to_current_time()
                self._changed = False


def find(app, lanes):
    """None: BentoML counts nothing here. The layers are made now, as they would be with the first request."""
    layer = app.middleware_stack = app.middleware_stack or app.build_middleware_stack()
    while layer is not None and not isinstance(layer, RunnerTrafficMetricsMiddleware):
        layer = getattr(layer, "app", None)
    if layer is None:
        return None
    if not layer._is_setup:
        layer._setup()
    return Counts(layer, lanes)
