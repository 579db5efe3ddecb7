"""How a keeper ends, and what it does as PID 1."""

import os
import signal
import struct
import subprocess

import keeper_wire as wire
import pytest
from keeper_rig import DEAF, SLEEP, alive, wait_dead, wait_output

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
