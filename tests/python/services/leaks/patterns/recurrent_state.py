"""The hidden state of a recurrent net is carried from request to request without detach()."""
import torch

CELL = torch.nn.Linear(32, 32).cuda()


class Carry:
    def __init__(self):
        self.hidden = torch.zeros(8, 32, device="cuda")

    def step(self):
        self.hidden = torch.tanh(CELL(self.hidden))


CARRY = Carry()


def predict(i):
    CARRY.step()
    return 0.0
