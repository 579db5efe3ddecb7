"""Endpoints that do nothing, so that what a request costs is what is around them."""

import bentoml


@bentoml.service(workers=1, traffic={"timeout": 30})
class Trivial:
    @bentoml.api
    def sync(self, x: int = 1) -> dict:
        return {"x": x}

    @bentoml.api
    async def asynchronous(self, x: int = 1) -> dict:
        return {"x": x}

    @bentoml.api
    def floats(self, v: list[float]) -> list[float]:
        return v
