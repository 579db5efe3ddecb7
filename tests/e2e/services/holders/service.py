"""Memory that is kept: on the device by `leak`, on the host by `remember`; `full` runs out of it.

The next looks of explain have no time where SHORT_LOOKS, or what `short` was told, has an x for them, as on a machine whose
load leaves none: "x.x", the first and the third.
"""

import os
import time

import bentoml
import torch

from plimsoll import explain

KEPT = []
NOTES = {}
SHORT = list(os.environ.get("SHORT_LOOKS", ""))
run = explain.Explainer._run


def hurried(self, mode, budget_s, code):
    return run(self, mode, 0.0 if SHORT and SHORT.pop(0) == "x" else budget_s, code)


explain.Explainer._run = hurried


@bentoml.service(threads=2, traffic={"timeout": 60})
class Holders:
    def __init__(self):
        self.model = torch.nn.Linear(64, 256).cuda().eval()

    @bentoml.api
    def leak(self, n: int = 0) -> int:
        with torch.inference_mode():
            y = self.model(torch.ones(8, 64, device="cuda"))
        KEPT.append(y)
        return n

    @bentoml.api
    def innocent(self, n: int = 0) -> int:
        with torch.inference_mode():
            self.model(torch.ones(2, 64, device="cuda"))
        return n

    @bentoml.api
    def remember(self, n: int = 0) -> int:
        NOTES[n] = b"x" * (64 * 1024)
        return n

    @bentoml.api
    def forget(self) -> int:
        KEPT.clear()
        return torch.cuda.memory_allocated()

    @bentoml.api
    def short(self, looks: str) -> int:
        SHORT[:] = looks
        return len(SHORT)

    @bentoml.api
    def full(self) -> str:
        blocks = []
        while True:
            blocks.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))

    @bentoml.api
    def busy(self) -> int:
        """Until the gate is there."""
        while not os.path.exists(os.environ["GATE"]):
            time.sleep(0.01)
        return 1
