"""What came of every request, which faults excuse it, and the table of all of it."""

import collections
import contextlib
import threading
import time

from client import EXPECTED

FINE = {"ok", "left", "closed"}


class Window:
    """A fault from its first moment until all was well again. `allows`: what may become of a request that met it."""

    def __init__(self, name, allows, detail):
        self.name, self.allows, self.detail = name, set(allows), detail
        self.began, self.ended = time.monotonic(), None

    def meets(self, outcome):
        return self.began <= outcome.ended and (self.ended is None or outcome.began <= self.ended)


class Books:
    def __init__(self):
        self.lock = threading.Lock()
        self.total, self.kinds = 0, collections.Counter()
        self.what = collections.Counter()  # of every request
        self.pending, self.excused = [], []  # neither fine nor expected of its kind
        self.windows, self.during = [], {}
        self.closed = set()  # ids that nobody may have taken
        self.violations = []
        self.began = time.monotonic()

    def note(self, outcome):
        with self.lock:
            self.total += 1
            self.kinds[outcome.kind] += 1
            self.what[outcome.what] += 1
            if outcome.what == "closed":
                self.closed.add(outcome.id)
            if outcome.what not in FINE and outcome.what not in EXPECTED.get(outcome.kind, ()):
                self.pending.append(outcome)

    def violation(self, kind, story):
        """kind: lost, wrong, orphaned, other."""
        with self.lock:
            self.violations.append((kind, time.monotonic() - self.began, story))

    @contextlib.contextmanager
    def window(self, name, allows=(), detail=""):
        window = Window(name, allows, detail)
        with self.lock:
            self.windows.append(window)
            window.before = self.total
        try:
            yield window
        finally:
            window.ended = time.monotonic()
            with self.lock:
                window.requests = self.total - window.before
            self.judge()

    def judge(self, final=False):
        """Requests that ended badly and whose time is over: excused by a fault that they met, or a violation."""
        with self.lock:
            pending, self.pending = self.pending, []
        for o in pending:
            met = [w for w in self.windows if w.meets(o)]
            excuse = next((w for w in met if o.what in w.allows), None)
            if excuse is not None:
                self.excused.append((excuse.name, o.what))
                continue
            if self.was_left_behind(o):
                with self.lock:
                    self.closed.add(o.id)
                continue
            kind = "wrong" if o.what == "wrong" else "lost"
            story = (f"request {o.id} ({o.kind}): {o.what} after {o.ended - o.began:.2f} s: {o.detail}; "
                     f"faults met: {', '.join(f'{w.name} ({w.detail})' for w in met) or 'none'}")
            with self.lock:
                self.violations.append((kind, o.began - self.began, story))
            for w in met:
                self.during.setdefault(w.name, collections.Counter())[kind] += 1

    def was_left_behind(self, o):
        """It was sent on a connection to a main that has been upgraded away since: such a main may close it while it is idle, and
        every client sends again then (RFC 9112, 9.3.1), if nobody has taken it: see `receipts`."""
        return o.kept_since is not None and any("upgrade" in w.name and w.began <= o.ended and (w.ended is None or o.kept_since <= w.ended)
                                                for w in self.windows)

    def counts(self):
        found = collections.Counter(kind for kind, _, _ in self.violations)
        return {kind: found[kind] for kind in ("lost", "wrong", "orphaned", "other")}

    def receipts(self, path, twice):
        """A request reached its service at most once; `twice`: services whose requests may be sent again. What was sent
        behind a request whose answer closed the connection did not reach any."""
        seen = collections.Counter()
        with open(path) as lines:
            for line in lines:
                request_id, name, _ = line.split(" ")
                seen[request_id, name] += 1
        for (request_id, name), count in seen.items():
            if count > (2 if name in twice else 1):
                self.violation("wrong", f"request {request_id} reached {name} {count} times")
            if request_id in self.closed:
                self.violation("wrong", f"request {request_id} reached {name}, and its client was told that nobody looks at it, or its connection was closed")
        return len(seen)

    def table(self):
        rows = {}
        for w in self.windows:
            row = rows.setdefault(w.name, collections.Counter())
            row["times"] += 1
            row["requests"] += getattr(w, "requests", 0)
        for name, what in self.excused:
            rows[name]["cut" if what in ("cut", "refused", "hang") else "refused"] += 1
        for name, counts in self.during.items():
            rows[name].update(counts)
        head = ("times", "requests", "refused", "cut", "lost", "wrong")
        width = max([len(name) for name in rows], default=10)
        lines = [f"| {'fault':<{width}} | " + " | ".join(f"{h:>8}" for h in head) + " |",
                 f"|{'-' * (width + 2)}|" + "|".join("-" * 9 + ":" for _ in head) + "|"]
        for name in sorted(rows):
            lines.append(f"| {name:<{width}} | " + " | ".join(f"{rows[name][h]:>8}" for h in head) + " |")
        return "\n".join(lines)
