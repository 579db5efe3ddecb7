"""A service that leaks in the most usual way: every answer is kept in a list of the module, "for later statistics".

Nothing here is wrong to read, and a test of one request does not see it: each request keeps its input and the whole
graph behind the output on the card, because nobody said no_grad and HISTORY is never emptied.
"""

from __future__ import annotations

import bentoml
import torch
from torch import nn

HISTORY = []  # the leak: it outlives every request


def told(rows: int) -> dict:
    allocated = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    return {"rows": rows, "kept": len(HISTORY), "allocated_bytes": allocated}


@bentoml.service(traffic={"timeout": 30, "max_concurrency": 8})
class Leaky:
    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(self.device)

    @bentoml.api
    def predict(self, length: int = 64) -> dict:
        """Leaks: `length` rows of 4,096 activations stay with each answer."""
        x = torch.zeros(length, 1024, device=self.device)
        y = self.model(x)
        HISTORY.append(y)
        return told(y.shape[0])

    @bentoml.api
    def clean(self, length: int = 64) -> dict:
        """The same without the leak: to compare."""
        with torch.inference_mode():
            y = self.model(torch.zeros(length, 1024, device=self.device))
        return told(y.shape[0])
