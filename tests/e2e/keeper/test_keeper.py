"""The keeper as its mains and workers meet it."""

import ctypes
import errno
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import time

import keeper_wire as wire
import pytest
from keeper_rig import KEEPER, PYTHON, alive, memfd, wait_dead, wait_file

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
SLEEP = ("/bin/sleep", "1000")
DEAF = ("/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1000; done")


def wait_output(worker, text):
    """A worker that has printed this has come so far."""
    end = time.monotonic() + 20
    while text not in worker.output():
        assert time.monotonic() < end, worker.output()
        time.sleep(0.005)


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
    first = main.spawn("/bin/cat")
    aside = main.spawn("/bin/cat", flags=wire.ASIDE, name=b"aside")
    second = main.spawn("/bin/cat")
    assert (first.generation, aside.generation, second.generation) == (1, wire.FIRST_ASIDE, 2)
    assert list(main.generations()) == [1, 2, wire.FIRST_ASIDE]
    main.send_signal(aside, signal.SIGKILL)
    main.wait_exit(wire.GONE, aside)
    assert main.forget(aside).kind == wire.DONE
    assert main.spawn("/bin/cat", flags=wire.ASIDE).generation == wire.FIRST_ASIDE + 1


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


# --- main dies, and is started again ---


def test_workers_notes_and_held_descriptors_outlive_main(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP, name=b"digits/1", recipe_hash=77)
    note = os.urandom(4096)
    main.note(worker, note)
    board = os.memfd_create("board")
    assert main.hold("board", board).kind == wire.DONE
    main.kill()
    line = k.line("event=main.crashed")
    assert "level=error" in line and "signal=SIGKILL restarts=0" in line
    again = k.main()
    assert (again.main_id, again.role, again.crashes, again.boot) == (2, wire.HELM_ROLE, 1, main.boot)
    [(generation, (state, name, kept, fds))] = again.generations().items()
    assert (generation, state.pid, state.state, name, kept) == (worker.generation, worker.pid, 2, "digits/1", note)
    assert os.path.sameopenfile(fds[0], worker.page_fd) and os.path.sameopenfile(fds[1], worker.ring_fd)
    held = again.held()
    assert sorted(held) == ["board", "keeper.log"] and os.path.sameopenfile(held["board"], board)
    os.close(board)
    assert alive(worker.pid)
    assert again.hold("board").kind == wire.DONE and "board" not in again.held()
    assert k.stop(again) == 0
    assert not alive(worker.pid)


def test_what_main_said_before_it_died_counts(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP)
    k.signal(signal.SIGSTOP)
    main.post(wire.NOTE, struct.pack("<QII", worker.generation, 5, 0) + b"last!")
    with open("/dev/null", "rb") as nothing:
        main.post(wire.HOLD, struct.pack("<Q32s", 0, b"last"), [nothing.fileno()])
    main.kill()
    k.signal(signal.SIGCONT)
    again = k.main()
    assert again.generations()[worker.generation][2] == b"last!"
    assert "last" in again.held()


def test_a_descriptor_opened_before_the_start_is_held(keeper):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        fd = listener.fileno()
        k = keeper("--hold", f"listen:0={fd}", hold=[fd])
        main = k.main()
        assert os.path.sameopenfile(main.held()["listen:0"], fd)
    for one in main.fds:
        os.close(one)
    main.fds = []
    main.kill()
    assert "listen:0" in k.main().held()


def test_a_crash_loop_ends_with_70_after_the_workers_were_asked_to_stop(keeper):
    k = keeper("--crash-limit", 3, verbose=False)
    main = k.main()
    words = "trap 'echo asked > $0; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    worker = main.spawn("/bin/sh", "-c", words, k.folder / "asked")
    wait_output(worker, "up")
    main.tell(3)
    for _ in range(2):
        k.main().tell(3)
    assert k.wait() == 70
    assert wait_file(k.folder / "asked") == "asked"
    assert not alive(worker.pid)
    assert k.left() is None
    events = [line.split("event=")[1].split(maxsplit=1) for line in k.lines]
    assert events == [["main.crashed", "status=3 restarts=0 restart_in_ms=0"],
                      ["main.crashed", "status=3 restarts=1 restart_in_ms=100"],
                      ["main.crashed", "status=3 restarts=2"],
                      ["main.crash_loop", "count=3 window_ms=60000"]]


def test_a_script_as_main_is_a_crash_loop(keeper, tmp_path):
    """Its descriptor is closed before the interpreter could read it."""
    script = tmp_path / "main"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    script.chmod(0o755)
    k = keeper("--crash-limit", 2, main=[script])
    assert k.wait() == 70


def test_a_main_without_a_heartbeat_gets_sigabrt_and_a_stopped_one_sigkill(keeper):
    k = keeper("--hang-ms", 300, "--abort-ms", 200)
    main = k.main()
    worker = main.spawn(*SLEEP)
    assert "why=no_heartbeat" in k.line("event=main.hung")
    k.line("event=main.crashed signal=SIGABRT")
    stopped = k.main()
    stopped.kill(signal.SIGSTOP)
    k.line("event=main.crashed signal=SIGKILL")
    again = k.main()
    assert again.generations()[worker.generation][0].pid == worker.pid and alive(worker.pid)


def test_a_main_that_never_says_hello_is_hung(keeper):
    k = keeper("--hello-ms", 200)
    k.main(hello=False)
    assert "why=no_hello" in k.line("event=main.hung")
    k.main()


def test_a_main_that_closes_its_channel_is_hung(keeper):
    k = keeper("--abort-ms", 100)
    main = k.main()
    main.tell("close")
    main.channel.close()
    assert "why=channel_closed" in k.line("event=main.hung")
    k.main()


def test_the_binary_is_held_against_a_rename(keeper):
    """The program is a copy of the shell, which runs the stub; then the copy is replaced by something that fails."""
    k = keeper()
    own = k.folder / "sh"
    shutil.copy("/bin/sh", own)
    k.stop(k.main())
    at = k.words.index("--")
    k.words[at + 1:] = [own, "-c", f"{PYTHON} -I -S {k.words[-2]} {k.words[-1]}; exit $?"]
    k.start()
    main = k.main()
    shutil.copy("/bin/false", k.folder / "new")
    os.rename(k.folder / "new", own)
    shell = int(pathlib.Path(f"/proc/{main.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shell, signal.SIGKILL)
    main.kill()
    assert k.main().main_id == 2


# --- the end ---


def test_sigterm_asks_main_and_its_bye_is_the_status(keeper):
    k = keeper("--stop-ms", 12000)
    main = k.main()
    worker = main.spawn(*SLEEP)
    k.signal(signal.SIGTERM)
    deadline = struct.unpack("<II", main.wait(wire.STOP))[0]
    assert 0 < deadline <= 12000
    assert alive(worker.pid)
    main.bye(0)
    assert k.wait() == 0
    assert not alive(worker.pid)
    assert k.left() is None


def test_sigint_is_sigterm(keeper):
    k = keeper()
    main = k.main()
    k.signal(signal.SIGINT)
    main.wait(wire.STOP)
    main.bye()
    assert k.wait() == 0


def test_bye_without_being_asked_ends_everything_with_its_status(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP)
    main.bye(6)
    assert k.wait() == 6
    assert not alive(worker.pid)


def test_a_main_that_says_bye_and_stays_is_killed(keeper):
    k = keeper("--stop-ms", 100)
    main = k.main()
    main.done(wire.BYE, struct.pack("<II", 6, 0))
    assert k.wait() == 6


def test_sigterm_while_main_is_dead_stops_by_rank(keeper):
    k = keeper("--crash-limit", 10)
    main = k.main()
    second = main.spawn(*SLEEP, rank=1, name=b"second")
    first = main.spawn(*DEAF, rank=0, stop_ms=50, name=b"first")
    wait_output(first, "deaf")
    for _ in range(3):
        main.kill()
        main = k.main()
    main.kill()
    k.line("restart_in_ms=2000")
    k.signal(signal.SIGTERM)
    assert k.wait() == 0
    exits = [line for line in k.lines if "event=keeper.worker_exited" in line]
    assert ["name=first signal=SIGKILL" in exits[0], "name=second signal=SIGTERM" in exits[1]] == [True, True], exits
    assert not alive(first.pid) and not alive(second.pid)
    assert k.left() is None


def test_a_main_that_does_not_stop_in_time_is_overruled(keeper):
    k = keeper("--stop-ms", 200)
    main = k.main()
    worker = main.spawn(*SLEEP)
    k.signal(signal.SIGTERM)
    main.wait(wire.STOP)
    assert k.wait() == 0
    assert "level=warn event=main.stopping deadline_ms=0 why=deadline" in k.text()
    assert not alive(worker.pid)


def test_a_crash_during_the_stop_is_no_restart(keeper):
    k = keeper()
    main = k.main()
    k.signal(signal.SIGTERM)
    main.wait(wire.STOP)
    main.kill()
    assert k.wait() == 0
    assert "stopping=true" in k.line("event=main.crashed")


def test_a_second_sigterm_kills_at_once(keeper):
    k = keeper(verbose=False)
    main = k.main()
    worker = main.spawn(*DEAF, stop_ms=3600000)
    wait_output(worker, "deaf")
    k.signal(signal.SIGTERM)
    main.wait(wire.STOP)
    k.signal(signal.SIGTERM)
    assert k.wait() == 0
    assert not alive(worker.pid) and k.left() is None
    assert [line.split("event=")[1] for line in k.lines] == ["main.stopping signal=SIGTERM deadline_ms=0 why=hurry"]


def test_nothing_can_be_spawned_once_the_keeper_stops_by_itself(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*DEAF, stop_ms=3600000)
    wait_output(worker, "deaf")
    main.bye()
    k.line("event=keeper.stop phase=own")
    k.signal(signal.SIGTERM)
    assert k.wait() == 0


def test_sighup_is_passed_on_and_sigusr_does_nothing(keeper):
    k = keeper()
    main = k.main()
    k.signal(signal.SIGUSR1)
    k.line("event=keeper.signal signal=SIGUSR1 ignored=true")
    k.signal(signal.SIGUSR2)
    k.line("event=keeper.signal signal=SIGUSR2 ignored=true")
    k.signal(signal.SIGHUP)
    assert "signal=SIGHUP" in k.line("event=main.crashed")
    again = k.main()
    assert alive(k.pid) and main.pid != again.pid


def test_sighup_of_a_terminal_that_is_gone_is_the_end(keeper):
    ours, theirs = os.openpty()
    k = keeper(stdin=theirs)
    os.close(theirs)
    main = k.main()
    os.close(ours)
    k.signal(signal.SIGHUP)
    main.wait(wire.STOP)
    main.bye()
    assert k.wait() == 0


def test_a_killed_keeper_takes_main_and_workers_with_it(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP)
    main.wait_exit(wire.RUNNING, worker)
    k.process.kill()
    wait_dead(main.pid)
    wait_dead(worker.pid)


def test_a_stderr_that_nobody_reads_holds_nothing_up(keeper):
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    os.set_blocking(write_end, True)
    k = keeper(stderr=write_end)
    k.main().kill()
    k.main().kill()
    main = k.main()
    log = os.pread(main.held()["keeper.log"], 65536, wire.RING_DATA_AT).rstrip(b"\0").decode()
    assert log.count("event=main.crashed signal=SIGKILL") == 2
    assert k.stop(main) == 0
    os.close(read_end)
    os.close(write_end)


def test_stderr_as_a_file_gets_every_line(keeper, tmp_path):
    with open(tmp_path / "log", "w+b") as log:
        k = keeper("--crash-limit", 2, verbose=False, stderr=log)
        k.main().kill()
        k.main().kill()
        assert k.wait() == 70
        log.seek(0)
        assert [line.split(b"event=")[1].split()[0] for line in log] == [b"main.crashed", b"main.crashed", b"main.crash_loop"]


# --- the run folder ---


def refused(path, *more, prefix=()):
    words = [*prefix, KEEPER, "--run", path, *more, "--", "/bin/true"]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("plimsoll keeper: "), done.stderr
    return done.returncode, done.stderr


def test_the_run_folder_is_made_with_its_subfolders_and_nothing_stays(keeper):
    k = keeper()
    main = k.main()
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    for path in [k.run, *(k.run / name for name in ("prom", "snap", "tmp", "w"))]:
        assert path.stat().st_mode & 0o7777 == 0o700
    assert (k.run / "lock").read_text() == f"{k.pid}\n"
    outside = k.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    deep = k.run / "tmp" / "/".join("abcdefgh")
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    for at in (deep, k.run / "w", k.run / "prom"):
        (at / "link").symlink_to(outside)
        (at / "dangling").symlink_to("/none")
    for name in ("admin.sock", "agents.sock", "w/1", "snap/s"):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(k.run / name))
    for i in range(300):
        (k.run / "prom" / f"{i}.db").write_text("")
    assert k.stop(main) == 0
    assert k.left() is None
    assert (outside / "precious").read_text() == "stays"


def test_what_others_keep_in_the_run_folder_stays(keeper):
    k = keeper()
    main = k.main()
    (k.run / "mine").write_text("stays")
    assert k.stop(main) == 0
    assert k.left() == ["mine"]


def test_leftovers_of_a_killed_keeper_are_removed_at_the_next_start(keeper):
    k = keeper()
    k.main()
    (k.run / "tmp" / "old").mkdir()
    (k.run / "tmp" / "old" / "file").write_text("x")
    shutil.rmtree(k.run / "snap")
    outside = k.folder / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    (k.run / "snap").symlink_to(outside)
    (k.run / "prom").chmod(0o755)
    for name in ("admin.sock", "w/1"):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(k.run / name))
    k.process.kill()
    k.process.wait()
    for main in k.mains:
        wait_dead(main.pid)
    k.start()
    main = k.main()
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    assert (k.run / "prom").stat().st_mode & 0o777 == 0o700 and not (k.run / "snap").is_symlink()
    assert (outside / "precious").exists()
    assert k.stop(main) == 0
    assert k.left() is None


def test_a_second_keeper_names_the_first(keeper):
    k = keeper()
    main = k.main()
    status, text = refused(k.run)
    assert status == 5 and f"is in use by the keeper with pid {k.pid}: stop that one" in text
    assert k.left() == ["lock", "prom", "snap", "tmp", "w"]
    assert k.stop(main) == 0


def test_a_run_folder_that_cannot_be_used_is_a_sentence_and_5(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    length = 91 - len(str(tmp_path)) - 1
    cases = {
        tmp_path / ("x" * (length + 7)): "too long by 7 bytes for the sockets in it: name a shorter one with run_dir",
        tmp_path / "none" / "run": "the folder above it does not exist: make it",
        tmp_path / "file": "is a symbolic link or no folder",
        tmp_path / "link": "is a symbolic link or no folder",
        tmp_path / "open": f"has mode 0755 and must be ours alone: chmod 700 {tmp_path / 'open'}",
    }
    if length < 1:
        pytest.skip("the temporary folder is too deep")
    for path, words in cases.items():
        status, text = refused(path)
        assert status == 5 and words in text, (path, text)


@needs_root
def test_a_run_folder_of_somebody_else_is_refused(keeper):
    k = keeper()
    k.stop(k.main())
    base = k.folder / "theirs"
    base.mkdir(mode=0o700)
    os.chown(base, 65534, 65534)
    status, text = refused(base)
    assert status == 5 and "belongs to uid 65534 and we are uid 0: name another one with run_dir" in text


@needs_root
def test_a_user_who_may_not_write_there_is_told(keeper):
    k = keeper()
    k.stop(k.main())
    program = k.folder / "keeper"
    shutil.copy(KEEPER, program)
    k.folder.chmod(0o755)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run([*user, program, "--run", k.folder / "new", "--", "/bin/true"], capture_output=True, text=True, check=False)
    assert done.returncode == 5 and "cannot be made (Permission denied): name another one with run_dir" in done.stderr


@pytest.mark.parametrize("words", [[], ["--run"], ["--run", "/tmp/x"], ["--run", "/tmp/x", "--"], ["--", "/bin/true"],
                                   ["--run", "/tmp/x", "--hang-ms", "-1", "--", "/bin/true"],
                                   ["--run", "/tmp/x", "--hold", "listen", "--", "/bin/true"],
                                   ["--run", "/tmp/x", "--what", "1", "--", "/bin/true"]])
def test_wrong_words_are_2(words):
    done = subprocess.run([KEEPER, *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and done.stderr.startswith("plimsoll keeper: ") and done.stderr.count("\n") == 1


def test_a_program_that_is_not_there_is_5_and_makes_no_folder(tmp_path):
    for program in ("/none", "/proc/version", "/tmp"):
        done = subprocess.run([KEEPER, "--run", tmp_path / "r", "--", program], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 5 and program in done.stderr, done.stderr
    assert not (tmp_path / "r").exists()


# --- PID 1 ---


def test_as_pid_1_it_reaps_strangers_and_stops(keeper):
    inside = ["unshare", "-pf", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("unshare is not allowed here")
    k = keeper(prefix=inside)
    main = k.main()
    assert main.keeper_pid == 1
    orphans = "import os\nfor i in range(50):\n if os.fork() == 0:\n  if os.fork() == 0: os.setsid()\n  os._exit(0)\nfor i in range(50): os.wait()\n"
    worker = main.python(orphans)
    main.wait_exit(wire.GONE, worker)
    main.kill()
    again = k.main()
    count = again.spawn("/bin/sh", "-c", "kill -USR1 1; grep -l '^State:.*Z' /proc/[0-9]*/status | grep -v self | wc -l")
    again.wait_exit(wire.GONE, count)
    assert count.output().split() == ["0"]
    stop = again.spawn("/bin/sh", "-c", "kill -TERM 1")
    again.wait(wire.STOP)
    again.bye()
    assert stop.pid and k.wait() == 0
    assert int(k.line("event=keeper.exit").split("orphans_reaped=")[1]) >= 50
    assert k.left() is None


# --- what a main may say wrong ---


def test_foreign_bytes_are_refused_and_the_channel_lives_on(keeper):
    k = keeper()
    main = k.main(hello=False)
    nothing = os.open("/dev/null", os.O_RDONLY)
    before = k.descriptors() if os.geteuid() == 0 else 0
    assert main.ask(wire.FORGET, struct.pack("<Q", 1)).error == "EPROTO"
    assert main.ask(wire.HELLO, wire.hello(7, 9)).error == "EPROTONOSUPPORT"
    got = main.ask(wire.HELLO, wire.hello() + b"words of a later version")
    assert (got.kind, len(got.fds)) == (wire.WELCOME, 1)
    for raw, fds in [
        (wire.message(wire.HELLO, wire.hello(), magic=1), []),
        (wire.message(wire.HELLO, wire.hello(), length=12), []),
        (wire.message(999), []),
        (wire.message(wire.SPAWN, b"abc"), []),
        (b"123456789", []),
        (wire.message(wire.NOTE, b"x" * 9000), []),
        (wire.message(wire.HOLD, struct.pack("<Q32s", 0, b"ten")), [nothing] * 10),
        (wire.message(wire.HOLD, b""), [nothing] * 4),
        (b"", [nothing]),
        (b"", []),
    ]:
        socket.send_fds(main.channel, [raw], fds)
        kind, serial, body, _ = main.receive()
        assert (kind, serial, struct.unpack_from("<I", body)[0]) == (wire.REFUSED, 0, errno.EBADMSG), raw
    assert main.hold("fine", nothing).kind == wire.DONE
    assert main.hold("fine").kind == wire.DONE
    assert before == (k.descriptors() if os.geteuid() == 0 else 0)
    os.close(nothing)


def test_orders_that_make_no_sense_are_refused(keeper):
    k = keeper()
    main = k.main()
    nothing = os.open("/dev/null", os.O_RDONLY)
    true = memfd(wire.recipe(["/bin/true"]))
    sleeper = main.spawn(*SLEEP)
    for kind, body, fds, error in [
        (wire.HOLD, struct.pack("<Q32s", 0, b"two"), [nothing] * 2, "EINVAL"),
        (wire.HOLD, struct.pack("<Q32s", 0, b"n" * 32), [nothing], "EINVAL"),
        (wire.HOLD, struct.pack("<Q32s", 0, b""), [nothing], "EINVAL"),
        (wire.HOLD, struct.pack("<Q32s", 0, b"nobody"), [], "ENOENT"),
        (wire.NOTE, struct.pack("<QII", 77, 0, 0), [], "ENOENT"),
        (wire.NOTE, struct.pack("<QII", sleeper.generation, 4096, 0) + b"short", [], "EINVAL"),
        (wire.NOTE, struct.pack("<QII", sleeper.generation, 4097, 0) + b"x" * 4097, [], "EINVAL"),
        (wire.SIGNAL, struct.pack("<QII", 77, 15, 0), [], "ENOENT"),
        (wire.SIGNAL, struct.pack("<QII", sleeper.generation, 99, 0), [], "EINVAL"),
        (wire.SIGNAL, struct.pack("<QII", sleeper.generation, 0, 0), [], "EINVAL"),
        (wire.TAKE, b"", [], "EPERM"),
        (wire.STOOD_DOWN, b"", [], "EPERM"),
        (wire.DONE, b"", [], "ENOSYS"),
        (wire.UPGRADE, b"", [], "EINVAL"),
        (wire.SPAWN, wire.spawn(), [], "EINVAL"),
        (wire.SPAWN, wire.spawn(), [true, nothing], "EINVAL"),
        (wire.SPAWN, wire.spawn(flags=3), [true, nothing], "EINVAL"),
        (wire.SPAWN, wire.spawn(ring=70000), [true], "EINVAL"),
        (wire.SPAWN, wire.spawn(ring=1 << 25), [true], "EINVAL"),
        (wire.SPAWN, wire.spawn(page=1 << 30), [true], "EINVAL"),
        (wire.SPAWN, wire.spawn(page=8), [true], "EINVAL"),
        (wire.SPAWN, wire.spawn(stop=0), [true], "EINVAL"),
        (wire.SPAWN, wire.spawn(name=b"n" * 32), [true], "EINVAL"),
    ]:
        assert main.ask(kind, body, fds).error == error, (kind, body)
    for i in range(63):  # keeper.log is one of 64
        assert main.hold(f"h{i}", nothing).kind == wire.DONE
    assert main.hold("more", nothing).error == "ENOSPC"
    assert main.hold("h7", nothing).kind == wire.DONE
    assert list(main.generations()) == [sleeper.generation]
    os.close(nothing)
    os.close(true)
    assert k.stop(main) == 0


def test_unread_replies_cost_nothing_and_all_come_before_later_news(keeper):
    k = keeper()
    main = k.main()
    worker = main.spawn(*SLEEP)
    main.wait_exit(wire.RUNNING, worker)
    note = os.urandom(4096)
    main.note(worker, note)
    main.channel.setblocking(False)
    asked = 0
    with pytest.raises(BlockingIOError):
        while True:
            main.channel.send(wire.message(wire.LIST, struct.pack("<IIQ", 0, 0, 0), serial=1000 + asked))
            asked += 1
    os.kill(worker.pid, signal.SIGKILL)
    k.line("event=keeper.worker_gone")
    main.channel.settimeout(20)
    seen = []
    while len(seen) < asked or len(main.news) < 2:
        kind, serial, body, fds = main.receive()
        if serial == 0:
            main.news.append((kind, body))
            continue
        assert kind == wire.ITEM and body.endswith(note) and len(fds) == 2
        seen.append(serial)
        for fd in fds:
            os.close(fd)
            main.fds.remove(fd)
    assert seen == list(range(1000, 1000 + asked)) and asked > 100
    assert [kind for kind, _ in main.news] == [wire.EXITED, wire.GONE]
    assert k.stop(main) == 0


# --- upgrade ---


def start_upgrade(k, main):
    exe = os.open(PYTHON, os.O_PATH)
    main.done(wire.UPGRADE, fds=[exe])
    os.close(exe)
    candidate = k.main()
    assert candidate.role == wire.CANDIDATE_ROLE and candidate.other_main_id == main.main_id
    return candidate


def test_an_upgrade_moves_the_helm_and_the_old_main_may_only_ask(keeper):
    k = keeper()
    old = k.main()
    worker = old.spawn(*SLEEP)
    new = start_upgrade(k, old)
    assert new.hold("x").error == "EPERM"
    new.done(wire.TAKE)
    old.wait(wire.STAND_DOWN)
    old.done(wire.STOOD_DOWN)
    assert struct.unpack("<Ii", old.wait(wire.UPGRADED)) == (0, 0)
    new.wait(wire.HELM)
    assert old.ask(wire.SIGNAL, struct.pack("<QII", worker.generation, 15, 0)).error == "EPERM"
    assert list(old.generations()) == [worker.generation]
    new.send_signal(worker, signal.SIGTERM)
    for main in (old, new):
        main.wait_exit(wire.GONE, worker)
    old.bye(0)
    assert struct.unpack("<Q", new.wait(wire.MAIN_EXITED)) == (old.main_id,)
    new.kill()
    assert k.main().main_id == 3


def test_an_upgrade_to_something_that_ends_leaves_the_old_main_at_the_helm(keeper):
    k = keeper()
    main = k.main()
    exe = os.open("/bin/false", os.O_PATH)
    main.done(wire.UPGRADE, fds=[exe])
    os.close(exe)
    error, status = struct.unpack("<Ii", main.wait(wire.UPGRADED))
    assert (error, os.WEXITSTATUS(status)) == (errno.ECHILD, 1)
    assert main.hold("x").error == "ENOENT"


def test_a_candidate_that_never_takes_is_given_up(keeper):
    k = keeper("--take-ms", 400)
    main = k.main()
    candidate = start_upgrade(k, main)
    assert struct.unpack("<Ii", main.wait(wire.UPGRADED))[0] == errno.ETIMEDOUT
    wait_dead(candidate.pid)


def test_the_helm_moves_without_a_main_that_cannot_stand_down(keeper):
    k = keeper("--stand-ms", 100)
    old = k.main()
    new = start_upgrade(k, old)
    new.done(wire.TAKE)
    new.wait(wire.HELM)
    assert old.ask(wire.STOOD_DOWN).error == "EPERM"


def test_a_candidate_that_dies_after_take_gives_the_helm_back(keeper):
    k = keeper("--stand-ms", 60000)
    old = k.main()
    new = start_upgrade(k, old)
    new.done(wire.TAKE)
    old.wait(wire.STAND_DOWN)
    new.kill()
    old.wait(wire.HELM)
    assert struct.unpack("<Ii", old.wait(wire.UPGRADED))[0] == errno.ECHILD
    assert old.hold("x").error == "ENOENT"


def test_an_old_main_that_dies_before_take_is_restarted_and_after_it_is_replaced(keeper):
    k = keeper("--stand-ms", 60000)
    old = k.main()
    new = start_upgrade(k, old)
    old.kill()
    again = k.main()
    assert again.role == wire.HELM_ROLE
    wait_dead(new.pid)
    k.line("event=keeper.main_exited main=2 ")
    new = start_upgrade(k, again)
    new.done(wire.TAKE)
    again.wait(wire.STAND_DOWN)
    again.kill()
    new.wait(wire.HELM)
    assert new.hold("x").error == "ENOENT"
