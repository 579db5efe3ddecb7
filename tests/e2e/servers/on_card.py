#!/usr/bin/env python3
"""An engine as others see it: --port N, memory on a card that a child of it holds (--hold PROGRAM MIB), and words.

POST /say prints the body to stdout; POST /end prints it and ends the process with the status in the query (?7); /end_soon
has said something half a millisecond before.
"""

import argparse
import http.server
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from small import TcpServer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.answer()

    def do_POST(self):
        if self.path.startswith("/end_soon"):
            print("not long now", flush=True)
            time.sleep(0.0005)
        print(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode(), flush=True)
        if self.path.startswith("/end"):
            os._exit(int(self.path.partition("?")[2]))
        self.answer()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--hold", nargs=2)
    args = parser.parse_args()
    if args.hold:
        child = subprocess.Popen(args.hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline().startswith("up")
    TcpServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
