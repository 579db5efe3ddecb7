"""A service with one dependency in its own process and one apart, which has one of its own. Each says who it is."""

import asyncio
import os
import time

import bentoml

JOURNAL = os.environ.get("JOURNAL", os.devnull)


def note(text):
    with open(JOURNAL, "a") as f:
        f.write(f"{text} {os.getpid()}\n")


@bentoml.service(threads=1)
class Deep:
    def __init__(self):
        note("init Deep")

    @bentoml.api
    async def who(self) -> int:
        return os.getpid()


@bentoml.service(workers=2)
class Scale:
    deep = bentoml.depends(Deep)

    def __init__(self):
        note("init Scale")
        while os.environ.get("SCALE_WAITS") and not os.path.exists(os.environ["GATE"]):
            time.sleep(0.01)
        if os.environ.get("SCALE_FAILS"):
            raise RuntimeError("the scale is broken")

    @bentoml.on_shutdown
    def end(self):
        note("shutdown Scale")

    @bentoml.api
    def scale(self, x: float) -> dict:
        return {"x": 2 * x, "pid": os.getpid()}

    @bentoml.api
    async def slow(self, seconds: float) -> dict:
        note("begin slow")
        await asyncio.sleep(seconds)
        return {"pid": os.getpid()}

    @bentoml.api
    async def below(self) -> int:
        return await self.deep.to_async.who()


@bentoml.service
class Near:
    def __init__(self):
        note("init Near")

    @bentoml.api
    def who(self) -> int:
        return os.getpid()


@bentoml.service(traffic={"timeout": 30})
class Front:
    scale = bentoml.depends(Scale)
    near = bentoml.depends(Near)

    def __init__(self):
        note("init Front")

    @bentoml.on_deployment
    def deployed():
        note("deployed")

    @bentoml.on_shutdown
    def end(self):
        note("shutdown Front")

    @bentoml.api
    async def by_async(self, x: float = 1.0) -> dict:
        return await self.scale.to_async.scale(x=x)

    @bentoml.api
    def by_sync(self, x: float = 1.0) -> dict:
        return self.scale.scale(x=x)

    @bentoml.api
    async def slow(self, seconds: float) -> dict:
        return await self.scale.to_async.slow(seconds=seconds)

    @bentoml.api
    async def pids(self) -> dict:
        below = await self.scale.to_async.below()
        near = await self.near.to_async.who()
        return {"front": os.getpid(), "near": near, "deep": below}
