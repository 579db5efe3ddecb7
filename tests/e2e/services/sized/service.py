"""A PyTorch service whose memory grows with its input: 64 KiB on the GPU for each byte of text, 100 ms long.

With DIE set an OOM is its end, as it is for engines.
"""

import os
import time
import traceback

import bentoml
import torch


def held(size):
    try:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        if "DIE" in os.environ:
            traceback.print_exc()
            os._exit(1)
        raise


@bentoml.service(traffic={"timeout": 60}, threads=int(os.environ.get("THREADS", "16")))
class Sized:
    def __init__(self):
        self.weights = held(1 << 30)

    @bentoml.api
    def predict(self, text: str) -> dict:
        block = held(len(text) << 16)
        time.sleep(0.1)
        return {"bytes": block.numel(), "allocated": torch.cuda.memory_allocated()}

    @bentoml.api
    def hold(self, text: str) -> int:
        """As long as there is a file GATE."""
        block = held(len(text) << 16)
        while os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
        return block.numel()
