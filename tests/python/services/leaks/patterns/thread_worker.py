"""A background thread that keeps what it has worked on in a local variable."""
import queue
import threading

import torch

JOBS = queue.Queue()
DONE = queue.Queue()


def work():
    finished = []
    while True:
        finished.append(JOBS.get())
        DONE.put(None)


threading.Thread(target=work, name="batch-worker", daemon=True).start()


def predict(i):
    with torch.inference_mode():
        JOBS.put(torch.ones(1, 1, 1, 1500, device="cuda"))
    DONE.get(timeout=20)
    return 0.0
