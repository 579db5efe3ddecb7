"""What a start costs, from spawn to the worker's own readiness: the tables of docs/starts.md.

    . scripts/env.sh
    PLIMSOLL_BUILD=build/release "$PL_TEST_ENV/bin/python" bench/starts.py [--runs 20] [--only trivial,torch]

`bentoml serve`, a worker by exec and a worker from the zygote take turns, so that a busy machine is busy for all of
them. CPU is that of the processes that do the work (of `bentoml serve` all of its family), wall time the medians. The
model is next to nothing, so that what is measured is the start. PyTorch runs in a dry dock. Then: memory of four
workers, and the first request after the warm-up against the settled ones.
"""

import argparse
import http.client
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from rig import dock, host, paths  # noqa: E402
from rig.server import Server, clean_environment  # noqa: E402

TRIVIAL = {"target": "service:Simple", "folder": "simple", "name": "simple", "call": ("/predict", {"text": "hello"})}
TORCH = {"target": "on_cuda:Double", "folder": ROOT / "bench/service", "name": "double", "call": ("/double", {"x": 3})}
REST_S = 0.3  # before a request that is not one of a row


def cpu_ms(pid):
    """CPU of a process and all its threads, to the microsecond."""
    return time.clock_gettime((~pid << 3) | 2) * 1e3


def pss_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def family_cpu_ms(pid):
    """Living members by their clocks, ended ones by what their parents have counted (10 ms steps)."""
    total = 0.0
    for member in [pid, *host.descendants(pid)]:
        try:
            fields = pathlib.Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            total += cpu_ms(member) + sum(map(int, fields[13:15])) * 1000 / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue
    return total


class Bench:
    def __init__(self, what, torch):
        self.what, self.torch = what, torch
        self.python = dock.torch_python() if torch else paths.python
        self.cache = tempfile.mkdtemp(prefix="pl-starts-")
        self.before = [paths.plimsoll, "drydock", "-q", "--gpu", "mine:8GiB", "--"] if torch else []
        self.env = {"PLIMSOLL_CACHE": self.cache, f"PLIMSOLL__SERVICES__{what['name'].upper()}__ZYGOTE__AFTER": "0s"}
        self.port = 21970

    def server(self, *flags):
        return Server(
            self.what["target"],
            "--logs.access",
            "off",
            *flags,
            service=self.what["folder"],
            python=self.python,
            before=self.before,
            env=self.env,
        ).ready()

    def bentoml_serve(self):
        self.port += 1
        words = [
            *map(str, self.before),
            str(self.python),
            "-m",
            "bentoml",
            "serve",
            self.what["target"],
            "--port",
            str(self.port),
            "--host",
            "127.0.0.1",
        ]
        env = {**clean_environment(), "BENTOML_DO_NOT_TRACK": "True", "PLIMSOLL_CACHE": self.cache}
        started = time.monotonic()
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                words, cwd=paths.services / self.what["folder"], env=env, stdout=log, stderr=log, start_new_session=True
            )
            while True:
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                    connection.request("GET", "/readyz")
                    if connection.getresponse().status == 200:
                        break
                except (OSError, http.client.HTTPException):
                    assert process.poll() is None and time.monotonic() - started < 120, "bentoml serve does not come up"
                    time.sleep(0.01)
            row = {"wall_ms": (time.monotonic() - started) * 1e3, "cpu_ms": family_cpu_ms(process.pid)}
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        return row

    def restart(self, server, ways):
        """A new worker in place of the old one: what it had used when its socket was ready."""
        mark = server.log.mark()
        assert server.verb("restart", self.what["name"], "--no-wait").returncode == 0
        ready = server.wait_for("worker.ready", since=mark)
        spawned = server.log.find("worker.spawned", since=mark)[0]
        assert spawned["way"] in ways, server.log.tail(10)
        socket = server.log.find("worker.socket", since=mark)[0]
        row = {"wall_ms": socket["since_spawn_ms"], "cpu_ms": cpu_ms(spawned["pid"])}
        server.wait_for("worker.gone", since=mark)
        assert ready["generation"] == spawned["generation"]
        return row

    def starts(self, runs):
        rows = {"bentoml serve": [], "exec": [], "zygote": []}
        by_exec = self.server("--zygote.use", "off", "--warmup.examples", "off")
        forked = self.server("--warmup.examples", "off")
        zygote = forked.wait_for("zygote.ready", timeout=120)["pid"]
        before = cpu_ms(zygote)
        for _ in range(runs):
            rows["bentoml serve"].append(self.bentoml_serve())
            rows["exec"].append(self.restart(by_exec, ("exec",)))
            rows["zygote"].append(self.restart(forked, ("standby", "fork")))
        beside = (cpu_ms(zygote) - before) / runs
        by_exec.end()
        forked.end()
        return rows, beside

    def memory(self):
        """MiB of four workers: by exec, and forked with the zygote and its standby."""
        sums = []
        for use in ("off", "auto"):
            server = self.server("--zygote.use", use, "--workers", "4")
            server.wait_for("worker.ready", count=4)
            pids = []
            if use == "auto":
                pids.append(server.wait_for("zygote.ready", timeout=120)["pid"])
                mark = server.log.mark()
                assert server.verb("restart", self.what["name"], timeout=300).returncode == 0
                server.wait_for("worker.gone", since=mark, count=4)
                zygote = pids[0]
                pids += [p for p in host.descendants(server.pid) if os.getsid(p) == zygote and p != zygote]
            path, body = self.what["call"]
            for _ in range(40):
                assert server.post(path, body).status == 200
            pids += server.workers().values()
            sums.append(sum(map(pss_mib, pids)))
            server.end()
        return sums

    def first_request(self, runs):
        """ms of CPU of the first request after the warm-up, of a settled one after a rest as long, and of settled ones
        in a row. A rest costs by itself: the processor's caches belong to others meanwhile."""
        firsts, rested, settled = [], [], []
        server = self.server()
        server.wait_for("zygote.ready", timeout=120)
        path, body = self.what["call"]
        for _ in range(runs):
            self.restart(server, ("standby", "fork"))
            (pid,) = server.workers().values()

            def cost(rest_s=0.0, pid=pid):
                time.sleep(rest_s)
                before = cpu_ms(pid)
                assert server.post(path, body).status == 200
                return cpu_ms(pid) - before

            firsts.append(cost(REST_S))
            settled.append(statistics.median([cost() for _ in range(30)][-15:]))
            rested.append(statistics.median(cost(REST_S) for _ in range(5)))
        server.end()
        return [statistics.median(costs) for costs in (firsts, rested, settled)]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--runs", type=int, default=20)
    args.add_argument("--only", default="trivial,torch")
    args = args.parse_args()
    for name in args.only.split(","):
        bench = Bench(TORCH if name == "torch" else TRIVIAL, name == "torch")
        rows, beside = bench.starts(args.runs)
        serve = statistics.median(r["cpu_ms"] for r in rows["bentoml serve"])
        print(f"\n{name}: medians of {args.runs}; beside it the zygote spends {beside:.1f} ms of CPU a worker")
        for way, all_of in rows.items():
            wall, cpu = (statistics.median(r[k] for r in all_of) for k in ("wall_ms", "cpu_ms"))
            print(
                f"  {way:14} wall {wall:7.0f} ms (min {min(r['wall_ms'] for r in all_of):6.0f})   "
                f"CPU {cpu:7.1f} ms   {cpu / serve:6.3f}",
                flush=True,
            )
        first, rested, settled = bench.first_request(min(args.runs, 7))
        print(
            f"  first request after warm-up {first:.2f} ms of CPU, a settled one after a rest {rested:.2f} ms: "
            f"{first / rested:.2f} (in a row {settled:.2f} ms)",
            flush=True,
        )
        direct, forked = bench.memory()
        print(
            f"  four workers: {direct:.0f} MiB by exec, {forked:.0f} MiB with zygote and standby: "
            f"{forked / direct:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
