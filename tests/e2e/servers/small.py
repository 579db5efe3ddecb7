#!/usr/bin/env python3
"""An HTTP server of the standard library, as somebody might write one: on --port N or --socket PATH.

GET /health is 200 (503 while the file $FLAGS/unready is there), /metrics while $FLAGS/metrics is there, POST tells what it was given and where, /stream sends
events until $GATE is there. Told to end it serves on while $FLAGS/linger is there. It writes "start PID" and "end PID" into $JOURNAL.
"""

import argparse
import http.server
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path


def journal(line):
    with open(os.environ.get("JOURNAL", os.devnull), "a") as f:
        f.write(f"{line}\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, text, kind="application/json"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        unready = Path(os.environ.get("FLAGS", "/nonexistent"), "unready").exists()
        if self.path == "/health":
            self.say(503 if unready else 200, "")
        elif self.path == "/metrics" and Path(os.environ.get("FLAGS", "/nonexistent"), "metrics").exists():
            self.say(200, "# TYPE small_things gauge\nsmall_things 7\n", "text/plain")
        elif self.path.partition("?")[0] == "/stream":
            self.stream()
        else:
            self.say(404, "no")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.say(200, json.dumps({
            "pid": os.getpid(), "path": self.path, "body": body.decode(), "argv": sys.argv[1:],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "cwd": os.getcwd(),
            "plimsoll": sorted(k for k in os.environ if k.startswith("PLIMSOLL")),
        }))

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = 0
        while not Path(os.environ["GATE"]).exists():
            self.piece(f"data: {events}\n\n")
            events += 1
            time.sleep(0.02)
        self.piece("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def piece(self, text):
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()


class TcpServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


class UnixServer(TcpServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--socket")
    parser.add_argument("--note", action="append")
    args = parser.parse_args()
    server = UnixServer(args.socket, Handler) if args.socket else TcpServer(("127.0.0.1", args.port), Handler)
    journal(f"start {os.getpid()}")

    def stop(*_):
        if Path(os.environ.get("FLAGS", "/nonexistent"), "linger").exists():
            threading.Timer(0.05, stop).start()
            return
        journal(f"end {os.getpid()}")
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()


if __name__ == "__main__":
    main()
