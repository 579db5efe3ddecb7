"""The Python heap seen from below: who refers to an object, up to something that has a name, and what an object holds.

One list, `pool`, keeps the objects that are looked at; everything else here holds their ids. So what we hold ourselves
is told from what the user holds, and nothing stays behind afterwards. No finalizer, no repr and no comparison of the
user's runs. The time is looked at between scans of the heap: one scan cannot be interrupted.
"""

import collections
import gc
import sys
import time
import types

from plimsoll import looking, names

FRAME = types.FrameType
GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
CONTAINERS = (list, dict, collections.deque, tuple, set)
DEPTH = 14
FRONTIER = 64
NEAR = 6  # further up fewer are followed: one scan costs objects of the heap times those
ENDS = 12
# How good an end of a way is: the lower, the better
USER_NAME, RUNNING, LIBRARY_NAME, LIBRARY_CLASS, CUT, NOTHING = range(6)


def frame_of(generator):
    for name in ("gi_frame", "cr_frame", "ag_frame"):
        frame = getattr(generator, name, None)
        if frame is not None:
            return frame
    return None


def module_file(cls):
    return getattr(sys.modules.get(getattr(cls, "__module__", None)), "__file__", None)


class Heap:
    """`running`: {id: where} of the locals of running functions (see explain.running_locals). `deadline`: monotonic."""

    def __init__(self, running, deadline):
        self.running = running
        self.deadline = deadline
        self.pool = []
        self.index = {}  # id -> position in pool
        self.parents = {}  # id -> ids of its referrers; absent: not looked at
        self.own = {id(self.pool), id(self), id(self.__dict__)}
        self.stats = collections.Counter()
        self._anchored = {}
        self._globals = None
        self.module_dicts = {}
        for name, module in list(sys.modules.items()):
            space = getattr(module, "__dict__", None)
            if isinstance(space, dict):
                self.module_dicts.setdefault(id(space), name)

    def late(self):
        return time.monotonic() > self.deadline

    def keep(self, obj):
        key = id(obj)
        if key not in self.index:
            self.index[key] = len(self.pool)
            self.pool.append(obj)
        return key

    def obj(self, key):
        return self.pool[self.index[key]]

    def terminal(self, obj):
        """The way up may end here: nothing above says more."""
        if id(obj) in self.module_dicts or isinstance(obj, types.ModuleType) or id(obj) in self.running:
            return True
        return isinstance(obj, type) and self.anchored(obj)

    def anchored(self, cls):
        """A class that its module has under its name. One that is made by a function has no place of its own."""
        known = self._anchored.get(id(cls))
        if known is None:
            at = sys.modules.get(type.__getattribute__(cls, "__module__") if isinstance(cls, type) else None)
            for step in cls.__qualname__.split("."):
                space = getattr(at, "__dict__", None) or {}
                at = space.get(step)
            known = at is cls or not cls.__flags__ & (1 << 9)  # a static type is never made anew
            self._anchored[id(cls)] = known
        return known

    def heads(self, cls, limit=8):
        """Of the instances of a class those that no other instance refers to, directly or through its dictionary: the
        front of a chain that is too long to be climbed."""
        objs = [o for o in looking.objects() if type(o) is cls]
        below = set()
        for o in objs:
            for x in gc.get_referents(o):
                below.add(id(x))
                if type(x) is dict:
                    below.update(id(y) for y in gc.get_referents(x))
        found = [self.keep(o) for o in objs if id(o) not in below][:limit]
        o = x = None
        return found

    def _ours(self, obj):
        if id(obj) in self.own:
            return True
        return type(obj) is FRAME and names.is_own_file(obj.f_code.co_filename)

    @staticmethod
    def _priority(obj):
        cls = type(obj)
        if cls in CONTAINERS:
            return 0
        if names.is_user_file(module_file(cls)):
            return 1
        return 2 if cls is FRAME else 3

    def climb(self, start):
        """Fills `parents` above the objects of these ids: one scan of the heap a level, for all of them together."""
        frontier = [self.obj(k) for k in start if k not in self.parents]
        self.own.add(id(frontier))
        depth = 0
        while frontier and depth < DEPTH and not self.late():
            depth += 1
            frontier = self._level(frontier, FRONTIER if depth < NEAR else FRONTIER // 4)
            if all(self._is_owned(key) for key in start):
                break  # more ways would only be longer ones
        self.own.discard(id(frontier))
        self.stats["depth"] = max(self.stats["depth"], depth)

    def _is_owned(self, key):
        """The user's own code is above it already."""
        queue, seen = [key], {key}
        for node in queue:
            obj = self.obj(node)
            if node in self.running or (node != key and self.terminal(obj)):
                if self._rank(obj) <= RUNNING:
                    return True
                continue
            for parent in self.parents.get(node, ()):
                if parent not in seen:
                    seen.add(parent)
                    queue.append(parent)
        return False

    def _level(self, frontier, most):
        wanted = {id(o) for o in frontier}
        refs = gc.get_referrers(*frontier)
        fresh = []
        mine = (id(refs), id(fresh), id(frontier))
        self.own.update(mine)
        self.stats["scans"] += 1
        for key in wanted:
            self.parents.setdefault(key, [])
        for r in refs:
            if self._ours(r):
                continue
            touched = {id(x) for x in gc.get_referents(r)} & wanted
            if not touched:
                continue
            new = id(r) not in self.index
            key = self.keep(r)
            for child in touched:
                if key != child:
                    self.parents[child].append(key)
            if new and key not in self.parents and not self.terminal(r):
                fresh.append(r)
        r = None
        fresh.sort(key=self._priority)
        del fresh[most:]
        del refs, frontier
        self.own.difference_update(mine[:1] + mine[2:])
        return fresh

    def ends(self, key):
        """Shortest way from an object to each end above it, the best first: [(how good, (ids from it to the end))]."""
        queue = collections.deque([(key, (key,))])
        seen = {key}
        found = []
        while queue and len(found) < ENDS:
            node, path = queue.popleft()
            obj = self.obj(node)
            if (node != key and self.terminal(obj)) or node in self.running:
                found.append((self._rank(obj), path))
                continue
            if not self.parents.get(node):
                found.append((NOTHING if node in self.parents else CUT, path))
                continue
            for parent in self.parents[node]:
                if parent not in seen:
                    seen.add(parent)
                    queue.append((parent, path + (parent,)))
        found.sort(key=lambda item: (item[0], len(item[1])))
        return found

    def _rank(self, obj):
        if id(obj) in self.running:
            return RUNNING
        if isinstance(obj, type):
            return USER_NAME if names.is_user_file(module_file(obj)) else LIBRARY_CLASS
        name = self.module_dicts.get(id(obj)) or getattr(obj, "__name__", "")
        return USER_NAME if names.is_user_file(getattr(sys.modules.get(name), "__file__", None)) else LIBRARY_NAME

    def is_cycle(self, above):
        """Nothing above these but themselves: a cycle of garbage. Else something that Python cannot see holds them."""
        keys = set()
        stack = list(above)
        while stack:
            for p in self.parents.get(stack.pop(), ()):
                if p in above[:1] or p in keys:
                    return True
                keys.add(p)
                stack.append(p)
        return False

    def _is_global(self, obj):
        """It has a module's name of its own: what it holds is not somebody else's who can reach it, as a task reaches
        its event loop, and that every logger."""
        if self._globals is None:
            self._globals = set()
            for module in list(sys.modules.values()):
                space = getattr(module, "__dict__", None)
                if isinstance(space, dict):
                    self._globals.update(map(id, dict.values(space)))
        return id(obj) in self._globals

    def below(self, key, limit, leaf):
        """Walks down from an object, not through modules, classes, globals of functions, and what is itself a global.
        `leaf(obj)` is True for what is looked at and not entered."""
        start = self.obj(key)
        stack = [start]
        self.own.add(id(stack))
        seen = {id(start)}
        while stack and len(seen) < limit and not self.late():
            o = stack.pop()
            if leaf(o) or id(o) in self.module_dicts or isinstance(o, (types.ModuleType, types.BuiltinFunctionType)):
                continue
            if (isinstance(o, type) and self.anchored(o)) or (o is not start and self._is_global(o)):
                continue
            if isinstance(o, types.FunctionType):
                parts = (o.__closure__, o.__defaults__, o.__kwdefaults__)
            else:
                parts = gc.get_referents(o)
            for x in parts:
                if x is not None and id(x) not in seen and gc.is_tracked(x):
                    seen.add(id(x))
                    stack.append(x)
            parts = x = None
        self.own.discard(id(stack))
