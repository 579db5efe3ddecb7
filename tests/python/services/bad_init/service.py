"""Fails while the instance is made."""

import bentoml


@bentoml.service
class BadInit:
    def __init__(self):
        raise RuntimeError("CUDA out of memory (during load)")

    @bentoml.api
    def predict(self) -> str:
        return ""
