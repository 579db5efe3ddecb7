"""Loads until the file that GATE names exists: a test decides how long a boot takes."""

import os
import time
from pathlib import Path

import bentoml


@bentoml.service
class SlowBoot:
    def __init__(self):
        gate = Path(os.environ["GATE"])
        while not gate.exists():
            time.sleep(0.02)

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x
