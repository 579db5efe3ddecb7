"""A batchable endpoint as they are on a GPU: 2 GiB for a batch whatever its size, 32 MiB for each item, 30 ms."""

import time

import bentoml
import torch

MIB = 1 << 20


@bentoml.service(traffic={"timeout": 60}, threads=4)
class Batched:
    def __init__(self):
        self.weights = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        self.calls = self.items = 0

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10000)
    def embed(self, texts: list[str]) -> list[int]:
        block = torch.empty((2048 + 32 * len(texts)) * MIB, dtype=torch.uint8, device="cuda")
        time.sleep(0.03)
        self.calls += 1
        self.items += len(texts)
        del block
        return [len(t) for t in texts]

    @bentoml.api
    def counts(self) -> list[int]:
        return [self.calls, self.items]
