"""A priority queue of results from which nothing is taken."""
import heapq

import torch

BEST = []


def predict(i):
    with torch.inference_mode():
        heapq.heappush(BEST, (-i, torch.ones(1800, device="cuda")))
    return 0.0
