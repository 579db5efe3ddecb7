"""Two processes on one 10 GiB card; a third reads NVML by ctypes (no package). Then one of them is killed."""

import ctypes
import signal
import subprocess
import sys

MIB = 1 << 20

CHILD = """
import sys
import torch
x = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
print("up", flush=True)
sys.stdin.readline()
try:
    y = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
    print("got 6 GiB", flush=True)
except torch.OutOfMemoryError as error:
    print("OOM", str(error)[:600], flush=True)
sys.stdin.readline()
"""


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gi", ctypes.c_uint),
        ("ci", ctypes.c_uint),
    ]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
card = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0


def look(tag):
    memory, rows, count = Memory(), (Process * 64)(), ctypes.c_uint(64)
    assert nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(card, ctypes.byref(count), rows) == 0
    found = {rows[i].pid: rows[i].used // MIB for i in range(count.value)}
    print(f"{tag}: used {memory.used // MIB} of {memory.total // MIB} MiB, by process {found}", flush=True)
    return found, memory.used // MIB


children = []
try:
    for mib in (3000, 2000):
        command = [sys.executable, "-c", CHILD, str(mib)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for child in children:
        assert child.stdout.readline().strip() == "up"
    found, _ = look("both up")
    assert found == {children[0].pid: 3400, children[1].pid: 2400}
    children[0].stdin.write("\n")
    children[0].stdin.flush()
    line = children[0].stdout.readline().strip()
    print(line[:400])
    assert line.startswith("OOM") and f"Process {children[1].pid} has" in line
    children[1].send_signal(signal.SIGKILL)
    children[1].wait()
    found, _ = look("after kill -9")
    assert list(found) == [children[0].pid]
    children[0].stdin.write("\n")
    children[0].stdin.close()
    children[0].wait()
    assert look("after exit") == ({}, 0)
    print("neighbours ok")
finally:
    for child in children:
        child.kill()
