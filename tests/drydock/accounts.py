"""Accounts of memory with the real PyTorch and two cards: what is told of each step, as JSON."""

import json
import sys

from plimsoll import page as pages
from plimsoll.records import Recorder

MIB = 1 << 20
told, degraded = {}, []
page = pages.Page()
page.open()
recorder = Recorder(page, lambda feature, reason: degraded.append([feature, reason]))


def run(body=None):
    """One run of user code: (flags, device, allocated before, after, reserved, peak)."""
    with page.lock:
        account = recorder.memory.begin()
    if body is not None:
        body()
    with page.lock:
        figures = recorder.memory.end(account)
    return [figures.flags, figures.device, *figures.memory]


told["without_torch"] = run()
told["imports"] = [m for m in sys.modules if m.split(".")[0] in ("torch", "numpy")]

import torch  # noqa: E402

told["without_context"] = run()
told["context_made"] = torch.cuda.is_initialized()

kept = []
told["first"] = run(lambda: kept.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:0")))
told["features"] = page.get("features")


def on_the_other():
    kept.append(torch.empty(5 * MIB, dtype=torch.uint8, device="cuda:1"))
    recorder.memory._looked_at = float("-inf")  # as if it had taken its time


told["other_device"] = run(on_the_other)
told["again_on_the_first"] = run(lambda: kept.append(torch.empty(7 * MIB, dtype=torch.uint8, device="cuda:0")))

run(lambda: torch.empty(300 * MIB, dtype=torch.uint8, device="cuda:0"))
with page.lock:
    account = recorder.memory.begin()
told["busy"] = recorder.empty_cache()
with page.lock:
    recorder.memory.end(account)
told["emptied"] = recorder.empty_cache()
told["nothing_left"] = recorder.empty_cache()["returned_bytes"]
told["sample"] = recorder.sample()


def hot():
    """Shares of requests that are accounted: a burst, then without a pause."""
    shares = []
    for count in (100, 20_000):
        got = [run()[0] for _ in range(count)]
        shares.append(sum(bool(flags & pages.MEMORY) for flags in got[-count // 2 :]) / (count // 2))
    return shares


told["hot"] = hot()
recorder.memory.sync = "always"
told["hot_in_soak"] = hot()[1]
recorder.memory.sync, recorder.memory._paid_until = "off", 0.0


def broken(device):
    raise RuntimeError("a plugged-in allocator keeps no counters")


recorder.memory._cuda.stats = broken
told["broken"] = [run()[0], run()[0], page.get("features"), degraded]
print(json.dumps(told))
