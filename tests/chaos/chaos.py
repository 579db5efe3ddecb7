"""`make chaos`: a real server under load, to which everything happens that happens at 3 a.m. (docs/hardening.md).

Clients check every reply to the byte; the services write down every request that reached them; faults come from a schedule
that the seed makes. Exit status 1 when a request was lost, or answered wrongly, or anything is left behind.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

from books import Books  # noqa: E402
from client import HANG_S, Client  # noqa: E402
from faults import ALL  # noqa: E402
from yard import GROWN, Yard, host_signal  # noqa: E402

from rig import host  # noqa: E402

MIX = {"small": 40, "again": 8, "large": 6, "slow": 5, "chunks": 8, "pipelined": 6, "half_closed": 3, "big": 6, "stream": 10, "ours": 3,
       "leaving": 4, "lie": 10, "early": 1}  # fmt: skip
SETTLE_S = 60  # only a failure waits for its end
# Series that are 0 when nothing runs.
ZERO = ("plimsoll_requests_in_flight", "plimsoll_zombie_requests", "plimsoll_queue_requests", "plimsoll_queue_bytes",
        "plimsoll_budget_charged_bytes", "plimsoll_budget_orphan_bytes", "plimsoll_buffered_bytes")


class Schedule:
    """Every fault once in an order of the seed's, then by weight."""

    def __init__(self, rng, yard, only):
        self.rng, self.yard = rng, yard
        self.usable = [f for f in ALL if (not only or f.name in only) and not (yard.short and f.long and not only)
                       and not any(n in yard.why_not for n in f.needs)]  # fmt: skip
        self.first = list(self.usable)
        rng.shuffle(self.first)

    def next(self):
        may = self.yard.may_crash()
        for fault in self.first:
            if may or not fault.crashes:
                self.first.remove(fault)
                return fault
        usable = [f for f in self.usable if may or not f.crashes]
        return self.rng.choices(usable, [f.weight for f in usable])[0] if usable else None


def nothing_runs(yard):
    """What still runs or is charged; "" when nothing is."""
    values = yard.metrics()
    left = [f"{k}={v:g}" for k, v in values.items() if k.startswith(ZERO) and v != 0]
    left += [f"{k}={v:g}" for k, v in values.items() if k.startswith("plimsoll_connections{") and v > 1]
    for s in yard.sure()["services"]:
        left += [f"{s['name']}: {key} {place[key]}" for place in s.get("budget", []) for key in ("charged_bytes", "orphan_bytes") if place.get(key)]
    return ", ".join(left)


def settle(yard, books):
    deadline = time.monotonic() + SETTLE_S
    while left := nothing_runs(yard):
        if time.monotonic() > deadline:
            books.violation("orphaned", f"nothing runs, and yet {left}")
            return
        time.sleep(0.2)


def count_loads(yard, books):
    loads = yard.loads()
    yard.grown.update(e["reason"] for e in yard.server.log.find("worker.replace", lambda e: e["reason"] in GROWN))
    yard.loads_allowed["card"] += yard.grown.total()
    for name, count in loads.items():
        if count > yard.loads_allowed[name]:
            books.violation("other", f"{name} was loaded {count} times, {yard.loads_allowed[name]} were needed")
    return loads


def no_memory_ran_out(yard, books):
    """The third promise: whatever leaks and whatever else happens."""
    for e in yard.server.log.find("memory.oom"):
        books.violation("other", f"memory ran out: {e}")


def reap():
    """Orphans become children of this process: nobody else can reap them."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_by_killing_the_keeper(yard, books):
    """Then nobody is left; and the same folders serve again."""
    family = host.descendants(yard.server.pid)
    yard.server.log.mark()
    host_signal(yard.keeper_pid(), signal.SIGKILL)
    yard.server.process.wait(30)
    deadline = time.monotonic() + 30
    while left := [p for p in family if host.state_of(p) not in ("", "Z")]:
        if time.monotonic() > deadline:
            books.violation("orphaned", f"the keeper was killed and left {[host.describe(p) for p in left]}")
            break
        time.sleep(0.05)
    reap()
    for name, count in yard.workers_of.items():
        yard.loads_allowed[name] += count
    yard.server.again().ready(workers=sum(yard.workers_of.values()))


def play(args, yard, books, clients, stop):
    rng = random.Random(f"{args.seed}/faults")
    yard.rng = rng
    schedule = Schedule(rng, yard, args.only)
    for client in clients:
        client.start()
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        stop.wait(rng.uniform(0.1, 0.6 if yard.short else 1.5))
        fault = schedule.next()
        if fault is None:
            continue
        if not args.quiet:
            print(f"{time.monotonic() - books.began:7.1f} s  {books.total:8} requests  {fault.name}", flush=True)
        with books.window(fault.name, fault.allows):
            fault.act(yard)
            yard.well()
        if books.violations and args.stop:
            break
    stop.set()
    for client in clients:
        client.join(HANG_S + 30)
        if client.is_alive():
            books.violation("lost", f"{client.name} did not come back")
    books.judge()


def run(args, books):
    yard = Yard(books, random.Random(args.seed), args.seconds < 120, args.bento, args.card, not args.no_dock)
    if not args.bento:
        yard.why_not["bento"] = "--bento was not given"
    if not args.card:
        yard.why_not["card"] = "--card was not given"
    mix = {**MIX, **({"bento": 8} if args.bento else {}), **({"card": 8} if args.card else {})}
    stop = threading.Event()
    host.set_subreaper(True)
    own = set(host.descendants(os.getpid()))
    loads, receipts = {}, 0
    try:
        yard.server.ready(workers=sum(yard.workers_of.values()))
        clients = [Client(i, args.seed, yard.server.address, books, stop, mix, args.think) for i in range(args.clients)]
        play(args, yard, books, clients, stop)
        settle(yard, books)
        end_by_killing_the_keeper(yard, books)
        receipts = books.receipts(yard.receipts, {"again"})
        loads = count_loads(yard, books)
        no_memory_ran_out(yard, books)
    except Exception as e:  # the story of the run is told all the same
        books.violation("other", f"{type(e).__name__}: {e}\n{yard.server.log.tail(40)}")
    finally:
        stop.set()
        for problem in yard.server.end():
            books.violation("orphaned", problem)
        reap()
        if left := host.left_processes(lambda: own):
            books.violation("orphaned", f"processes left: {[host.describe(p) for p in left]}")
            host.end_processes(left)
        if books.violations and args.keep:
            (HERE.parents[1] / "build").mkdir(exist_ok=True)
            kept = Path(args.keep)
            kept.write_bytes(yard.server.stderr_path.read_bytes())
            print(f"the server's log: {kept}")
        yard.server.drop()
        yard.drop()
    return yard, loads, receipts


def report(args, yard, books, loads, receipts):
    print(books.table())
    for need, why in yard.why_not.items():
        print(f"left out, {need}: {why}")
    counts = books.counts()
    words = ", ".join(f"{k} {v}" for k, v in sorted(books.what.items()))
    print(f"requests {books.total} ({words})")
    print(f"reached a service {receipts}; loads {', '.join(f'{k} {v} of {yard.loads_allowed[k]} excused' for k, v in sorted(loads.items()))}")
    if args.card:
        print(f"the card's worker was replaced for what it keeps {yard.grown.total()} times ({', '.join(yard.grown)})")
    for kind, at, story in books.violations[:50]:
        print(f"{kind.upper()} at {at:.1f} s: {story}")
    print(f"seed {args.seed}: {len(books.windows)} faults, {books.total} requests, lost {counts['lost']}, wrong {counts['wrong']}, "
          f"orphaned {counts['orphaned']}, other {counts['other']}")
    if books.violations:
        print(f"again: make chaos ARGS=\"--seed {args.seed} --seconds {args.seconds:g}{' --bento' if args.bento else ''}{' --card' if args.card else ''}\"")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long faults come; from 120 on with all of them at full length")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--think", type=float, default=0.02, help="longest pause of a client between two requests, in seconds")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="only this fault; may be given again")
    parser.add_argument("--bento", action="store_true", help="a BentoML service too, with its zygote")
    parser.add_argument("--card", action="store_true", help="a PyTorch service too, which leaks on a stand-in device")
    parser.add_argument("--no-dock", action="store_true", help="without stand-in devices")
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    parser.add_argument("--keep", metavar="FILE", help="where the server's log goes after a violation")
    parser.add_argument("--quiet", action="store_true", help="the report alone")
    parser.add_argument("--list", action="store_true", help="the faults, and what may become of a request that meets one")
    args = parser.parse_args()
    if args.list:
        for f in ALL:
            print(f"{f.name:<40} {', '.join(sorted(f.allows)) or 'nothing'}")
        return 0
    if unknown := set(args.only) - {f.name for f in ALL}:
        parser.error(f"no fault is called {', '.join(sorted(unknown))}; see --list")
    if args.seed is None:
        args.seed = random.randrange(1_000_000)
    books = Books()
    yard, loads, receipts = run(args, books)
    report(args, yard, books, loads, receipts)
    return 1 if books.violations else 0


if __name__ == "__main__":
    sys.exit(main())
