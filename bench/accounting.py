"""What it costs to account the memory of every request: one worker, with and without in turn.

The services of bench/service switch it themselves, so that both are the same process on the same machine in the same
second. With PyTorch it runs in the dry dock: allocator and counters are the real ones, kernels are not executed.
"""

import json
import os
import sys
import time
from pathlib import Path

import bentos
from stack import LOAD_CORE, cpu_us

WARM, SECONDS, PAIRS_A_ROUND = 200, 1, 5


def targets():
    """{name: (interpreter, service, words in front)}: those that can run here."""
    found = {"no PyTorch": (sys.executable, "service:Double", ())}
    python = Path(os.environ.get("PL_TORCH_ENV", "/nonexistent")) / "bin/python"
    if python.exists():
        found["PyTorch, 1 MiB made and freed"] = (python, "on_cuda:Double", ("drydock", "-q", "--"))
    else:
        print("bench: no environment with PyTorch (PL_TORCH_ENV): that row is left out")
    return found


def cost(bento, worker, on, wrk):
    """us of the worker's CPU for a request."""
    assert bento.ask("/switch", json.dumps({"on": on}).encode(), timeout=10) == 200
    used = cpu_us([worker])
    run = wrk(bento.port, "/double", 8, SECONDS, script="double.lua", core=LOAD_CORE)
    time.sleep(0.2)  # the load's last requests end
    return max(cpu_us([worker]) - used, 0) / max(run["requests"], 1)


def measure(folder, rounds, wrk):
    """{name: [(on, off), ...]}; who is first changes each time."""
    found = {}
    for name, (python, service, before) in targets().items():
        bento = bentos.Bento(folder, "plimsoll", service, python, before)
        try:
            bento.ready()
            for _ in range(WARM):
                bento.ask("/double", b'{"x": 1}')
            for i in range(rounds * PAIRS_A_ROUND):
                worker, order = bento.worker(), ((True, False) if i % 2 == 0 else (False, True))
                us = {on: cost(bento, worker, on, wrk) for on in order}
                if all(us.values()):  # else the worker was replaced meanwhile
                    found.setdefault(name, []).append((us[True], us[False]))
        finally:
            bento.stop()
    return found
