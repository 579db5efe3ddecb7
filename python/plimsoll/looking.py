"""Looks at the whole interpreter that the threads beside do not feel: which functions run, which objects there are.

Nothing else may be done in them: while one lasts, nobody else runs.
"""

import functools
import gc
import sys
import time

alone = False  # this is the child of a fork: there is no other thread
WHILE_S = 0.2  # longer than a million objects take; who waits for the GIL may have to wait that long for it, once


def _without_collection(look):
    @functools.wraps(look)
    def quiet():
        was = gc.isenabled()
        gc.disable()
        try:
            return look()
        finally:
            if was:
                gc.enable()

    return quiet


@_without_collection
def frames():
    """{ident of a thread: its frame}, as sys._current_frames() has it, and without a garbage collection meanwhile.

    Before 3.11.9 (3.12 collects elsewhere) that function makes objects while it holds the interpreter's list of threads
    locked. A collection that they set off runs finalizers and destructors of tensors; one that lets go of the GIL hands
    it to another thread, which waits for the list when it starts or ends a thread, with the GIL in its hands: nothing
    of Python runs in the process any more, no signal's handler either (python/cpython#106883)."""
    return sys._current_frames()


@_without_collection
def objects():
    """As gc.get_objects(), without tuples where other threads run.

    A tuple that another thread is making (tuple(x for x in ...)) is among them, and has to be held by nobody else when
    it is cut to its length: else that thread gets a SystemError, for no fault of its own. So tuples are left out before
    any other thread runs again: who takes the GIL anew keeps it for the interval, whatever others want."""
    if alone:
        return gc.get_objects()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(WHILE_S)
    try:
        time.sleep(0.001)  # takes it anew
        return [o for o in gc.get_objects() if type(o) is not tuple]
    finally:
        sys.setswitchinterval(interval)


@_without_collection
def count_objects():
    """How many there are. They are let go of before another thread runs."""
    return sum(map(len, map(gc.get_objects, (None,))))
