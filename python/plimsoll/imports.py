"""What a worker has imported, so that a zygote (zygote.py) can import the same: modules of the standard library and of
site-packages, in order and with the identity of their files; which modules were the service's own; and what the
service's own files put into the environment while they were imported, since a library reads that when it is imported.
"""

import base64
import json
import os
import site
import sys
import sysconfig
import zlib

VERSION = 1
RECORD_BYTES = 16 << 20
# What may differ between two workers of one zygote: read again when it is needed, and not at import (or ours).
PER_WORKER = ("PROMETHEUS_MULTIPROC_DIR", "TMPDIR", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF")


def is_per_worker(name):
    return name in PER_WORKER or name.startswith("PLIMSOLL")


def library_roots():
    paths = [sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    for more in (getattr(site, "getsitepackages", list), lambda: [site.getusersitepackages()]):
        try:
            paths += more()
        except (AttributeError, OSError):
            continue
    return tuple(sorted({os.path.realpath(p) + os.sep for p in paths}))


def identity(path):
    s = os.stat(path)
    return [s.st_mtime_ns, s.st_size, s.st_ino]


def changed_file(modules):
    """The first file of a record that is not what it was; None: all are."""
    for _, origin, *was in modules:
        try:
            if identity(origin) != was:
                return origin
        except OSError:
            return origin
    return None


def origin_of(name, module):
    """Where it came from; None for what has no file of its own."""
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if name in ("__main__", "__mp_main__") or origin in ("built-in", "frozen", None) or not os.path.isabs(origin):
        return None
    return os.path.realpath(origin)


def make_record(watch, owners, cpu_ms):
    """`owners`: names of the modules that define the service: a whole package of that name is the user's, wherever it
    lies. `cpu_ms`: what the imports took."""
    roots, own = library_roots(), {name.partition(".")[0] for name in owners}
    ours = os.path.dirname(os.path.realpath(__file__)) + os.sep
    modules, foreign = [], []
    for name, module in list(sys.modules.items()):
        origin = origin_of(name, module)
        if origin is None or origin.startswith(ours):
            continue
        if name.partition(".")[0] in own or not origin.startswith(roots):
            foreign.append(name)
        elif module.__spec__.name == name:
            try:
                modules.append([name, origin, *identity(origin)])
            except OSError:
                continue
    return {
        "v": VERSION, "python": sys.version, "prefix": sys.prefix, "modules": modules, "foreign": foreign,
        "putenv": [[k, v] for k, v in watch.seen.items()], "cpu_ms": round(cpu_ms),
    }  # fmt: skip


def pack(record):
    return base64.b64encode(zlib.compress(json.dumps(record, separators=(",", ":")).encode(), 6)).decode()


def _is_module(row):
    return isinstance(row, list) and len(row) == 5 and all(isinstance(text, str) for text in row[:2])


def _is_variable(row):
    return isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], (str, type(None)))


def unpack(text):
    """Raises ValueError for what is not a record."""
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(text, validate=True), RECORD_BYTES)
        record = json.loads(raw)
    except (zlib.error, RecursionError) as exc:
        raise ValueError(str(exc)) from None
    good = isinstance(record, dict) and record.get("v") == VERSION
    good = good and all(isinstance(record.get(k), list) for k in ("modules", "foreign", "putenv"))
    if not good or not all(map(_is_module, record["modules"])) or not all(map(_is_variable, record["putenv"])):
        raise ValueError("not a record of this version")
    return record


class EnvironmentWatch:
    """While it is entered: notes variables that the service's own files set or take away, also by the hand of a library
    that they call (dotenv). What a library does while it is imported is its own affair. `differs(name, where)` is
    called for one that was not so when the libraries were imported; `known` is the environment of that moment."""

    def __init__(self, known=None, differs=None):
        self.known, self.differs = known, differs
        self.roots = library_roots()
        self.seen = {}

    def __enter__(self):
        self._was = os.putenv, os.unsetenv
        os.putenv, os.unsetenv = self._putenv, self._unsetenv
        return self

    def __exit__(self, *_):
        os.putenv, os.unsetenv = self._was

    def _putenv(self, key, value):
        self._was[0](key, value)
        self._note(os.fsdecode(key), os.fsdecode(value), sys._getframe(1))

    def _unsetenv(self, key):
        self._was[1](key)
        self._note(os.fsdecode(key), None, sys._getframe(1))

    def _note(self, key, value, frame):
        where = self._own_file(frame)
        if where is None or is_per_worker(key):
            return
        self.seen[key] = value
        if self.differs is not None and self.known.get(key) != value:
            self.differs(key, where)

    def _own_file(self, frame):
        """FILE:LINE of the service that this is done for; None: a library does it for itself."""
        while frame is not None:
            name = frame.f_code.co_filename
            if os.path.isabs(name):
                name = os.path.realpath(name)
                if not name.startswith(self.roots):
                    return f"{name}:{frame.f_lineno}"
                if frame.f_code.co_name == "<module>":
                    return None
            frame = frame.f_back
        return None
