"""Runs in the user's Python under the dry dock: hands PyTorch's own figures to the card table.

The core executes this file once, as the module `plimsoll_drydock`, while PyTorch is being imported, and calls `publish`
now and then. Three functions are wrapped, nothing else is changed: PyTorch's first use of CUDA, its reset of the peaks,
and os._exit.
"""

import atexit
import ctypes
import os
import sys

CORE = ctypes.CDLL("libplimsoll-drydock.so")  # already loaded: found by its name
largest_refused = {}
dumped = []


def torch():
    return sys.modules.get("torch")


def publish():
    """Folds the allocator's figures into the table. Cheap; safe at any time."""
    t = torch()
    cuda = getattr(t, "cuda", None)
    if cuda is None or not getattr(cuda, "is_initialized", bool)() or t._C._cuda_isInBadFork():
        return
    for device in range(cuda.device_count()):
        try:
            stats = t._C._cuda_memoryStats(device)
        except RuntimeError:  # a device that is not in use
            continue
        figures = (ctypes.c_uint64 * 5)(
            stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"], stats["num_ooms"],
            stats["num_alloc_retries"], largest_refused.get(device, 0))
        if any(figures):
            CORE.dd_publish(device, figures)


def refused(device, asked, *_):
    largest_refused[device] = max(asked, largest_refused.get(device, 0))
    publish()


def record(t, folder):
    t.cuda.memory._record_memory_history(max_entries=1_000_000)

    def dump():
        if dumped or t._C._cuda_isInBadFork():
            return
        dumped.append(True)
        t.cuda.memory._dump_snapshot(os.path.join(folder, f"mem.dry-run.{os.getpid()}.pickle"))

    atexit.register(dump)


def started():
    """PyTorch has just made its first CUDA context."""
    t = torch()
    try:
        t._C._cuda_attach_out_of_memory_observer(refused)
    except (AttributeError, RuntimeError):  # backend:cudaMallocAsync has none
        pass
    reset = t._C._cuda_resetPeakMemoryStats

    def reset_peaks(*words):
        publish()
        return reset(*words)

    t._C._cuda_resetPeakMemoryStats = reset_peaks
    atexit.register(publish)
    leave = os._exit

    def publish_and_exit(status):
        publish()
        leave(status)

    os._exit = publish_and_exit  # the way out of many servers' workers, past atexit
    if os.environ.get("PLIMSOLL_DRYDOCK_RECORD"):
        record(t, os.environ["PLIMSOLL_DRYDOCK_RECORD"])
    if os.environ.get("PLIMSOLL_DRYDOCK_VALUES", "0") not in ("", "0"):
        import importlib.util

        spec = importlib.util.spec_from_file_location("plimsoll_drydock_values", os.path.join(folder(), "values.py"))
        values = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(values)
        values.start()


def folder():
    return os.path.dirname(publish.__code__.co_filename)


def hook(c):
    original = c._cuda_init

    def first_use():
        result = original()
        c._cuda_init = original
        started()
        return result

    c._cuda_init = first_use


class Waiter:
    """Sits in sys.meta_path, finds nothing, and looks at each import whether torch._C is there by now."""

    def find_spec(self, name, path=None, target=None):
        c = sys.modules.get("torch._C")
        if hasattr(c, "_cuda_init"):
            sys.meta_path.remove(self)
            hook(c)
        return None


if torch() is not None and getattr(getattr(torch(), "cuda", None), "is_initialized", bool)():
    started()
elif hasattr(sys.modules.get("torch._C"), "_cuda_init"):
    hook(sys.modules["torch._C"])
else:
    sys.meta_path.insert(0, Waiter())
