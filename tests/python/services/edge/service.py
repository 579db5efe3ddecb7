"""User code before any handler: an ASGI middleware, and a mounted application."""

import os

import bentoml
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def hello(request):
    return PlainTextResponse("mounted")


mounted = Starlette(routes=[Route("/hello", hello, methods=["GET", "POST"])])


class Stamp:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


@bentoml.service
class Edge:
    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x


Edge.mount_asgi_app(mounted, path="/app")
if os.environ.get("WITH_MIDDLEWARE"):
    Edge.add_asgi_middleware(Stamp)
