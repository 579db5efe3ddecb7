"""Keeps what each request is told to keep on the device, or FIRST_MIB of the first one alone, and takes more while it runs."""

import os
import time

import bentoml
import torch

MIB = 1 << 20


def held(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


@bentoml.service(threads=2, traffic={"timeout": 60})
class Drips:
    def __init__(self):
        self.weights = held(32)
        self.kept = []

    @bentoml.api
    def predict(self, keep_mib: int, peak_mib: int, seconds: float = 0) -> int:
        if not self.kept and "FIRST_MIB" in os.environ:
            self.kept.append(held(int(os.environ["FIRST_MIB"])))
        if keep_mib:
            self.kept.append(held(keep_mib))
        block = held(peak_mib)
        time.sleep(seconds)
        return block.numel()

    @bentoml.api
    def forget(self) -> int:
        self.kept.clear()
        return torch.cuda.memory_allocated()
