"""Not a leak: a second model is loaded by the first request that wants it, after the worker was ready."""
import torch

MODELS = {}


def predict(i):
    if i >= 24 and "second" not in MODELS:
        MODELS["second"] = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(12))).cuda().eval()
    return 0.0
