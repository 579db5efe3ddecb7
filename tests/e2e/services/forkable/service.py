"""What a fork could get wrong, told by the worker itself. FLAGS names a folder whose files say what it does."""

import gc
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

FLAGS = pathlib.Path(os.environ["FLAGS"])


def flag(name):
    path = FLAGS / name
    return path.read_text() if path.exists() else None


if flag("setting"):  # what a library would read when it is imported
    os.environ["FORKABLE_SETTING"] = flag("setting")

import bentoml  # noqa: E402
import numpy  # noqa: E402

if flag("library"):
    import forkable_library
else:
    forkable_library = None


@bentoml.service
class Forkable:
    def __init__(self):
        if flag("weights"):
            self.weights = open(flag("weights"), "rb")  # noqa: SIM115
            deadline = time.monotonic() + 1.5  # long enough to be seen with it
            while time.monotonic() < deadline:
                self.weights.seek(0)
                self.weights.read(4096)
        if flag("broken_in_a_fork") and gc.get_freeze_count() > 0:
            raise RuntimeError("not in a fork")

    @bentoml.api
    def tell(self, x: int = 1) -> dict:
        return {
            "pid": os.getpid(), "setting": os.environ.get("FORKABLE_SETTING"), "argv": sys.argv, "orig_argv": sys.orig_argv[1:],
            "random": [random.random(), float(numpy.random.rand())], "tmp": tempfile.gettempdir(), "env": sorted(os.environ),
            "library": forkable_library.VALUE if forkable_library else None, "main": [sys.modules["__main__"].__spec__.name, sys.modules["__main__"].__file__],
            "path": sys.path, "forked": gc.get_freeze_count() > 0,
        }  # fmt: skip

    @bentoml.api
    def daemon(self, x: int) -> int:
        """A child that leaves our session, and whose parent ends at once."""
        code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\n    time.sleep(1000)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        return int(child.stdout.readline())

    @bentoml.api
    def twig(self, x: int) -> int:
        """The same by forks alone: its environment is only in the memory that it has inherited."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.write(writer, b"%d" % os.getpid())
                os.closerange(1, 100)
                import time

                time.sleep(1000)
            os._exit(0)
        pid = int(os.read(reader, 20))
        os.wait()
        return pid
