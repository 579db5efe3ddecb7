"""Not a leak: a ring of preallocated buffers, each replaced in turn."""
import torch

RING = [None] * 10


def predict(i):
    with torch.inference_mode():
        RING[i % len(RING)] = torch.ones(1, 2700, device="cuda")
    return 0.0
