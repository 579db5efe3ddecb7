#!/usr/bin/env python3
"""A server that says what reached it: --port N or --socket PATH, and --name.

POST /v1/chat/completions answers as OpenAI's does, with usage (17 tokens, also at the end of a stream); POST /mirror
gives the body back; any other POST tells method, path and headers. GET /hold answers when $GATE is there. GET /health is 200.
"""

import argparse
import http.server
import json
import os
import signal
import socket
import socketserver
import sys
import time
from pathlib import Path

USAGE = {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "unix"

    def say(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/hold":
            while not Path(os.environ["GATE"]).exists():
                time.sleep(0.01)
        self.say({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "pid": os.getpid()})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/mirror":
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path != "/v1/chat/completions":
            self.say({"method": "POST", "path": self.path, "body": body.decode(), "pid": os.getpid(), "uid": os.getuid(),
                      "headers": {k.lower(): v for k, v in self.headers.items()}, "env": dict(os.environ)})
            return
        asked = json.loads(body)
        model, common = asked.get("model", "m"), {"id": "c1", "created": 1}
        if not asked.get("stream"):
            self.say({**common, "object": "chat.completion", "model": model, "usage": USAGE, "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunk = {**common, "object": "chat.completion.chunk", "model": model}
        for word in ("he", "llo"):
            self.event({**chunk, "usage": None, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        self.event({**chunk, "choices": [], "usage": USAGE})
        self.piece(b"data: [DONE]\n\n")
        self.piece(b"")

    def event(self, document):
        self.piece(b"data: " + json.dumps(document).encode() + b"\n\n")

    def piece(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class UnixServer(Server):
    address_family = socket.AF_UNIX

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self):
        request, _ = super().get_request()
        return request, ("unix", 0)


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--socket")
args = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = UnixServer(args.socket, Handler) if args.socket else Server(("127.0.0.1", args.port), Handler)
server.serve_forever(0.1)
