"""A PyTorch service whose memory grows with what is asked for: `mib` MiB on the GPU while a request runs, 250 ms long.

With DIE set an OOM is its end, as it is for engines.
"""

import os
import time
import traceback

import bentoml
import torch


@bentoml.service(resources={"gpu": 1}, traffic={"timeout": 60}, threads=16)
class MemoryPeak:
    def __init__(self):
        self.weights = torch.zeros(256, 1024, 1024, device="cuda")  # 1 GiB

    @bentoml.api
    def predict(self, mib: int) -> dict:
        try:
            held = torch.empty(mib << 18, device="cuda")
        except torch.OutOfMemoryError:
            if "DIE" in os.environ:
                traceback.print_exc()
                os._exit(1)
            raise
        time.sleep(0.25)
        return {"bytes": held.numel() * 4, "allocated": torch.cuda.memory_allocated()}
