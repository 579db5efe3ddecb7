"""Does nothing for a while, four times at once: its knee is known."""

import time

import bentoml


@bentoml.service(threads=4)
class Sleepy:
    @bentoml.api
    def nap(self, ms: int = 100) -> int:
        time.sleep(ms / 1000)
        return ms
