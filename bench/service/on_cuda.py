"""The same endpoint, with a tensor made and freed, so that there is a peak to account."""

import bentoml
import torch
from switch import switch


@bentoml.service(workers=1, traffic={"timeout": 30})
class Double:
    def __init__(self):
        self.weights = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")

    @bentoml.api
    async def double(self, x: int = 21) -> int:
        torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        return 2 * x

    @bentoml.api
    def switch(self, on: bool) -> bool:
        switch(on)
        return on
