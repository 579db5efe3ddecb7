"""Mains that die, hang, speak nonsense, or hand over to another one."""

import errno
import os
import pathlib
import shutil
import signal
import socket
import struct

import keeper_wire as wire
import pytest
from keeper_rig import PYTHON, SLEEP, alive, memfd, wait_dead, wait_file, wait_output

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
    assert [m.after_hang for m in (main, stopped, again)] == [0, 1, 1]
    assert again.generations()[worker.generation][0].pid == worker.pid and alive(worker.pid)
    again.kill()
    assert k.main().after_hang == 0, "this one has crashed"


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
    assert struct.unpack_from("<Ii", old.wait(wire.UPGRADED)) == (0, 0)
    new.wait(wire.HELM)
    assert old.ask(wire.SIGNAL, struct.pack("<QII", worker.generation, 15, 0)).error == "EPERM"
    assert list(old.generations()) == [worker.generation]
    new.send_signal(worker, 0)  # it is about to end it
    for main in (old, new):
        assert main.wait_exit(wire.WITHDRAWN, worker).state == 2
    assert alive(worker.pid)
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
    error, status = struct.unpack_from("<Ii", main.wait(wire.UPGRADED))
    assert (error, os.WEXITSTATUS(status)) == (errno.ECHILD, 1)
    assert main.hold("x").error == "ENOENT"


def test_what_a_candidate_says_when_it_goes_reaches_the_old_main(keeper):
    k = keeper()
    main = k.main()
    candidate = start_upgrade(k, main)
    candidate.ask(wire.BYE, struct.pack("<II320s", 3, 0, b"no such key"))
    candidate.kill()
    told = main.wait(wire.UPGRADED)
    assert struct.unpack_from("<Ii", told)[0] == errno.ECHILD
    assert told[8:].rstrip(b"\0") == b"no such key"
    again = start_upgrade(k, main)  # its predecessor's words are not its own
    again.kill()
    assert main.wait(wire.UPGRADED)[8:].rstrip(b"\0") == b""


def test_an_upgrade_brings_its_own_time_limits(keeper):
    k = keeper("--take-ms", 60000, "--leave-ms", 60000)
    main = k.main()
    exe = os.open(PYTHON, os.O_PATH)
    main.done(wire.UPGRADE, struct.pack("<II", 300, 0), fds=[exe])
    late = k.main()
    assert struct.unpack_from("<Ii", main.wait(wire.UPGRADED))[0] == errno.ETIMEDOUT
    k.line(f"event=keeper.main_exited main={late.main_id} ")
    main.done(wire.UPGRADE, struct.pack("<II", 0, 300), fds=[exe])
    os.close(exe)
    new = k.main()
    new.done(wire.TAKE)
    main.wait(wire.STAND_DOWN)
    main.done(wire.STOOD_DOWN)
    wait_dead(main.pid)  # it was to leave in 300 ms and did not
    assert new.hold("x").error == "ENOENT"


def test_a_candidate_that_never_takes_is_given_up(keeper):
    k = keeper("--take-ms", 400)
    main = k.main()
    candidate = start_upgrade(k, main)
    assert struct.unpack_from("<Ii", main.wait(wire.UPGRADED))[0] == errno.ETIMEDOUT
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
    assert struct.unpack_from("<Ii", old.wait(wire.UPGRADED))[0] == errno.ECHILD
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
