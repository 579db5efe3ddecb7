"""A small PyTorch service on `cuda`. VARIANT=clean keeps nothing; kept_result keeps each result; kept_graph with its graph.

Bytes a request by arithmetic: a result is 1024 floats (4 KiB); its graph holds the input (4), the hidden layer (16) and what the
GELU gave (16) beside it: 40 KiB.
"""

import os

import bentoml
import torch

VARIANT = os.environ.get("VARIANT", "clean")
WIDTH = 1024
KEPT = []


@bentoml.service(resources={"gpu": 1}, traffic={"timeout": 30})
class OnCuda:
    def __init__(self):
        layers = (torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))
        self.model = torch.nn.Sequential(*layers).to("cuda").eval()

    @bentoml.api
    def predict(self, x: list[float]) -> dict:
        row = torch.zeros(WIDTH)
        row[: len(x)] = torch.tensor(x[:WIDTH])
        with torch.inference_mode(VARIANT != "kept_graph"):
            out = self.model(row.to("cuda"))
        value = out[0].item()
        if VARIANT != "clean":
            KEPT.append(out)
        return {"value": value, "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}

    @bentoml.api
    def card(self) -> dict:
        return {"name": torch.cuda.get_device_name(0), "pid": os.getpid(), "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
