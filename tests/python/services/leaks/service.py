"""Leaks and what looks like leaks, each in a file of its own: `run` calls the one that is named."""

import importlib
import os

import bentoml
import torch


@bentoml.service(threads=1, traffic={"timeout": 60})
class Leaks:
    def __init__(self):
        self.model = torch.nn.Linear(64, 64).cuda().eval()
        self.kept = []
        if os.environ.get("OWN_HISTORY"):
            torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=100)

    def _service_attribute(self, i):
        with torch.inference_mode():
            self.kept.append(self.model(torch.ones(3, 64, device="cuda")))

    @bentoml.api
    def run(self, pattern: str, start: int = 0, count: int = 1) -> int:
        predict = self._service_attribute
        if pattern != "service_attribute":
            predict = importlib.import_module(f"patterns.{pattern}").predict
        for i in range(start, start + count):
            predict(i)
        return count

    @bentoml.api
    def innocent(self) -> int:
        return 1

    @bentoml.api
    def forget(self) -> int:
        self.kept.clear()
        return torch.cuda.memory_allocated()

    @bentoml.api
    def full(self) -> str:
        """Allocates until there is no more."""
        try:
            blocks = []
            while True:
                blocks.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as exc:
            return str(exc)[:40]
