"""The bookkeeping of Calls by itself: orders of events that a real server shows only now and then."""

import asyncio
import inspect
import os

import pytest
from harness import PageReader

from plimsoll import page as pages
from plimsoll.records import Call, Edge, Endpoint, Recorder, Routes, current, outcome_of, request_of, wrap


@pytest.fixture
def seen():
    """(recorder, reader) on one page."""
    fd = os.memfd_create("page")
    os.ftruncate(fd, pages.PAGE_BYTES)
    reader = PageReader(fd)
    page = pages.Page(fd)
    page.open()
    return Recorder(page), reader


SYNC = Endpoint(0, "/sync", "sync", False)
BATCH = Endpoint(1, "/batch", "sync", True)
TASK = Endpoint(2, "/task", "task", False)
STREAM = Endpoint(3, "/items/{name}", "stream", False)
ENDPOINTS = [SYNC, BATCH, TASK, STREAM]


def serve(recorder, app, path="/sync", request=9, kind="http", routes=None):
    async def send(message):
        pass

    scope = {"type": kind, "method": "POST", "path": path, "headers": [(b"x-plimsoll-id", b"%016x" % request)]}
    asyncio.run(Edge(app, recorder, routes or Routes(ENDPOINTS, "", False, False))(scope, None, send))


async def answer(send, status=200):
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


# --- order of events


def test_the_end_is_written_when_the_reply_is_handed_over_not_when_its_background_work_is_done(seen):
    recorder, reader = seen
    ended = []

    async def app(scope, receive, send):
        wrap(lambda: None, recorder, SYNC)()
        assert reader.ends() == []
        await answer(send)
        ended.extend(reader.ends(9))

    serve(recorder, app)
    assert len(ended) == 1


def test_a_handler_that_starts_as_its_request_is_given_up_is_a_zombie_with_its_number(seen):
    recorder, reader = seen
    late = []

    async def app(scope, receive, send):
        call = current.get()
        call.cut = True
        late.append(call)
        await answer(send, 504)

    serve(recorder, app)
    assert [e["kind"] for e in reader.ends(9)] == [pages.UNBEGUN]
    current.set(late[0])
    with_a_look = wrap(lambda: (reader["zombies"], reader["in_flight"]), recorder, SYNC)
    assert with_a_look() == (1, 1)
    assert reader.begins(9)[0]["kind"] == pages.ZOMBIE
    assert [e["kind"] for e in reader.ends(9)] == [pages.UNBEGUN, pages.ZOMBIE]
    assert reader["zombies"] == reader["in_flight"] == 0
    current.set(None)


def test_a_handler_called_outside_any_request_has_no_number(seen):
    recorder, reader = seen
    wrap(lambda: None, recorder, SYNC)()
    stale = Call(9)
    stale.ended = True
    current.set(stale)
    wrap(lambda: None, recorder, SYNC)()
    current.set(None)
    assert [b["id"] for b in reader.begins()] == [e["id"] for e in reader.ends()] == [0, 0]
    assert {e["outcome"] for e in reader.ends()} == {pages.OK}


def test_a_failure_that_another_handler_dealt_with_is_none(seen):
    recorder, reader = seen

    def fails():
        raise ValueError

    inner = wrap(fails, recorder, SYNC)

    def outer():
        with pytest.raises(ValueError):
            inner()

    async def app(scope, receive, send):
        wrap(outer, recorder, SYNC)()
        await answer(send)

    serve(recorder, app)
    (end,) = reader.ends(9)
    assert (end["outcome"], end["error_class"]) == (pages.OK, "")
    assert len(reader.begins(9)) == 1


def test_an_application_that_fails_ends_its_request(seen):
    recorder, reader = seen

    async def app(scope, receive, send):
        raise KeyError("x")

    with pytest.raises(KeyError):
        serve(recorder, app)
    assert (reader.ends(9)[0]["outcome"], reader.ends(9)[0]["error_class"]) == (pages.ERROR, "KeyError")


def test_a_request_that_is_not_answered_at_all_counts_as_cancelled(seen):
    recorder, reader = seen

    async def app(scope, receive, send):
        pass

    serve(recorder, app)
    assert reader.ends(9)[0]["outcome"] == pages.CANCELLED


def test_a_batch_releases_all_that_waited_for_it(seen):
    recorder, reader = seen
    batch = Endpoint(1, "/batch", "sync", True)
    routes = Routes([batch], "", False, False)

    async def app(scope, receive, send):
        current.get().cut = True
        await answer(send, 504)

    def handler(items):
        for number in items:
            serve_in_thread(recorder, app, number, routes)
        assert reader["zombies"] == len(items) and reader.ends() == []

    def serve_in_thread(*args):
        import threading

        t = threading.Thread(target=lambda: serve(args[0], args[1], "/batch", args[2], routes=args[3]))
        t.start()
        t.join(20)

    wrap(handler, recorder, batch)([5, 6, 7])
    assert [e["id"] for e in reader.ends()] == [5, 6, 7]
    assert reader["zombies"] == reader["in_flight"] == 0
    assert reader["batches"] == 1


def test_a_websocket_of_a_mounted_application_begins_and_ends(seen):
    recorder, reader = seen

    async def app(scope, receive, send):
        await send({"type": "websocket.accept"})
        assert reader["in_flight"] == 1

    serve(recorder, app, "/ws", kind="websocket", routes=Routes(ENDPOINTS, "", False, True))
    assert reader.begins(9)[0]["kind"] == reader.ends(9)[0]["kind"] == pages.EDGE


def test_progress_moves_with_every_piece_sent(seen):
    recorder, reader = seen
    steps = []

    async def app(scope, receive, send):
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            steps.append(reader["progress"])

    serve(recorder, app)
    assert len(set(steps)) == 3


# --- wrappers


def test_wrappers_are_of_the_same_kind_and_keep_the_signature(seen):
    def plain(self, x: int = 1): ...

    async def coroutine(self, x: int = 1): ...

    def generator(self, x: int = 1):
        yield x

    async def async_generator(self, x: int = 1):
        yield x

    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    for func in (plain, coroutine, generator, async_generator):
        wrapper = wrap(func, seen[0], SYNC)
        assert [k(wrapper) for k in kinds] == [k(func) for k in kinds]
        assert inspect.signature(wrapper) == inspect.signature(func)
        assert wrapper.__name__ == func.__name__ and wrapper.__doc__ == func.__doc__


def test_closing_a_stream_closes_the_user_s_generator_at_once(seen):
    recorder, reader = seen
    closed = []

    async def items():
        try:
            while True:
                yield 1
        finally:
            closed.append("async")

    def more():
        try:
            while True:
                yield 1
        finally:
            closed.append("sync")

    async def main():
        stream = wrap(items, recorder, STREAM)()
        await stream.__anext__()
        await stream.aclose()
        assert closed == ["async"]

    asyncio.run(main())
    stream = wrap(more, recorder, STREAM)()
    next(stream)
    stream.close()
    assert closed == ["async", "sync"]
    assert [e["outcome"] for e in reader.ends()] == [pages.CANCELLED] * 2


def test_a_stream_nobody_reads_leaves_nothing(seen):
    recorder, reader = seen
    wrap(lambda: iter(()), recorder, STREAM)
    gen = wrap(lambda: (yield 1), recorder, STREAM)()
    gen.close()
    assert reader["begun"] == reader["ended"] == 0


# --- small tables


@pytest.mark.parametrize(
    "method, path, endpoint, flags, at_edge",
    [
        ("POST", "/sync", SYNC, 0, False),
        ("GET", "/sync", None, 0, False),
        ("POST", "/batch", BATCH, pages.BATCHED, True),
        ("POST", "/task", TASK, 0, False),
        ("POST", "/task/submit", TASK, pages.TASK, True),
        ("POST", "/task/retry", TASK, pages.TASK, True),
        ("GET", "/task/retry", None, 0, False),
        ("GET", "/task/status", None, 0, False),
        ("PUT", "/task/cancel", None, 0, False),
        ("POST", "/items/one", STREAM, pages.STREAM, False),
        ("POST", "/items/one/two", None, 0, False),
        ("GET", "/readyz", None, 0, False),
        ("POST", "/nowhere", None, 0, False),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_routes(prefix, method, path, endpoint, flags, at_edge):
    placed = [Endpoint(e.index, prefix + e.path, e.kind, e.batchable) for e in ENDPOINTS]
    found, got, edge = Routes(placed, prefix, False, False).find(method, prefix + path)
    assert (found and found.index, got, edge) == (endpoint and endpoint.index, flags, at_edge)


@pytest.mark.parametrize("path, at_edge", [("/app/x", True), ("/livez", False), ("/static_content/a.js", False), ("/sync", False)])
def test_mounted_applications_begin_at_the_edge(path, at_edge):
    assert Routes(ENDPOINTS, "", False, True).find("POST", path)[2] is at_edge


def test_user_s_middleware_puts_handlers_at_the_edge_and_leaves_probes_alone():
    routes = Routes(ENDPOINTS, "", True, False)
    assert routes.find("POST", "/sync")[2] and routes.find("POST", "/x")[2]
    assert not routes.find("GET", "/readyz")[2]


@pytest.mark.parametrize(
    "headers, request_and_flags",
    [
        ([], (0, 0)),
        ([(b"x-plimsoll-id", b"00000000000000ff")], (255, 0)),
        ([(b"x-plimsoll-id", b"0x000000000000ff")], (0, 0)),
        ([(b"x-plimsoll-id", b"00000000000000ff\n")], (0, 0)),
        ([(b"x-plimsoll-id", b"0000000000000001"), (b"x-plimsoll-id", b"0000000000000002")], (1, 0)),
        ([(b"x-plimsoll-warmup", b"1")], (0, pages.WARMUP)),
    ],
)
def test_the_request_s_number(headers, request_and_flags):
    assert request_of(headers) == (*request_and_flags, 0)


def test_what_exceptions_mean():
    class Status:
        value = 404

    class BentoError(Exception):
        error_code = Status

    ValidationError = type("ValidationError", (ValueError,), {"__module__": "pydantic_core._pydantic_core"})
    cases = [(GeneratorExit(), pages.CANCELLED), (asyncio.CancelledError(), pages.CANCELLED),
             (ValueError(), pages.ERROR), (BentoError(), pages.CLIENT_ERROR), (ValidationError(), pages.CLIENT_ERROR),
             (KeyboardInterrupt(), pages.ERROR)]  # fmt: skip
    assert [outcome_of(error) for error, _ in cases] == [outcome for _, outcome in cases]
