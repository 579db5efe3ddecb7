"""The messages of src/base/wire.h as bytes: written a second time, so that a test fails when the layout moves."""

import struct

MAGIC = 0x4B4D4C50
HEAD = struct.Struct("<IHHII")  # magic, version, kind, length, serial
HELLO, LIST, SPAWN, SIGNAL, NOTE, HOLD, FORGET, UPGRADE, TAKE, STOOD_DOWN, BYE, TELL = range(1, 13)
WELCOME, ITEM, HELD, LIST_END, SPAWNED, DONE, REFUSED = range(65, 72)
RUNNING, EXITED, GONE, STUCK, HELM, STAND_DOWN, UPGRADED, MAIN_EXITED, STOP, WITHDRAWN = range(80, 90)
HELM_ROLE, CANDIDATE_ROLE, LEAVING_ROLE = 1, 2, 3
LISTENER, CONTROL, USER, ASIDE, ZYGOTE = 1, 2, 4, 8, 16
BY_EXEC, STANDBY, FORK, REFUSED_WAY = 0, 32, 33, 34  # exec_step of what runs
FIRST_ASIDE = 1 << 48

RING_DATA_AT = 4096
RING_CLAIM_AT, RING_HEAD_AT, RING_CLOSED_AT, RING_SEEN_AT, RING_LOST_AT = 64, 72, 80, 128, 136


def message(kind, body=b"", serial=1, magic=MAGIC, version=1, length=None):
    return HEAD.pack(magic, version, kind, HEAD.size + len(body) if length is None else length, serial) + body


def hello(oldest=1, newest=1, build=b"test"):
    return struct.pack("<II32s", oldest, newest, build)


def spawn(flags=0, page=4096, ring=65536, rank=0, stop=15, stop_ms=5000, name=b"x", sock=b"", user=0, oom=0, nofile=0,
          recipe_hash=0, zygote=0):
    return struct.pack("<QQQQIIIIIIiiII32s32sQ", recipe_hash, nofile, 0, 0, flags, page, ring, rank, stop, stop_ms, oom, 0,
                       user, user, name, sock, zygote)


def recipe(words, env=(), folder="/"):
    """The content of the recipe's memfd."""
    parts = [str(p).encode() + b"\0" for p in (folder, *words, *env)]
    return struct.pack("<II", len(words), len(env)) + b"".join(parts)


class Exit:
    """struct pl_wire_exit without its head."""

    LAYOUT = struct.Struct("<QIIiIIIQQQQQ")
    FIELDS = ("generation", "pid", "state", "status", "exec_errno", "exec_step", "strays", "user_us", "system_us",
              "max_rss_kib", "life_ms", "log_bytes")

    def __init__(self, body):
        for name, value in zip(self.FIELDS, self.LAYOUT.unpack_from(body)):
            setattr(self, name, value)
