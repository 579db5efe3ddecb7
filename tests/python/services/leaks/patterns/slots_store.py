"""An object without a dictionary: what it keeps lies in a slot."""
import torch


class Store:
    __slots__ = ("rows", "size")

    def __init__(self):
        self.rows = []
        self.size = 0

    def keep(self, value):
        self.rows.append(value)


STORE = Store()


def predict(i):
    with torch.inference_mode():
        STORE.keep(torch.ones(1, 1100, device="cuda"))
    return 0.0
