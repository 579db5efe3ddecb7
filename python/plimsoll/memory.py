"""What a request does to memory: the counters of PyTorch's allocator before and after it, and the host's.

torch is looked up among the modules that the user's code has imported, and asked only once it has a CUDA context:
asking makes neither an import nor a context. Counters are host-side and need no device synchronisation; `sync` has it
done all the same, `always` or now and then (`sampled`), before they are read.

Counters are those of the process. What a request does is its own only when no other user code ran between its begin and
its end: then, and only then, the peak was reset at its begin (the user's own torch.cuda.max_memory_allocated() starts
anew there, too).
"""

import os
import sys
import time

from plimsoll import page as pages

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
DEVICES_EVERY_S = 0.05  # which devices are in use is looked at again
SYNC_EVERY_S = 1.0  # memory.sync: sampled
SHARE = 0.02  # of one core, for reading the device's counters: about 300 requests a second are all accounted
BURST_S = 1.0  # at any rate
HOST_EVERY_S = 0.01  # anonymous memory, for records
STATUS_EVERY_S = 1.0  # the rest of /proc/self/status
OOM_CLASSES = ("OutOfMemoryError", "ResourceExhaustedError")
OOM_TEXTS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "RESOURCE_EXHAUSTED",
             "Failed to allocate memory for requested buffer", "failed to allocate compute buffers")  # fmt: skip
OOM_TEXT_BYTES = 400
OOM_DEPTH = 5


def is_oom(error):
    """Whether an exception, or what it came from, says that a device's memory is out. Texts are read of RuntimeError
    and its children only: that is what libraries raise, and a text of the user's own may be anything."""
    for _ in range(OOM_DEPTH):
        if error is None:
            return False
        if type(error).__name__ in OOM_CLASSES:
            return True
        if isinstance(error, RuntimeError):
            try:
                text = str(error)[:OOM_TEXT_BYTES]
            except Exception:
                text = ""
            if any(t in text for t in OOM_TEXTS):
                return True
        error = error.__cause__ or error.__context__
    return False


def anon_bytes():
    """RssAnon, the cheap way; 0 when /proc does not tell."""
    try:
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _, resident, shared, *_ = os.read(fd, 200).split()
        finally:
            os.close(fd)
        return max(int(resident) - int(shared), 0) * PAGE_SIZE
    except (OSError, ValueError):
        return 0


def host_status():
    """anon, swap, rss in bytes, and the number of threads, or None."""
    found = {}
    try:
        with open("/proc/self/status", "rb") as f:
            for line in f:
                name, _, rest = line.partition(b":")
                if name in (b"RssAnon", b"VmSwap", b"VmRSS", b"Threads"):
                    found[name] = int(rest.split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return *(found.get(k, 0) * 1024 for k in (b"RssAnon", b"VmSwap", b"VmRSS")), found.get(b"Threads", 0)


class Cuda:
    """PyTorch's functions, once it has a context."""

    def __init__(self, cuda):
        self.stats = cuda.memory_stats_as_nested_dict
        self.reset = cuda.reset_peak_memory_stats
        self.empty_cache = cuda.empty_cache
        self.synchronize = cuda.synchronize
        self.properties = cuda.get_device_properties
        self.count = min(cuda.device_count(), pages.DEVICES)
        self.current = cuda.current_device

    @classmethod
    def find(cls):
        """None while the user's code has not brought torch to life."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        awake = getattr(cuda, "is_initialized", None)  # another thread may be importing it just now
        return cls(cuda) if awake is not None and awake() else None

    def read(self, device):
        """As pages.DEVICE_FIELDS, without the last one."""
        s = self.stats(device)
        allocated = s["allocated_bytes"]["all"]
        return (allocated["current"], s["reserved_bytes"]["all"]["current"], s["active_bytes"]["all"]["current"],
                allocated["peak"], s["inactive_split_bytes"]["all"]["current"], s["num_alloc_retries"],
                s["num_ooms"])  # fmt: skip


ALLOCATED, RESERVED, ACTIVE, PEAK, SPLIT, RETRIES, OOMS = range(7)


class Account:
    """From the begin of one run of user code to its end."""

    __slots__ = ("alone", "starts", "before")

    def __init__(self, alone, starts, before):
        self.alone = alone
        self.starts = starts
        self.before = before  # {device: numbers}; None: left out, reading has cost enough


class Figures:
    """What an end record says of memory."""

    __slots__ = ("flags", "device", "memory", "ooms")

    def __init__(self, flags, device=0, memory=(0, 0, 0, 0), ooms=0):
        self.flags = flags
        self.device = device
        self.memory = memory  # allocated before and after, reserved, peak
        self.ooms = ooms  # allocations that failed meanwhile

    def and_then(self, later):
        """Both, one after the other, as one."""
        if not self.flags & later.flags & pages.MEMORY or self.device != later.device:
            return later
        every, any_of = pages.ALONE | pages.PEAK_EXACT, pages.OVERLAPPED
        flags = later.flags & ~every | self.flags & later.flags & every | self.flags & any_of
        memory = (self.memory[0], *later.memory[1:3], max(self.memory[3], later.memory[3]))
        return Figures(flags, self.device, memory, self.ooms + later.ooms)


class Memory:
    """Whoever calls begin(), end(), look(), sample() or host_anon() holds the page's lock."""

    def __init__(self, page, degrade=None):
        self.page = page
        self.sync = "off"
        self.enabled = True
        self.running = 0  # runs of user code
        self._starts = 0
        self._degrade = degrade
        self._cuda = None
        self._broken = False
        self._paid_until = 0.0  # when what reading has cost so far is SHARE of the time
        self._devices = ()
        self._looked_at = self._synced_at = self._host_at = self._status_at = self._published_at = float("-inf")
        self._peaks, self._totals = {}, {}

    # --- the device

    def _give_up(self, error):
        """An allocator that keeps no counters (a plugged-in one), or a torch that is not as we know it."""
        self._broken, self._cuda = True, None
        self.page.set("features", self.page.get("features") & ~(pages.F_MEMORY | pages.F_PEAKS))
        if self._degrade is not None:
            self._degrade("memory", f"{type(error).__name__}: {error}")

    def _awake(self):
        if self._broken or not self.enabled:
            return False
        if self._cuda is not None:
            return True
        if "torch" not in sys.modules:
            return False
        try:
            self._cuda = Cuda.find()
        except Exception as exc:
            self._give_up(exc)
        if self._cuda is None:
            return False
        self.page.set("features", self.page.get("features") | pages.F_MEMORY | pages.F_PEAKS)
        return True

    def _find_devices(self, now):
        cuda = self._cuda
        if cuda.count == 1:
            self._devices = (0,)
        elif now - self._looked_at > DEVICES_EVERY_S:
            used = tuple(d for d in range(cuda.count) if cuda.read(d)[RESERVED] > 0)
            self._devices = used or (cuda.current(),)
        self._looked_at = now

    def _read(self):
        """{device: numbers} of the devices in use; {} without any."""
        if not self._awake():
            return {}
        try:
            self._find_devices(time.monotonic())
            return {d: self._cuda.read(d) for d in self._devices}
        except Exception as exc:
            self._give_up(exc)
            return {}

    def _publish(self, found):
        now = pages.now_us()
        for device, numbers in found.items():
            if device not in self._totals:
                self._totals[device] = self._introduce(device)
            peak = self._peaks[device] = max(numbers[PEAK], self._peaks.get(device, 0))
            self.page.device(device, now, (*numbers[:PEAK], peak, *numbers[PEAK + 1 :], self._totals[device]))
        self._published_at = now

    def _introduce(self, device):
        """Says once which device this is; returns its size."""
        try:
            properties = self._cuda.properties(device)
            uuid = getattr(properties, "uuid", None)
            if uuid is not None:
                self.page.device_uuid(device, f"GPU-{uuid}")
            return int(properties.total_memory)
        except Exception:
            return 0

    def settle(self):
        """Waits for the devices, when `sync` says so. Called without the lock: it takes as long as the kernels do."""
        if self.sync == "off" or self._cuda is None:
            return
        now = time.monotonic()
        if self.sync == "sampled" and now - self._synced_at < SYNC_EVERY_S:
            return
        self._synced_at = now
        try:
            for device in self._devices:
                self._cuda.synchronize(device)
        except Exception:
            pass  # a device that is gone; whoever uses it is told

    # --- runs of user code

    def begin(self):
        alone = self.running == 0
        self.running += 1
        self._starts += 1
        if not self._awake():
            return Account(alone, self._starts, {})
        if self._paid_until - time.monotonic() > BURST_S and self.sync != "always":
            return Account(alone, self._starts, None)
        spent = time.thread_time()
        before = self._read()
        if alone:
            self._reset(before)
        self._pay(time.thread_time() - spent)
        return Account(alone, self._starts, before)

    def _reset(self, found):
        for device, numbers in found.items():
            if numbers[PEAK] > numbers[ALLOCATED]:
                self._peaks[device] = max(numbers[PEAK], self._peaks.get(device, 0))
                try:
                    self._cuda.reset(device)
                except Exception as exc:
                    return self._give_up(exc)

    def _pay(self, spent_s):
        self._paid_until = max(self._paid_until, time.monotonic()) + spent_s / SHARE

    def at_begin(self, account):
        """device, allocated, reserved: the device with the most of this process."""
        if not account.before:
            return 0, 0, 0
        device = max(account.before, key=lambda d: account.before[d][ALLOCATED])
        return device, account.before[device][ALLOCATED], account.before[device][RESERVED]

    def end(self, account):
        self.running -= 1
        alone = account.alone and self._starts == account.starts
        flags = pages.ALONE if alone else pages.OVERLAPPED
        if self.running == 0:
            flags |= pages.QUIESCENT
        if account.before is None or not self._awake():
            return Figures(flags)
        spent = time.thread_time()
        found = self._read()
        if not found:
            return Figures(flags)
        self._publish(found)
        self._pay(time.thread_time() - spent)
        before = account.before

        def change(d):
            return abs(found[d][ALLOCATED] - before[d][ALLOCATED]) if d in before else found[d][ALLOCATED]

        device = max(found, key=lambda d: (change(d), found[d][ALLOCATED])) if len(found) > 1 else next(iter(found))
        now, then = found[device], before.get(device, (0,) * 7)  # not in use then: nothing was allocated
        flags |= pages.MEMORY | (pages.PEAK_EXACT if alone else 0)
        return Figures(flags, device, (then[ALLOCATED], now[ALLOCATED], now[RESERVED], now[PEAK]),
                       max(now[OOMS] - then[OOMS], 0))  # fmt: skip

    # --- now and then

    def look(self):
        """Publishes the device's counters when that is a second ago: in the middle of a long reply."""
        if pages.now_us() - self._published_at > 1_000_000:
            self._publish(self._read())

    def host_anon(self):
        """For a record: RssAnon, or 0 when it was read for another one just before."""
        if not self.enabled:
            return 0
        now = time.monotonic()
        if now - self._host_at < HOST_EVERY_S:
            return 0
        self._host_at = now
        if now - self._status_at > STATUS_EVERY_S:
            return self._status(now)
        return anon_bytes()

    def _status(self, now):
        self._status_at = now
        status = host_status()
        if status is None:
            return 0
        self.page.host((*status, sys.getallocatedblocks()))
        return status[0]

    def sample(self):
        """Publishes everything; returns it as the answer to `sample`."""
        found = self._read()
        self._publish(found)
        self._status(time.monotonic())
        names = ("allocated", "reserved", "active", "peak", "inactive_split")
        devices = [{"device": d, **{f"{k}_bytes": v for k, v in zip(names, n)}, "retries": n[RETRIES], "ooms": n[OOMS]}
                   for d, n in found.items()]  # fmt: skip
        return {"running": self.running, "devices": devices, "host_anon_bytes": self.page.host_now("anon")}

    def empty_cache(self):
        """Gives the allocator's unused blocks back. None: there is no device memory."""
        before = self._read()
        if not before:
            return None
        at = time.monotonic()
        self._cuda.empty_cache()
        took = time.monotonic() - at
        after = self._read()
        self._publish(after)
        returned = sum(n[RESERVED] - after[d][RESERVED] for d, n in before.items() if d in after)
        return {"returned_bytes": max(returned, 0), "took_ms": round(took * 1000, 3),
                "reserved_bytes": sum(n[RESERVED] for n in after.values()),
                "allocated_bytes": sum(n[ALLOCATED] for n in after.values())}  # fmt: skip
