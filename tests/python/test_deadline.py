"""The timeout layer by itself, on a fake application."""

import asyncio
import gc
import json

import pytest

from plimsoll.deadline import Deadline

DEADLINE_S = 0.01  # which some handlers outlast
SCOPE = {"type": "http", "path": "/", "headers": []}


def call(app, timeout, scope=SCOPE):
    """(messages, exception)."""
    sent = []

    async def send(message):
        sent.append(message)

    async def main():
        await Deadline(app, timeout)(scope, None, send)

    try:
        asyncio.run(main())
    except Exception as exc:
        return sent, exc
    return sent, None


async def reply(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"yes"})


def test_a_reply_in_time_passes():
    async def app(scope, receive, send):
        await reply(send)

    sent, _ = call(app, 30)
    assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]


def test_silence_is_504_in_bentoml_s_words_and_cancels():
    seen = []

    async def app(scope, receive, send):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    sent, _ = call(app, 0.01)
    assert sent[0]["status"] == 504
    assert json.loads(sent[1]["body"]) == {"error": "Not able to process the request in 0.01 seconds"}
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    assert seen == ["cancelled"]


def test_once_it_has_begun_to_answer_there_is_no_deadline():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(10 * DEADLINE_S)
        await send({"type": "http.response.body", "body": b"late"})

    sent, _ = call(app, DEADLINE_S)
    assert [m.get("status") for m in sent] == [200, None]


def test_exceptions_pass():
    async def app(scope, receive, send):
        raise KeyError("x")

    assert isinstance(call(app, 30)[1], KeyError)


def test_a_websocket_is_cut_without_an_http_reply():
    async def app(scope, receive, send):
        await asyncio.Event().wait()

    assert call(app, 0.01, {"type": "websocket"})[0] == []


def test_lifespan_has_no_deadline():
    async def app(scope, receive, send):
        await asyncio.sleep(5 * DEADLINE_S)
        await send({"type": "lifespan.startup.complete"})

    assert call(app, DEADLINE_S, {"type": "lifespan"})[0] == [{"type": "lifespan.startup.complete"}]


def test_being_cancelled_cancels_the_application():
    seen = []

    async def app(scope, receive, send):
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async def main():
        task = asyncio.ensure_future(Deadline(app, 30)(SCOPE, None, None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    asyncio.run(main())
    assert seen == ["ended"]


def test_finished_requests_leave_no_timer_and_no_context_behind():
    class Context:
        pass

    async def main():
        layer = Deadline(lambda scope, receive, send: reply(send), 3600)

        async def send(message):
            pass

        for _ in range(50):
            await layer({"type": "http", "context": Context()}, None, send)
        await asyncio.sleep(0)
        gc.collect()
        alive = sum(1 for o in gc.get_objects() if isinstance(o, Context))
        timers = [t for t in asyncio.get_running_loop()._scheduled if not t.cancelled()]
        return alive, timers

    assert asyncio.run(main()) == (0, [])
