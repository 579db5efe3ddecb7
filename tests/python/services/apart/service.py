"""Dependencies at every depth; each says in which process it runs."""

import asyncio
import os

import bentoml


@bentoml.service
class Deep:
    @bentoml.api
    async def who(self) -> int:
        return os.getpid()


@bentoml.service(name="middle", workers=3, traffic={"timeout": 7})
class Middle:
    deep = bentoml.depends(Deep)

    @bentoml.on_deployment
    def deployed():
        with open(os.environ["TRACE"], "a") as f:
            f.write(f"deployed {os.getpid()}\n")

    @bentoml.api
    def who(self) -> int:
        return os.getpid()

    @bentoml.api
    async def below(self) -> int:
        return await self.deep.to_async.who()

    @bentoml.api
    async def slow(self) -> int:
        await asyncio.sleep(1)
        return os.getpid()


@bentoml.service(resources={"cpu": "1"})
class Limited:
    middle = bentoml.depends(Middle)

    @bentoml.api
    def who(self) -> int:
        return os.getpid()


@bentoml.service
class Far:
    @bentoml.api
    def who(self) -> int:
        return os.getpid()


@bentoml.service(runner_probe={"enabled": False})  # nobody is at home at Far's
class Front:
    middle = bentoml.depends(Middle)
    limited = bentoml.depends(Limited)
    far = bentoml.depends(Far, url="http://127.0.0.1:1")

    @bentoml.api
    async def pids(self) -> list:
        limited = await self.limited.to_async.who()
        return [os.getpid(), await self.middle.to_async.who(), await self.middle.to_async.below(), limited]

    @bentoml.api
    def by_sync(self) -> int:
        return self.middle.who()

    @bentoml.api
    def child_sees(self) -> str:
        return os.environ.get("BENTOML_RUNNER_MAP", "")
