"""Takes BOOT_S seconds to load, or fails to when the file `broken` is in the folder FLAGS names."""

import os
import time
from pathlib import Path

import bentoml


@bentoml.service(threads=8)
class TimedBoot:
    def __init__(self):
        time.sleep(float(os.environ.get("BOOT_S", "1")))
        if (Path(os.environ.get("FLAGS", "/nonexistent")) / "broken").exists():
            raise RuntimeError("the model is broken")

    @bentoml.api
    def predict(self, x: int = 1) -> int:
        return x

    @bentoml.api
    def work(self, x: int, seconds: float) -> int:
        time.sleep(seconds)
        return x
