"""An event bus keeps bound methods, and they keep their objects."""
import torch


class Bus:
    handlers = []

    @classmethod
    def subscribe(cls, handler):
        cls.handlers.append(handler)


class Session:
    def __init__(self):
        self.state = torch.ones(1, 1900, device="cuda")
        Bus.subscribe(self.on_end)

    def on_end(self):
        return self.state.shape


def predict(i):
    with torch.inference_mode():
        Session()
    return 0.0
