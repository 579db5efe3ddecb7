"""The server's stderr while it grows: JSON events, worker lines and the banner between them."""

import json
import time


class EventLog:
    def __init__(self, path):
        self.path = path
        self._events = []
        self._offset = 0

    def _read(self):
        """Takes whole lines only: a line that is being written is left for the next look."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as f:
            f.seek(self._offset)
            data = f.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in data[:end].splitlines():
            if line.startswith(b"{"):
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if isinstance(event, dict) and "event" in event:
                    self._events.append(event)

    def text(self):
        return self.path.read_text(errors="replace") if self.path.exists() else ""

    def mark(self):
        """A point in the log: hand it to `find` or `wait_for` as `since`."""
        self._read()
        return len(self._events)

    def find(self, name, where=None, since=0):
        """Every event of that name. `where`: a function of the event, or fields that must be equal."""
        self._read()
        if where is None:
            match = lambda event: True  # noqa: E731
        elif callable(where):
            match = where
        else:
            match = lambda event: all(event.get(k) == v for k, v in where.items())  # noqa: E731
        return [e for e in self._events[since:] if e["event"] == name and match(e)]

    def wait_for(self, name, where=None, timeout=60, count=1, since=0, alive=lambda: True):
        """The `count`-th such event. Ends early when `alive` says that nobody writes any more."""
        deadline = time.monotonic() + timeout
        while True:
            living = alive()
            found = self.find(name, where, since)
            if len(found) >= count:
                return found[count - 1]
            if not living:
                raise AssertionError(f"the server ended, {name} {where or ''} was not logged\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {name} {where or ''} in {timeout} s\n{self.tail()}")
            time.sleep(0.02)

    def tail(self, lines=60):
        return "\n".join(self.text().splitlines()[-lines:])
