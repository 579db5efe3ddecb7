"""Gives up on requests that have not begun to answer in time, and leaves nothing behind for those that have.

Takes the place of BentoML's TimeoutMiddleware, with its constructor, status and body. That one never cancels its timer,
so every finished request's context lives on until the timeout is over: rate x timeout x 5 KB, which looks like a leak.
"""

import asyncio
import json

from plimsoll import records

LATE = "plimsoll.run"  # in the scope of a request whose time was up in the fast lane
GRACE_S = 0.05  # for a cancelled handler to notice, before it counts as one that runs on


class Deadline:
    def __init__(self, app, timeout):
        self.app = app
        self.timeout = timeout

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        late = scope.get(LATE)
        if late is not None:
            return await self._was_late(late, send)
        answered = asyncio.get_running_loop().create_future()

        async def watched_send(message):
            if not answered.done():
                answered.set_result(None)
            await send(message)

        task = asyncio.ensure_future(self.app(scope, receive, watched_send))
        try:
            done, _ = await asyncio.wait({task, answered}, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        call = records.current.get()
        if call is not None:
            call.cut = True
        if task.cancel():
            if scope["type"] == "http":
                await self._give_up(send)
            await asyncio.wait({task}, timeout=GRACE_S)

    async def _was_late(self, run, send):
        """The lane has waited that long for it already."""
        await self._give_up(send)
        if run.task is not None:
            await asyncio.wait({run.task}, timeout=GRACE_S)

    async def _give_up(self, send):
        text = {"error": f"Not able to process the request in {self.timeout} seconds"}
        body = json.dumps(text, separators=(",", ":")).encode()
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 504, "headers": headers})
        await send({"type": "http.response.body", "body": body})
