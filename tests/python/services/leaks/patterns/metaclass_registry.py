"""A class is made per request, and its attribute keeps a tensor."""
import torch

KINDS = []


def predict(i):
    with torch.inference_mode():
        KINDS.append(type(f"Kind{i}", (), {"table": torch.ones(2400, device="cuda")}))
    return 0.0
