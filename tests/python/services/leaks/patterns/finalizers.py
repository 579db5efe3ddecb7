"""weakref.finalize keeps the arguments of the callback until its object dies, and these never do."""
import weakref

import torch


class Handle:
    pass


HANDLES = []


def release(tensor):
    pass


def predict(i):
    handle = Handle()
    with torch.inference_mode():
        weakref.finalize(handle, release, torch.ones(1, 2200, device="cuda"))
    HANDLES.append(handle)
    return 0.0
