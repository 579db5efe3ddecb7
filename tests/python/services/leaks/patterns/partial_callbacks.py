"""functools.partial objects in a registry; each carries a tensor as an argument."""
import functools

import torch

REGISTRY = {}


def score(features, other):
    return other


def predict(i):
    with torch.inference_mode():
        REGISTRY[i] = functools.partial(score, torch.ones(1400, device="cuda"))
    return 0.0
