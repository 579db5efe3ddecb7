"""Adapters are loaded per request into a module and never unloaded."""
import torch


class Adapters(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loaded = torch.nn.ParameterList()

    def load(self):
        self.loaded.append(torch.nn.Parameter(torch.ones(16, 100, device="cuda")))


ADAPTERS = Adapters()


def predict(i):
    ADAPTERS.load()
    return 0.0
