"""Fails while the model loads."""

import bentoml


@bentoml.service
class BadInit:
    def __init__(self):
        raise RuntimeError("the weights are not where they should be")

    @bentoml.api
    def predict(self) -> str:
        return ""
