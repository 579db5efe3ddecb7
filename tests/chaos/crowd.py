"""crowd.py HOST PORT COUNT: so many connections, each served once and then idle, until stdin ends. Prints how many it holds,
and at the end how many of them were still open."""

import resource
import socket
import sys

address, count = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for _ in range(count):
    try:
        sock = socket.create_connection(address, timeout=30)
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: crowd\r\n\r\n")
        if b" 200 " in sock.recv(4096):
            held.append(sock)
    except OSError:
        break
print(len(held), flush=True)
sys.stdin.read()
alive = 0
for sock in held:
    sock.setblocking(False)
    try:
        alive += sock.recv(1) != b""
    except BlockingIOError:
        alive += 1
    except OSError:
        pass
    sock.close()
print(alive, flush=True)
