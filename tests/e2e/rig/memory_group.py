"""A memory group as the test wants it: our own files stand where the server reads /sys/fs/cgroup.

They are mounted there in a mount namespace that only the server is in, so that nothing of the machine is touched.
Both layouts are written, since /proc/self/cgroup says which one the machine has.
"""

import os
import subprocess

import pytest

GIB = 1 << 30


class MemoryGroup:
    def __init__(self, folder):
        self.folder = folder
        self.v1 = folder / "memory"
        self.v1.mkdir(parents=True)
        (folder / "cgroup.controllers").write_text("memory\n")
        self.counts = {"low": 0, "high": 0, "max": 0, "oom": 0, "oom_kill": 0, "oom_group_kill": 0}
        self.write(current=2 * GIB, limit=8 * GIB, peak=2 * GIB)

    def write(self, current=None, limit=None, peak=None, **counts):
        """Files are replaced whole: nobody reads half of one. Counts of memory.events are what they are from now on."""
        self.counts.update(counts)
        events = "".join(f"{name} {value}\n" for name, value in self.counts.items())
        # what the memory stands at comes first: a kill is never seen beside an older figure
        for value, v1, v2 in ((current, "memory.usage_in_bytes", "memory.current"),
                              (limit, "memory.limit_in_bytes", "memory.max"),
                              (peak, "memory.max_usage_in_bytes", "memory.peak"),
                              (self.counts["max"], "memory.failcnt", None)):
            if value is not None:
                self._put(self.v1 / v1, f"{value}\n")
                if v2:
                    self._put(self.folder / v2, f"{value}\n")
        self._put(self.v1 / "memory.oom_control",
                  f"oom_kill_disable 0\nunder_oom 0\noom_kill {self.counts['oom_kill']}\n")
        self._put(self.folder / "memory.events.local", events)
        self._put(self.folder / "memory.events", events)

    @staticmethod
    def _put(path, text):
        half = path.with_suffix(".half")
        half.write_text(text)
        half.rename(path)

    @property
    def before(self):
        """Words in front of `plimsoll serve`."""
        return (*unshare(), "sh", "-c", 'mount --bind "$0" /sys/fs/cgroup && exec "$@"', str(self.folder))


def unshare():
    return ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--mount", "--map-root-user")


def make(folder):
    """Skips the test where a mount namespace of one's own is not allowed."""
    try:
        allowed = subprocess.run([*unshare(), "sh", "-c", f"mount --bind {folder} /sys/fs/cgroup"],
                                 capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("a mount namespace of one's own is not allowed here")
    return MemoryGroup(folder / "cgroup")
