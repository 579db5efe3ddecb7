"""Stands in for a worker's interpreter: hands the worker's listener to the test and lives until it is told to end.

The test then is the worker, byte for byte (fake.py). Run as `SCRIPT -c ...` it is the question whether BentoML is there.
"""

import os
import signal
import socket
import sys

if sys.argv[1:2] == ["-c"]:
    sys.exit(0)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
test = socket.socket(socket.AF_UNIX)
test.connect(os.environ["FAKE_WORKER"])
socket.send_fds(test, [b"%d" % os.getpid()], [3])
os.close(3)  # only the test accepts: what it closes is refused
test.recv(1)  # the test is over, or ends this worker
