"""The service freezes the garbage collector's objects: they are invisible to it from then on."""
import gc

import torch

FROZEN = []


def predict(i):
    with torch.inference_mode():
        FROZEN.append([torch.ones(1, 2300, device="cuda")])
    gc.freeze()
    return 0.0
