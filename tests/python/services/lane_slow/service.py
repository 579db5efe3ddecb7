"""Handlers that wait, count how many run at once, and kill the worker."""

import asyncio
import os
import sys
import gc
import threading
import time
import typing as t
import weakref

import bentoml

lock = threading.Lock()
things = weakref.WeakSet()


class Thing:
    """Something large, if this were a model."""

    def __init__(self) -> None:
        things.add(self)


now = 0
most = 0


def enter() -> None:
    global now, most
    with lock:
        now += 1
        most = max(most, now)


def leave() -> None:
    global now
    with lock:
        now -= 1


@bentoml.service(threads=int(os.environ.get("SLOW_THREADS", "1")), traffic={"timeout": 20})
class Slow:
    @bentoml.api
    def nap(self, seconds: float = 0.2, tag: str = "") -> dict:
        enter()
        try:
            time.sleep(seconds)
            return {"tag": tag}
        finally:
            leave()

    @bentoml.api
    async def anap(self, seconds: float = 0.2, tag: str = "") -> dict:
        await asyncio.sleep(seconds)
        return {"tag": tag}

    @bentoml.api
    def parts(self, n: int = 3) -> t.Generator[str, None, None]:
        for i in range(n):
            enter()
            time.sleep(0.05)
            leave()
            yield "%d\n" % i

    @bentoml.api
    async def most(self) -> int:
        return most

    @bentoml.api
    def ends(self, how: str) -> int:
        if how == "exit":
            sys.exit(7)
        if how == "os":
            os._exit(9)
        raise KeyboardInterrupt

    @bentoml.api
    def uses(self, how: str = "well") -> int:
        thing = Thing()
        if how == "fails":
            raise ValueError(str(thing))
        return 1

    @bentoml.api
    async def auses(self, how: str = "well") -> int:
        thing = Thing()
        if how == "fails":
            raise ValueError(str(thing))
        return 1

    @bentoml.api
    async def left(self) -> int:
        gc.collect()
        return len(things)
