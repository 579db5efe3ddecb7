"""A zygote: a process that has imported what the workers of a service import, and forks one when it is told to.

    python -m plimsoll.zygote WORKER-ARGUMENTS

Nothing is forked that is not safe: every doubt refuses, and the worker is started by exec as if there were no zygote.
Environment, beside the worker's own: PLIMSOLL_ZYGOTE_PRELOAD (further modules, by commas). Descriptors: 3 the record
(imports.py), 4 our page (src/sample/zygote.h), 5 orders (src/base/wire.h).

    keeper --exec--> zygote: imports, checks, gc.freeze --fork--> middle (ends) --fork--> standby: waits for an order
       ^------------------ parent of the standby, as a subreaper; it becomes the worker <----------------------|

The user's own files are never imported here: sys.path is cut to the libraries meanwhile, and when a library wants a
module that was the service's, that is a reason to refuse. A standby that becomes a worker has a second look behind it
(have files changed?); what does not fit makes it start over by exec, as the same process with the same descriptors.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import time
import warnings

from plimsoll import bento, imports, worker

ORDER = struct.Struct("<IIQ80s")
HELLO = struct.Struct("<II")
MAGIC = 0x4F5A4C50
LISTENER, CONTROL = 1, 2  # flags of an order
FDS_MOST = 6
# magic, state, standby, modules, took_ms, reason, module
PAGE = struct.Struct("<IIIIQ240s120s")
LOADING, READY, REFUSED = 1, 2, 3
PR_SET_PDEATHSIG = 1
OUT_OF_THE_WAY = 64
VERDICT_S = 5
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
HOOKS_ALLOWED = ("_frozen_importlib", "_distutils_hack", "_virtualenv", "__editable__")


class Refuse(Exception):
    """This interpreter must not be forked. `module`: whose fault it is, or ''."""

    def __init__(self, reason, module=""):
        super().__init__(reason)
        self.module = module


class SpoiltCuda(Refuse):
    pass


class Page:
    """What main reads of us. The state is written last."""

    def __init__(self, fd):
        self.fd = fd
        os.set_inheritable(fd, False)
        self._map = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self):
        self._map.close()
        os.close(self.fd)

    def tell(self, state, standby=0, modules=0, took_ms=0, reason="", module=""):
        row = PAGE.pack(MAGIC, state, standby, modules, took_ms, reason.encode()[:239], module.encode()[:119])
        self._map[8 : PAGE.size] = row[8:]
        self._map[0:8] = row[:8]


# --- before and between the imports


def status():
    """{name: text} of /proc/self/status: threads and signals in one read."""
    with open("/proc/self/status", encoding="utf-8") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def refuse_foreign_hooks(roots):
    """Tracing agents and the like patch what is imported after them: they want to be first in every worker."""
    for finder in sys.meta_path:
        home = getattr(finder, "__module__", None) or type(finder).__module__
        if not home.startswith(HOOKS_ALLOWED):
            raise Refuse("an import hook is in place before anything is imported", home)
    for name in ("sitecustomize", "usercustomize"):
        origin = imports.origin_of(name, sys.modules.get(name))
        if origin is not None and not origin.startswith(roots) and not origin.startswith("/etc/python"):
            raise Refuse(f"a {name} of its own: {origin}", name)


class OwnModules:
    """Stands before all finders while libraries are imported: the service's own modules are not for us."""

    def __init__(self, names):
        self.names, self.wanted = set(names), None

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            self.wanted = self.wanted or name
        return None


@contextlib.contextmanager
def only_libraries(roots, own):
    path = sys.path[:]
    sys.path[:] = [p for p in path if p and (os.path.realpath(p) + os.sep).startswith(roots)]
    sys.path += [p for p in path if p.endswith(".zip") and p not in sys.path]
    sys.meta_path.insert(0, own)
    try:
        yield
    finally:
        sys.path[:] = path
        sys.meta_path.remove(own)
        importlib.invalidate_caches()


def signals_of(now):
    """Blocked, ignored, caught; without the two that libc takes for itself when the first thread is made."""
    libc = 1 << 31 | 1 << 32
    return [int(now.get(k, "0"), 16) & ~libc for k in ("SigBlk", "SigIgn", "SigCgt")]


def device_fd():
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith(DEVICES):
                return target
    return None


def stop_what_ends_at_a_fork():
    """The pool of OpenBLAS, which numpy brings, is stopped by a handler of its own when the process forks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12: threads are there, and that is the point
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def preload(names, own):
    """Imports them one by one; Refuse names the one after which something was not as before."""
    before = status()
    for name in names:
        if name in sys.modules:
            continue
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as exc:  # it may need what only the service's own files bring
            print(f"plimsoll: not imported ahead: {name}: {exc!r}"[:500], file=sys.stderr, flush=True)
        if own.wanted:
            raise Refuse(f"{name} imports {own.wanted}, which is a file of the service", name)
        now = status()
        if int(now["Threads"]) > int(before["Threads"]):
            stop_what_ends_at_a_fork()
            now = status()
        if int(now["Threads"]) > int(before["Threads"]):
            raise Refuse(f"{name} starts a thread when it is imported", name)
        if signals_of(now) != signals_of(before):
            raise Refuse(f"{name} changes how signals are handled when it is imported", name)
        opened = device_fd() if "nvidia" in name or "torch" in name or "cu" in name else None
        if opened:
            raise Refuse(f"{name} opens {opened} when it is imported", name)
        before = now


def look_at_origins(modules):
    for name, origin, *_ in modules:
        found = imports.origin_of(name, sys.modules.get(name))
        if found is not None and found != origin:
            raise Refuse(f"{name} came from {found}, a worker had it from {origin}", name)


# --- after them


def trial():
    """What a child would find: torch notes only there that CUDA was used in its parent."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        torch = sys.modules.get("torch")
        try:
            spoilt = bool(torch and torch.cuda._is_in_bad_fork())
        except Exception:
            spoilt = 2
        os.write(writer, b"%d %d" % (spoilt, int(status()["Threads"])))
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], VERDICT_S)
    answer = os.read(reader, 32).split() if ready else []
    os.close(reader)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if len(answer) != 2:
        raise Refuse("a trial child hangs" if not ready else "a trial child died")
    if answer[0] == b"1":
        raise SpoiltCuda("some module uses CUDA when it is imported: torch.cuda.is_available() is enough")
    if answer[0] != b"0":
        raise Refuse("this PyTorch does not tell whether CUDA was used", "torch")
    if answer[1] != b"1":
        raise Refuse("a trial child starts with more than one thread")


def refuse_leftovers():
    """Beside this thread nothing may be left: locks that it held would stay locked in every child, and an OpenMP pool
    is waited for by a child that does not have it."""
    left = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm", encoding="utf-8") as f:
                left.append(f.read().strip())
    if left:
        raise Refuse(f"{len(left)} threads are left after the imports: {', '.join(sorted(set(left)))[:120]}")
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as f:
        if f.read().strip():
            raise Refuse("the imports have started a process")
    opened = device_fd()
    if opened:
        raise Refuse(f"{opened} is open after the imports")
    if signal.set_wakeup_fd(-1) != -1:
        raise Refuse("the imports have set a wakeup descriptor for signals")
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        raise Refuse("the imports have taken SIGINT")


def keep_default_config():
    """BentoML reads and checks its own default_configuration.yaml in every worker: most of what is left of a start. It
    depends on the package alone, so it is done once and each worker gets a copy."""
    import copy

    try:
        from bentoml._internal.configuration import containers

        read = containers.get_default_config
        kept = {2: read(2)}
    except Exception:
        return
    containers.get_default_config = lambda version: copy.deepcopy(kept[version]) if version in kept else read(version)


# --- a child that becomes a worker


def read_recipe(fd):
    """(folder, [argv], {environment}) of base/wire.h, all bytes."""
    size = os.fstat(fd).st_size
    raw = os.pread(fd, size, 0)
    argc, envc = struct.unpack_from("<II", raw)
    words = raw[8:].split(b"\0")[:-1]
    if len(words) != 1 + argc + envc:
        raise ValueError("not a recipe")
    return words[0], words[1 : 1 + argc], dict(w.partition(b"=")[::2] for w in words[1 + argc :])


def rewrite_memory(words, marker):
    """What /proc/PID/cmdline and environ tell of us: the memory that exec has filled. The keeper knows descendants by
    the marker, and people read the command."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    arg_start, arg_end, env_start, env_end = (int(n) for n in fields[45:49])
    if not 0 < arg_start < arg_end <= env_start < env_end:
        return
    room = arg_end - arg_start
    text = (b"\0".join(words) + b"\0")[: room - 1]
    ctypes.memmove(arg_start, text.ljust(room, b"\0"), room)
    name = marker.partition(b"=")[0] + b"="
    old = ctypes.string_at(env_start, min(env_end - env_start, 256)).partition(b"\0")[0]
    if old.startswith(name) and len(marker) <= len(old):
        ctypes.memmove(env_start, marker.ljust(len(old), b"\0"), len(old))


def reseed():
    """Two processes started by exec have different seeds; random, uuid, secrets and ssl see to that after a fork."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    random.seed()
    if numpy_random is not None:
        numpy_random.seed(None)
    if torch is not None:
        torch.default_generator.seed()  # of the CPU alone: touches no CUDA


class Child:
    """One that has been told to become a worker."""

    def __init__(self, order, fds, verdict):
        _, flags, self.generation, marker = ORDER.unpack(order)
        self.marker = marker.partition(b"\0")[0]
        self.proven = False
        self.verdict = verdict  # a socket: empty, or why the zygote's files are not those of the disk any more
        fds = [self._up(fd) for fd in fds]
        self.answer, recipe, self.output, self.page = socket.socket(fileno=fds[0]), fds[1], fds[2], fds[3]
        rest = fds[4:]
        self.listener = rest.pop(0) if flags & LISTENER else None
        self.control = rest.pop(0) if flags & CONTROL else None
        self.folder, self.argv, self.env = read_recipe(recipe)
        os.close(recipe)
        self.env[b"PLIMSOLL_GENERATION"] = self.marker.partition(b"=")[2]

    @staticmethod
    def _up(fd):
        """Out of the way of the fixed numbers."""
        import fcntl

        up = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        os.close(fd)
        return up

    def accepted(self, ahead):
        """Hello to the keeper; False: it has not waited for us."""
        os.setsid()
        self.answer.settimeout(10)
        try:
            self.answer.send(HELLO.pack(MAGIC, 1 if ahead else 0))
            taken = self.answer.recv(1) != b""
        except OSError:
            taken = False
        self.answer.close()
        return taken

    def become(self, delta, tmp):
        """As if just started by exec. `delta`: what the imports have made of the environment. `tmp`: the zygote's."""
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        self._place()
        rewrite_memory(self.argv, self.marker)
        for key in [k for k in os.environb if k not in self.env]:
            del os.environb[key]
        os.environb.update(self.env)
        for key, value in delta.items():
            if value is not None:
                os.environb[key] = value
            elif key in os.environb:
                del os.environb[key]
        os.chdir(self.folder)
        sys.argv = [worker.__file__, *map(os.fsdecode, self.argv[3:])]
        sys.modules["__main__"].__file__ = worker.__file__
        if hasattr(sys, "orig_argv"):  # from 3.10 on
            sys.orig_argv = [os.fsdecode(w) for w in self.argv]
        tempfile = sys.modules.get("tempfile")
        if tempfile is not None and tempfile.tempdir in (tmp, os.fsencode(tmp)):
            tempfile.tempdir = None
        reseed()
        importlib.invalidate_caches()
        gc.enable()

    def _place(self):
        os.dup2(self.output, 1)
        os.dup2(self.output, 2)
        for fd, number in ((self.listener, 3), (self.page, 4), (self.control, 5)):
            if fd is not None:
                os.dup2(fd, number)

    def start_over(self, reason):
        """By exec, as the same process: the keeper, main and whoever waits at the listener see no difference."""
        print(f"plimsoll: {reason}; this worker is started without the zygote", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        self._place()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(self.folder)
        env = {**self.env, b"PLIMSOLL_ZYGOTE_REFUSED": os.fsencode(reason[:200])}
        os.execve(self.argv[0], self.argv, env)

    def look_at_verdict(self):
        """Before anything is told to main: are the files that the zygote has read those of the disk?"""
        if self.proven:
            return
        self.verdict.settimeout(VERDICT_S)
        try:
            said = self.verdict.recv(4096)
        except OSError:
            said = b""
        if said != b"ok":
            self.start_over(said.decode(errors="replace") or "the zygote has ended")
        self.verdict.close()
        self.proven = True
        for fd in (self.output, self.page, self.listener, self.control):
            if fd is not None:
                os.close(fd)


# --- the zygote


class Zygote:
    def __init__(self):
        self.began = time.monotonic()
        self.given = dict(os.environb)
        self.keeper = os.getppid()
        self.page = Page(4)
        self.page.tell(LOADING)
        self.orders = socket.socket(fileno=5)
        os.set_inheritable(5, False)
        with open(3, encoding="utf-8") as f:
            self.text = f.read(imports.RECORD_BYTES)
        for name in ("PLIMSOLL_PAGE_FD", "PLIMSOLL_CONTROL_FD"):
            os.environ.pop(name, None)
        self.more = [n for n in os.environ.pop("PLIMSOLL_ZYGOTE_PRELOAD", "").split(",") if n]
        self.libc = ctypes.CDLL(None)

    def prepare(self):
        """All that is done once. Raises Refuse."""
        roots = imports.library_roots()
        try:
            self.record = imports.unpack(json.loads(self.text)["record"])
        except (ValueError, KeyError, TypeError) as exc:
            raise Refuse(f"the record of imports is unreadable: {exc}") from None
        if self.record["python"] != sys.version or self.record["prefix"] != sys.prefix:
            raise Refuse("the record of imports is of another interpreter")
        refuse_foreign_hooks(roots)
        changed = imports.changed_file(self.record["modules"])
        if changed:
            raise Refuse(f"changed on disk: {changed}")
        self.base = dict(os.environb)
        for name, value in self.record["putenv"]:
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
        names = [m[0] for m in self.record["modules"]] + self.more
        if "BENTOML_MODEL_PREHEAT" in os.environ:  # BentoML patches it when it is imported
            names = [n for n in names if not n.startswith("safetensors")]
        gc.disable()
        own = OwnModules(self.record["foreign"])
        with only_libraries(roots, own):
            preload(names, own)
        look_at_origins(self.record["modules"])
        trial()
        refuse_leftovers()
        keep_default_config()
        gc.collect()
        gc.freeze()
        # as the libraries have seen it; what a worker's file sets must agree with it
        self.known = dict(os.environ)
        self.delta = {
            k: os.environb.get(k)
            for k in {*self.base, *os.environb}
            if self.base.get(k) != os.environb.get(k) and not imports.is_per_worker(os.fsdecode(k))
        }
        self.tmp = os.environ.get("TMPDIR", "/tmp")

    def run(self):
        """A function in a child that is to be a worker, to be called from the top of the stack, so that exceptions,
        exit statuses and atexit handlers are what they are after an exec. Else the status to exit with."""
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        bento.leave_the_path()
        try:
            self.prepare()
        except SpoiltCuda as exc:
            if os.environ.get(NVML_CHECK) == "1":
                return self.refuse(str(exc), "torch")
            self.try_weaker_check()
        except Refuse as exc:
            return self.refuse(str(exc), exc.module)
        return self.serve()

    def refuse(self, reason, module=""):
        self.page.tell(REFUSED, reason=reason, module=module)
        return 1

    def try_weaker_check(self):
        """Once more from the beginning, asking NVML instead of CUDA whether there is a GPU."""
        print(f"plimsoll: CUDA was used by an import; tried again with {NVML_CHECK}=1", file=sys.stderr, flush=True)
        fd = os.memfd_create("plimsoll-record")
        os.write(fd, self.text.encode())
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 3)
        for number in (3, self.page.fd, self.orders.fileno()):
            os.set_inheritable(number, True)
        argv = [sys.executable, "-m", "plimsoll.zygote", *sys.argv[1:]]
        os.execve(sys.executable, argv, {**self.given, os.fsencode(NVML_CHECK): b"1"})

    def serve(self):
        took_ms = None
        while True:
            standby, worker_main = self.fork_standby()
            if worker_main is not None:
                return worker_main
            pid = standby.recv(16)
            if not pid:
                return self.refuse("a standby died")
            took_ms = took_ms or round((time.monotonic() - self.began) * 1000)
            ahead = not select.select([self.orders], [], [], 0)[0]  # whoever has seen it on the page finds it waiting
            self.page.tell(READY, int(pid), len(sys.modules), took_ms)
            try:
                data, fds, _, _ = socket.recv_fds(self.orders, ORDER.size, FDS_MOST)
            except OSError:
                return 0
            if not data:
                return 0  # the keeper has gone
            with contextlib.suppress(OSError):
                socket.send_fds(standby, [data + (b"1" if ahead else b"0")], fds)
            for fd in fds:
                os.close(fd)
            changed = imports.changed_file(self.record["modules"])
            with contextlib.suppress(OSError):
                standby.send(f"changed on disk: {changed}".encode()[:4000] if changed else b"ok")
            standby.close()
            if changed:
                return self.refuse(f"changed on disk: {changed}")

    def fork_standby(self):
        """(socket, None) in the zygote; (None, what to run) in a standby that has become a worker. The one in
        the middle ends at once, so that the keeper becomes the parent."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        middle = os.fork()
        if middle == 0:
            if os.fork() != 0:
                os._exit(0)
            ours.close()
            return None, self.wait_for_order(theirs)
        theirs.close()
        os.waitpid(middle, 0)
        return ours, None

    def wait_for_order(self, orders):
        """In the standby. Returns only as a worker."""
        deadline = time.monotonic() + VERDICT_S
        while os.getppid() != self.keeper:
            if time.monotonic() > deadline:
                os._exit(70)
            time.sleep(0.0002)
        # Only now: it was set for the parent that one has, and the one in the middle has just ended. And once more:
        # the keeper may have ended before it was set.
        self.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.keeper:
            os._exit(70)
        try:
            orders.send(b"%d" % os.getpid())
            data, fds, _, _ = socket.recv_fds(orders, ORDER.size + 1, FDS_MOST)
            if not data:
                os._exit(0)
            child = Child(data[:-1], fds, orders)
            if not child.accepted(ahead=data[-1:] == b"1"):
                os._exit(0)
        except (OSError, ValueError, struct.error):
            os._exit(70)
        self.orders.close()
        self.page.close()
        child.become(self.delta, self.tmp)
        return lambda: worker.main(child, self.known)


def main():
    result = Zygote().run()
    if callable(result):
        return result()
    sys.stdout.flush()
    os._exit(result)


if __name__ == "__main__":
    main()
