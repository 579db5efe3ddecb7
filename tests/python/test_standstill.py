"""What would make a whole worker stand still: locks of the interpreter's and of ours, and a garbage collection in the middle."""

import gc
import subprocess
import sys
import textwrap
import threading

import pytest
from harness import PACKAGE, PYTHON, until

from plimsoll import explain, host, looking, page, records

# A collection is due, and what it finds lets go of the interpreter when it ends; meanwhile threads begin and end. With
# sys._current_frames() in its place this stands still at once where the interpreter is older than 3.11.9.
STANDS_STILL = """
    import gc, os, sys, threading, time
    sys.path.insert(0, sys.argv[1])
    from plimsoll import looking

    class Slow:
        def __init__(self):
            self.me = self
        def __del__(self):
            time.sleep(0.001)

    def begins_and_ends():
        while True:
            t = threading.Thread(target=int)
            t.start()
            t.join()
    def waits(n):
        return waits(n - 1) if n else time.sleep(60)

    for _ in range(8):
        threading.Thread(target=waits, args=(3,), daemon=True).start()
    for _ in range(2):
        threading.Thread(target=begins_and_ends, daemon=True).start()
    for _ in range(50):
        gc.disable()
        for _ in range(5):
            Slow()
        gc.set_threshold(1, 1, 1)
        gc.enable()
        looking.frames()
        gc.set_threshold(100000)
        gc.collect()
    print("through", flush=True)
    os._exit(0)
"""


def test_the_threads_are_looked_at_while_threads_come_and_go_and_a_collection_is_due():
    done = subprocess.run(
        [PYTHON, "-c", textwrap.dedent(STANDS_STILL), str(PACKAGE)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "through\n", done.stderr


def test_nobody_looks_in_another_way():
    for what in "sys._current_frames()", "gc.get_objects()":
        asks = [path.name for path in (PACKAGE / "plimsoll").rglob("*.py") if what in path.read_text()]
        assert set(asks) <= {"looking.py"}, what


def test_a_service_that_collects_by_itself_goes_on_doing_so():
    assert looking.frames()
    gc.disable()
    try:
        looking.frames()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("look", [looking.objects, lambda: explain.anchors_of_thread_locals(), lambda: host.HostWalk(None, None, 1, {}, 1e12).run()])
def test_what_another_thread_is_making_is_not_held_while_it_is_looked_at(look, monkeypatch):
    """A tuple of a generator's is cut to its length at the end: SystemError if anybody else has it by then."""
    begun, go_on, made = threading.Event(), threading.Event(), []

    def items():
        yield 1
        begun.set()
        go_on.wait(30)
        yield 2

    def makes():
        try:
            made.append(tuple(items()))
        except SystemError as exc:
            made.append(exc)

    thread = threading.Thread(target=makes)
    thread.start()
    assert begun.wait(10)
    real = looking.objects

    def looked():
        found = real()
        go_on.set()
        thread.join(10)
        return found

    if look is real:
        assert len(looked()) > 1000
    else:
        monkeypatch.setattr(looking, "objects", looked)
        look()
    assert made == [(1, 2)]


def test_as_many_objects_are_counted_as_there_are():
    assert abs(looking.count_objects() - len(gc.get_objects())) < 100
    interval = sys.getswitchinterval()
    assert not any(type(o) is tuple for o in looking.objects())
    assert sys.getswitchinterval() == interval


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_a_handler_that_a_collection_ends_while_a_record_is_written_is_recorded_behind_it(kind):
    """Its client has gone, and the exceptions of the cut hold it in a cycle; the next collection closes it, on whatever
    thread that comes over."""
    mine = page.Page()
    recorder = records.Recorder(mine)

    def stream(self):
        yield 1

    async def answer(self):
        class Never:
            def __await__(self):
                yield

        await Never()

    func = stream if kind == "generator" else answer
    endpoint = records.Endpoint(0, "/x", "sync", False)
    running = records.wrap(func, recorder, endpoint)(None)
    running.send(None)
    assert mine.get("in_flight") == 1
    cycle = [running]
    cycle.append(cycle)
    del running, cycle

    def records_something():
        with mine.lock:
            gc.collect()

    thread = threading.Thread(target=records_something, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    until(lambda: mine.get("in_flight") == 0 and mine.get("ended") == 1, "its end is recorded")
