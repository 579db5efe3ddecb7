"""Processes of this machine, as /proc tells them, and what a test left behind."""

import ctypes
import os
import resource
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def set_subreaper(yes):
    """Whatever a test leaves behind becomes a child of this process: nothing can hide by losing its parent."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _stat(pid):
    """(state, parent), or None when it is gone. The name in the middle may hold spaces and brackets."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return after[0], int(after[1])


def state_of(pid):
    """The letter of /proc/PID/stat, or "" when there is no such process."""
    stat = _stat(pid)
    return stat[0] if stat else ""


def memory_kb(pid):
    """What of its memory is resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def peak_kb(pid):
    """The most of its memory that was ever resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def address_bytes(pid):
    """What RLIMIT_AS counts."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmSize:")[1].split()[0])


def private_bytes(pid):
    """Memory that is this process's alone; None where the kernel does not let us look (it is not dumpable)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:
        return None
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def descriptors(wanted):
    """This process may hold so many from now on: it is the clients of a crowd."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    return min(wanted, hard)


def descendants(root):
    """Every process below `root`, zombies included."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)):
            children.setdefault(stat[1], []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def watch_of(keeper):
    """The pid of that keeper's watch process, None while there is none."""
    for pid in descendants(keeper):
        try:
            if os.readlink(f"/proc/{pid}/exe").endswith("libexec/plimsoll/watch"):
                return pid
        except OSError:
            pass
    return None


def mains_of(keeper):
    """The pids of that keeper's mains: one, or more while those before it finish what they have."""
    def is_main(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"main"]
        except OSError:
            return False
    return [pid for pid in descendants(keeper) if is_main(pid)]


def describe(pid):
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        line = "?"
    return f"{pid} ({state_of(pid) or 'gone'}) {line[:160]}"


def left_processes(expected, patience_s=2):
    """What is below this process once every server has ended, and not in what `expected()` says; what goes within the
    patience is forgiven."""
    deadline = time.monotonic() + patience_s
    while (left := set(descendants(os.getpid())) - expected()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return sorted(left)


def end_processes(pids):
    """SIGKILL and reap, so that one test's leftovers are not the next one's."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in pids:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass
