"""Async streams that nobody finishes and nobody closes."""
import asyncio

import torch

LOOP = asyncio.new_event_loop()
OPEN = []


async def tokens(i):
    hidden = torch.ones(2, 1300, device="cuda", dtype=torch.float16)
    for step in range(100):
        yield step
    del hidden


def predict(i):
    stream = tokens(i)
    LOOP.run_until_complete(stream.__anext__())
    OPEN.append(stream)
    return 0.0
