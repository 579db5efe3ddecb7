"""Names the hosts that a service wants to reach, for `plimsoll check`: started without a network, it would only say
that a name cannot be resolved, and often not which.

    PLIMSOLL_HOSTS_FILE   where to write them, one "host:port" a line; without it nothing is installed

An audit hook sees every look-up and connection of Python code; a library that resolves names itself (Rust, C) is not
seen.
"""

import os
import sys

LOCAL = ("localhost", "127.", "::1", "0.0.0.0", "::", "")


def _is_local(host):
    return any(host == name or (name.endswith(".") and host.startswith(name)) for name in LOCAL)


def install():
    path = os.environ.pop("PLIMSOLL_HOSTS_FILE", None)
    if path is None:
        return
    seen = set()

    def wanted(host, port):
        host = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if not isinstance(host, str) or _is_local(host) or (host, port) in seen or len(seen) >= 64:
            return
        seen.add((host, port))
        try:
            with open(path, "a", encoding="utf-8") as out:
                out.write(f"{host[:200]}:{port}\n")
        except OSError:
            pass

    def hook(event, args):
        if event == "socket.getaddrinfo":
            wanted(args[0], args[1])
        elif event == "socket.gethostbyname":
            wanted(args[0], "")
        elif event == "socket.connect" and isinstance(args[1], tuple) and len(args[1]) >= 2:
            wanted(args[1][0], args[1][1])

    sys.addaudithook(hook)
