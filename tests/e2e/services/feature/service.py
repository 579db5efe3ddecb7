"""One endpoint for each behaviour of BentoML that the gateway has to live with.

JOURNAL names a file that gets one line for everything that really happened here: imports, begins and ends of handlers.
FLAGS names a folder; the file `notready` in it makes the service say that it is not ready.
What would hurt when called by a warm-up has a parameter without a default, so that no warm-up can be made for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import typing as t
from pathlib import Path

import bentoml
import numpy as np
import prometheus_client
from bentoml.exceptions import InvalidArgument
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute


def note(text):
    """O_APPEND and one write: lines of several workers and threads never mix."""
    if journal := os.environ.get("JOURNAL"):
        fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{text} pid={os.getpid()}\n".encode())
        os.close(fd)


note("import")
CALLS = prometheus_client.Counter("feature_calls", "Calls of predict that this service counted itself", ["kind"])


class Prompt(BaseModel):
    text: str
    max_tokens: int = Field(default=16, ge=1, le=4096)


async def echo(websocket):
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(f"echo {text}")


@bentoml.service(name="feature", traffic={"timeout": 30, "max_concurrency": 64}, workers=2, threads=4)
@bentoml.asgi_app(Starlette(routes=[WebSocketRoute("/echo", echo)]), path="/ws")
class Feature:
    def __init__(self):
        note("init")
        self.weights = np.eye(4)

    @bentoml.on_shutdown
    def shutdown(self):
        note("shutdown")

    def __is_ready__(self) -> bool:
        return not (Path(os.environ.get("FLAGS", "/nonexistent")) / "notready").exists()

    # ---- shapes of input and output

    @bentoml.api
    async def predict(self, x: int = 1) -> dict:
        CALLS.labels(kind="predict").inc()
        return {"x": x, "double": 2 * x, "pid": os.getpid()}

    @bentoml.api
    def prompt(self, req: Prompt) -> dict:
        return {"text": req.text, "n": req.max_tokens}

    @bentoml.api
    def text(self, name: str) -> str:
        return f"hello {name}"

    @bentoml.api
    def ndarray(self, x: np.ndarray) -> np.ndarray:
        return x * 2

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=10000)
    def batch(self, x: np.ndarray) -> np.ndarray:
        note(f"batch {x.shape[0]}")
        return x @ self.weights

    @bentoml.api
    def upload(self, file: Path) -> dict:
        data = file.read_bytes()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    @bentoml.api
    def download(self, size: int, ctx: bentoml.Context) -> Path:
        path = Path(ctx.temp_dir) / "blob.bin"
        path.write_bytes(bytes(i % 251 for i in range(size)))
        return path

    @bentoml.api
    def with_context(self, x: int, ctx: bentoml.Context) -> str:
        ctx.response.status_code = 418
        ctx.response.headers["x-foo"] = "bar"
        return str(ctx.request.headers.get("x-request-id", "none"))

    # ---- streams

    @bentoml.api
    async def stream(self, n: int = 3, pause: float = 0.0, tag: str = "") -> t.AsyncGenerator[str, None]:
        note(f"stream begin {tag}")
        try:
            for i in range(n):
                yield f"data: {i}\n\n"
                await asyncio.sleep(pause)
            note(f"stream end {tag}")
        except (asyncio.CancelledError, GeneratorExit):
            note(f"stream cancelled {tag}")
            raise

    @bentoml.api
    def stream_sync(self, n: int) -> t.Generator[str, None, None]:
        for i in range(n):
            yield f"{i}\n"

    @bentoml.api
    async def stream_breaks(self, after: int) -> t.AsyncGenerator[str, None]:
        for i in range(after):
            yield f"data: {i}\n\n"
        raise ValueError("stream failed")

    # ---- time

    @bentoml.api
    def work(self, number: int, seconds: float) -> dict:
        """A handler whose begin and end the journal tells."""
        note(f"begin {number}")
        time.sleep(seconds)
        note(f"end {number}")
        return {"number": number}

    @bentoml.api
    async def work_async(self, number: int, seconds: float) -> dict:
        note(f"begin {number}")
        await asyncio.sleep(seconds)
        note(f"end {number}")
        return {"number": number}

    @bentoml.task
    def job(self, number: int, seconds: float) -> int:
        note(f"job begin {number}")
        time.sleep(seconds)
        note(f"job end {number}")
        return number + 1

    # ---- failures

    @bentoml.api
    def value_error(self, text: str) -> str:
        raise ValueError(text)

    @bentoml.api
    def invalid(self, text: str) -> str:
        raise InvalidArgument(text)

    @bentoml.api
    def die(self, status: int) -> str:
        note(f"die {status}")
        os._exit(status)
