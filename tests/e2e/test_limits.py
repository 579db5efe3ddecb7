"""Limits on what is inside a body: what is over one is answered before a worker sees a byte of it."""

import base64
import struct
import zlib

import pytest

from rig import FakeWorker, wire


def png(width, height):
    """A whole PNG of one colour, small however large it says it is."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compress(b"\0" * ((width // 8 + 2) * height), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
            + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def form(image):
    return (b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
            + image + b"\r\n--x--\r\n")


def send(server, path, body, kind):
    return wire.request(server.address, "POST", path, body, headers={"Content-Type": kind})


@pytest.mark.asan
def test_a_large_image_gets_413_before_the_worker_sees_a_byte(serve):
    with FakeWorker() as worker:
        server = serve("service:Any", "--limits.image_pixels", "16000000", python=worker.python, env=worker.env).ready()
        large, small = png(5000, 5000), png(4000, 4000)
        as_json = b'{"image":{"url":"data:image/png;base64,%s"}}'
        worker.take()
        for body, kind in ((large, "image/png"), (form(large), "multipart/form-data; boundary=x"),
                           (as_json % base64.b64encode(large), "application/json")):
            reply = send(server, "/predict", body, kind)
            assert reply.status == 413, (kind, reply)
            assert "25000000 pixels" in reply.json()["error"] and "limits.image_pixels, 16000000" in reply.json()["error"]
            assert reply.headers["x-plimsoll-reason"] == "too_large"
        assert worker.seen() == 0
        for body, kind in ((small, "image/png"), (form(small), "multipart/form-data; boundary=x"),
                           (as_json % base64.b64encode(small), "application/json")):
            assert send(server, "/predict", body, kind).status == 200, kind
        assert [r.body for r in worker.take()] == [small, form(small), as_json % base64.b64encode(small)]


@pytest.mark.asan
def test_openai_clients_read_the_limit_in_their_own_shape(serve):
    with FakeWorker() as worker:
        server = serve("service:Any", "--limits.output_tokens", "64", "--limits.array_items", "10", python=worker.python,
                       env=worker.env).ready()
        reply = send(server, "/v1/completions", b'{"prompt":"a","max_tokens":65}', "application/json")
        assert reply.status == 400
        assert reply.json()["error"]["type"] == "invalid_request_error" and reply.json()["error"]["code"] == "invalid_value"
        reply = send(server, "/v1/completions", b'{"prompt":[' + b"1," * 10 + b'1]}', "application/json")
        assert reply.status == 413 and reply.json()["error"]["code"] == "request_too_large"
        reply = send(server, "/v1/completions", b'{"prompt":"a",}', "application/json")
        assert reply.status == 400 and reply.json()["error"]["code"] == "invalid_json"
