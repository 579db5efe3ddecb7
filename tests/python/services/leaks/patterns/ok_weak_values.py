"""Not a leak: the cache refers weakly."""
import weakref

import torch

CACHE = weakref.WeakValueDictionary()


class Entry:
    def __init__(self, tensor):
        self.tensor = tensor


def predict(i):
    with torch.inference_mode():
        entry = Entry(torch.ones(1, 2500, device="cuda"))
    CACHE[i] = entry
    return 0.0
