"""Who holds the growing memory: decided, started and read here, on a thread of our own; walked by findings.py and
host.py.

A look waits until no request runs, takes a census and walks the heap, in a forked child (the process pays for the fork
only) or in the process itself. Two looks tell growth: one alone says `growing: null`. Nothing of the user's is kept
afterwards: ids, sizes and text are.
"""

import collections
import gc
import json
import os
import select
import signal
import stat
import sys
import threading
import time
import tracemalloc
import warnings
import weakref

from plimsoll import census, findings, history, host, looking, names

MIB, GIB = 1 << 20, 1 << 30
LIFE = 3  # explanations in a worker's life; one is two looks
EVERY_S = 600
QUIET_S = 0.05
TRIES = 5
TRY_S = 1.0
FORK_S_PER_BYTE = 0.040 / GIB  # of anonymous memory, measured
PAUSE_S = 0.25  # the longest that a fork may take
ROOM_BYTES = 512 * MIB
CHILD_BYTES = 50 * MIB
CHILD_BYTES_PER_OBJECT = 90
KILL_AFTER_S = 2.0
REPORT_BYTES = 60 * 1024  # with its envelope it stays below 64 KiB
FRAMES = 60
GROWING = 0.05
STEADY = 0.2  # blocks for each request of its route; a holder that has long been growing gains little in comparison
STEADY_BLOCKS = 16
LACKING = 0.01
THREAD_LOCAL = threading.local


class Refused(Exception):
    """`reason` is of a closed list: off, busy, running, limit, memory, pause."""

    def __init__(self, reason, hint):
        super().__init__(hint)
        self.reason, self.hint = reason, hint


def running_locals():
    """{id: where} of the locals of running functions in user code, this thread's aside. They are invisible to gc until
    somebody asks for the frame; ids are noted, not references. A module's frame has its globals as locals: left
    alone."""
    out = {}
    called = {t.ident: t.name for t in threading.enumerate()}
    me = threading.get_ident()
    for ident, frame in looking.frames().items():
        depth = 0
        while ident != me and frame is not None and depth < FRAMES:
            code = frame.f_code
            if code.co_flags & 1 and names.is_user_file(code.co_filename) and frame.f_trace is None:
                values = frame.f_locals
                where = {
                    "thread": called.get(ident, "?"),
                    "file": code.co_filename,
                    "line": frame.f_lineno,
                    "func": getattr(code, "co_qualname", code.co_name),
                }
                for name, value in list(values.items()):
                    out.setdefault(id(value), {**where, "name": name})
                value = None
                if sys.version_info < (3, 13):
                    values.clear()  # it stays on the frame and would keep the values alive
                values = None
            frame = frame.f_back
            depth += 1
        frame = None
    return out


def anchors_of_thread_locals():
    """A fork ends the states of the other threads, and what only their thread locals hold would be freed in the child.
    Each of them hangs on a small object that the thread's state owns and the `threading.local` knows weakly: whoever
    keeps that keeps all. Where this interpreter does it in another way the list is empty."""
    known, out = {}, []
    objs = looking.objects()
    for o in objs:
        cls = type(o)
        is_local = known.get(cls)
        if is_local is None:
            is_local = known[cls] = THREAD_LOCAL in cls.__mro__
        if is_local:
            for table in gc.get_referents(o):
                if type(table) is dict:
                    out += [key() for key in list(table) if type(key) is weakref.ref]
    o = table = None
    return out


class Gap:
    """The longest time for which another Python thread could not run, while this is open: what a handler would feel."""

    def __enter__(self):
        self.longest = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._run, name="plimsoll-gap", daemon=True)
        self._thread.start()
        return self

    def _run(self):
        before = time.perf_counter()
        while not self._over:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - before - 0.001)
            before = now

    def __exit__(self, kind, error, where):
        self._over = True
        self._thread.join()
        return False


def read_number(path):
    try:
        with open(path, encoding="ascii") as handle:
            return int(handle.read())
    except (OSError, ValueError):  # "max", or not there
        return None


def memory_room():
    """Bytes until our cgroup's limit; None: there is none that we can see."""
    rooms = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as lines:
            for line in lines:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                root = "/sys/fs/cgroup" if controllers == "" else "/sys/fs/cgroup/memory"
                if controllers != "" and "memory" not in controllers.split(","):
                    continue
                for folder in (root + path.rstrip("/"), root):  # inside a container the path is often the host's
                    limit = read_number(folder + "/memory.max") or read_number(folder + "/memory.limit_in_bytes")
                    used = read_number(folder + "/memory.current") or read_number(folder + "/memory.usage_in_bytes")
                    if limit is not None and used is not None:
                        rooms.append(max(0, limit - used))
    except (OSError, ValueError):
        pass
    return min(rooms) if rooms else None


class Child:
    """A forked copy of the process that computes one JSON document."""

    def __init__(self, work, budget_s):
        self.budget_s = budget_s
        read_fd, write_fd = os.pipe()
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: fork beside threads
            self.pid = os.fork()
        if self.pid == 0:
            self._be(work, read_fd, write_fd)
        self.fork_ms = (time.perf_counter() - start) * 1e3
        os.close(write_fd)
        self._fd = read_fd

    def read(self):
        """The document, or None: it was killed, or died. It is reaped in any case."""
        deadline = time.monotonic() + self.budget_s + KILL_AFTER_S
        data = bytearray()
        try:
            while True:
                ready, _, _ = select.select([self._fd], [], [], max(deadline - time.monotonic(), 0))
                chunk = os.read(self._fd, 65536) if ready else b""
                if not chunk:
                    break
                data += chunk
        finally:
            os.close(self._fd)
            try:
                if not ready:
                    os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):  # a handler of the user's was faster
                pass
        try:
            return json.loads(bytes(data))
        except ValueError:
            return None

    def _be(self, work, read_fd, write_fd):
        """Never returns: no finalizer and no handler of the parent's runs here, nothing speaks to the device."""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(self.budget_s + KILL_AFTER_S) + 2)  # should the parent be gone
            gc.disable()
            looking.alone = True
            gc.unfreeze()  # frozen objects are invisible to gc.get_objects and gc.get_referrers
            os.close(read_fd)
            give_way()
            close_sockets(write_fd)
            data = json.dumps(work()).encode()
        except BaseException as exc:
            data = json.dumps({"error": names.capped(f"{type(exc).__name__}: {exc}")}).encode()
        try:
            while data:
                data = data[os.write(write_fd, data) :]
        finally:
            os._exit(0)


def give_way():
    """The child runs behind the service, and is the first to go when memory runs out."""
    try:
        os.nice(10)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:
            handle.write("1000")
    except OSError:
        pass


def close_sockets(keep):
    """A copy of a client's socket would keep its connection open, and one of the listener dead sockets alive."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd > 2 and fd != keep and stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.close(fd)
        except OSError:
            pass


def route_of(ages, windows):
    """The route whose requests explain when the blocks came, or None: none does, or several do."""
    pairs = collections.defaultdict(list)
    made = ages[1 : len(windows)]
    for i, window in enumerate(windows[1:]):
        for route in window["requests"]:
            pairs[route].append(i)
    if len(pairs) == 1:
        return next(iter(pairs))
    total = sum(y * y for y in made)
    if total == 0 or len(made) < 3:
        return None
    errors = []
    for route in pairs:
        xs = [w["requests"].get(route, 0) for w in windows[1:]]
        square = sum(x * x for x in xs)
        k = sum(x * y for x, y in zip(xs, made)) / square if square else 0
        errors.append((sum((y - k * x) ** 2 for x, y in zip(xs, made)) / total, route))
    errors.sort()
    clear = errors[0][0] <= 0.1 and errors[1][0] >= max(0.05, 3 * errors[0][0])
    return errors[0][1] if clear else None


def words(row):
    """One line for a person."""
    where = f"{row['file'] or '?'}:{row['line'] if row['line'] is not None else '?'}"
    shapes = ", ".join(f"{s['dtype']}{s['shape']} x{s['count']}" for s in row["shapes"][:2])
    text = f"{where} {row['holder']}[{row['container']}] -> {row['blocks']} blocks, {row['bytes'] / MIB:.2f} MiB"
    text += f", {shapes}" if shapes else ""
    if row.get("blocks_per_request") is not None and row["growing"]:
        text += f", {row['blocks_per_request']:+g} blocks ({row['bytes_per_request']:+.0f} bytes) per request"
        text += f" on {row['route']}" if row.get("route") else ""
    return names.capped(text)


class Explainer:
    """`counts()` gives (in flight, {route: requests ended}). One look at a time."""

    def __init__(self, keeper, counts, records):
        self.keeper = keeper
        self.history = records
        self._counts = counts
        self._busy = threading.Lock()
        self._runs = 0
        self._run_at = None
        self._objects = 0
        self._last = None  # of the look before: see _growth
        self._host_last = None
        self._keep_locals = False
        self._fork_ms = 0.0

    # --- may it, and how

    def look(self, asked):
        """One look: {"report": …}, or {"refused": reason, "hint": …}."""
        try:
            if not self._busy.acquire(blocking=False):
                raise Refused("running", "another look is under way")
            try:
                return {"report": self._look(asked)}
            finally:
                self._busy.release()
        except Refused as exc:
            return {"refused": exc.reason, "hint": exc.hint}

    def _look(self, asked):
        mode = asked.get("mode", "auto")
        force = asked.get("force") is True
        again = asked.get("again") is True and self._last is not None
        # a look of the same explanation that had too little time is taken again: main bounds how often
        goes_on = again or (asked.get("retry") is True and self._run_at is not None)
        if mode == "off":
            raise Refused("off", "explain is off for this service")
        if mode not in ("auto", "fork", "inline"):
            raise Refused("off", "mode is one of auto, fork, inline, off")
        if not goes_on and not force:
            self._limit()
        if not force:
            self._wait_quiet()
        mode = self._choose(mode)
        if not goes_on:
            self._runs += 1
            self._run_at = time.monotonic()
        deadline_ms = asked.get("deadline_ms")
        budget_s = deadline_ms / 1000 if isinstance(deadline_ms, int) and 0 < deadline_ms <= 600_000 else 10.0
        return self._run(mode, budget_s, asked.get("code") is not False)

    def _limit(self):
        if self._runs >= LIFE:
            raise Refused("limit", f"this worker has been explained {LIFE} times; --force does it again")
        if self._run_at is not None and time.monotonic() - self._run_at < EVERY_S:
            raise Refused("limit", "at most one in 10 minutes a worker; --force does it again")

    def _wait_quiet(self):
        for _ in range(TRIES):
            until = time.monotonic() + TRY_S
            since = None
            while time.monotonic() < until:
                in_flight, ended = self._counts()
                now = time.monotonic()
                state = (in_flight, sum(ended.values()))
                if in_flight > 0 or since is None or state != since[0]:
                    since = (state, now)
                elif now - since[1] >= QUIET_S:
                    return
                time.sleep(0.005)
        raise Refused("busy", f"requests ran all the time for {TRIES * TRY_S:.0f} s; --force does it beside them")

    def _choose(self, mode):
        fork_s = host.status_bytes("RssAnon") * FORK_S_PER_BYTE
        room = memory_room()
        need = max(ROOM_BYTES, 4 * (CHILD_BYTES + CHILD_BYTES_PER_OBJECT * self._objects))
        tight = room is not None and room < need
        if mode == "fork" and tight:
            raise Refused("memory", f"{room // MIB} MiB are left of the memory limit, a fork wants {need // MIB} MiB")
        if mode != "auto":
            return mode
        if not tight and fork_s <= PAUSE_S:
            return "fork"
        if self._counts()[0] == 0:
            return "inline"
        if tight:
            raise Refused("memory", f"{room // MIB} MiB are left of the memory limit, and requests run")
        raise Refused("pause", f"a fork would take {fork_s:.1f} s, and requests run")

    # --- the look itself

    def _run(self, mode, budget_s, code):
        start = time.perf_counter()
        torch = census.torch_in_use()
        self._fork_ms = 0.0
        with Gap() as gap, self.keeper.lock:
            blocks = self._census(torch)
            _, counts = self._counts()  # now: requests may go on while the child walks
            requests = sum(counts.values()) - (self._last["total"] if self._last else 0)
            running = running_locals()
            now = host.figures()
            prepared = time.perf_counter()
            before = self._host_last or {}
            args = (torch, blocks, running, code, requests, before)
            found = None
            if mode == "fork":
                try:
                    found = self._forked(args, budget_s)
                except OSError:  # forbidden here, or no memory
                    mode = "inline"
            if mode == "inline":
                found = self._inline(args, budget_s)
        if found is None or "error" in found:
            found = {"complete": False, "findings": [], "unexplained": [], "pinned_host": [], "stats": {},
                     "error": found["error"] if found else "the walk did not end in time"}  # fmt: skip
        report = self._finish(found, now, before, counts)
        report["mode"] = mode
        report["cost"] = {
            "prepare_ms": round((prepared - start) * 1e3, 2),
            "fork_ms": round(self._fork_ms, 2),
            "pause_ms": round(gap.longest * 1e3, 2),
            "total_ms": round((time.perf_counter() - start) * 1e3, 1),
        }
        return fitted(report)

    def _forked(self, args, budget_s):
        """Once more when the child did not come to an end: it may have been made while another thread held a lock of
        the allocator or of a library, which nobody releases in the child. And once more with the thread locals of the
        other threads kept, when tensors are missing in the child."""
        found = self._fork(args, budget_s)
        if found is None:
            return self._fork(args, budget_s)
        if self._keep_locals or not self._lacks(found, len(args[1])):
            return found
        self._keep_locals = True
        return self._fork(args, budget_s) or found

    def _fork(self, args, budget_s):
        kept = anchors_of_thread_locals() if self._keep_locals else None
        deadline = time.monotonic() + budget_s
        child = Child(lambda: self._walk(*args, deadline, forked=True), budget_s)
        kept = None  # noqa: F841
        self._fork_ms = max(self._fork_ms, child.fork_ms)
        was = gc.isenabled()
        gc.disable()  # a collection writes to every object: while the child lives each page would be copied
        try:
            return child.read()
        finally:
            if was:
                gc.enable()

    @staticmethod
    def _lacks(found, blocks):
        lost = sum(r["count"] for r in found.get("unexplained", ()) if not r["python_tensor"] and not r["private_pool"])
        return lost >= max(4, LACKING * blocks)

    def _census(self, torch):
        """Live blocks; another window where requests have ended. An allocator without blocks has none."""
        if torch is None:
            return {}
        try:
            return self.keeper.take(torch)
        except Exception:
            return {}

    def _inline(self, args, budget_s):
        was = gc.isenabled()
        gc.disable()
        try:
            return self._walk(*args, time.monotonic() + budget_s)
        except Exception as exc:
            return {"error": names.capped(f"{type(exc).__name__}: {exc}")}
        finally:
            if was:
                gc.enable()

    def _walk(self, torch, blocks, running, code, requests, before, deadline, forked=False):
        """What is known of the heap now. In the child, or with gc off."""
        report = {"complete": True, "findings": [], "unexplained": [], "pinned_host": [], "stats": {}}
        kinds = None
        if torch is not None:
            tags = {}
            if forked and self.history.tagging:  # the events hold the GIL for long
                segments, traces = census.segments(torch, traces=True)
                tags = self.history.routes(traces)
                blocks = census.live_blocks(torch, segments)
                segments = traces = None  # many small objects, which every scan of the heap would meet
            walk = findings.Walk(torch, blocks, self.keeper.census, running, deadline, code, tags)
            report.update(walk.run())
            kinds = walk.tensors.kind
            report["cpu_tensor_bytes"] = walk.tensors.host_bytes
        twin = host.HostWalk(before.get("lengths"), before.get("types"), requests, running, deadline, code, kinds)
        report["host"], report["_lengths"], report["_types"] = twin.run()
        if forked:
            report["host"]["allocated_at"] = host.traced()
        report["complete"] = report["complete"] and not twin.heap.late()
        return report

    # --- two looks

    def _finish(self, report, now, before, counts):
        lengths = {int(k): n for k, n in report.pop("_lengths", {}).items()}
        types = report.pop("_types", {})
        twin = {**now, **report.pop("host", {})}
        if "cpu_tensor_bytes" in report:
            twin["cpu_tensor_bytes"] = report.pop("cpu_tensor_bytes")
        if before.get("figures"):
            twin["grown"] = host.judge(now, before["figures"])
        report["host"] = twin
        if report["complete"]:  # what has not seen all is nothing to compare with
            self._objects = report["stats"].get("objects", twin.get("objects", 0))
            self._host_last = {"lengths": lengths, "types": types, "figures": now}
        self._growth(report, counts)
        return report

    def _growth(self, report, counts):
        """The net growth of each holder since the look before decides, not its name: a full cache grows no more. It is
        weighed against what is held, and against the requests: after a day of a block each, some hundred more are next
        to nothing of what is held, and a leak all the same."""
        windows = self.keeper.census.windows
        total = sum(counts.values())
        before = self._last
        now = {"total": total, "counts": counts, "rows": {}}
        for row in report["findings"]:
            key = (row["kind"], row["holder"], row["file"])
            now["rows"][key] = (row["blocks"], row["bytes"])
            tagged = row.get("tagged")
            route = max(tagged, key=tagged.get) if tagged else route_of(row["ages"], windows)
            if route:
                row["route"] = names.capped(route)
            row["growing"] = None
            if before is not None and key in before["rows"]:
                blocks, size = before["rows"][key]
                since = counts.get(route, 0) - before["counts"].get(route, 0) if route else total - before["total"]
                row["blocks_per_request"] = round((row["blocks"] - blocks) / max(since, 1), 3)
                row["bytes_per_request"] = round((row["bytes"] - size) / max(since, 1), 1)
                gained = row["blocks"] - blocks
                much = row["bytes"] - size > GROWING * max(size, 1)
                steady = gained >= max(STEADY_BLOCKS, STEADY * since) and row["bytes"] > size
                row["growing"] = (much or steady) and row["kind"] != "garbage_cycle"
            row["words"] = words(row)
        if report["complete"]:
            self._last = now
        report["looks"] = 1 if before is None else 2
        report["requests"] = total - before["total"] if before else total
        report["routes"] = {names.capped(r): n for r, n in sorted(counts.items())[:64]}
        report["windows"] = len(windows)


def fitted(report):
    """Into its size: first the ways go, then the smallest rows."""
    if len(json.dumps(report)) > REPORT_BYTES:
        for row in report["findings"]:
            row.pop("way", None)
    while len(json.dumps(report)) > REPORT_BYTES and len(report["findings"]) > 1:
        report["findings"].pop()
        report["cut"] = True
    return report


class Verbs:
    """What the control socket may ask of this room. Each gets the question and gives the answer's fields."""

    def __init__(self, counts):
        self.history = history.History()
        self.keeper = census.Keeper(counts)
        self.keeper.initialised = self._cuda_came
        self.explainer = Explainer(self.keeper, counts, self.history)

    def _cuda_came(self, torch):
        self.history.watch_ooms(torch, lambda: len(self.keeper.census.first))

    def install(self, control, go):
        """`go`: main's word, with the folder for snapshots."""
        folder = go.get("snapshots") if isinstance(go, dict) else None
        if isinstance(folder, str) and os.path.isabs(folder):
            self.history.folder = folder
        self.history.saved = lambda name, size, why: control.tell(snapshot={"name": name, "bytes": size, "why": why})
        control.add("explain", self.explain)
        control.add("record_history", self.record_history)
        control.add("dump_snapshot", self.dump_snapshot)
        control.add("release_traceback", lambda asked: {"released": history.release_traceback()})
        self.keeper.start()

    def explain(self, asked):
        """With "census": another window of the census and no look; "ready" is the first of all."""
        if asked.get("census") == "ready":
            return {"baseline": self.keeper.baseline(), "windows": len(self.keeper.census.windows)}
        if asked.get("census"):
            torch = census.torch_in_use()
            with self.keeper.lock:
                if torch is not None:
                    self.keeper.take(torch)
                return {"windows": len(self.keeper.census.windows), "cost_ms": round(self.keeper.census.cost_ms, 2)}
        return self.explainer.look(asked)

    def record_history(self, asked):
        on = asked.get("on") is True
        try:
            if asked.get("what") == "host":
                if on and not tracemalloc.is_tracing():
                    tracemalloc.start(1)
                elif not on:
                    tracemalloc.stop()
            else:
                self.history.record(census.torch_in_use(), on)
        except history.Refused as exc:
            return {"refused": names.capped(exc)}
        return {"on": on}

    def dump_snapshot(self, asked):
        try:
            name, size = self.history.dump(census.torch_in_use(), "asked")
        except history.Refused as exc:
            return {"refused": names.capped(exc)}
        return {"name": name, "bytes": size}
