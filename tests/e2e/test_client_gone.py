"""Clients that leave: in the middle of an upload, of a stream, of a wait. The next one must not notice."""

import json

import pytest

from rig import connect, leave, send_head


def post_head(sock, path, length, content_type="application/json"):
    send_head(sock, "POST", path, [("Content-Type", content_type), ("Content-Length", length)])


def quiet(server):
    """Nothing is in flight any more, in no worker and in no queue."""
    service = server.status()["services"][0]
    return all(w["in_flight"] == 0 for w in service["workers"]) and service["queue"]["requests"] == 0


@pytest.mark.asan
def test_gone_in_the_middle_of_an_upload(feature):
    for length in (200_000, 50_000_000):  # kept for replay, and streamed through
        sock = connect(feature.address)
        post_head(sock, "/upload", length, "multipart/form-data; boundary=B")
        sock.sendall(b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + b"x" * 100_000)
        leave(sock)
    feature.wait_until(lambda: quiet(feature))
    assert feature.post("/predict", {"x": 1}).json()["double"] == 2
    assert feature.log.find("worker.death") == []


@pytest.mark.asan
def test_gone_in_the_middle_of_a_stream_cancels_it(feature):
    sock = connect(feature.address)
    body = json.dumps({"n": 100_000, "pause": 0.05, "tag": "left"}).encode()
    post_head(sock, "/stream", len(body))
    sock.sendall(body)
    assert sock.recv(4096).startswith(b"HTTP/1.1 200")
    leave(sock)
    feature.wait_until(lambda: any(line.startswith("stream cancelled left") for line in feature.journal()))
    feature.wait_until(lambda: quiet(feature))
    assert feature.wait_for("access", {"path": "/stream"})["outcome"] == "client_gone"


def test_a_client_that_does_not_read_holds_back_its_own_stream_only(feature):
    sock = connect(feature.address)
    body = json.dumps({"size": 80_000_000}).encode()
    post_head(sock, "/download", len(body))
    sock.sendall(body)
    assert sock.recv(16).startswith(b"HTTP/1.1 200")
    for x in range(20):
        assert feature.post("/predict", {"x": x}).json()["double"] == 2 * x
    with open(f"/proc/{feature.main_pid()}/status") as f:
        rss_kb = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert rss_kb < 60_000 or "asan" in str(feature.words[0]), "the reply must not pile up in us"
    leave(sock)
    feature.wait_until(lambda: quiet(feature))


def test_gone_while_waiting_in_the_queue(serve):
    server = serve("service:Feature", "--max-concurrency", "1").ready()
    first = connect(server.address)
    body = json.dumps({"number": 1, "seconds": 4}).encode()
    post_head(first, "/work", len(body))
    first.sendall(body)
    server.wait_until(lambda: any(line.startswith("begin 1") for line in server.journal()))
    second = connect(server.address)
    body = json.dumps({"number": 2, "seconds": 0}).encode()
    post_head(second, "/work", len(body))
    second.sendall(body)
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] == 1)
    leave(second)
    server.wait_until(lambda: server.status()["services"][0]["queue"]["requests"] == 0, timeout=3)
    assert first.recv(4096).startswith(b"HTTP/1.1 200")
    first.close()
    assert not any(line.startswith("begin 2") for line in server.journal())
