"""A context variable whose list outlives every request."""
import contextvars

import torch

TRACE = contextvars.ContextVar("trace", default=[])


def predict(i):
    with torch.inference_mode():
        TRACE.get().append(torch.ones(1, 1, 1200, device="cuda"))
    return 0.0
