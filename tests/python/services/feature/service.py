"""One endpoint for each way in which a handler can run and end. TRACE names a file for notes; GATES a folder in which a
handler waits for a file, so that tests decide when it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import typing as t
from pathlib import Path

import bentoml
import numpy as np
from bentoml.exceptions import InvalidArgument
from pydantic import BaseModel, Field


def note(text):
    if trace := os.environ.get("TRACE"):
        with open(trace, "a") as out:
            out.write(text + "\n")


note("import")
print("the module talks while it is imported")


def wait_for(gate):
    """Blocks until the test opens the gate."""
    while not Path(gate).exists():
        time.sleep(0.005)


class Prompt(BaseModel):
    text: str = Field(examples=["hello"])
    max_tokens: int = Field(default=16, ge=1)


class Scored(BaseModel):
    model_config = {"json_schema_extra": {"example": {"score": 0.5}}}
    score: float


class FakeOutOfMemoryError(RuntimeError):
    pass


@bentoml.service(traffic={"timeout": 5}, threads=2)
class Pre:
    @bentoml.api
    def scale(self, x: float) -> float:
        return x * 2.0


@bentoml.service(
    name="feature",
    traffic={"timeout": 30, "max_concurrency": 64},
    workers=2,
    threads=4,
    metrics={"enabled": True, "namespace": "shop"},
    http={"port": 4100, "cors": {"enabled": True, "access_control_allow_origins": ["https://a.example", "*"],
                                 "access_control_max_age": 600}},
)
class Feature:
    pre = bentoml.depends(Pre)

    @bentoml.on_deployment
    def deployed():
        note("on_deployment")

    def __init__(self):
        note("init")

    @bentoml.on_startup
    def startup(self):
        note("on_startup")

    @bentoml.on_shutdown
    def shutdown(self):
        note("on_shutdown")

    def __is_ready__(self) -> bool:
        return True

    # --- shapes of input

    @bentoml.api
    def text(self, name: str = "x", n: t.Optional[int] = None) -> str:
        return f"hello {name}"

    @bentoml.api
    def prompt(self, p: Prompt) -> str:
        return p.text

    @bentoml.api
    def root(self, p: Scored, /) -> float:
        return p.score

    @bentoml.api
    def needs(self, x: int) -> int:
        return x

    @bentoml.api
    def size(self, file: Path) -> int:
        return file.stat().st_size

    @bentoml.api
    def array(self, a: np.ndarray) -> int:
        return int(a.size)

    @bentoml.api
    def no_input(self) -> int:
        return 1

    # --- ways to end

    @bentoml.api
    def gated(self, gate: str) -> str:
        note(f"gated {gate}")
        wait_for(gate)
        return "open"

    @bentoml.api
    async def sleeps(self, s: float = 0.0) -> str:
        try:
            await asyncio.sleep(s)
        except asyncio.CancelledError:
            note("sleeps cancelled")
            raise
        return "slept"

    @bentoml.api
    async def blocks(self, gate: str) -> str:
        wait_for(gate)
        return "blocked"

    @bentoml.api
    def value_error(self) -> str:
        raise ValueError("a detail the client must not see")

    @bentoml.api
    def out_of_memory(self) -> str:
        raise FakeOutOfMemoryError("CUDA out of memory")

    @bentoml.api
    def invalid(self) -> str:
        raise InvalidArgument("bad thing")

    @bentoml.api
    def die(self) -> str:
        os._exit(7)

    # --- streams

    @bentoml.api
    async def stream(self, n: int = 3) -> t.AsyncGenerator[str, None]:
        try:
            for i in range(n):
                await asyncio.sleep(0)
                yield f"data: {i}\n\n"
        finally:
            note("stream closed")

    @bentoml.api
    def stream_sync(self, n: int = 3) -> t.Generator[str, None, None]:
        for i in range(n):
            yield f"{i}\n"

    @bentoml.api
    def stream_gated(self, gate: str) -> t.Generator[str, None, None]:
        yield "first\n"
        wait_for(gate)
        yield "last\n"

    @bentoml.api
    async def stream_breaks(self, after: int = 1) -> t.AsyncGenerator[str, None]:
        for i in range(after):
            yield f"{i}\n"
        raise ValueError("stream failed")

    @bentoml.api
    async def stream_for_ever(self) -> t.AsyncGenerator[str, None]:
        try:
            while True:
                yield "x" * 1000
                await asyncio.sleep(0.001)
        finally:
            note("stream_for_ever closed")

    @bentoml.api
    def stream_sync_for_ever(self) -> t.Generator[str, None, None]:
        try:
            while True:
                yield "x" * 1000
        finally:
            note("stream_sync_for_ever closed")

    @bentoml.api
    def collects_garbage(self, yes: bool) -> bool:
        (gc.enable if yes else gc.disable)()
        return gc.isenabled()

    # --- batches, dependencies, tasks

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=60000)
    def batch(self, x: t.List[str]) -> t.List[str]:
        note(f"batch {len(x)}")
        if "fail" in x:
            raise FakeOutOfMemoryError("CUDA out of memory")
        for gate in x:
            if gate.startswith("/"):
                wait_for(gate)
        return x

    @bentoml.api
    async def use_dependency(self, x: float = 1.0) -> float:
        return await self.pre.to_async.scale(x)

    @bentoml.api
    async def use_itself(self, name: str = "me") -> str:
        return await self.to_async.text(name=name)

    @bentoml.task
    def job(self, gate: str) -> str:
        wait_for(gate)
        note("job done")
        return "done"

    # --- what the user's code and its subprocesses see

    @bentoml.api
    def surroundings(self) -> dict:
        import subprocess
        import sys

        code = "import os, json; print(json.dumps(sorted(int(f) for f in os.listdir('/proc/self/fd'))))"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, close_fds=False)
        return {
            "env": sorted(k for k in os.environ if k.startswith(("PLIMSOLL", "PYTHONPATH", "BENTOML_CONFIG"))),
            "child_fds": child.stdout.strip(),
            "path": sys.path,
            "cwd": os.getcwd(),
            "main": sys.modules["__main__"].__spec__.name,
        }

    @bentoml.api
    def spawns(self) -> int:
        import multiprocessing

        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(int, ("7",))

    @bentoml.api
    def forks(self) -> int:
        """A forked child that runs a handler must not write as the worker."""
        pid = os.fork()
        if pid == 0:
            type(self).text.func(self, "child")
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
