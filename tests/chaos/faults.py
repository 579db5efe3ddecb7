"""What is done to the server, and what may become of a request that meets it: nothing, unless `allows` says more.

A fault takes the yard, does its harm, and returns when the harm is over; that all is well again is asked for behind it,
while its window is open. Loads of a model that follow from it are added to `yard.loads_allowed`.
"""

import dataclasses
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import threading
import time

import backend
from client import Cut, Outcome, Wire, Wrong, head, is_refusal, with_length
from yard import HEALTHY_S, Limit, Traced, host_signal

from rig import host, paths
from rig.server import clean_environment

DIED = {"502", "503", "cut"}  # a worker had it
KILLED = {"cut"}  # main had it
HELD_UP = {"429", "503", "504"}  # a worker does not go on


@dataclasses.dataclass
class Fault:
    name: str
    act: object
    allows: frozenset
    weight: int
    crashes: int
    needs: tuple
    long: bool


ALL = []


def fault(name, allows=(), weight=2, crashes=0, needs=(), long=False):
    """`crashes`: of main. `needs`: what the yard may lack. `long`: not in the short form."""

    def add(act):
        ALL.append(Fault(name, act, frozenset(allows), weight, crashes, tuple(needs), long))
        return act

    return add


def some_service(yard):
    return yard.rng.choice(sorted(yard.workers_of))


def kill_worker(yard, name=None):
    name = name or some_service(yard)
    if pids := yard.workers(name):
        yard.kill_worker(name, yard.rng.choice(pids))


def kill(pid):
    host_signal(pid, signal.SIGKILL)


# ---- workers


@fault("worker killed", DIED, weight=6)
def worker_killed(yard):
    kill_worker(yard)
    yard.pause(0.1, 0.6)


@fault("worker stopped, goes on", HELD_UP, weight=4)
def worker_stopped(yard):
    if pids := yard.workers(some_service(yard)):
        yard.stopped(yard.rng.choice(pids), 0.3, 4)


@fault("every worker of a service killed", DIED, weight=2)
def all_killed(yard):
    name = some_service(yard)
    for pid in yard.workers(name):
        yard.kill_worker(name, pid)


# ---- main


@fault("main killed", KILLED, weight=4, crashes=1)
def main_killed(yard):
    yard.crash(kill)


@fault("main stopped, goes on", weight=3)
def main_stopped(yard):
    yard.stopped(yard.main(), 0.2, 1.6)


@fault("main stopped for ever", KILLED, weight=2, crashes=1, long=True)
def main_hung(yard):
    yard.crash(lambda main: host_signal(main, signal.SIGSTOP))


def hold_thread(yard, pick, least, most):
    threads = yard.threads(yard.main())
    name, tid = pick(threads)
    try:
        with Traced(tid):
            yard.pause(least, most)
    except ProcessLookupError:  # a thread of SQLite's or the pool's that ended
        pass
    return name


@fault("a thread of main held", weight=5, needs=("trace",))
def thread_held(yard):
    """In turn: another one at each call."""
    yard.turn = getattr(yard, "turn", 0) + 1
    hold_thread(yard, lambda threads: threads[yard.turn % len(threads)], 0.4, 1.8)


@fault("main's loop held for ever", KILLED, weight=1, crashes=1, needs=("trace",), long=True)
def loop_held(yard):
    def act(main):
        with Traced(main):
            yard.until(lambda: host.state_of(main) in ("", "Z"), "the keeper has ended a main whose loop does not run")

    yard.crash(act)


# ---- the keeper and its other children


@fault("watch killed")
def watch_killed(yard):
    if pid := yard.watch():
        kill(pid)


@fault("watch stopped, goes on")
def watch_stopped(yard):
    if pid := yard.watch():
        yard.stopped(pid, 0.5, 7)


@fault("zygote killed", needs=("bento",))
def zygote_killed(yard):
    if pid := yard.zygote():
        kill(pid)


@fault("zygote stopped under a start", DIED, needs=("bento",))
def zygote_stopped(yard):
    if pid := yard.zygote():
        host_signal(pid, signal.SIGSTOP)
        kill_worker(yard, "bento")
        yard.pause(1, 3)
        host_signal(pid, signal.SIGCONT)


@fault("keeper stopped, goes on", weight=2)
def keeper_stopped(yard):
    yard.stopped(yard.keeper(), 0.3, 3)


@fault("keeper stopped under a worker's death", DIED, weight=2)
def keeper_stopped_death(yard):
    keeper = yard.keeper()
    host_signal(keeper, signal.SIGSTOP)
    kill_worker(yard)
    yard.pause(0.3, 2)
    host_signal(keeper, signal.SIGCONT)


# ---- disk, descriptors, memory, clock


@fault("disk full", needs=("disk",))
def disk_full(yard):
    fill = yard.state / "fill"
    yard.on_disk("dd", "if=/dev/zero", f"of={fill}", "bs=64k")
    try:
        yard.pause(1, 5)
    finally:
        yard.on_disk("rm", "-f", fill)


@fault("disk read-only at a start of main", KILLED, crashes=1, needs=("disk",))
def disk_read_only(yard):
    """Nobody can make a disk read-only while a file on it is open for writing: main is dead at that moment."""
    keeper = yard.keeper()

    def act(main):
        host_signal(keeper, signal.SIGSTOP)
        try:
            kill(main)
            # its last thread closes the files
            yard.until(lambda: yard.on_disk("mount", "-o", "remount,ro", yard.state).returncode == 0, "the disk is read-only")
        finally:
            host_signal(keeper, signal.SIGCONT)

    try:
        yard.crash(act)
        yard.well()
        yard.pause(1, 4)
    finally:
        yard.on_disk("mount", "-o", "remount,rw", yard.state)


@fault("descriptors exhausted", {"503", "429"}, weight=2)
def descriptors_exhausted(yard):
    main = yard.main()
    with Limit(main, resource.RLIMIT_NOFILE, len(os.listdir(f"/proc/{main}/fd")) + yard.rng.randrange(2, 30)):
        threads = [threading.Thread(target=knock, args=(yard, i)) for i in range(60)]
        for t in threads:
            t.start()
        yard.pause(0.5, 2)
    for t in threads:
        t.join()


def knock(yard, i):
    """A connection more than there is room for: it waits, and is served."""
    request_id, began = f"knock-{time.monotonic_ns()}-{i}", time.monotonic()
    body = b"knock"

    def check(wire):
        wire.send(with_length("/echo/echo", request_id, body))
        return what_came(wire, request_id, body)

    note_raw(yard, request_id, "knock", began, check)


def what_came(wire, request_id, body):
    """The echo of this body, or a refusal; anything else is wrong."""
    reply = wire.reply()
    if is_refusal(reply):
        return str(reply.status), repr(reply.body[:160])
    if reply.status != 200 or reply.body != backend.echo_of(request_id, body):
        raise Wrong(f"status {reply.status}, {len(reply.body)} bytes: {reply.body[:100]!r}")
    return "ok", ""


def note_raw(yard, request_id, kind, began, check):
    what, detail = "hang", ""
    try:
        wire = Wire(yard.server.address)
        try:
            what, detail = check(wire)
        finally:
            wire.sock.close()
    except Wrong as e:
        what, detail = "wrong", str(e)
    except Cut as e:
        what, detail = "cut", str(e)
    except TimeoutError as e:
        what, detail = "hang", repr(e)
    except OSError as e:
        what, detail = "refused", repr(e)
    yard.books.note(Outcome(request_id, kind, began, what, detail, time.monotonic()))


@fault("main at its memory limit", {"503", "429", "413", "502", "cut"}, weight=2, needs=("addresses",))
def memory_limit(yard):
    """No more addresses than it has, and a crowd of uploads that would be kept: it sheds, and the same main lives."""
    main = yard.main()
    with Limit(main, resource.RLIMIT_AS, host.address_bytes(main) + yard.rng.randrange(1, 6 << 20)):
        threads = [threading.Thread(target=upload, args=(yard, i, yard.rng.random())) for i in range(12)]
        for t in threads:
            t.start()
        for _ in range(10):  # who asks what is wrong just then is answered, or is not: it must not be the last straw
            yard.status()
        for t in threads:
            t.join()
        yard.pause(0.2, 1)
    if yard.main() != main:
        yard.books.violation("lost", f"main (pid {main}) did not survive its memory limit")
        yard.crashes.append(time.monotonic())


def upload(yard, i, luck):
    request_id, began = f"upload-{time.monotonic_ns()}-{i}", time.monotonic()
    body = random.Random(luck).randbytes(int(1_000_000 + luck * 6_000_000))

    def check(wire):
        data = with_length("/echo/echo", request_id, body)
        for at in range(0, len(data), 200_000):
            if not wire.send(data[at:at + 200_000]):
                break
            time.sleep(0.005)
        return what_came(wire, request_id, body)

    note_raw(yard, request_id, "upload", began, check)


@fault("wall clock jumps", needs=("clock",))
def clock_jumps(yard):
    for seconds in yard.rng.sample([3600, -3600, 40 * 86400, -86400, 10 * 365 * 86400, -1_700_000_000], 3):
        yard.clock_offset(seconds)
        yard.pause(0.3, 1.5)
    yard.clock_offset(0)


# ---- devices


def on_device(yard, text, least, most):
    yard.fault(f"0={text}")
    try:
        yard.pause(least, most)
    finally:
        yard.fault("0=none")


@fault("device silent", {"503"}, needs=("dock",))
def device_silent(yard):
    on_device(yard, "silent", 2, 8)


@fault("device lost", {"503", "500"}, needs=("dock",))
def device_lost(yard):
    on_device(yard, "lost", 0.5, 4)


@fault("device tells an Xid", needs=("dock",))
def device_xid(yard):
    on_device(yard, "xid:79", 0.2, 1)


# ---- clients


@fault("ten thousand idle connections")
def idle_crowd(yard):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2000 if yard.short else 10_000, hard - 1500)  # the crowd's process and main have as many each
    crowd = yard.crowd(count)
    held = int(crowd.stdout.readline() or 0)
    yard.pause(0.5, 4)
    crowd.stdin.close()
    alive = int(crowd.stdout.readline() or 0)
    crowd.wait()
    crowd.stdout.close()
    if held != count:
        yard.books.violation("lost", f"of {count} idle connections {held} were served")
    if alive != held:
        yard.books.violation("lost", f"of {held} idle connections {alive} were still open")


@fault("half-open connections")
def half_open(yard):
    began = [head("POST", "/echo/echo", "half", "Content-Length: 100000")[:n] for n in (0, 1, 20, 60)]
    began.append(head("POST", "/echo/echo", "half", "Content-Length: 100000") + b"x" * 5000)
    socks = []
    for i in range(100 if yard.short else 400):
        try:
            sock = socket.create_connection(yard.server.address, timeout=30)
            sock.sendall(began[i % len(began)])
            socks.append(sock)
        except OSError:
            break
    yard.pause(0.5, 3)
    for i, sock in enumerate(socks):
        if i % 2 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()


# ---- orders


@fault("live setting reloaded", weight=2)
def reload_live(yard):
    yard.settings["head"] = 8 + (yard.settings["head"] - 7) % 5
    yard.write_config()
    must(yard, yard.reload(), 0)


@fault("file that is refused reloaded")
def reload_refused(yard):
    good = yard.config.read_text()
    yard.config.write_text(good.replace("queue:", "quue:"))
    must(yard, yard.reload(), 3)
    yard.config.write_text(good)


@fault("new generation reloaded", weight=2)
def reload_generation(yard):
    yard.settings["echo_generation"] += 1
    yard.write_config()
    yard.loads_allowed["echo"] += yard.workers_of["echo"]
    must(yard, yard.reload(), 0)


@fault("service restarted", weight=2)
def restarted(yard):
    name = some_service(yard)
    yard.loads_allowed[name] += yard.workers_of[name]
    must(yard, yard.verb("restart", name), 0)


@fault("upgraded", weight=4)
def upgraded(yard):
    done = yard.verb("upgrade")
    refusals = ("still finishes what is open", "requests wait for a worker")
    if not any(words in done.stdout + done.stderr for words in refusals):
        must(yard, done, 0)


def must(yard, done, status):
    if done.returncode != status:
        yard.books.violation("other", f"{' '.join(map(str, done.args[1:3]))} ended with {done.returncode}: {done.stdout} {done.stderr}")


# ---- two at a time


def started(yard, *words):
    return subprocess.Popen([paths.plimsoll, *words, "--admin", yard.server.run_dir / "admin.sock"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())


@fault("main and a worker killed", DIED | KILLED, crashes=1)
def both_killed(yard):
    def act(main):
        kill_worker(yard)
        kill(main)

    yard.crash(act)


@fault("main killed in a restart", KILLED, crashes=1, long=True)
def killed_in_restart(yard):
    name = some_service(yard)
    yard.loads_allowed[name] += yard.workers_of[name]
    verb = started(yard, "restart", name)
    yard.pause(0, 0.6)
    yard.crash(kill)
    verb.wait(HEALTHY_S)


@fault("main killed in an upgrade", KILLED, crashes=1, long=True)
def killed_in_upgrade(yard):
    verb = started(yard, "upgrade")
    yard.pause(0, 0.12)
    yard.crash(kill)
    verb.wait(HEALTHY_S)


@fault("worker killed in an upgrade", DIED, weight=2)
def worker_killed_in_upgrade(yard):
    verb = started(yard, "upgrade")
    yard.pause(0, 0.1)
    kill_worker(yard)
    verb.wait(HEALTHY_S)


@fault("worker killed in a restart", DIED, weight=2)
def worker_killed_in_restart(yard):
    name = some_service(yard)
    yard.loads_allowed[name] += yard.workers_of[name]
    verb = started(yard, "restart", name)
    yard.pause(0, 0.5)
    kill_worker(yard, name)
    verb.wait(HEALTHY_S)
