"""Workers that a zygote forks for the keeper: theirs in every respect, or started by exec."""

import os
import signal
import socket
import struct

import keeper_wire as wire
import pytest
from keeper_rig import SLEEP, alive, wait_dead, wait_output

# A zygote as python/plimsoll/zygote.py is one, in a few lines: what it does with an order is its argument's.
ZYGOTE = """
import ctypes, os, signal, socket, struct, sys, time
how, keeper = sys.argv[1], os.getppid()
orders = socket.socket(fileno=5)
def standby(link):
    while os.getppid() != keeper:
        if not os.path.exists(f'/proc/{keeper}'):
            os._exit(0)
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    link.send(b'x')
    data, fds, _, _ = socket.recv_fds(link, 200, 6)
    if not data:
        os._exit(0)
    if how == 'dies':
        os._exit(0)
    answer = socket.socket(fileno=fds[0])
    if how == 'late':
        answer.recv(1)  # until nobody waits for it any more
    magic = 0 if how == 'foreign' else 0x4f5a4c50
    os.setsid()
    try:
        answer.send(struct.pack('<II', magic, 1))
        if not answer.recv(1):
            os._exit(3)
    except OSError:
        os._exit(3)
    os.dup2(fds[2], 1)
    flags, generation = struct.unpack_from('<IQ', data, 4)
    print('forked', os.getpid() == os.getsid(0), generation, data[16:].split(b'\\0')[0].decode(), len(fds), flags, flush=True)
    if how == 'ends':
        os._exit(7)
    while True:
        signal.pause()
def fork():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            ours.close()
            standby(theirs)
        os._exit(0)
    theirs.close()
    os.waitpid(middle, 0)
    ours.recv(1)
    return ours
while True:
    link = fork()
    print('ready', flush=True)
    data, fds, _, _ = socket.recv_fds(orders, 200, 6)
    if not data or how == 'refuses':
        break
    if how == 'silent':
        while True:
            signal.pause()
    socket.send_fds(link, [data], fds)
    for fd in fds:
        os.close(fd)
"""


def zygote_of(main, how):
    zygote = main.python(ZYGOTE, how, flags=wire.ASIDE | wire.ZYGOTE, name=b"zygote")
    wait_output(zygote, "ready")
    return zygote


def ask(main, zygote, flags=3, words=SLEEP, **order):
    """(worker, its end): two sockets go along, whose other ends are closed at the end."""
    pair = socket.socketpair()
    given = [one.fileno() for one, flag in zip(pair, (1, 2)) if flags & flag]
    worker = main.spawn(*words, flags=flags, fds=given, zygote=zygote.generation, **order)
    for one in pair:
        one.close()
    return worker


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_a_forked_worker_is_the_keepers_own(keeper, flags):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "stays")
    worker = ask(main, zygote, flags)
    assert worker.pid == 0, "told before there was anybody"
    running = main.wait_exit(wire.RUNNING, worker)
    assert running.exec_step == wire.STANDBY and running.exec_errno == 0
    wait_output(worker, "forked")
    count = 4 + bin(flags).count("1")
    assert worker.output() == f"forked True 1 PLIMSOLL_GENERATION={main.boot:x}.1 {count} {flags}\n"
    with open(f"/proc/{running.pid}/stat") as f:
        assert int(f.read().rpartition(")")[2].split()[1]) == k.pid
    assert main.generations()[worker.generation][0].pid == running.pid
    main.send_signal(worker, signal.SIGTERM)
    ended = main.wait_exit(wire.EXITED, worker)
    assert os.WTERMSIG(ended.status) == signal.SIGTERM
    assert main.wait_exit(wire.GONE, worker).strays == 0
    assert alive(zygote.pid)
    assert k.stop(main) == 0


def test_its_exit_status_and_its_use_are_those_of_a_child(keeper):
    main = keeper().main()
    worker = ask(main, zygote_of(main, "ends"))
    ended = main.wait_exit(wire.EXITED, worker)
    assert os.WEXITSTATUS(ended.status) == 7
    assert ended.max_rss_kib > 0
    main.wait_exit(wire.GONE, worker)
    assert worker.output().startswith("forked")


@pytest.mark.parametrize("how", ["refuses", "dies", "foreign", "silent"])
def test_a_zygote_that_does_not_do_it_costs_nothing_but_an_exec(keeper, how):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, how)
    worker = ask(main, zygote)
    running = main.wait_exit(wire.RUNNING, worker)
    assert running.exec_step == wire.REFUSED_WAY
    assert os.readlink(f"/proc/{running.pid}/exe").endswith("sleep")
    k.line("keeper.zygote_refused")
    if how == "silent":
        assert os.WTERMSIG(main.wait_exit(wire.EXITED, zygote).status) == signal.SIGKILL
    assert k.stop(main) == 0


def test_one_that_comes_too_late_is_not_wanted_and_ends(keeper):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "late")
    worker = ask(main, zygote)
    running = main.wait_exit(wire.RUNNING, worker)
    assert running.exec_step == wire.REFUSED_WAY
    main.wait_exit(wire.GONE, zygote)
    children = [int(p) for p in open(f"/proc/{k.pid}/task/{k.pid}/children").read().split()]
    assert sorted(children) == sorted([main.pid, running.pid])
    assert worker.output() == ""


def test_a_zygote_that_is_not_there_means_exec(keeper):
    main = keeper().main()
    ordinary = main.spawn(*SLEEP)
    for number in (ordinary.generation, 77):
        worker = main.spawn(*SLEEP, zygote=number)
        assert worker.pid > 0
        assert main.wait_exit(wire.RUNNING, worker).exec_step == wire.REFUSED_WAY


def test_a_signal_sent_before_there_is_anybody_waits(keeper):
    main = keeper().main()
    zygote = zygote_of(main, "silent")
    worker = ask(main, zygote)
    main.send_signal(worker, signal.SIGTERM, kill_ms=30000)
    ended = main.wait_exit(wire.EXITED, worker)
    assert os.WTERMSIG(ended.status) == signal.SIGTERM


def test_a_program_that_cannot_be_run_is_told_of_after_a_refusal_too(keeper):
    main = keeper().main()
    worker = ask(main, zygote_of(main, "refuses"), words=("/none",))
    ended = main.wait_exit(wire.EXITED, worker)
    assert (ended.exec_step, ended.exec_errno) == (8, 2)


def test_a_killed_zygote_leaves_its_workers_and_its_standby_goes(keeper):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "stays")
    worker = ask(main, zygote)
    pid = main.wait_exit(wire.RUNNING, worker).pid
    wait_output(zygote, "ready\nready")
    os.kill(zygote.pid, signal.SIGKILL)
    main.wait_exit(wire.GONE, zygote)
    assert alive(pid)
    children = {int(p) for p in open(f"/proc/{k.pid}/task/{k.pid}/children").read().split()}
    assert children == {main.pid, pid}
    again = ask(main, zygote)
    assert main.wait_exit(wire.RUNNING, again).exec_step == wire.REFUSED_WAY


def test_a_killed_keeper_takes_zygote_standby_and_workers_along(keeper):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "stays")
    worker = ask(main, zygote)
    main.wait_exit(wire.RUNNING, worker)
    wait_output(zygote, "ready\nready")
    wait_output(worker, "forked")
    family = [int(p) for p in open(f"/proc/{k.pid}/task/{k.pid}/children").read().split()]
    assert len(family) == 4
    k.signal(signal.SIGKILL)
    for pid in family:
        wait_dead(pid)


def test_the_next_main_adopts_one_that_is_still_being_forked(keeper):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "silent")
    worker = ask(main, zygote)
    main.kill()
    second = k.main()
    exits = second.generations()
    assert exits[worker.generation][0].pid == 0
    assert second.wait_exit(wire.RUNNING, worker).pid > 0


def test_many_in_a_row_leave_nothing(keeper):
    k = keeper()
    main = k.main()
    zygote = zygote_of(main, "ends")
    before = None
    for round_ in range(60):
        worker = ask(main, zygote)
        main.wait_exit(wire.GONE, worker)
        assert main.forget(worker).kind == wire.DONE
        for fd in (worker.page_fd, worker.ring_fd):
            os.close(fd)
            main.fds.remove(fd)
        if round_ == 5:
            before = k.descriptors()
    assert k.descriptors() == before


def test_a_control_socket_of_main_is_not_for_a_zygote(keeper):
    main = keeper().main()
    pair = socket.socketpair()
    got = main.ask(wire.SPAWN, wire.spawn(flags=wire.ZYGOTE | wire.CONTROL), [pair[0].fileno(), pair[1].fileno()])
    assert got.error == "EINVAL"


def test_an_order_of_an_older_main_knows_no_zygote(keeper):
    main = keeper().main()
    recipe = os.memfd_create("recipe")
    os.write(recipe, wire.recipe(SLEEP))
    got = main.ask(wire.SPAWN, wire.spawn()[:-8], [recipe])
    assert got.kind == wire.SPAWNED and struct.unpack_from("<QI", got.body)[1] > 0
    os.close(recipe)
