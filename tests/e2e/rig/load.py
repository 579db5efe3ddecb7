"""A closed loop of clients. Every request has an outcome; none is ever forgotten or sent twice by us."""

import collections
import dataclasses
import http.client
import itertools
import threading
import time

from . import wire


@dataclasses.dataclass
class Outcome:
    number: int
    kind: str  # ok | status | wrong (200 with a body that is not right) | cut | refused | timeout
    status: int = 0
    detail: str = ""


class Load:
    """`make(number)` gives (method, path, body, check) and perhaps headers: check(reply) says whether a 200 is right.

        with Load(server.address, make, connections=32) as load:
            load.wait_for(500)
        assert load.kinds() == {"ok": len(load.outcomes)}
    """

    def __init__(self, address, make, connections=32, timeout=130):
        self.address, self.make, self.timeout = address, make, timeout
        self.outcomes = []
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(connections)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, failed, *_):
        self._stop.set()
        if not failed:  # a failing test does not wait for its clients: they end with the server
            self.stop()

    def stop(self):
        """No new requests; those under way are waited for."""
        self._stop.set()
        for thread in self._threads:
            thread.join(self.timeout + 10)
        assert not any(thread.is_alive() for thread in self._threads), "a client did not come back"

    def _client(self):
        conn = None
        while not self._stop.is_set():
            number = next(self._numbers)
            conn = conn or wire.connection(self.address, self.timeout)
            outcome, keep = self._one(conn, number)
            self.outcomes.append(outcome)
            if not keep:
                conn.close()
                conn = None
        if conn is not None:
            conn.close()

    def _one(self, conn, number):
        method, path, body, check, *headers = self.make(number)
        try:
            reply = wire.exchange(conn, method, path, body, *headers)
        except ConnectionRefusedError as e:
            time.sleep(0.01)  # a refusing server must not be stormed
            return Outcome(number, "refused", detail=repr(e)), False
        except TimeoutError as e:
            return Outcome(number, "timeout", detail=repr(e)), False
        except (http.client.HTTPException, OSError) as e:
            return Outcome(number, "cut", detail=repr(e)), False
        keep = reply.headers.get("connection", "").lower() != "close"
        if reply.status != 200:
            return Outcome(number, "status", reply.status, reply.body[:300].decode(errors="replace")), keep
        if not check(reply):
            return Outcome(number, "wrong", 200, reply.body[:300].decode(errors="replace")), keep
        return Outcome(number, "ok", 200), keep

    def wait_for(self, count, timeout=300):
        """Until that many requests in all are answered."""
        deadline = time.monotonic() + timeout
        while len(self.outcomes) < count:
            assert time.monotonic() < deadline, f"only {len(self.outcomes)} of {count} requests in {timeout} s"
            time.sleep(0.05)

    def wait_for_more(self, count, timeout=120):
        self.wait_for(len(self.outcomes) + count, timeout)

    def kinds(self):
        return dict(collections.Counter(o.kind for o in self.outcomes))

    def statuses(self):
        return dict(collections.Counter(o.status for o in self.outcomes if o.status))

    def of(self, kind, status=None):
        return [o for o in self.outcomes if o.kind == kind and status in (None, o.status)]


class Paced:
    """Requests one after the other at a steady rate, until the block is left; their statuses."""

    def __init__(self, server, path, body, per_s):
        self.server, self.path, self.body, self.pause = server, path, body, 1 / per_s
        self.statuses, self._stop = [], threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(60)

    def _run(self):
        conn = wire.connection(self.server.address)
        while not self._stop.wait(self.pause):
            self.statuses.append(wire.exchange(conn, "POST", self.path, self.body).status)
        conn.close()
