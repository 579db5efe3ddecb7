"""Declares what it wants from its environment."""

import os

import bentoml


@bentoml.service(
    path_prefix="/v1",
    envs=[
        {"name": "WITH_VALUE", "value": "declared"},
        {"name": "FROM_OUTSIDE", "value": "declared"},
        {"name": "BUILD_ONLY", "stage": "build"},
        {"name": "NEEDED"},
    ],
)
class Envs:
    @bentoml.api(route="/deep/env")
    def env(self) -> dict:
        return {n: os.environ.get(n) for n in ("WITH_VALUE", "FROM_OUTSIDE", "BUILD_ONLY", "NEEDED")}
