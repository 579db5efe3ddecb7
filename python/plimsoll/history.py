"""PyTorch's own records: memory history, tags of requests in its events, snapshots on demand and at an OOM.

History is switched on in a suspect worker only, and never over the user's own recording. A snapshot is written into
run_dir/snap under a name of ours, and that name is told: no path crosses the control socket.
"""

import os
import sys
import threading
import time

EVENTS = 10_000  # kept by PyTorch: about 3 MB
OOM_SNAPSHOTS = 3  # in a worker's life
OOM_EVERY_S = 600
OOM_BLOCKS = 50_000  # more would keep the failing request waiting too long
FREE_BYTES = 64 << 20  # what the run folder must have left


class Refused(Exception):
    pass


def enabled(torch):
    """Somebody records; None when this version cannot tell."""
    try:
        return bool(torch._C._cuda_isHistoryEnabled())
    except AttributeError:
        return None


class History:
    def __init__(self):
        self.ours = False
        self.tagging = False  # looked at on every request: see records.py
        self.folder = None  # run_dir/snap, once main has said so
        self.saved = None  # called with (name, bytes, why) for a snapshot at an OOM
        self._set = None
        self._lock = threading.Lock()
        self._count = 0
        self._ooms = 0
        self._oom_at = None

    # --- memory history

    def record(self, torch, on):
        """True: it is as wished. Refused where the service records by itself."""
        if torch is None:
            raise Refused("CUDA is not in use yet")
        if on and not self.ours and enabled(torch):
            raise Refused("the service records its memory history itself")
        if on and not self.ours:
            try:
                torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=EVENTS)
            except TypeError:  # before 2.1
                raise Refused("this PyTorch has no memory history that we can use") from None
            self._set = self._tagger(torch)
            self.tagging = self._set is not None
        elif not on and self.ours:
            self.tagging = False
            torch.cuda.memory._record_memory_history(None)
        self.ours = bool(on)

    @staticmethod
    def _tagger(torch):
        """The function that tags what this thread allocates from now on; None when this version has none."""
        try:
            if not torch.cuda.memory._memory_metadata_supported():
                return None
            return torch._C._cuda_setMemoryMetadata
        except AttributeError:
            return None

    def tag(self, endpoint, call):
        """`route|bucket|request`, a string: a dictionary would cost ten times as much."""
        self._say(f"{endpoint.path}|{endpoint.buckets.get(call.tag, '')}|{call.request:x}")

    def untag(self):
        self._say("")

    def _say(self, text):
        try:
            self._set(text)
        except Exception:
            self.tagging = False

    @staticmethod
    def routes(traces):
        """{address: route} by the last event that allocated it."""
        found = {}
        for device in traces:
            for event in device:
                if event.get("action") == "alloc":
                    route = str(event.get("user_metadata") or "").partition("|")[0]
                    if route:
                        found[event["addr"]] = route
                    else:
                        found.pop(event["addr"], None)
        return found

    # --- snapshots

    def dump(self, torch, why):
        """(name, bytes) of a new file in the folder."""
        if self.folder is None:
            raise Refused("main has not said where snapshots go")
        if torch is None:
            raise Refused("CUDA is not in use yet")
        room = os.statvfs(self.folder)
        if room.f_bavail * room.f_frsize < FREE_BYTES:
            raise Refused("the run folder is nearly full")
        with self._lock:
            self._count += 1
            name = f"{os.getpid()}-{self._count}-{why}.pickle"
        path = os.path.join(self.folder, name)
        part = path + ".part"
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.close(fd)
            torch.cuda.memory._dump_snapshot(part)
            os.rename(part, path)
        except BaseException:
            try:
                os.unlink(part)
            except OSError:
                pass
            raise
        return name, os.stat(path).st_size

    def watch_ooms(self, torch, blocks):
        """Saves a snapshot when PyTorch is about to raise an OutOfMemoryError. `blocks()`: how many there are."""

        def on_oom(device, size, total, free):
            try:
                now = time.monotonic()
                early = self._oom_at is not None and now - self._oom_at < OOM_EVERY_S
                if self.folder is None or early or self._ooms >= OOM_SNAPSHOTS or blocks() > OOM_BLOCKS:
                    return
                self._oom_at = now
                self._ooms += 1
                name, size = self.dump(torch, "oom")
                if self.saved is not None:
                    self.saved(name, size, "oom")
            except Exception as exc:  # the user's error must stay the one that is raised
                print(f"event=worker.degraded feature=snapshot reason={str(exc)[:200]!r}", file=sys.stderr, flush=True)

        try:
            torch._C._cuda_attach_out_of_memory_observer(on_oom)
        except AttributeError:
            pass


def release_traceback():
    """Forgets the last uncaught exception, whose traceback keeps tensors alive. Returns what was forgotten."""
    gone = []
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        if getattr(sys, name, None) is not None:
            gone.append(name)
            try:
                delattr(sys, name)
            except AttributeError:
                pass
    return gone
