"""What would make a whole worker stand still: locks of the interpreter's and of ours, and a garbage collection in the middle."""

import gc
import subprocess
import textwrap
import threading

import pytest
from harness import PACKAGE, PYTHON, until

from plimsoll import frames, page, records

# A collection is due, and what it finds lets go of the interpreter when it ends; meanwhile threads begin and end. With
# sys._current_frames() in its place this stands still at once where the interpreter is older than 3.11.9.
STANDS_STILL = """
    import gc, os, sys, threading, time
    sys.path.insert(0, sys.argv[1])
    from plimsoll import frames

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
        frames.of_threads()
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


def test_nobody_asks_for_the_threads_in_another_way():
    asks = [path.name for path in (PACKAGE / "plimsoll").rglob("*.py") if "_current_frames()" in path.read_text()]
    assert asks == ["frames.py"]


def test_a_service_that_collects_by_itself_goes_on_doing_so():
    assert frames.of_threads()
    gc.disable()
    try:
        frames.of_threads()
        assert not gc.isenabled()
    finally:
        gc.enable()


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
