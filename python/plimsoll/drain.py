"""Leaving a shared socket without losing a call.

All workers of a dependency accept on one listener, and nobody stands before them who could send calls elsewhere. So one
that is to end stops accepting, answers each call that still comes with `Connection: close`, and is done when no
connection is left that a caller could use: a call written into a connection while it is closed here is lost, and its
caller cannot know whether it was done.

A caller's pool keeps an idle connection for a while (aiohttp, and with it BentoML's own client, 15 s; httpx 5 s). After
QUIET_S without a call what is still open is used by nobody.

uvicorn's own shutdown closes idle connections at once, and loses those that were accepted and not yet handed over; so
it comes last, by the SIGTERM that main sends after `drained`. Private names, probed: uvicorn.Server.startup, .servers,
.server_state.connections.
"""

import asyncio
import time

QUIET_S = 16.0  # longer than aiohttp's keepalive_timeout
LOOK_S = 0.05


class Drain:
    """`tell()` is called on the event loop's thread, each time somebody has asked, once nothing is left."""

    def __init__(self, tell):
        self.tell = tell
        self.active = False  # read on every reply
        self._server = self._loop = None
        self._running = 0  # requests between arrival and end, on the event loop's thread
        self._last = time.monotonic()  # when one began or ended
        self._since = None

    def around_startup(self, original):
        async def startup(server, *args, **kwargs):
            self._server, self._loop = server, asyncio.get_running_loop()
            return await original(server, *args, **kwargs)

        return startup

    def begin(self):
        """From the control socket's thread. Raises when there is nothing to drain: main goes on as without us."""
        if self._loop is None:
            raise RuntimeError("does not serve yet")
        asyncio.run_coroutine_threadsafe(self._run(), self._loop)
        return {}

    def arrived(self):
        self._running += 1
        self._last = time.monotonic()

    def left(self):
        self._running -= 1
        self._last = time.monotonic()

    def head(self, message):
        """The start of a reply, told to be the connection's last."""
        if not self.active or message["type"] != "http.response.start":
            return message
        headers = [h for h in message.get("headers", ()) if h[0].lower() != b"connection"]
        return {**message, "headers": [*headers, (b"connection", b"close")]}

    async def _run(self):
        if not self.active:
            self.active = True
            self._since = time.monotonic()
            for server in self._server.servers:
                for sock in server.sockets:
                    self._loop.remove_reader(sock.fileno())
            await asyncio.sleep(LOOK_S)  # what was accepted is handed over on the next turns of the loop
        while self._used():
            await asyncio.sleep(LOOK_S)
        self.tell()

    def _used(self):
        if self._running > 0:
            return True
        if not self._server.server_state.connections:
            return False
        return time.monotonic() - max(self._last, self._since) < QUIET_S
