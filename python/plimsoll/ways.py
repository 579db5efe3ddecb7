"""A way from a tensor up to an end, in words: who owns the accumulating object, and how one tensor hangs on it.

A spot is a dict: kind (a holder kind), name, file, line, short (the name that the source uses) and attr (whether that
is an attribute). What is not known is None.
"""

import asyncio
import collections
import functools
import sys
import threading
import types

from plimsoll import names
from plimsoll.heap import FRAME, GENERATORS, frame_of, module_file

LRU = type(functools.lru_cache(maxsize=1)(lambda: None))
CELL = types.CellType
PASSED = ("asyncio_task", "thread_local")  # a spot below them says more


def spot(kind, name, path=None, line=None, short="", attr=False, **more):
    return {"kind": kind, "name": name, "file": path, "line": line, "short": short, "attr": attr, **more}


def name_of_value(frame, child):
    """The local variable; its dictionary does not stay on the frame of a running function."""
    values = frame.f_locals
    found = next((name for name, value in values.items() if value is child), "")
    if sys.version_info < (3, 13) and frame.f_code.co_flags & 1 and frame.f_trace is None:
        values.clear()
    return found


def edge(holder, child):
    """(how `holder` refers to `child`, the name of it or "")."""
    cls = type(holder)
    if isinstance(holder, dict):
        return "key", next((k for k, v in dict.items(holder) if v is child and type(k) is str), "")
    if cls in (list, tuple, set, frozenset) or isinstance(holder, collections.deque):
        return "item", ""
    if cls is CELL:
        return "cell", ""
    if isinstance(holder, types.FunctionType):
        for name, cell in zip(holder.__code__.co_freevars, holder.__closure__ or ()):
            if cell is child:
                return "closure", name
        if holder.__closure__ is child:
            return "closure", ""
        if holder.__defaults__ is child or holder.__kwdefaults__ is child:
            return "default", ""
        return "function", ""
    if isinstance(holder, types.MethodType):
        return "bound method", holder.__func__.__name__
    if cls is FRAME:
        return "local", name_of_value(holder, child)
    if isinstance(holder, GENERATORS):
        frame = frame_of(holder)
        return ("frame", "") if frame is None else ("local", name_of_value(frame, child))
    if isinstance(holder, types.TracebackType):
        return "frame", ""
    if isinstance(holder, BaseException) and getattr(holder, "__traceback__", None) is child:
        return "traceback", ""
    if cls is LRU:
        return "lru", ""
    return attribute(holder, child, cls)


def attribute(holder, child, cls):
    try:
        space = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        space = None
    if space is child:
        return "attrs", ""
    if isinstance(space, (dict, types.MappingProxyType)):
        for k, v in space.items():
            if v is child:
                return "attr", str(k)
    for klass in cls.__mro__:
        slots = klass.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            member = klass.__dict__.get(slot)
            if isinstance(member, types.MemberDescriptorType):  # a property would be code of the user's
                try:
                    if member.__get__(holder, cls) is child:
                        return "attr", slot
                except AttributeError:
                    continue
    return "ref", ""


class Ways:
    def __init__(self, heap, source):
        self.heap = heap
        self.source = source
        heap.own.update((id(self), id(self.__dict__)))

    def describe(self, path, pick):
        """`path`: ids from a sampled tensor over the accumulator (at `pick`) to an end. Returns (anchor, via, way): the
        owner of the accumulator, how one tensor hangs on it (or None), and each step in words."""
        heap = self.heap
        objs = [heap.obj(k) for k in path]
        heap.own.add(id(objs))
        steps = []
        via = None
        for low in range(len(objs) - 1):
            child, holder = objs[low], objs[low + 1]
            try:
                kind, name = edge(holder, child)
                where = self._place(holder, objs, low + 1, kind, name)
            except Exception:  # an object that is not what its type promises
                heap.stats["unreadable"] += 1
                kind, name, where = "ref", "", None
            step = {"type": type(holder).__name__, "edge": kind, "name": name, "spot": where}
            if where and (via is None or via["kind"] in PASSED):
                via = where
            steps.append(step)
        anchor = None
        if path[-1] in heap.running:
            at = heap.running[path[-1]]
            anchor = spot("running_frame", f"{at['func']}: {at['name']}", at["file"], at["line"], at["name"])
            anchor["thread"] = at["thread"]
        if anchor is None:
            anchor = self._anchor(objs, steps, pick)
        if anchor is None and via is not None:
            anchor, via = dict(via), None
        if anchor is None:
            anchor = spot("unknown", type(objs[-1]).__name__)
        heap.own.discard(id(objs))
        return anchor, via, [self._step_words(s) for s in steps]

    @staticmethod
    def _step_words(step):
        """A key is named where it is an attribute or a global, and else may be anybody's data."""
        named = step["name"] if step["edge"] != "key" or step["spot"] or step.get("global") else ""
        return names.capped(step["type"] + (f" .{named}" if named else ""))

    # --- spots in the middle of a way

    def _place(self, holder, objs, at, kind, name):
        cls = type(holder)
        if isinstance(holder, types.FunctionType) and kind in ("closure", "default"):
            return self._function(holder, objs, at, kind, name)
        if cls is FRAME:
            code = holder.f_code
            called = getattr(code, "co_qualname", code.co_name)
            return spot("traceback_frame", f"local {name} of {called}", code.co_filename, holder.f_lineno, name)
        if isinstance(holder, GENERATORS):
            return self._generator(holder, name)
        if cls is LRU:
            func = getattr(holder, "__wrapped__", None)
            code = getattr(func, "__code__", None)
            info = holder.cache_info()
            words = f"{getattr(func, '__qualname__', '?')} (lru_cache, maxsize={info.maxsize})"
            file, line = (code.co_filename, code.co_firstlineno) if code else (None, None)
            return spot("lru_cache", words, file, line, getattr(func, "__name__", ""), bound=info.maxsize)
        if isinstance(holder, asyncio.Future):
            return spot("asyncio_task", f"asyncio {cls.__name__}")
        if cls.__name__ == "LogRecord" and cls.__module__ == "logging":
            words = f"log record from {names.base(holder.pathname)}:{holder.lineno}"
            return spot("log_record", words, holder.pathname, holder.lineno, "args")
        if isinstance(holder, threading.local) or (cls.__module__ == "_thread" and cls.__name__ == "_local"):
            return spot("thread_local", "thread local")
        return None

    @staticmethod
    def _generator(holder, name):
        code = getattr(holder, "gi_code", None) or getattr(holder, "cr_code", None) or getattr(holder, "ag_code", None)
        frame = frame_of(holder)
        kind = "coroutine" if isinstance(holder, types.CoroutineType) else "generator"
        line = frame.f_lineno if frame is not None else code.co_firstlineno
        return spot(kind, f"local {name} of {holder.__qualname__}", code.co_filename, line, name)

    @staticmethod
    def _function(holder, objs, at, kind, name):
        code = holder.__code__
        below = objs[max(0, at - 2) : at]
        if kind == "closure":
            if not name:
                cells = zip(code.co_freevars, holder.__closure__ or ())
                name = next((free for free, cell in cells if any(cell is o for o in below)), "")
            words = f"{holder.__qualname__} (closure variable {name})"
            return spot("closure", words, code.co_filename, code.co_firstlineno, name)
        values = holder.__defaults__ or ()
        args = code.co_varnames[: code.co_argcount]
        pairs = [*zip(args[len(args) - len(values) :], values), *(holder.__kwdefaults__ or {}).items()]
        name = next((arg for arg, value in pairs if any(value is o for o in below)), "")
        words = f"{holder.__qualname__} (default argument {name})"
        return spot("default_argument", words, code.co_filename, code.co_firstlineno, name)

    # --- the owner

    def _anchor(self, objs, steps, pick):
        """The named owner nearest to the accumulator: the user's first, then any."""
        fallback = None
        for i, step in enumerate(steps):
            if i < pick:
                if step["spot"] and step["spot"]["kind"] == "lru_cache" and i + 1 == pick:
                    return dict(step["spot"])
                continue
            found = self._owner(objs, i, step)
            if found is None:
                continue
            if found["kind"] == "lru_cache" or names.is_user_file(found["file"]):
                return found
            fallback = fallback or found
        return fallback

    def _owner(self, objs, i, step):
        holder = objs[i + 1]
        if id(holder) in self.heap.module_dicts:
            step["global"] = True
            path = getattr(sys.modules.get(self.heap.module_dicts[id(holder)]), "__file__", None)
            line = self.source.definition(path, step["name"]) if path else None
            return spot("module_global", step["name"], path, line, step["name"])
        if isinstance(holder, type):
            attr = self._class_attribute(objs, i)
            path = module_file(holder)
            line = self.source.definition(path, attr, holder.__name__) if path else None
            return spot("class_attribute", f"{holder.__qualname__}.{attr}", path, line, attr, True)
        if step["edge"] in ("attr", "attrs") and not isinstance(
            holder, (types.ModuleType, BaseException, types.FunctionType)
        ):
            return self._instance(objs, i, step)
        if step["spot"] and step["spot"]["kind"] in ("closure", "default_argument", "lru_cache"):
            return dict(step["spot"])
        return None

    def _instance(self, objs, i, step):
        cls = type(objs[i + 1])
        attr = step["name"]
        if not attr and isinstance(objs[i], dict) and i > 0:
            attr = next((str(k) for k, v in dict.items(objs[i]) if v is objs[i - 1]), "?")
        line = path = None
        for klass in cls.__mro__:  # set by a base class as often as not
            where = module_file(klass)
            found = self.source.definition(where, attr, klass.__name__) if names.is_user_file(where) else None
            if found is not None:
                path, line = where, found
                break
        if path is None:
            path = module_file(cls)
            line = self.source.definition(path, attr, cls.__name__) if path else None
        return spot("instance_attribute", f"{cls.__qualname__}.{attr}", path, line, attr, True)

    @staticmethod
    def _class_attribute(objs, i):
        near = [objs[i]] + ([objs[i - 1]] if i > 0 else [])
        return next((k for k, v in vars(objs[i + 1]).items() if any(v is o for o in near)), "?")
