"""Does to CUDA memory what each test wants to see told: keeps, frees, runs out, overlaps, batches, streams."""

import os
import time

import bentoml
import numpy as np
import torch

KIB, MIB = 1 << 10, 1 << 20


def held(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def wait_for_gate():
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)


class Syncs:
    """Counts torch.cuda.synchronize()."""

    count, original = 0, staticmethod(torch.cuda.synchronize)

    def __call__(self, *args):
        Syncs.count += 1
        return self.original(*args)


torch.cuda.synchronize = Syncs()


@bentoml.service(threads=4, traffic={"timeout": 60})
class Accounts:
    def __init__(self):
        self.weights = held(32 * MIB)
        self.kept = []

    @bentoml.api
    def keep(self, kib: int) -> int:
        self.kept.append(held(kib * KIB))
        return len(self.kept)

    @bentoml.api
    def peak(self, mib: int) -> int:
        held(mib * MIB)
        return mib

    @bentoml.api
    def out_of_memory(self) -> int:
        held(1 << 45)
        return 0

    @bentoml.api
    def wrapped(self) -> int:
        try:
            held(1 << 45)
        except torch.OutOfMemoryError as exc:
            raise ValueError("the model could not run") from exc
        return 0

    @bentoml.api
    def dealt_with(self) -> int:
        try:
            held(1 << 45)
        except torch.OutOfMemoryError:
            held(2 * MIB)
        return 1

    @bentoml.api
    def told_otherwise(self, ctx: bentoml.Context) -> str:
        try:
            held(1 << 45)
        except torch.OutOfMemoryError:
            ctx.response.status_code = 500
        return "sorry"

    @bentoml.api
    def hold(self, mib: int) -> int:
        block = held(mib * MIB)
        wait_for_gate()
        return block.numel()

    @bentoml.api(batchable=True)
    def batch(self, x: np.ndarray) -> np.ndarray:
        block = held(len(x) * MIB)
        del block
        return x

    @bentoml.api
    def stream(self, n: int):
        for _ in range(n):
            block = held(4 * MIB)
            yield f"{block.numel()}\n"
            del block

    @bentoml.api
    async def shaped(self, x: np.ndarray, title: str = "") -> int:
        return int(x.size)

    @bentoml.api
    def syncs(self) -> int:
        return Syncs.count

    @bentoml.api
    def fill_cache(self, mib: int) -> int:
        held(mib * MIB)
        return torch.cuda.memory_reserved()

    @bentoml.task
    def job(self, mib: int) -> int:
        block = held(mib * MIB)
        wait_for_gate()
        return block.numel()
