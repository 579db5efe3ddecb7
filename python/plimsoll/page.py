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
MAJOR, MINOR = 1, 2
PAGE_BYTES = 524288
RECORDS = 1024
DEVICES = 16
TAGS = 256
TAG_TEXT = 96
KIND_WORKER = 1

COUNTERS_AT = 256
HOST_AT = 512
ENGINE_AT = 768
DEVICES_AT = 1024
BEGINS_AT = 4096
ENDS_AT = BEGINS_AT + RECORDS * 64
TAGS_AT = ENDS_AT + RECORDS * 192

F_RECORDS, F_DEADLINE, F_OVERRIDES, F_CONTROL, F_MEMORY, F_PEAKS, F_HISTORY, F_LANE = 1, 2, 4, 8, 16, 32, 64, 128
BATCHED, ZOMBIE, STREAM, TASK, WARMUP, EDGE, UNBEGUN = 1, 2, 4, 8, 16, 32, 64
MEMORY, ALONE, OVERLAPPED, PEAK_EXACT, QUIESCENT, OOM, LANE, RETURNED = 128, 256, 512, 1024, 2048, 4096, 8192, 16384
OK, CLIENT_ERROR, ERROR, CANCELLED = 1, 2, 3, 4
NO_ROUTE = NO_TAG = 0xFFFF
OTHER = 0  # the tag of what finds the table full

COUNTERS = (
    "progress", "begun", "ended", "in_flight", "zombies", "tasks", "batches", "errors",
    "imported_ms", "loaded_ms", "serving_ms", "features", "ooms", "untagged",
)  # fmt: skip
PROGRESS, BEGUN, ENDED, IN_FLIGHT = range(COUNTERS_AT // 8, COUNTERS_AT // 8 + 4)
DEVICE_FIELDS = ("allocated", "reserved", "active", "peak", "inactive_split", "retries", "ooms", "total")
HOST_FIELDS = ("sampled_us", "anon", "swap", "rss", "threads", "python_blocks", "gc_objects")

# magic major minor crc head_bytes total_bytes kind writer_pid writer_start generation boot; seven blocks
HEAD = struct.Struct("<IHHIIQIIQQQ8x" + "IIII" * 7 + "80x")
COUNTS = struct.Struct("<14Q144x")
# crc flags seq id at_us thread in_flight route tag device allocated reserved
BEGIN = struct.Struct("<IIQQQIIHHH2xQQ")
# crc flags seq id at_us duration_us thread in_flight route status outcome tag device batch error_class
# allocated_before allocated reserved peak input_bytes host_anon begun
END = struct.Struct("<IIQQQQIIHHIHHI32s7Q40x")
# index sampled_us, DEVICE_FIELDS, uuid
DEVICE = struct.Struct("<I4xQ8Q48s64x")
HOST = struct.Struct("<7Q136x")
ENGINE = struct.Struct("<14Q144s")
TAG = struct.Struct("<II24x96s")  # crc route text


def now_us():
    """Microseconds of CLOCK_MONOTONIC, the clock that main uses too."""
    return time.monotonic_ns() // 1000


_thread = threading.local()


def native_id():
    """threading.get_native_id(), asked of the kernel once a thread."""
    try:
        return _thread.id
    except AttributeError:
        _thread.id = threading.get_native_id()
        return _thread.id


def start_ticks():
    """When this process started, as /proc tells: with the pid it names one process for ever. 0 = not known."""
    try:
        with open("/proc/self/stat", "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def generation():
    """(number, boot) of PLIMSOLL_GENERATION; it stays in the environment, since the keeper finds strays by it."""
    boot, _, number = os.environ.get("PLIMSOLL_GENERATION", "").partition(".")
    try:
        return int(number), int(boot, 16) & (2**64 - 1)
    except ValueError:
        return 0, 0


class Page:
    """The page behind descriptor `fd`, which is closed; without one, private memory that nobody reads."""

    def __init__(self, fd=None):
        # Reentrant: a collection on the thread that holds it may end a generator of the user's, which is recorded. See
        # records.Recorder.handler_ends.
        self.lock = threading.RLock()
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
        self._tags = 0
        self._file = None  # which file the page is, when it was given one later
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._leave)

    def move(self, fd, generation=0, boot=0):
        """From now on this is written to the page behind `fd`, which stays the caller's; what was written so far goes
        along. Nothing happens when it is that page already."""
        status = os.fstat(fd)
        if status.st_size < PAGE_BYTES:
            raise ValueError(f"the page has {status.st_size} bytes, {PAGE_BYTES} are needed")
        with self.lock:
            if (status.st_dev, status.st_ino) == self._file:
                return
            there = mmap.mmap(fd, status.st_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self._file = status.st_dev, status.st_ino
            there[0 : HEAD.size] = bytes(HEAD.size)  # another process may have written it
            there[HEAD.size : PAGE_BYTES] = self._map[HEAD.size : PAGE_BYTES]
            self._map = there
            self._bytes = memoryview(there)
            self._words = self._bytes.cast("Q")
            self.open(generation, boot)

    def _leave(self):
        """A fork of the worker must not write as if it were the worker."""
        vars(_thread).clear()
        self._pid, self._file = os.getpid(), None
        self._map = mmap.mmap(-1, PAGE_BYTES)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self.lock = threading.RLock()

    def _ours(self):
        """Leaves the page when this is a fork that Python was not told of (made by C code)."""
        if os.getpid() != self._pid:
            self._leave()

    def open(self, generation=0, boot=0):
        """Publishes the header."""
        blocks = (
            COUNTERS_AT, COUNTS.size, 1, 0, BEGINS_AT, BEGIN.size, RECORDS, 0, ENDS_AT, END.size, RECORDS, 0,
            DEVICES_AT, DEVICE.size, DEVICES, 0, HOST_AT, HOST.size, 1, 0, ENGINE_AT, ENGINE.size, 1, 0,
            TAGS_AT, TAG.size, TAGS, 0,
        )  # fmt: skip
        head = bytearray(
            HEAD.pack(MAGIC, MAJOR, MINOR, 0, HEAD.size, len(self._map), KIND_WORKER, os.getpid(), start_ticks(),
                      generation, boot, *blocks)
        )  # fmt: skip
        struct.pack_into("<I", head, 8, zlib.crc32(memoryview(head)[12:]))
        self._bytes[8 : HEAD.size] = head[8:]
        self._words[0] = int.from_bytes(head[:8], "little")

    def get(self, name):
        return self._words[self._place[name]]

    def begun(self):
        """How many begin records there are."""
        return self._words[BEGUN]

    def set(self, name, value):
        self._ours()
        self._words[self._place[name]] = value

    def add(self, name, amount=1):
        self._ours()
        self._words[self._place[name]] += amount

    def stamp(self, name):
        """Notes the time of something that happens once; later calls change nothing."""
        if self.get(name) == 0:
            self.set(name, time.monotonic_ns() // 1000000)

    def tag(self, text, route=NO_ROUTE):
        """The index of a new tag with this text, or OTHER when the table is full. Callers keep what they got."""
        self._ours()
        if self._tags == 0:
            self._write_tag(OTHER, NO_ROUTE, "other")
        if self._tags == TAGS:
            return OTHER
        self._write_tag(self._tags, route, text)
        return self._tags - 1

    def _write_tag(self, i, route, text):
        raw = text.encode("utf-8", "replace")[:TAG_TEXT].decode("utf-8", "ignore").encode().ljust(TAG_TEXT, b"\0")
        at = TAGS_AT + i * TAG.size
        self._bytes[at + 8 : at + TAG.size] = TAG.pack(0, 0, raw)[8:]
        self._words[at // 8] = zlib.crc32(raw) | route << 32
        self._tags = i + 1

    def device(self, i, now_us, numbers):
        """Publishes what the allocator of device `i` says; `numbers` in the order of DEVICE_FIELDS."""
        if not 0 <= i < DEVICES:
            return
        self._ours()
        at = (DEVICES_AT + i * DEVICE.size) // 8
        for k, value in enumerate(numbers, at + 2):
            self._words[k] = value
        self._words[at] = i
        self._words[at + 1] = now_us

    def device_uuid(self, i, uuid):
        if 0 <= i < DEVICES:
            at = DEVICES_AT + i * DEVICE.size + 80
            self._bytes[at : at + 48] = uuid.encode("ascii", "replace")[:48].ljust(48, b"\0")

    def host(self, numbers):
        """Publishes the process's host memory; `numbers` as HOST_FIELDS without the time and gc_objects."""
        self._ours()
        at = HOST_AT // 8
        for k, value in enumerate(numbers, at + 1):
            self._words[k] = value
        self._words[at] = now_us()

    def host_now(self, name):
        return self._words[HOST_AT // 8 + HOST_FIELDS.index(name)]

    def gc_objects(self, count):
        self._ours()
        self._words[HOST_AT // 8 + HOST_FIELDS.index("gc_objects")] = count

    def begin(self, request, flags, route, tag=NO_TAG, memory=(0, 0, 0)):
        """Writes a begin record; returns its time. `memory`: device, allocated, reserved."""
        self._ours()
        words, at = self._words, now_us()
        n = words[BEGUN]
        words[IN_FLIGHT] += 1
        words[PROGRESS] += 1
        record = BEGIN.pack(0, flags, 2 * n + 2, request, at, native_id(), words[IN_FLIGHT], route, tag,
                            *memory)  # fmt: skip
        self._write(BEGINS_AT + (n % RECORDS) * BEGIN.size, n, record)
        words[BEGUN] = n + 1
        return at

    def end(self, request, flags, route, begun_us, status, outcome, error, tag=NO_TAG, device=0, batch=0,
            memory=(0, 0, 0, 0), input_bytes=0, host_anon=0, begun=0):  # fmt: skip
        """Writes an end record; `begun_us` None: the request never began. `memory`: allocated before and after,
        reserved, peak. `begun`: the value of the counter right after its begin record."""
        self._ours()
        words, at = self._words, now_us()
        n = words[ENDED]
        if begun_us is not None:
            words[IN_FLIGHT] -= 1
        if outcome == ERROR:
            self.add("errors")
        if flags & OOM:
            self.add("ooms")
        if tag == OTHER:
            self.add("untagged")
        words[PROGRESS] += 1
        duration = 0 if begun_us is None else at - begun_us
        name = error.encode("utf-8", "replace")[:32] if error else b""
        record = END.pack(0, flags, 2 * n + 2, request, at, duration, native_id(), words[IN_FLIGHT],
                          route, status, outcome, tag, device, batch, name, *memory, input_bytes, host_anon,
                          begun)  # fmt: skip
        self._write(ENDS_AT + (n % RECORDS) * END.size, n, record)
        words[ENDED] = n + 1

    def _write(self, at, n, packed):
        """The CRC is of all behind it; its four bytes and the flags go as one, then what is behind the sequence."""
        seq = at // 8 + 1
        self._words[seq] = 2 * n + 1
        self._words[at // 8] = zlib.crc32(packed[4:]) | int.from_bytes(packed[4:8], "little") << 32
        self._bytes[at + 16 : at + len(packed)] = packed[16:]
        self._words[seq] = 2 * n + 2
