"""Fetches its weights when it starts, as too many services do."""

import urllib.request

import bentoml


@bentoml.service
class Downloads:
    def __init__(self):
        urllib.request.urlopen("https://weights.example.org/model.bin", timeout=5)

    def __is_ready__(self) -> bool:
        return True

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x
