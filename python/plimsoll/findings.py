"""Who holds the device memory that came after READY: the whole walk, from tensors to rows of a report.

1. Sample a few tensors of each kind and climb their referrers. 2. The accumulator is the lowest object on a way that
holds blocks of two batches: not the nearest referrer (a tuple, a Job) and not the farthest (a module). 3. Walk down
from it and count all its blocks; take them off the list and sample again, so that two leaks give two rows. 4. What is
left has no holder in Python: rows by size, pool and allocating line.
"""

import collections

from plimsoll import names
from plimsoll.heap import CUT, NOTHING, Heap, module_file
from plimsoll.tensors import Tensors
from plimsoll.ways import Ways

GROUPS = 8  # sampled at a time
FEW = 6  # of a shape: they are sampled together with others of their kind
ROUNDS = 8
CHAIN = 4  # objects of one class in a row
ROWS = 20
LEFT_ROWS = 8
SHAPES = 5
LINES = 3
PINNED_GROWTH = 4096
PINNED_TENSORS = 8


class Walk:
    """`census`: borrowed, not changed. `tags`: {address: route} from tagged events, or {}."""

    def __init__(self, torch, blocks, census, running, deadline, code=True, tags=None):
        self.torch = torch
        self.blocks = blocks
        self.windows = census.windows
        self.tags = tags or {}
        self.source = names.Source(code)
        self.heap = Heap(running, deadline)
        self.tensors = Tensors(torch, self.heap, blocks, census)
        self.ways = Ways(self.heap, self.source)
        self.orphans = set()  # blocks whose tensor nothing in Python refers to
        self.claimed = set()  # blocks that a row counts; none is counted twice
        self.heap.own.update((id(self), id(self.__dict__)))

    def run(self):
        t = self.tensors
        t.collect()
        t.graph_pass()
        pending = set(t.fresh)
        rows = []
        saved = set()
        for held in t.graph_roots.values():
            saved |= held
        # Saved tensors often have a Python object that nothing in Python refers to: real holders first
        for skip in (saved, set()):
            for _round in range(ROUNDS):
                reachable = {a for a in pending if a in t.by_block} - skip - self.orphans
                if not reachable or self.heap.late():
                    break
                before = len(pending) - len(self.orphans)
                self._explain(self._sample(reachable), pending, rows)
                if len(pending) - len(self.orphans) == before:
                    break
            self._graphs(pending, rows)
        rows = merged(rows)
        rows.sort(key=lambda f: -f["bytes"])
        return {
            "complete": not self.heap.late(),
            "findings": rows[:ROWS],
            "unexplained": self._left(pending),
            "pinned_host": self._pinned(),
            "cuda_graphs": len(t.graphs),
            "stats": {k: v for k, v in self.heap.stats.items()},
        }

    # --- sampling

    def _sample(self, pending):
        """A few tensors of each kind and size, spread over the batches."""
        t = self.tensors
        groups = collections.defaultdict(list)
        for address in pending:
            for key in t.by_block.get(address, ()):
                kind = ("storage",)
                if t.is_tensor(key):
                    one = self.heap.obj(key)
                    kind = (one.dim(), str(one.dtype), one.grad_fn is not None)
                groups[(kind, self.blocks[address][0])].append((t.batch(address), address, key))
        one = None
        for kind, size in [k for k, group in groups.items() if len(group) < FEW]:
            groups[(kind, 0)] += groups.pop((kind, size))
        out = []
        for group in sorted(groups.values(), key=lambda g: -sum(self.blocks[a][0] for _, a, _ in g))[:GROUPS]:
            group.sort()
            last = len(group) - 1
            out.append([group[i] for i in sorted({0, last // 3, last // 2, 2 * last // 3, last})])
        return out

    def _explain(self, groups, pending, rows):
        self.heap.climb([key for group in groups for _, _, key in group])
        for group in groups:
            for _, address, key in group:
                if not self.heap.parents.get(key):
                    self.orphans.add(address)
            # Complete ways first: what they hold needs no second explanation
            for entries in sorted(self._accumulators(group), key=lambda e: e[0][1]):
                row = self._row(entries, pending)
                if row:
                    rows.append(row)

    def _accumulators(self, samples):
        """[[(id, how good, way, place of the accumulator on it)]], a list for each accumulator."""
        ways = {}
        cover = collections.defaultdict(set)
        spread = collections.defaultdict(set)
        for batch, _address, key in samples:
            ends = self.heap.ends(key)
            if not ends:
                continue
            ways[key] = ends[0]
            for node in ends[0][1]:
                cover[node].add(key)
                spread[node].add(batch)
        out = collections.defaultdict(list)
        for _batch, _address, key in samples:
            if key not in ways:
                continue
            rank, path = ways[key]
            pick = 0
            for i, node in enumerate(path):
                if i > 0 and self.heap.terminal(self.heap.obj(node)) and node not in self.heap.running:
                    break
                if len(cover[node]) >= 2 and len(spread[node]) >= 2:
                    pick = i
                    break
            out[path[pick]].append((key, rank, path, pick))
        return list(out.values())

    def _graphs(self, pending, rows):
        """Blocks without a holder of their own: whose autograd graph keeps them?"""
        t = self.tensors
        for _round in range(3):
            roots = []
            for key, held in t.graph_roots.items():
                mine = held & pending
                if mine:
                    roots.append((max(t.batch(a) for a in mine), len(mine), key))
            if not roots or self.heap.late():
                return
            roots.sort(key=lambda r: -r[1])
            largest = sorted(roots[:200])
            before = len(pending)
            picks = sorted({0, len(largest) // 2, len(largest) - 1})
            self._explain([[largest[i] for i in picks]], pending, rows)
            if len(pending) == before:
                return

    # --- one row

    def _front(self, rank, path, pick):
        """A way that was cut inside a chain of objects of one class goes on from the chain's front."""
        heap = self.heap
        kinds = collections.Counter(type(heap.obj(k)) for k in path[-2 * CHAIN :])
        cls, count = max(kinds.items(), key=lambda item: (item[0] is not dict, item[1]))
        if count < CHAIN or not names.is_user_file(module_file(cls)):
            return rank, path, pick
        heads = heap.heads(cls)
        heap.climb(heads)
        for head in heads:
            for better, way in heap.ends(head)[:1]:
                if better < rank:
                    first = next(i for i, k in enumerate(path) if type(heap.obj(k)) is cls)
                    return better, (*path[: first + 1], *way), first + 1
        return rank, path, pick

    def _spans(self, blocks):
        return len({self.tensors.batch(a) for a in blocks}) >= 2

    def _hold(self, path, pick):
        """(place, blocks, of graphs only, tensors, nodes): one step up as long as nothing accumulates."""
        held = self.tensors.held_by(path[pick])
        at = pick
        while at + 1 < len(path) and not self._spans(held[0] | held[1]):
            above = path[at + 1]
            if (self.heap.terminal(self.heap.obj(above)) and above not in self.heap.running) or self.heap.late():
                break
            at += 1
            held = self.tensors.held_by(above)
        if at != pick and not self._spans(held[0] | held[1]):
            at = pick
            held = self.tensors.held_by(path[pick])
        return (at, *held)

    def _end_of_run(self, path, pick):
        """In a chain of objects of one user class the last one says who owns them."""
        heap = self.heap
        cls = type(heap.obj(path[pick]))
        if not names.is_user_file(module_file(cls)):
            return pick
        for at in range(pick + 1, len(path)):
            one = heap.obj(path[at])
            if type(one) is cls:
                pick = at
            elif type(one) is not dict or heap.terminal(one):
                break
        return pick

    def _row(self, entries, pending):
        key, rank, path, pick = entries[0]
        if not self.heap.parents.get(key):
            return None
        if rank == CUT:
            rank, path, pick = self._front(rank, path, pick)
        pick = self._end_of_run(path, pick)
        pick, addresses, graph_only, tensors, nodes = self._hold(path, pick)
        mine = addresses | graph_only
        if not mine & pending:
            return None
        mine -= self.claimed
        self.claimed |= mine
        pending -= mine
        anchor, via, way = self.ways.describe(path, pick)
        if anchor["kind"] == "unknown" and len(path) == 1:
            return None
        loose = rank == NOTHING and anchor["kind"] in ("unknown", "instance_attribute")
        if loose and self.heap.is_cycle(path[pick:]):
            anchor["kind"] = "garbage_cycle"
            anchor["name"] = f"unreachable reference cycle through {anchor['name']}"
        target = self.heap.obj(path[pick])
        is_tensor = self.tensors.kind(type(target)) == "tensor"
        bound = getattr(target, "maxlen", None) if isinstance(target, collections.deque) else None
        if via and via.get("bound") is not None:
            bound = via["bound"]
        if anchor["kind"] == "lru_cache":
            bound, via = anchor.get("bound"), None
        if via and via["name"] == anchor["name"]:
            via = None
        row = {
            "kind": anchor["kind"],
            "holder": names.capped(anchor["name"]),
            "file": names.base(anchor["file"]) if anchor["file"] else None,
            "line": anchor["line"],
            "via": via and dict(kind=via["kind"], name=names.capped(via["name"]), file=names.base(via["file"]),
                                line=via["line"]),
            "container": "tensor" if is_tensor else type(target).__name__,
            "length": length_of(target),
            "bound": bound,
            "blocks": len(mine),
            "tensors": tensors or len(mine),
            "bytes": sum(self.blocks[a][0] for a in mine),
            "graph_blocks": len(graph_only & mine),
            "grown_at": self._growers(anchor),
            "way": way[:12],
        }  # fmt: skip
        if "thread" in anchor:
            row["thread"] = names.capped(anchor["thread"])
        self._count(row, mine)
        if nodes:
            row["hints"].insert(
                0, f"autograd graph kept: {nodes} nodes, {len(graph_only)} blocks saved for backward"
            )
        return row

    def _count(self, row, mine):
        """Ages, shapes, allocating lines, routes and hints of a row's blocks."""
        t = self.tensors
        ages = collections.Counter(t.age(a) for a in mine)
        shapes = collections.Counter()
        views = 0
        for a in sorted(mine & set(t.by_block)):
            for key in t.by_block[a]:
                if not t.is_tensor(key):
                    continue
                one = self.heap.obj(key)
                shapes[(tuple(one.shape), str(one.dtype).replace("torch.", ""))] += 1
                views += one.numel() * one.element_size() * 4 < one.untyped_storage().nbytes()
        lines, tags = collections.Counter(), collections.Counter()
        for a in mine:
            line = self.blocks[a][2]
            if line:
                lines[line] += self.blocks[a][0]
            if a in self.tags:
                tags[self.tags[a]] += 1
        row["ages"] = [ages.get(i, 0) for i in range(len(self.windows) + 1)]
        row["shapes"] = [{"shape": list(s), "dtype": d, "count": c} for (s, d), c in shapes.most_common(SHAPES)]
        row["allocated_at"] = [
            {"file": names.base(f), "line": n, "func": names.capped(fn), "bytes": b}
            for (f, n, fn), b in lines.most_common(LINES)
        ]
        row["hints"] = [f"small views of large storages: {views}"] if views else []
        if tags:
            row["tagged"] = {names.capped(route): count for route, count in tags.most_common(LINES)}

    def _growers(self, anchor):
        if not anchor.get("short") or not names.is_user_file(anchor.get("file")):
            return []
        found = self.source.growers(anchor["file"], anchor["short"], anchor["attr"])
        if anchor["attr"] and not found:
            found = self.source.growers(anchor["file"], anchor["short"], False)
        return found

    # --- what is left, and what is not on the device

    def _left(self, pending):
        groups = collections.defaultdict(list)
        t = self.tensors
        for a in pending:
            size, pool, line = self.blocks[a]
            groups[(size, pool != (0, 0), line, a in t.by_block)].append(a)
        out = []
        for (size, private, line, python), found in sorted(groups.items(), key=lambda g: -g[0][0] * len(g[1])):
            ages = collections.Counter(t.age(a) for a in found)
            row = {
                "block": size,
                "count": len(found),
                "bytes": size * len(found),
                "private_pool": private,
                "python_tensor": python,
                "ages": [ages.get(i, 0) for i in range(len(self.windows) + 1)],
            }
            if line:
                row["allocated_at"] = f"{names.base(line[0])}:{line[1]} {names.capped(line[2])}"
            out.append(row)
        return out[:LEFT_ROWS]

    def _pinned(self):
        """Pinned host memory grew: who holds the host tensors of the commonest shape? A guess, not a proof."""
        if len(self.windows) < 2 or self.windows[-1]["pinned"] - self.windows[0]["pinned"] < PINNED_GROWTH:
            return []
        out = []
        for (shape, dtype), keys in sorted(self.tensors.host.items(), key=lambda g: -len(g[1]))[:2]:
            if len(keys) < PINNED_TENSORS or self.heap.late():
                continue
            picks = sorted({0, len(keys) // 2, len(keys) - 1})  # the heap lists what was made first, first
            self.heap.climb([keys[i] for i in picks])
            for entries in self._accumulators([(i, 0, keys[i]) for i in picks]):
                _key, _rank, path, pick = entries[0]
                anchor, _via, _way = self.ways.describe(path, pick)
                out.append(
                    {
                        "kind": anchor["kind"],
                        "holder": names.capped(anchor["name"]),
                        "file": names.base(anchor["file"]) if anchor["file"] else None,
                        "line": anchor["line"],
                        "tensors": len(keys),
                        "shape": list(shape),
                        "dtype": dtype.replace("torch.", ""),
                        "pinned_growth": self.windows[-1]["pinned"] - self.windows[0]["pinned"],
                        "container": type(self.heap.obj(path[pick])).__name__,
                        "grown_at": self._growers(anchor),
                    }
                )
        return out


def length_of(target):
    """Of Python's own containers only: any other __len__ is code of somebody's."""
    for cls in (list, dict, tuple, set, frozenset, collections.deque):
        if isinstance(target, cls):
            return cls.__len__(target)
    return None


def merged(rows):
    """One holder that was found through several kinds of tensors is one row."""
    found = {}
    for row in rows:
        key = (row["kind"], row["holder"], row["file"])
        if key not in found:
            found[key] = row
            continue
        into = found[key]
        for name in ("blocks", "tensors", "bytes", "graph_blocks"):
            into[name] += row[name]
        into["ages"] = [a + b for a, b in zip(into["ages"], row["ages"])]
        into["shapes"] = (into["shapes"] + row["shapes"])[:SHAPES]
        into["allocated_at"] = (into["allocated_at"] + row["allocated_at"])[:LINES]
        into["hints"] = list(dict.fromkeys(into["hints"] + row["hints"]))
        for route, count in row.get("tagged", {}).items():
            tagged = into.setdefault("tagged", {})
            tagged[route] = tagged.get(route, 0) + count
    return list(found.values())
