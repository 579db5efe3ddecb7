"""`bentoml serve` and `plimsoll serve` with the same BentoML service: start, cost of a request, a killed worker."""

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from stack import HERE, LOAD_CORE, PROXY_CORE, cpu_us, end, free_port, pinned, plimsoll_env, plimsoll_words, tree

PATIENCE_S = 60
WORKER = re.compile(rb"\0-m\0(_bentoml_impl\.worker\.service|plimsoll\.worker)\0|_bentoml_impl/worker/service\.py")


def state_of(pid):
    """The letter of /proc/PID/stat; X: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class Bento:
    """One of the two, started now."""

    def __init__(self, folder, name, service="service:Double", python=sys.executable, before=(), cwd=HERE / "service",
                 env=None, lane="auto", log="bento"):
        """`before`: words of our binary in front of `serve`, such as a dry dock."""
        self.name, self.port = name, free_port()
        env = {**plimsoll_env(folder), **(env or {})}
        del env["BENCH_CORE"]
        if name.startswith("plimsoll"):
            words, _ = plimsoll_words(folder, log, self.port, python, service)
            words = [words[0], *before, *(words if before else words[1:]), "--fast_lane", lane]
        else:
            words = [sys.executable, "-m", "bentoml", "serve", service, "--host", "127.0.0.1", "--port", str(self.port)]
        self.log = open(folder / f"{log}-{name.partition(',')[0].replace(' ', '-')}.log", "wb")
        self.began = time.monotonic()
        self.process = subprocess.Popen(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, preexec_fn=pinned(PROXY_CORE))

    def ask(self, path, body=None, timeout=1):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            conn.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"} if body else {})
            return conn.getresponse().status
        except OSError:
            return 0
        except http.client.HTTPException:
            return 0
        finally:
            conn.close()

    def wait(self, what):
        """Seconds until `what()` is 200."""
        began = time.monotonic()
        while what() != 200:
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"bench: {self.name} is not ready; its log is {self.log.name}")
            time.sleep(0.01)
        return time.monotonic() - began

    def ready(self):
        self.wait(lambda: self.ask("/readyz"))
        return {"wall_s": time.monotonic() - self.began, "cpu_s": cpu_us(tree(self.process.pid)) / 1e6}

    def worker(self):
        """The process that runs the service. The arbiter of `bentoml serve` has imported it too, and may have used more
        CPU so far."""
        for pid in tree(self.process.pid):
            if WORKER.search(Path(f"/proc/{pid}/cmdline").read_bytes()):
                return pid
        raise SystemExit(f"bench: {self.name} has no worker; its log is {self.log.name}")

    def kill(self):
        """The worker is killed; seconds until a request that came after its death is answered."""
        worker = self.worker()
        os.kill(worker, signal.SIGKILL)
        while state_of(worker) not in "ZX":
            time.sleep(0.001)
        return self.wait(lambda: self.ask("/double", b'{"x": 1}', timeout=PATIENCE_S))

    def stop(self):
        end(self.process)
        self.log.close()


def measure(folder, rounds, wrk):
    """{name: [figures of each round]}"""
    found = {"bentoml serve": [], "plimsoll": []}
    for _ in range(rounds):
        for name, rows in found.items():
            bento = Bento(folder, name)
            try:
                figures = bento.ready()
                for _ in range(20):
                    bento.ask("/double", b'{"x": 1}')
                pids, worker = tree(bento.process.pid), bento.worker()
                before, before_worker = cpu_us(pids), cpu_us([worker])
                run = wrk(bento.port, "/double", 32, 2, script="double.lua", core=LOAD_CORE)
                figures["all_us"] = (cpu_us(pids) - before) / run["requests"]
                figures["worker_us"] = (cpu_us([worker]) - before_worker) / run["requests"]
                figures["errors"] = run["errors"]
                time.sleep(1)  # the load's last requests end
                figures["kill_s"] = bento.kill()
            finally:
                bento.stop()
            rows.append(figures)
    return found
