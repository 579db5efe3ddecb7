"""One endpoint under settings that must switch the lane off, or must not. SWITCH chooses."""

import os
import typing as t

import bentoml
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

switch = os.environ.get("SWITCH", "")
options: t.Dict[str, t.Any] = {}
if switch == "cors":
    options["http"] = {"cors": {"enabled": True, "access_control_allow_origins": ["*"]}}
if switch == "max_concurrency":
    options["traffic"] = {"max_concurrency": 2}
if switch == "tracing":
    options["tracing"] = {"sample_rate": 1.0}
if switch == "prefix":
    options["path_prefix"] = "/api"


@bentoml.service(**options)
class Switches:
    @bentoml.api
    def one(self, x: int = 1) -> int:
        return x


class Middleware:
    def __init__(self, app: t.Any) -> None:
        self.app = app

    async def __call__(self, scope: t.Any, receive: t.Any, send: t.Any) -> None:
        async def marked(message: t.Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-mark", b"1")]
            await send(message)

        await self.app(scope, receive, marked)


if switch == "middleware":
    Switches.add_asgi_middleware(Middleware)
if switch == "mount":
    hello = Starlette(routes=[Route("/hello", lambda request: PlainTextResponse("mounted"))])
    Switches.mount_asgi_app(hello, path="/")
if switch == "patched":
    import functools

    original = Starlette.__call__

    @functools.wraps(original)
    async def traced(self: t.Any, scope: t.Any, receive: t.Any, send: t.Any) -> None:
        await original(self, scope, receive, send)

    Starlette.__call__ = traced  # type: ignore[method-assign]
