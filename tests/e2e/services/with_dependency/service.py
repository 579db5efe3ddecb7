"""A service that calls another one."""

import bentoml


@bentoml.service
class Scale:
    @bentoml.api
    def scale(self, x: float) -> float:
        return 2 * x


@bentoml.service
class Front:
    scale = bentoml.depends(Scale)

    @bentoml.api
    async def predict(self, x: float = 1.0) -> float:
        return await self.scale.to_async.scale(x) + 1
