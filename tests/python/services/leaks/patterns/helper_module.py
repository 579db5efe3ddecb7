"""The cache is in another file of the user's."""
import torch
from patterns import helper_cache


def predict(i):
    with torch.inference_mode():
        helper_cache.put(i, torch.ones(1, 2100, device="cuda"))
    return 0.0
