"""How long an old worker, or a whole instance, may finish what is under way: a stream is given more time than a request."""

import json
import os
import signal
import threading

from rig import connect, host, send_head

WHOLE = b"0\r\n\r\n"


class Stream:
    """A stream of n pieces that somebody reads beside the test."""

    def __init__(self, server, n, pause):
        self.sock = connect(server.address, timeout=60)
        body = json.dumps({"n": n, "pause": pause}).encode()
        send_head(self.sock, "POST", "/stream", [("Content-Type", "application/json"), ("Content-Length", len(body))])
        self.sock.sendall(body)
        self.seen = self.sock.recv(4096)
        assert self.seen.startswith(b"HTTP/1.1 200"), self.seen
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        try:
            while not self.seen.endswith(WHOLE) and (data := self.sock.recv(65536)):
                self.seen += data
        except OSError:
            pass

    def whole(self):
        self.thread.join(60)
        self.sock.close()
        return self.seen.endswith(WHOLE)


def feature(serve, *flags):
    return serve("service:Feature", "--workers", "1", "--timeout", "1s", "--traffic.queue.max_wait", "1s", *flags).ready()


def test_a_stream_outlasts_the_timeout_in_a_replacement(serve):
    s = feature(serve)
    stream = Stream(s, 10, 0.5)
    assert s.verb("restart", "feature").returncode == 0
    assert s.log.find("worker.gone") == [], "it has its stream to finish"
    assert stream.whole()
    s.wait_for("worker.gone")


def test_a_drain_that_was_set_holds_for_streams_too(serve):
    s = feature(serve, "--replace.drain", "500ms", "--stop_timeout", "1s")
    stream = Stream(s, 1000, 0.5)
    assert s.verb("restart", "feature").returncode == 0
    s.wait_for("worker.gone")
    assert not stream.whole()


def test_a_stop_waits_for_a_stream_beyond_the_timeouts(serve):
    s = feature(serve)
    stream = Stream(s, 10, 0.5)
    s.terminate()
    assert s.wait_exit() == 0
    assert stream.whole()


def test_a_stop_with_a_limit_of_its_own_cuts_it(serve):
    s = feature(serve, "--drain_timeout", "500ms", "--stop_timeout", "1s")
    stream = Stream(s, 1000, 0.5)
    s.terminate()
    assert s.wait_exit() == 0
    assert not stream.whole()


def test_a_worker_that_stands_still_leaves_no_client_without_an_answer_and_no_stop_without_an_end(serve):
    """Whatever is wrong in it: what it has is answered when its time is up, and SIGKILL comes behind a SIGTERM that it
    does not hear."""
    server = feature(serve, "--stop_timeout", "1s", "--mode", "observe")
    (pid,) = server.workers().values()
    busy = threading.Thread(target=server.post, args=("/work", {"number": 1, "seconds": 0.5}), daemon=True)
    busy.start()
    server.wait_until(lambda: any(line.startswith("begin 1 ") for line in server.journal()), what="it has begun")
    os.kill(pid, signal.SIGSTOP)
    assert server.post("/predict", {"x": 1}).status == 504
    busy.join(30)
    assert not busy.is_alive()
    server.terminate()
    assert server.wait_exit() == 0
    assert host.state_of(pid) == ""
