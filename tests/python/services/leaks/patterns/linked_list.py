"""A history of states where each points to the one before."""
import torch


class State:
    def __init__(self, value, previous):
        self.value = value
        self.previous = previous


LAST = None


def predict(i):
    global LAST
    with torch.inference_mode():
        LAST = State(torch.ones(1, 1700, device="cuda"), LAST)
    return 0.0
