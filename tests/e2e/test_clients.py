"""BentoML's own clients and its Swagger page, against us as against `bentoml serve`."""

import asyncio
import hashlib
import io
import json

import bentoml
import httpx
import numpy as np
import pytest

from rig import connect, read_reply

UNDER_WAY = ("pending", "in_progress")


class OneReader(io.BufferedReader):
    """All replies of a connection are read from one buffer; http.client closes what it read one reply from."""

    def __init__(self, sock):
        super().__init__(sock.makefile("rb", buffering=0))

    def makefile(self, *_):
        return self

    def close(self):
        pass


@pytest.fixture
def upload(tmp_path):
    path = tmp_path / "upload.bin"
    path.write_bytes(bytes(range(256)) * 5000)
    return path


def digest(path):
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_sync_client_json_ndarray_upload_stream_task(feature, upload):
    with bentoml.SyncHTTPClient(feature.url, timeout=60) as client:
        assert client.is_ready()
        assert client.predict(x=4)["double"] == 8
        assert client.text(name="plimsoll") == "hello plimsoll"
        assert np.array_equal(client.ndarray(x=np.array([[1.5, 2.0]])), [[3.0, 4.0]])
        assert client.upload(file=upload) == digest(upload)
        assert client.download(size=100000).read_bytes() == bytes(i % 251 for i in range(100000))
        assert "".join(client.stream(n=5)) == "".join(f"data: {i}\n\n" for i in range(5))
        client._opened_files = []  # 1.4.40's own submit fails for want of it, whatever the server
        task = client.job.submit(number=41, seconds=0.1)
        feature.wait_until(lambda: task.get_status().value not in UNDER_WAY, what="the task's end")
        assert task.get() == 42


def test_async_client_json_ndarray_upload_stream_task(feature, upload):
    async def talk():
        async with bentoml.AsyncHTTPClient(feature.url, timeout=60) as client:
            assert await client.is_ready()
            assert (await client.predict(x=4))["double"] == 8
            assert np.array_equal(await client.ndarray(x=np.array([[1.5, 2.0]])), [[3.0, 4.0]])
            assert await client.upload(file=upload) == digest(upload)
            assert "".join([part async for part in client.stream(n=5)]) == "".join(f"data: {i}\n\n" for i in range(5))
            task = await client.job.submit(number=41, seconds=0.1)
            while (await task.get_status()).value in UNDER_WAY:
                await asyncio.sleep(0.05)
            assert await task.get() == 42

    asyncio.run(asyncio.wait_for(talk(), 90))


def test_concurrent_arrays_are_batched_by_the_service(feature):
    async def talk():
        async with bentoml.AsyncHTTPClient(feature.url, timeout=60) as client:
            rows = [np.full((1, 4), float(i)) for i in range(32)]
            return await asyncio.gather(*(client.batch(x=row) for row in rows))

    for i, reply in enumerate(asyncio.run(talk())):
        assert np.array_equal(reply, np.full((1, 4), float(i)))
    assert sum(int(line.split()[1]) for line in feature.journal() if line.startswith("batch ")) == 32


def test_the_docs_page_and_its_description_pass_unchanged(feature):
    page = feature.get("/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert "swagger" in page.text().lower()
    described = feature.get("/docs.json").json()
    assert described["openapi"].startswith("3.")
    assert {"/predict", "/upload", "/stream"} <= set(described["paths"])
    assert feature.get("/schema.json").status == 200


def test_a_large_upload_streams_through_byte_for_byte(feature, tmp_path):
    path = tmp_path / "large.bin"
    block = bytes(range(256)) * 4096
    with open(path, "wb") as f:
        for _ in range(40):  # 40 MiB: over limits.replay, under limits.body
            f.write(block)
    with open(path, "rb") as f:
        reply = httpx.post(f"{feature.url}/upload", files={"file": f}, timeout=90)
    assert reply.status_code == 200
    assert reply.json() == digest(path)


def test_a_body_over_the_limit_is_413_and_names_limit_and_value(serve):
    server = serve("service:Feature", "--limits.body", "64KiB", "--limits.replay", "64KiB").ready()
    reply = server.post("/predict", b"x" * 65537, headers={"Content-Type": "application/json"})
    assert reply.status == 413
    assert reply.json()["code"] == "request_too_large" and "65536" in reply.text()


def test_keep_alive_and_pipelining_keep_the_order(feature):
    sock = connect(feature.address)
    body = [b'{"x": %d}' % i for i in range(8)]
    sock.sendall(b"".join(
        b"POST /predict HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (len(b), b) for b in body))
    replies = OneReader(sock)
    for i in range(8):
        reply, whole = read_reply(replies)
        assert whole and json.loads(reply.body)["x"] == i
    sock.close()
