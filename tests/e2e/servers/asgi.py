"""An ASGI application that BentoML has nothing to do with, watched in the way that WATCH says."""

import os
import subprocess
import sys

from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import plimsoll

kept = []
ASK = """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["PLIMSOLL_AGENTS"])
print(s.recv(4096).decode())
"""


async def double(request):
    return JSONResponse(2 * (await request.json())["x"])


async def item(request):
    return JSONResponse(request.path_params["name"])


async def fail(request):
    raise LookupError("no such thing")


async def keep(request):
    import torch

    with plimsoll.watch("keeping", [1, 2, 3]):  # a part of the request, no request of its own
        kept.append(torch.empty((await request.json())["mib"] << 20, dtype=torch.uint8, device="cuda"))
    return JSONResponse(len(kept))


async def out_of_memory(request):
    import torch

    torch.empty(1 << 45, device="cuda")


async def stream(request):
    async def pieces():
        for _ in range(3):
            yield b"piece\n"

    return StreamingResponse(pieces())


async def block(request):
    """Work on a thread of its own, as a job would be."""
    import threading

    def work():
        with plimsoll.watch("embed", ["a text", "another"]):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return JSONResponse(None)


async def another(request):
    """What a second process of this worker is told."""
    return JSONResponse(subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True).stdout)


async def health(request):
    return JSONResponse("ok")


handlers = [double, fail, keep, out_of_memory, stream, block, another]
app = Starlette(routes=[
    *(Route(f"/{h.__name__}", h, methods=["POST"]) for h in handlers),
    Route("/items/{name}", item, methods=["POST"]),
    Route("/health", health),
])  # fmt: skip
if os.environ.get("WATCH") == "middleware":
    app.add_middleware(plimsoll.watch)
else:
    app = plimsoll.watch(app)
