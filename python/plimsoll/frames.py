"""What every thread is doing, asked so that the process survives the question."""

import gc
import sys


def of_threads():
    """{ident of a thread: its frame}, as sys._current_frames() has it, and without a garbage collection meanwhile.

    Before 3.11.9 (3.12 collects elsewhere) that function makes objects while it holds the interpreter's list of threads
    locked. A collection that they set off runs finalizers and destructors of tensors; one that lets go of the GIL hands
    it to another thread, which waits for the list when it starts or ends a thread, with the GIL in its hands: nothing
    of Python runs in the process any more, no signal's handler either (python/cpython#106883)."""
    was = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was:
            gc.enable()
