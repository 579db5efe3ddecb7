"""Workers as the keeper runs them: descriptors, pages, output, ends, sockets."""

import ctypes
import errno
import os
import signal
import socket
import struct

import keeper_wire as wire
import pytest
from keeper_rig import DEAF, SLEEP, alive, memfd, needs_root, wait_dead, wait_file, wait_output

# --- the life of a worker ---


def test_a_worker_runs_and_its_end_comes_in_order(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP, name=b"digits/1")
    assert main.wait_exit(wire.RUNNING, worker).pid == worker.pid
    assert os.readlink(f"/proc/{worker.pid}/exe").endswith("sleep")
    assert main.forget(worker).error == "EBUSY"
    main.send_signal(worker, signal.SIGTERM)
    ended = main.wait_exit(wire.EXITED, worker)
    gone = main.wait_exit(wire.GONE, worker)
    assert (os.WTERMSIG(ended.status), ended.exec_errno, gone.strays) == (signal.SIGTERM, 0, 0)
    assert main.ask(wire.SIGNAL, struct.pack("<QII", worker.generation, 15, 0)).error == "ESRCH"
    assert main.forget(worker).kind == wire.DONE
    assert main.forget(worker).error == "ENOENT"
    assert main.generations() == {}
    assert k.stop(main) == 0


def test_a_worker_that_ignores_the_stop_is_killed_when_its_time_is_over(keeper):
    main = keeper().main()
    worker = main.spawn(*DEAF)
    wait_output(worker, "deaf")
    main.send_signal(worker, signal.SIGTERM, kill_ms=50)
    assert os.WTERMSIG(main.wait_exit(wire.EXITED, worker).status) == signal.SIGKILL
    main.wait_exit(wire.GONE, worker)


@pytest.mark.parametrize("content, step, number", [
    (struct.pack("<II", 0, 0) + b"/\0", 2, errno.EBADMSG),
    (struct.pack("<II", 5, 0) + b"/\0a\0", 2, errno.EBADMSG),
    (struct.pack("<II", 1, 0) + b"/\0abc", 2, errno.EBADMSG),
    (b"x" * (2 << 20), 2, errno.EMSGSIZE),
    (b"", 2, errno.EMSGSIZE),
    (wire.recipe(["/bin/true"], folder="/none"), 7, errno.ENOENT),
    (wire.recipe(["/none"]), 8, errno.ENOENT),
    (wire.recipe(["/proc/version"]), 8, errno.EACCES),
])
def test_a_failed_exec_is_reported_with_step_and_errno(keeper, content, step, number):
    main = keeper().main()
    recipe = memfd(content)
    got = main.ask(wire.SPAWN, wire.spawn(), [recipe])
    generation = struct.unpack_from("<Q", got.body)[0]
    ended = wire.Exit(main.wait(wire.EXITED, generation))
    assert (ended.exec_step, ended.exec_errno) == (step, number)
    assert not [kind for kind, _ in main.news if kind == wire.RUNNING]
    main.wait(wire.GONE, generation)
    os.close(recipe)


def test_what_stands_aside_takes_no_number_of_a_worker(keeper):
    main = keeper().main()
    first = main.spawn("/bin/sleep", "60")
    aside = main.spawn("/bin/sleep", "60", flags=wire.ASIDE, name=b"aside")
    second = main.spawn("/bin/sleep", "60")
    assert (first.generation, aside.generation, second.generation) == (1, wire.FIRST_ASIDE, 2)
    assert list(main.generations()) == [1, 2, wire.FIRST_ASIDE]
    main.send_signal(aside, signal.SIGKILL)
    main.wait_exit(wire.GONE, aside)
    assert main.forget(aside).kind == wire.DONE
    assert main.spawn("/bin/sleep", "60", flags=wire.ASIDE).generation == wire.FIRST_ASIDE + 1


def test_limits_that_cannot_be_set_are_a_failed_start(keeper):
    main = keeper().main()
    worker = main.spawn("/bin/true", oom=5000)
    ended = main.wait_exit(wire.EXITED, worker)
    assert (ended.exec_step, ended.exec_errno) == (4, errno.EINVAL)


def test_a_worker_may_be_preferred_by_the_oom_killer_without_any_rights(keeper):
    """The keeper is not dumpable, and its forks inherit that: their own /proc files belong to root then."""
    main = keeper().main()
    worker = main.spawn("/bin/cat", "/proc/self/oom_score_adj", oom=300)
    main.wait_exit(wire.GONE, worker)
    assert worker.output() == "300\n"


LOOK = """
import os
PYTHONS = 1 << 12 | 1 << 24  # SIGPIPE and SIGXFSZ: Python itself ignores them
fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd))
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(fds, os.getsid(0) == os.getpid(), os.readlink('/proc/self/fd/4'), int(status['SigBlk'], 16), int(status['SigIgn'], 16) & ~PYTHONS,
      os.getcwd(), os.environ['PLIMSOLL_GENERATION'], os.environ['WORD'], os.readlink('/proc/self/fd/0'), flush=True)
"""


@pytest.mark.parametrize("flags, fds", [(3, [0, 1, 2, 3, 4, 5]), (1, [0, 1, 2, 3, 4]), (2, [0, 1, 2, 4, 5]), (0, [0, 1, 2, 4])])
def test_a_worker_has_exactly_its_descriptors_and_a_clean_start(keeper, flags, fds):
    main = keeper().main()
    pair = socket.socketpair()
    given = [one.fileno() for one, flag in zip(pair, (1, 2)) if flags & flag]
    worker = main.python(LOOK, env=["WORD=a b", "PLIMSOLL_GENERATION=stale"], folder="/tmp", flags=flags, fds=given)
    assert main.wait_exit(wire.EXITED, worker).status == 0, worker.output()
    main.wait_exit(wire.GONE, worker)
    assert worker.output() == (f"{fds} True /memfd:plimsoll-page (deleted) 0 0 /tmp {main.boot:x}.{worker.generation} "
                               "a b /dev/null\n")


def test_a_real_time_signal_of_libc_that_was_ignored_is_plain_in_a_worker(keeper):
    def ignore():
        plain = (ctypes.c_uint64 * 4)(1)  # SIG_IGN
        ctypes.CDLL(None).syscall(13, 32, plain, None, 8)  # rt_sigaction, which libc refuses for 32
    main = keeper(preexec_fn=ignore).main()
    worker = main.python(LOOK, env=["WORD=x"])
    assert main.wait_exit(wire.EXITED, worker).status == 0
    main.wait_exit(wire.GONE, worker)
    assert " 0 0 /" in worker.output(), worker.output()


def test_a_keeper_without_standard_descriptors_and_with_ignored_signals_does_the_same(keeper):
    def spoil():
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for fd in (0, 1, 2):
            os.close(fd)
    k = keeper(preexec_fn=spoil)
    main = k.main()
    worker = main.python(LOOK, env=["WORD=x"])
    assert main.wait_exit(wire.EXITED, worker).status == 0
    main.wait_exit(wire.GONE, worker)
    assert worker.output().startswith("[0, 1, 2, 4] True")
    assert {os.readlink(f"/proc/{main.pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}
    assert k.stop(main) == 0


ATTACK = """
import ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def error(result):
    return ctypes.get_errno() if result == -1 else 0
print(error(libc.ftruncate(4, 0)), error(libc.ftruncate(4, 1 << 20)), error(libc.fcntl(4, 1033, 8)), os.fstat(4).st_size, flush=True)
"""


def test_a_worker_cannot_shrink_grow_or_seal_its_page(keeper):
    main = keeper().main()
    worker = main.python(ATTACK, page=8192)
    main.wait_exit(wire.GONE, worker)
    assert worker.output() == "1 1 1 8192\n"
    with pytest.raises(PermissionError):
        os.ftruncate(worker.ring_fd, 0)


def test_output_is_whole_and_in_order_when_gone_is_said(keeper):
    main = keeper().main()
    script = "import os\nfor i in range(5000): os.write(1 + i % 2, b'%07d\\n' % i)"
    worker = main.python(script, ring=1 << 20)
    gone = main.wait_exit(wire.GONE, worker)
    assert worker.output() == "".join(f"{i:07}\n" for i in range(5000))
    assert gone.log_bytes == 40000
    ring = os.pread(worker.ring_fd, 4096, 0)
    assert struct.unpack_from("<I", ring, wire.RING_CLOSED_AT)[0] == 1


def test_a_worker_that_floods_is_never_held_up_by_a_main_that_does_not_read(keeper):
    main = keeper().main()
    worker = main.python("import os\nfor i in range(20000): os.write(1, b'x' * 1000)", ring=65536)
    gone = main.wait_exit(wire.GONE, worker)
    assert (gone.status, gone.log_bytes) == (0, 20000000)
    ring = os.pread(worker.ring_fd, 4096, 0)
    assert struct.unpack_from("<Q", ring, wire.RING_HEAD_AT)[0] == 20000000


DAEMON = """
import os, sys
def daemon(path, environ):
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0: os._exit(0)
        os.closerange(0, 64)
        script = 'import os, sys, time; open(sys.argv[1], "w").write(str(os.getpid()) + chr(10)); time.sleep(1000)'
        os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', script, path], environ)
for path in sys.argv[1:]:
    daemon(path, {} if path.endswith('scrubbed') else dict(os.environ))
os.wait()
import time
time.sleep(1000)
"""


def test_daemons_of_a_worker_are_swept_and_unknown_ones_end_with_the_keeper(keeper):
    k = keeper()
    main = k.main()
    paths = [k.folder / "daemon", k.folder / "scrubbed"]
    large = [f"PAD{i}=" + "y" * 1000 for i in range(200)]  # an environment that is longer than what is looked at
    worker = main.python(DAEMON, *paths, env=large)
    known, unknown = (int(wait_file(path)) for path in paths)
    main.send_signal(worker, signal.SIGTERM)
    gone = main.wait_exit(wire.GONE, worker)
    assert gone.strays >= 1 and not alive(known)
    assert alive(unknown)
    assert k.stop(main) == 0
    assert not alive(unknown)


def test_a_killed_worker_that_is_not_reaped_is_stuck_and_gone_later(keeper):
    k = keeper("--stuck-ms", 100)
    main = k.main()
    worker = main.spawn(*SLEEP)
    main.wait_exit(wire.RUNNING, worker)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0x4206, worker.pid, 0, 0) != 0:  # PTRACE_SEIZE
        pytest.skip("ptrace is not allowed here")
    main.send_signal(worker, signal.SIGKILL)
    assert main.wait_exit(wire.STUCK, worker).state == 2
    assert "level=error" in k.line("event=worker.stuck .*generation=1")
    os.waitpid(worker.pid, 0x40000000)  # __WALL: let go
    main.wait_exit(wire.GONE, worker)
    assert k.stop(main) == 0


@needs_root
def test_a_worker_of_another_user_dies_with_the_keeper(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn("/bin/sh", "-c", "echo started; exec sleep 1000", flags=wire.USER, user=65534)
    wait_output(worker, "started")
    assert os.stat(f"/proc/{worker.pid}").st_uid == 65534
    k.process.kill()
    wait_dead(worker.pid)


def test_slots_are_reused_and_nothing_leaks(keeper):
    k = keeper()
    main = k.main()
    before = k.descriptors() if os.geteuid() == 0 else 0
    for _ in range(2):
        workers = [main.spawn("/bin/true") for _ in range(64)]
        for worker in workers:
            main.wait_exit(wire.GONE, worker)
        recipe = memfd(wire.recipe(["/bin/true"]))
        assert main.ask(wire.SPAWN, wire.spawn(), [recipe]).error == "EAGAIN"
        os.close(recipe)
        for worker in workers:
            assert main.forget(worker).kind == wire.DONE
            os.close(worker.page_fd)
            os.close(worker.ring_fd)
    assert before == (k.descriptors() if os.geteuid() == 0 else 0)
    assert k.stop(main) == 0


# --- sockets of workers ---


@pytest.mark.parametrize("name", ["chat", "w/chat"])
def test_the_socket_of_a_worker_refuses_when_it_is_dead_and_is_removed_at_gone(keeper, name):
    k = keeper()
    main = k.main()
    path = str(k.run / name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        worker = main.spawn(*SLEEP, flags=wire.LISTENER, fds=[listener.fileno()], sock=name.encode())
    os.kill(worker.pid, 0)
    main.wait_exit(wire.RUNNING, worker)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    main.send_signal(worker, signal.SIGKILL)
    main.wait_exit(wire.EXITED, worker)
    main.wait_exit(wire.GONE, worker)
    assert not os.path.exists(path)
    assert k.stop(main) == 0


def test_a_worker_that_closes_its_listener_refuses(keeper):
    """Nobody else has it: the keeper's copy went when the worker was seen to run, and main closes its own."""
    k = keeper()
    main = k.main()
    path = str(k.run / "w" / "1")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        worker = main.python("import os, time; os.close(3); print('closed', flush=True); time.sleep(1000)",
                             flags=wire.LISTENER, fds=[listener.fileno()], sock=b"w/1")
    main.wait_exit(wire.RUNNING, worker)
    wait_output(worker, "closed")
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(path)


@pytest.mark.parametrize("name", ["../x", "/x", "w/", "w/..", "w/.", ".", "..", "w//x", "w/x/y", "tmp/x", "w/../x", "w/x/"])
def test_a_socket_outside_its_place_is_refused(keeper, name):
    main = keeper().main()
    recipe = memfd(wire.recipe(["/bin/true"]))
    assert main.ask(wire.SPAWN, wire.spawn(sock=name.encode()), [recipe]).error == "EINVAL"
    os.close(recipe)


def test_at_gone_only_a_socket_is_removed(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn("/bin/true", sock=b"lock")
    main.wait_exit(wire.GONE, worker)
    assert "lock" in k.left()
    assert k.stop(main) == 0
