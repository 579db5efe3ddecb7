"""Too much at once: who waits, who is refused, with which status and which words; and a timed-out handler keeps its slot."""

import re
import threading

import pytest


class Busy:
    """Requests to /work that are under way in handlers: what fills the slots."""

    def __init__(self, server, seconds, count, first=1):
        self.replies = {}
        self._threads = [threading.Thread(target=self._one, args=(server, n, seconds), daemon=True)
                         for n in range(first, first + count)]
        for thread in self._threads:
            thread.start()
        server.wait_until(lambda: all(journal_has(server, f"begin {n} ") for n in range(first, first + count)),
                          what="all of them are in a handler")

    def _one(self, server, number, seconds):
        self.replies[number] = server.post("/work", {"number": number, "seconds": seconds}, timeout=60)

    def join(self):
        for thread in self._threads:
            thread.join(60)
        return self.replies


def journal_has(server, start):
    return any(line.startswith(start) for line in server.journal())


def refused(server, reason):
    text = server.get("/metrics").text()
    found = re.search(rf'^plimsoll_requests_refused_total\{{[^}}]*reason="{reason}"[^}}]*\}} (\S+)', text, re.M)
    return float(found.group(1)) if found else None


@pytest.mark.asan
def test_without_a_queue_the_next_one_is_refused_with_retry_after(serve):
    server = serve("service:Feature", "--max-concurrency", "2", "--traffic.queue.max_requests", "0").ready()
    assert refused(server, "concurrency") == 0
    busy = Busy(server, seconds=3, count=2)
    reply = server.post("/work", {"number": 99, "seconds": 0})
    assert reply.status == 429
    assert reply.headers["x-plimsoll-reason"] == "concurrency"
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.json()["error"].startswith("Too many requests") and reply.json()["code"] == "rate_limit_exceeded"
    for path in ("/livez", "/readyz", "/metrics"):
        assert server.get(path).status == 200, "load never makes unready, health and metrics pass"
    assert refused(server, "concurrency") == 1
    assert {r.status for r in busy.join().values()} == {200}
    assert not journal_has(server, "begin 99 ")


def test_the_queue_is_bounded_by_count(serve):
    server = serve("service:Feature", "--max-concurrency", "1", "--traffic.queue.max_requests", "1",
                   "--traffic.queue.max_wait", "60s").ready()
    busy = Busy(server, seconds=4, count=1)
    waiting = {}
    thread = threading.Thread(target=lambda: waiting.update(reply=server.post("/work", {"number": 2, "seconds": 0})))
    thread.start()
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] == 1)
    reply = server.post("/work", {"number": 3, "seconds": 0})
    assert (reply.status, reply.headers["x-plimsoll-reason"]) == (429, "queue_full")
    thread.join(60)
    assert waiting["reply"].status == 200
    assert busy.join()[1].status == 200


def test_the_queue_is_bounded_by_time(serve):
    server = serve("service:Feature", "--max-concurrency", "1", "--traffic.queue.max_wait", "500ms").ready()
    busy = Busy(server, seconds=5, count=1)
    reply = server.post("/work", {"number": 2, "seconds": 0})
    assert reply.status == 429
    assert reply.headers["x-plimsoll-reason"] in ("waited_too_long", "predicted_wait")
    assert busy.join()[1].status == 200
    assert not journal_has(server, "begin 2 ")


def test_over_the_timeout_is_504_and_the_slot_stays_taken_until_the_handler_ends(serve):
    server = serve("service:Feature", "--timeout", "1s", "--max-concurrency", "1",
                   "--traffic.queue.max_requests", "0").ready()
    reply = server.post("/work", {"number": 1, "seconds": 6})
    assert reply.status == 504
    assert reply.json()["error"].startswith("Not able to process the request in 1 second")
    assert not journal_has(server, "end 1 "), "the handler still runs"
    assert server.post("/work", {"number": 2, "seconds": 0}).status == 429, "its slot is still taken"
    workers = server.status()["services"][0]["workers"]
    assert sum(w["zombies"] for w in workers) == 1
    server.wait_until(lambda: journal_has(server, "end 1 "))
    server.wait_until(lambda: server.post("/work", {"number": 3, "seconds": 0}).status == 200)
    assert sum(w["zombies"] for w in server.status()["services"][0]["workers"]) == 0


def test_an_async_handler_over_the_timeout_is_cancelled(serve):
    server = serve("service:Feature", "--timeout", "1s").ready()
    assert server.post("/work_async", {"number": 1, "seconds": 60}).status == 504
    server.wait_until(lambda: sum(w["zombies"] for w in server.status()["services"][0]["workers"]) == 0, timeout=20)
    assert not journal_has(server, "end 1 ")


def test_a_stream_has_no_total_time_limit(serve):
    server = serve("service:Feature", "--timeout", "1s").ready()
    reply = server.post("/stream", {"n": 8, "pause": 0.4})
    assert reply.status == 200 and reply.text().count("data: ") == 8
