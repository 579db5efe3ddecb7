"""A main that the test speaks for: it hands its channel (descriptor 3) over and then does the one thing it is told.

usage: main_stub.py SOCKET. When the test has gone, it goes too, and then the keeper: a crash loop."""

import os
import socket
import sys

link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(sys.argv[1])
socket.send_fds(link, [str(os.getpid()).encode()], [3])
while word := link.recv(64):
    if word == b"close":
        os.close(3)
    else:
        os._exit(int(word))
