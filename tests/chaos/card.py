"""The PyTorch service of the chaos suite: its device memory is measured, and every answer keeps some of it, so it is replaced for
that now and then, in between all else. See backend.py for the files it writes."""

import os
import threading

import bentoml
import torch
from backend import digest

KEPT_BYTES, PEAK_BYTES = 8 << 20, 32 << 20
_receipts = os.open(os.environ.get("RECEIPTS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def held(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@bentoml.service(name="card", threads=4, traffic={"timeout": 20})
class Card:
    def __init__(self):
        with open(os.environ.get("JOURNAL", os.devnull), "a") as journal:
            journal.write(f"load card {os.getpid()}\n")
        self.weights, self.kept, self.lock = held(64 << 20), [], threading.Lock()

    @bentoml.api(route="/card/echo")
    def echo(self, id: str = "warm", text: str = "") -> str:
        if id != "warm":
            os.write(_receipts, f"{id} card {os.getpid()}\n".encode())
        with self.lock:
            self.kept.append(held(KEPT_BYTES))
        block = held(PEAK_BYTES)
        del block
        return f"{digest(id, text.encode()).decode()} {id} {text}"
