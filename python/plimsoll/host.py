"""The host twin: memory of the process that grows while the device does not. Held, or fragmentation? By whom?

Three figures come from glibc and the kernel, in the process itself: in use (`uordblks` + mmapped), free inside glibc,
and anonymous memory. What Python holds is asked of the heap: containers that became longer between two looks, with
their owner; types that became more; and, where tracemalloc is on, the lines that allocated.
"""

import collections
import ctypes
import gc
import sys
import tracemalloc

from plimsoll import looking, names
from plimsoll.heap import Heap, module_file
from plimsoll.ways import Ways

CONTAINERS_KEPT = 20_000  # the longest, by id and length, from one look to the next
LONG = 16
TYPES = 30
ROWS = 5
SAMPLED = 64
DEPTH = 3
CHANGE_BYTES = 4 << 20  # less is no change
HAVE_LENGTH = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict)
PLAIN = (bytes, bytearray, str, int, float, complex, list, tuple, dict, set, frozenset, collections.deque)


class Mallinfo2(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                               "uordblks", "fordblks", "keepcost")]  # fmt: skip


def other_malloc():
    """jemalloc or tcmalloc is mapped: glibc's figures mean nothing."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any("jemalloc" in line or "tcmalloc" in line for line in maps)
    except OSError:
        return True


def status_bytes(*wanted):
    """Fields of /proc/self/status, added up."""
    total = 0
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name in wanted:
                    total += int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return total


def figures():
    """What is known without a walk: anonymous memory, and glibc's account where it is the allocator."""
    out = {"anon_bytes": status_bytes("RssAnon", "VmSwap")}
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):  # glibc before 2.33, musl
        return out
    if other_malloc():
        return out
    ask.restype = Mallinfo2
    info = ask()
    return {**out, "malloc_used_bytes": info.uordblks + info.hblkhd, "malloc_free_bytes": info.fordblks}


def judge(now, before):
    """What grew between two looks: stable, fragmentation, malloc (somebody holds it: tensors, extensions, Python's
    larger objects) or python (mapped by Python itself, or unknown without glibc's account)."""
    grown = now["anon_bytes"] - before["anon_bytes"]
    if grown < CHANGE_BYTES:
        return "stable"
    if "malloc_used_bytes" not in now or "malloc_used_bytes" not in before:
        return "unknown"
    held = now["malloc_used_bytes"] - before["malloc_used_bytes"]
    free = now["malloc_free_bytes"] - before["malloc_free_bytes"]
    if held >= grown // 2:
        return "malloc"
    return "fragmentation" if free >= grown // 2 else "python"


def size_of(obj, kinds, depth=DEPTH):
    """About how many bytes an object has with what is below it. No code of the user's: sizes of plain types only."""
    cls = type(obj)
    what = kinds(cls) if kinds else ""
    if what in ("tensor", "storage"):
        try:
            storage = obj.untyped_storage() if what == "tensor" else obj
            return storage.nbytes() if obj.device.type == "cpu" else 0
        except Exception:
            return 0
    if cls.__name__ == "ndarray" and cls.__module__ == "numpy":
        return obj.nbytes
    size = sys.getsizeof(obj) if cls in PLAIN else 64
    if depth > 0 and gc.is_tracked(obj):
        for part in gc.get_referents(obj)[:32]:
            if not isinstance(part, (type, type(sys))) and not hasattr(type(part), "f_code"):
                size += size_of(part, kinds, depth - 1)
    return size


class HostWalk:
    """`before`: {id: length} of the last look, or None. `requests` since then."""

    def __init__(self, before, types_before, requests, running, deadline, code=True, kinds=None):
        self.before = before
        self.types_before = types_before
        self.requests = requests
        self.kinds = kinds
        self.source = names.Source(code)
        self.heap = Heap(running, deadline)
        self.ways = Ways(self.heap, self.source)

    def run(self):
        """(report, {id: length}, {type: count}); the last two are for the next look."""
        objs = looking.objects()
        self.heap.own.add(id(objs))
        types = collections.Counter()
        lengths = {}
        keys = {}
        users = {}  # class -> its file is the user's
        for at, o in enumerate(objs):  # it becomes longer
            cls = type(o)
            types[cls] += 1
            if cls in HAVE_LENGTH:
                n = cls.__len__(o)
                if n >= LONG:
                    lengths[id(o)] = n
                    keys[id(o)] = at
            # A dictionary of numbers and texts is not the collector's: only who holds it knows of it
            inside = ()
            if cls is dict:
                inside = list(dict.values(o))  # at once: in the process itself others go on
            elif users.setdefault(cls, None) is None:
                users[cls] = names.is_user_file(module_file(cls))
            if users.get(cls):
                inside = gc.get_referents(o)
            for x in inside:
                if type(x) is dict and not gc.is_tracked(x) and len(x) >= LONG and id(x) not in lengths:
                    lengths[id(x)] = len(x)
                    keys[id(x)] = len(objs)
                    objs.append(x)
        o = x = inside = None
        grown = self._grown(lengths)
        for key in grown:
            self.heap.keep(objs[keys[key]])
        self.heap.own.discard(id(objs))
        del objs
        longest = sorted(lengths, key=lambda k: -lengths[k])[:CONTAINERS_KEPT]
        counts = {f"{c.__module__}.{c.__qualname__}"[: names.TEXT_CHARS]: n for c, n in types.most_common(TYPES)}
        report = {"objects": sum(types.values()), "holders": self._rows(grown, lengths)}
        if self.types_before:
            more = {k: n - self.types_before[k] for k, n in counts.items() if k in self.types_before}
            more = {k: n for k, n in more.items() if n >= max(64, self.requests // 5)}
            most = sorted(more, key=more.get, reverse=True)[:ROWS]
            report["types"] = [{"type": k, "count": counts[k], "grown": more[k]} for k in most]
        return report, {k: lengths[k] for k in longest}, counts

    def _grown(self, lengths):
        """Ids of containers that are longer by a fifth of the requests at least, the largest growth first."""
        if self.before is None:
            return []
        least = max(8, self.requests // 5)
        more = {k: n - self.before.get(k, 0) for k, n in lengths.items() if n - self.before.get(k, n) >= least}
        return sorted(more, key=lambda k: -more[k])[: 4 * ROWS]

    def _rows(self, grown, lengths):
        self.heap.climb(grown)
        rows = []
        for key in grown:
            ends = self.heap.ends(key)
            if not ends or self.heap.late():
                continue
            anchor, _via, way = self.ways.describe(ends[0][1], 0)
            if anchor["kind"] == "unknown" or names.is_own_file(anchor["file"]):
                continue
            more = lengths[key] - self.before.get(key, 0)
            rows.append(
                {
                    "kind": anchor["kind"],
                    "holder": names.capped(anchor["name"]),
                    "file": names.base(anchor["file"]) if anchor["file"] else None,
                    "line": anchor["line"],
                    "container": type(self.heap.obj(key)).__name__,
                    "length": lengths[key],
                    "grown": more,
                    "bytes_grown": self._element_bytes(self.heap.obj(key)) * more,
                    "grown_at": self._growers(anchor),
                    "way": way[:12],
                }
            )
        rows.sort(key=lambda r: -r["bytes_grown"])
        return [r for r in rows if r["bytes_grown"] > 0][:ROWS]  # what is on the device is the other report's

    def _growers(self, anchor):
        if not anchor["short"] or not names.is_user_file(anchor["file"]):
            return []
        return self.source.growers(anchor["file"], anchor["short"], anchor["attr"])

    def _element_bytes(self, container):
        """Mean size of the last elements; without iterating anything but Python's own containers."""
        cls = type(container)
        elements = []  # taken at once, see above
        if cls in (list, collections.deque):
            elements = list(container)[-SAMPLED:]
        elif cls is set:
            elements = list(container)[:SAMPLED]
        else:
            elements = [x for pair in list(dict.items(container))[-SAMPLED:] for x in pair]
        if not elements:
            return 0
        per = 2 if issubclass(cls, dict) else 1
        return per * sum(size_of(e, self.kinds) for e in elements) // len(elements)


def traced():
    """The lines that allocated what lives, where tracemalloc is on. Dear: for a forked child."""
    if not tracemalloc.is_tracing():
        return []
    found = tracemalloc.take_snapshot().statistics("lineno")
    found.sort(key=lambda s: (not names.is_user_file(s.traceback[0].filename), -s.size))
    return [
        {"file": names.base(s.traceback[0].filename), "line": s.traceback[0].lineno, "bytes": s.size, "count": s.count}
        for s in found[:ROWS]
    ]
