"""One tensor that is made longer by every request."""
import torch


class Memory:
    def __init__(self):
        self.bank = torch.zeros(0, 600, device="cuda")

    def remember(self, row):
        self.bank = torch.cat([self.bank, row])


MEMORY = Memory()


def predict(i):
    with torch.inference_mode():
        MEMORY.remember(torch.ones(1, 600, device="cuda"))
    return 0.0
