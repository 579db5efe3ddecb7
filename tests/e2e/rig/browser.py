"""A real Chromium without a screen, spoken to in its DevTools protocol over two pipes: no port, no driver."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
LIMIT_S = 60


class Browser:
    """One page. What its console says and what it throws is kept in `complaints`."""

    def __init__(self, folder, width=1280, height=1600, dark=False, mobile=False):
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", f"--user-data-dir={folder}",
                 "--remote-debugging-pipe", "about:blank"]
        script = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        self.process = subprocess.Popen(["bash", "-c", script, "bash", *words], pass_fds=(to_read, from_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(from_write)
        self._pending, self._number, self.complaints, self._session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def close(self):
        try:
            self._session = None
            self.call("Browser.close")
        except (OSError, AssertionError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._to)
        os.close(self._from)
        self._reap()

    @staticmethod
    def _reap():
        """Its helpers have sessions of their own; orphaned they are ours, and every test looks for who is left."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ChildProcessError):
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
                if int(rest.split()[1]) == os.getpid() and "chrom" in name:
                    os.waitpid(int(stat.parent.name), 0)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()

    def _message(self, deadline):
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._from, 1 << 20)
            if not more:
                raise OSError("the browser is gone")
            self._pending += more
        one, _, self._pending = self._pending.partition(b"\0")
        return json.loads(one)

    def call(self, method, **params):
        self._number += 1
        order = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            told = self._message(deadline)
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._hear(told)

    def _hear(self, told):
        what, params = told.get("method"), told.get("params", {})
        if what == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:600])
        elif what == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif what == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
            self.complaints.append(json.dumps(params["args"])[:600])

    def go(self, url):
        self.call("Page.navigate", url=url)

    def ask(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait_for(self, expression, what=""):
        deadline = time.monotonic() + LIMIT_S
        while True:
            value = self.ask(expression)
            if value:
                return value
            assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what or expression}\n{self.ask('document.body.innerText')}"
            select.select([self._from], [], [], 0.1)

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0),
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def text(self):
        return self.ask("document.body.innerText")

    def shot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
