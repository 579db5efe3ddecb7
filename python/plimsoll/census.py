"""Which blocks of the CUDA allocator are alive, and since when. No walk over Python objects, no CUDA call.

A census notes the address and size of every live block: integers, nothing of the user's. The window in which a block
was first seen is its age; window 0 is what was there when the worker was ready. An address whose size changed is a new
block. A freed block's address is used again, so that age selects suspects and never proves growth.
"""

import sys
import threading
import time

from plimsoll import names

WINDOWS = 16  # after the first; then neighbours are joined, so that the whole life fits
BLOCKS = 200_000  # more are too dear to look at beside a service
DEAR_BLOCKS = 20_000  # above, seldom
EVERY_REQUESTS = 8
EVERY_S = 1.0
DEAR_EVERY_S = 60.0


def torch_in_use():
    """The user's torch module, when it is there and its CUDA side is initialised; never imports it."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except AttributeError:  # half imported
        return None


def segments(torch, traces=False):
    """(segments, traces of events by device) of the native caching allocator, as PyTorch's own snapshot has them."""
    if traces:
        snapshot = torch._C._cuda_memorySnapshot(None)
        return snapshot["segments"], snapshot.get("device_traces", [])
    try:
        return torch._C._cuda_memorySnapshot((0, 0, False))["segments"], []  # 2.12 on: without events, much cheaper
    except TypeError:
        return torch._C._cuda_memorySnapshot(None)["segments"], []


def live_blocks(torch, found=None):
    """{address: (size, pool, line)} of every block that is handed out; line: names.user_line, with the history on."""
    out = {}
    for segment in segments(torch)[0] if found is None else found:
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        address = segment["address"]
        for block in segment["blocks"]:
            at = block.get("address", address)
            if block["state"] == "active_allocated":
                frames = block.get("frames")
                out[at] = (block["size"], pool, names.user_line(frames) if frames else None)
            address = at + block["size"]
    return out


def pinned_bytes(torch):
    try:
        return torch.cuda.host_memory_stats().get("active_bytes.current", 0)
    except Exception:  # older, or not initialised
        return 0


class Census:
    """Window of first sight of every live block. `windows[i]`: {"requests": {route: n}, "blocks", "bytes",
    "pinned"}."""

    def __init__(self):
        self.first = {}
        self.sizes = {}
        self.windows = []
        self.cost_ms = 0.0

    def take(self, torch, requests):
        """Another window, or the last one again when no request has ended since; returns the live blocks."""
        start = time.perf_counter()
        blocks = live_blocks(torch)
        if not requests and len(self.windows) > 1:
            requests = self.windows.pop()["requests"]
        elif len(self.windows) > WINDOWS:
            self._join()
        index = len(self.windows)
        sizes = {address: block[0] for address, block in blocks.items()}
        before, known = self.first, self.sizes
        self.first = {a: before[a] if known.get(a) == size else index for a, size in sizes.items()}
        self.sizes = sizes
        self.windows.append(
            {
                "requests": dict(requests),
                "blocks": len(blocks),
                "bytes": sum(sizes.values()),
                "pinned": pinned_bytes(torch),
            }
        )
        self.cost_ms = (time.perf_counter() - start) * 1e3
        return blocks

    def _join(self):
        """Two windows become one, but for the first."""
        joined = self.windows[:1]
        for i in range(1, len(self.windows), 2):
            pair = self.windows[i : i + 2]
            last = dict(pair[-1])
            last["requests"] = {}
            for window in pair:
                for route, count in window["requests"].items():
                    last["requests"][route] = last["requests"].get(route, 0) + count
            joined.append(last)
        self.windows = joined
        self.first = {address: (i + 1) // 2 for address, i in self.first.items()}


class Keeper:
    """Takes the census by itself, on a thread of its own, when requests have ended and none runs.

    `counts()` gives (in flight, {route: requests ended}). The lock is held during a look, too: one at a time.
    """

    def __init__(self, counts):
        self.census = Census()
        self.lock = threading.Lock()
        self._counts = counts
        self._seen = {}
        self._taken_at = 0.0
        self._started = False
        self.initialised = None  # called once, with torch, when its CUDA side is there

    def total(self):
        return sum(self._counts()[1].values())

    def start(self):
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="plimsoll-census", daemon=True).start()

    def _run(self):
        told = False
        while True:
            time.sleep(EVERY_S)
            torch = torch_in_use()
            if torch is None:
                continue
            try:
                if not told and self.initialised is not None:
                    self.initialised(torch)
                told = True
                with self.lock:
                    if self._due():
                        self.take(torch)
            except Exception as exc:  # an allocator without blocks, another version: there is no census, nothing else
                print(f"event=worker.degraded feature=census reason={str(exc)[:200]!r}", file=sys.stderr, flush=True)
                return

    def _due(self):
        """Only after a baseline: what came before it is not known to be the model's."""
        in_flight, ended = self._counts()
        if not self.census.windows or in_flight > 0:
            return False
        dear = len(self.census.first) > DEAR_BLOCKS
        if len(self.census.first) > BLOCKS or (dear and time.monotonic() - self._taken_at < DEAR_EVERY_S):
            return False
        return sum(ended.values()) - sum(self._seen.values()) >= EVERY_REQUESTS

    def take(self, torch):
        """With the lock held."""
        _, ended = self._counts()
        since = {route: n - self._seen.get(route, 0) for route, n in ended.items() if n > self._seen.get(route, 0)}
        self._seen = ended
        self._taken_at = time.monotonic()
        return self.census.take(torch, since)

    def baseline(self):
        """The worker is ready: what lives now is the model. The first word counts; True if this was it."""
        torch = torch_in_use()
        with self.lock:
            if self.census.windows:
                return False
            if torch is None:  # all that comes later is not the model's, a model that is loaded late included
                self._seen = self._counts()[1]
                self.census.windows.append({"requests": {}, "blocks": 0, "bytes": 0, "pinned": 0})
            else:
                self.take(torch)
                self.census.windows[0]["requests"] = {}
            return True
