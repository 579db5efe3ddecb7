"""Writes the worker's page. The layout is include/plimsoll/shm.h; a test compares the two, field by field.

One Page for a process. Records are written under `lock`, which callers also hold for their own bookkeeping: whoever
calls begin(), end() or add() holds it. A record costs a few microseconds.
"""

import mmap
import os
import struct
import threading
import time
import zlib

MAGIC = 0x47504C50
MAJOR, MINOR = 1, 0
PAGE_BYTES = 262144
RECORDS = 1024
KIND_WORKER = 1

COUNTERS_AT = 256
BEGINS_AT = 4096
ENDS_AT = BEGINS_AT + RECORDS * 64

F_RECORDS, F_DEADLINE, F_OVERRIDES, F_CONTROL = 1, 2, 4, 8
BATCHED, ZOMBIE, STREAM, TASK, WARMUP, EDGE, UNBEGUN = 1, 2, 4, 8, 16, 32, 64
OK, CLIENT_ERROR, ERROR, CANCELLED = 1, 2, 3, 4
NO_ROUTE = 0xFFFF

COUNTERS = (
    "progress", "begun", "ended", "in_flight", "zombies", "tasks", "batches", "errors",
    "imported_ms", "loaded_ms", "serving_ms", "features",
)  # fmt: skip

# magic major minor crc head_bytes total_bytes kind writer_pid writer_start generation boot; three blocks
HEAD = struct.Struct("<IHHIIQIIQQQ8x" + "IIII" * 3 + "144x")
COUNTS = struct.Struct("<12Q160x")
# crc flags seq id at_us thread in_flight route
BEGIN = struct.Struct("<IIQQQIIH22x")
# crc flags seq id at_us duration_us thread in_flight route status outcome error_class
END = struct.Struct("<IIQQQQIIHHI8x32s32x")


def now_us():
    """Microseconds of CLOCK_MONOTONIC, the clock that main uses too."""
    return time.monotonic_ns() // 1000


def start_ticks():
    """When this process started, as /proc tells: with the pid it names one process for ever. 0 = not known."""
    try:
        with open("/proc/self/stat", "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Page:
    """The page behind descriptor `fd`, which is closed; without one, private memory that nobody reads."""

    def __init__(self, fd=None):
        self.lock = threading.Lock()
        if fd is None:
            self._map = mmap.mmap(-1, PAGE_BYTES)
        else:
            size = os.fstat(fd).st_size
            if size < PAGE_BYTES:
                raise ValueError(f"the page has {size} bytes, {PAGE_BYTES} are needed")
            self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            os.close(fd)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")  # one aligned store each, so that a reader sees no half of a number
        self._place = {name: COUNTERS_AT // 8 + i for i, name in enumerate(COUNTERS)}
        os.register_at_fork(after_in_child=self._leave)

    def _leave(self):
        """A fork of the worker must not write as if it were the worker."""
        self._map = mmap.mmap(-1, PAGE_BYTES)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self.lock = threading.Lock()

    def open(self, generation=0, boot=0):
        """Publishes the header."""
        blocks = (COUNTERS_AT, COUNTS.size, 1, 0, BEGINS_AT, BEGIN.size, RECORDS, 0, ENDS_AT, END.size, RECORDS, 0)
        head = bytearray(
            HEAD.pack(MAGIC, MAJOR, MINOR, 0, HEAD.size, len(self._map), KIND_WORKER, os.getpid(), start_ticks(),
                      generation, boot, *blocks)
        )  # fmt: skip
        struct.pack_into("<I", head, 8, zlib.crc32(memoryview(head)[12:]))
        self._bytes[8 : HEAD.size] = head[8:]
        self._words[0] = int.from_bytes(head[:8], "little")

    def get(self, name):
        return self._words[self._place[name]]

    def set(self, name, value):
        self._words[self._place[name]] = value

    def add(self, name, amount=1):
        self._words[self._place[name]] += amount

    def stamp(self, name):
        """Notes the time of something that happens once; later calls change nothing."""
        if self.get(name) == 0:
            self.set(name, time.monotonic_ns() // 1000000)

    def begin(self, request, flags, route):
        """Writes a begin record; returns its time."""
        at = now_us()
        n = self.get("begun")
        self.add("in_flight")
        self.add("progress")
        thread = threading.get_native_id()
        self._write(BEGINS_AT + (n % RECORDS) * BEGIN.size, n,
                    BEGIN.pack(0, flags, 2 * n + 2, request, at, thread, self.get("in_flight"), route))  # fmt: skip
        self.set("begun", n + 1)
        return at

    def end(self, request, flags, route, begun_us, status, outcome, error):
        """Writes an end record; `begun_us` None: the request never began."""
        at = now_us()
        n = self.get("ended")
        if begun_us is not None:
            self.add("in_flight", -1)
        if outcome == ERROR:
            self.add("errors")
        self.add("progress")
        duration = 0 if begun_us is None else at - begun_us
        self._write(ENDS_AT + (n % RECORDS) * END.size, n,
                    END.pack(0, flags, 2 * n + 2, request, at, duration, threading.get_native_id(),
                             self.get("in_flight"), route, status, outcome,
                             error.encode("utf-8", "replace")[:32]))  # fmt: skip
        self.set("ended", n + 1)

    def _write(self, at, n, packed):
        record = bytearray(packed)
        struct.pack_into("<I", record, 0, zlib.crc32(memoryview(record)[4:]))
        seq = (at + 8) // 8
        self._words[seq] = 2 * n + 1
        self._bytes[at : at + 8] = record[:8]
        self._bytes[at + 16 : at + len(record)] = record[16:]
        self._words[seq] = 2 * n + 2
