"""The rules of `plimsoll lint`: the only list of them. The reference page is made from it, the tests run its examples.

`bad` must give exactly this rule, `good` (the near miss) nothing. An example without a class
is the body of SERVICE below.
"""

from collections import namedtuple

Rule = namedtuple("Rule", "id level title why fix bad good")

PRELUDE = """import asyncio, collections, multiprocessing, pathlib, queue, subprocess, time
from typing import Annotated, Generator
import bentoml, torch
from pydantic import Field

DEVICE = "cuda"
Row = Annotated[list[float], Field(max_length=8)]

"""
SERVICE = """@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt", map_location=DEVICE).eval()
        self.kept = []
        self.recent = collections.deque(maxlen=100)
        self.retries = queue.Queue()

    def __is_ready__(self):
        return True

"""


def whole(example):
    """An example as a file."""
    if "class " in example:
        return PRELUDE + example
    body = "".join("    " + line if line.strip() else line for line in example.splitlines(True))
    return PRELUDE + SERVICE + body


RULES = []


def rule(*cells):
    RULES.append(Rule(*[c.strip("\n") + ("\n" if "\n" in c else "") for c in cells]))


rule(
    "PL001",
    "error",
    "model loaded inside a request handler",
    "The first request pays for the load and may time out; until then the service says that it is ready.",
    "Load in `__init__`.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    model = torch.jit.load("other.pt").eval()
    with torch.inference_mode():
        return model(torch.tensor([x], device=DEVICE)).cpu().tolist()
""",
    """
def load(self):
    self.model = torch.jit.load("other.pt").eval()

@bentoml.api
def predict(self, x: Row) -> list[float]:
    with torch.inference_mode():
        return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()
""",
)
rule(
    "PL002",
    "warning",
    "model load or warm-up at module level",
    "`bentoml serve` imports the file in its arbiter too: the device holds one copy more than there are workers.",
    "Load and warm up in `__init__` of the service.",
    """
MODEL = torch.jit.load("model.pt", map_location=DEVICE).eval()

@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __is_ready__(self):
        return True

    @bentoml.api
    def predict(self, x: Row) -> list[float]:
        with torch.inference_mode():
            return MODEL(torch.tensor([x], device=DEVICE)).cpu().tolist()
""",
    """
def load():
    return torch.jit.load("model.pt", map_location=DEVICE).eval()

@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = load()

    def __is_ready__(self):
        return True

if __name__ == "__main__":
    print(load())
""",
)
rule(
    "PL003",
    "error",
    "model called in a handler without `inference_mode` or `no_grad`",
    "PyTorch then keeps what `backward()` would need: more memory a request, and all of it for as long as anything made "
    "from the result is kept.",
    "Call it within `with torch.inference_mode():`.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    return self.model(torch.tensor([x], device=DEVICE)).detach().cpu().tolist()
""",
    """
@torch.inference_mode()
def run(self, x):
    return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()

@bentoml.api
def predict(self, x: Row) -> list[float]:
    return self.run(x)
""",
)
rule(
    "PL004",
    "warning",
    "model loaded without `eval()`",
    "Dropout and batch normalisation stay in training mode: other answers, and statistics that change with each request.",
    "Append `.eval()` to the load. (`from_pretrained` does it by itself.)",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt", map_location=DEVICE)

    def __is_ready__(self):
        return True

    @bentoml.api
    def predict(self, x: Row) -> list[float]:
        with torch.inference_mode():
            return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()
""",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt", map_location=DEVICE)
        self.model.train(False)

    def __is_ready__(self):
        return True

    @bentoml.api
    def predict(self, x: Row) -> list[float]:
        with torch.inference_mode():
            return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()
""",
)
rule(
    "PL005",
    "error",
    "device tensor kept beyond the request without a bound",
    "Each request leaves its tensor on the device until there is no memory left. A `deque(maxlen)`, a cache with a size "
    "and code that evicts are bounds; a removal that an early end of the handler skips is none.",
    "Keep host values (`.cpu()`, `.item()`), or give the container a bound.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE))
    self.kept.append(y)
    return y.cpu().tolist()
""",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE))
    self.recent.append(y)
    return y.cpu().tolist()
""",
)
rule(
    "PL006",
    "warning",
    "container without a bound grows with each request (host values)",
    "Host memory grows until the kernel ends the whole container.",
    "Give it a bound: `deque(maxlen=…)`, `lru_cache(maxsize=…)`, or remove the oldest entry.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    self.kept.append(x)
    return x
""",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    self.kept.append(x)
    if len(self.kept) > 100:
        self.kept.pop(0)
    return x
""",
)
rule(
    "PL007",
    "warning",
    "device tensor returned from an API",
    "It lives until the reply is written, and the copy to the host happens in the event loop.",
    "Return `.cpu()` or plain values.",
    """
@bentoml.api
def predict(self, x: Row) -> torch.Tensor:
    with torch.inference_mode():
        return self.model(torch.tensor([x], device=DEVICE))
""",
    """
@bentoml.api
def predict(self, x: Row) -> torch.Tensor:
    with torch.inference_mode():
        return self.model(torch.tensor([x], device=DEVICE)).cpu()
""",
)
rule(
    "PL008",
    "error",
    "exception, traceback or request kept",
    "A traceback holds its frames, and the frames hold every tensor of the request.",
    "Keep `type(e).__name__` and `str(e)`.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    try:
        return [1 / v for v in x]
    except ZeroDivisionError as error:
        self.recent.append(error)
        raise
""",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    try:
        return [1 / v for v in x]
    except ZeroDivisionError as error:
        self.recent.append((type(error).__name__, str(error)))
        raise
""",
)
rule(
    "PL009",
    "error",
    "retry queue or callback holds intermediate tensors",
    "What waits to be done again holds device memory for as long as it waits, most of all when the device is in trouble.",
    "Queue the raw input.",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE))
    self.retries.put({"hidden": y})
    return y.cpu().tolist()
""",
    """
def again(self):
    return self.retries.get()

@bentoml.api
def predict(self, x: Row) -> list[float]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE))
    self.retries.put(x)
    return y.cpu().tolist()
""",
)
rule(
    "PL010",
    "warning",
    "generator holds a device tensor across `yield`",
    "The tensor stays for as long as the client takes to read, and longer when it goes away.",
    "Make plain values of it before the first `yield`, or compute each step in a function of its own.",
    """
@bentoml.api
def stream(self, x: Row) -> Generator[str, None, None]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE))
    for i in range(8):
        yield str(y[0, i].item())
""",
    """
@bentoml.api
def stream(self, x: Row) -> Generator[str, None, None]:
    with torch.inference_mode():
        y = self.model(torch.tensor([x], device=DEVICE)).cpu()
    for i in range(8):
        yield str(y[0, i].item())
""",
)
rule(
    "PL011",
    "warning",
    "`empty_cache()` on the request path without a threshold",
    "It cures no leak: it gives back what the next request asks the driver for again, and that stalls the device.",
    "Leave it out, or do it rarely and above a mark of reserved bytes (`empty_cache` in plimsoll.yaml does).",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    torch.cuda.empty_cache()
    return x
""",
    """
@bentoml.api
def predict(self, x: Row) -> list[float]:
    if torch.cuda.memory_reserved() > 20 * 1024**3:
        torch.cuda.empty_cache()
    return x
""",
)
rule(
    "PL012",
    "error",
    "API routed to /readyz, /livez or /healthz",
    "An API answers POST only: a probe's GET reaches BentoML's own route, which says 200 whatever this one would say.",
    "Define `__is_ready__`.",
    """
@bentoml.api(route="/readyz")
def ready(self) -> dict:
    return {"ready": True}
""",
    """
@bentoml.api(route="/model/ready")
def ready(self) -> dict:
    return {"ready": True}
""",
)
rule(
    "PL013",
    "warning",
    "service with a model has no `__is_ready__`",
    "The built-in readiness says yes for a service that is broken or not warm.",
    "Define `__is_ready__` to say whether the warm-up is over and the model works.",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt").eval()
""",
    """
class Ready:
    def __is_ready__(self):
        return True

@bentoml.service(resources={"gpu": 1}, threads=1)
class Service(Ready):
    def __init__(self):
        self.model = torch.jit.load("model.pt").eval()

@bentoml.service
class WithoutModel:
    @bentoml.api
    def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL014",
    "warning",
    "`max_concurrency` without `threads` on sync handlers",
    "`threads` is 1 by default: the others are let in and wait inside, where nobody sees them.",
    "Set `threads` (an explicit `threads=1` is taken as meant).",
    """
@bentoml.service(traffic={"max_concurrency": 64})
class Service:
    @bentoml.api
    def scale(self, x: Row) -> Row:
        return x
""",
    """
@bentoml.service(traffic={"max_concurrency": 64})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL015",
    "note",
    "explicit `traffic.timeout` with sync handlers",
    "A 504 ends the client's wait, not the handler: its thread and its memory go on. Plimsoll counts them and keeps their place.",
    "Bound the work inside the handler.",
    """
@bentoml.service(traffic={"timeout": 30}, threads=1)
class Service:
    @bentoml.api
    def scale(self, x: Row) -> Row:
        return x
""",
    """
@bentoml.service(traffic={"timeout": 30})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL016",
    "warning",
    "timeout of 600 s or more",
    "BentoML keeps the context of each finished request in host memory until its timeout is over.",
    "Use a timeout near the longest request, or let Plimsoll own it.",
    """
@bentoml.service(traffic={"timeout": 60 * 60})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
    """
@bentoml.service(traffic={"timeout": 599})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL017",
    "error",
    "more workers than GPUs of the service",
    "Each worker loads the model: that many copies on the same device.",
    "One worker a GPU; batch or use threads for more.",
    """
@bentoml.service(resources={"gpu": 1}, workers=4, threads=1)
class Service:
    @bentoml.api
    def scale(self, x: Row) -> Row:
        return x
""",
    """
@bentoml.service(resources={"gpu": 4}, workers=4, threads=1)
class Service:
    @bentoml.api
    def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL018",
    "error",
    "blocking call or inference in an `async def` handler",
    "The event loop stands still meanwhile: no other request, and no answer on /livez.",
    "`await asyncio.to_thread(self.run, x)`, or make the handler a plain `def`.",
    """
@bentoml.api
async def predict(self, x: Row) -> list[float]:
    time.sleep(0.1)
    return x
""",
    """
def run(self, x):
    time.sleep(0.1)
    with torch.inference_mode():
        return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()

@bentoml.api
async def predict(self, x: Row) -> list[float]:
    await asyncio.sleep(0.1)
    return await asyncio.to_thread(self.run, x)
""",
)
rule(
    "PL019",
    "error",
    "weights or tokenizer fetched at run time",
    "Without the network, or when the hub refuses, there is no service; every new pod downloads again.",
    "Put the model into the bento (`BentoModel`, `HuggingFaceModel`) or the image, and load it from there.",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        from transformers import AutoModel
        self.model = AutoModel.from_pretrained("org/model")

    def __is_ready__(self):
        return True
""",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    weights = bentoml.models.HuggingFaceModel("org/model")

    def __init__(self):
        from transformers import AutoModel
        self.model = AutoModel.from_pretrained(self.weights)
        self.other = AutoModel.from_pretrained("org/model", local_files_only=True)

    def __is_ready__(self):
        return True
""",
)
rule(
    "PL020",
    "warning",
    "text or list input of any length becomes a tensor shape",
    "The allocator keeps memory for each new longest input: reserved climbs, and one long request is an OOM.",
    "`Annotated[str, Field(max_length=…)]`, or cut and pad to a few lengths.",
    """
@bentoml.api
def predict(self, text: str) -> int:
    codes = list(text.encode())
    return int(torch.tensor([codes], device=DEVICE).shape[1])
""",
    """
@bentoml.api
def predict(self, text: str) -> int:
    codes = list(text.encode())[:512]
    return int(torch.tensor([codes], device=DEVICE).shape[1])
""",
)
rule(
    "PL021",
    "warning",
    "`batchable` without `max_batch_size`",
    "The default is 100 rows, whatever your model needs for them.",
    "Set `max_batch_size` to what fits: `plimsoll soak --scenario batch` finds it.",
    """
@bentoml.api(batchable=True)
def rows(self, rows: Row) -> Row:
    return rows
""",
    """
@bentoml.api(batchable=True, max_batch_size=16)
def rows(self, rows: Row) -> Row:
    return rows
""",
)
rule(
    "PL022",
    "warning",
    "warm-up without a synchronise at its end",
    "The calls only queue kernels: ready is said before the device has done one of them.",
    "End with `torch.cuda.synchronize()`, or read a value (`.item()`).",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt", map_location=DEVICE).eval()
        with torch.inference_mode():
            self.model(torch.zeros(1, 3, device=DEVICE))

    def __is_ready__(self):
        return True
""",
    """
@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.model = torch.jit.load("model.pt", map_location=DEVICE).eval()
        with torch.inference_mode():
            self.model(torch.zeros(1, 3, device=DEVICE)).sum().item()

    def __is_ready__(self):
        return True
""",
)
rule(
    "PL023",
    "warning",
    "`max_latency_ms` set as a batching window",
    "It is no window: it is the age at which a waiting request is refused with 503.",
    "Leave it at its default; the batcher tunes its window by itself.",
    """
@bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=10)
def rows(self, rows: Row) -> Row:
    return rows
""",
    """
@bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=30000)
def rows(self, rows: Row) -> Row:
    return rows
""",
)
rule(
    "PL024",
    "warning",
    "`traffic.concurrency` taken for a limit",
    "It is a hint for the autoscaler and limits nothing.",
    "Set `max_concurrency`.",
    """
@bentoml.service(traffic={"concurrency": 8})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
    """
@bentoml.service(traffic={"concurrency": 8, "max_concurrency": 16})
class Service:
    @bentoml.api
    async def scale(self, x: Row) -> Row:
        return x
""",
)
rule(
    "PL025",
    "warning",
    "class attribute `bentoml.models.get`",
    "The bento does not record the model, so it is not in the image.",
    '`bentoml.models.BentoModel("name:tag")`.',
    """
@bentoml.service
class Service:
    weights = bentoml.models.get("scorer:latest")
""",
    """
@bentoml.service
class Service:
    weights = bentoml.models.BentoModel("scorer:latest")
""",
)
rule(
    "PL026",
    "warning",
    "clean-up that waits for a cancellation",
    "BentoML does not cancel a plain async handler when its client goes away: this code does not run.",
    "Clean up in `finally`. (An async generator is ended when its client goes away.)",
    """
@bentoml.api
async def predict(self, x: Row) -> list[float]:
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        self.kept.clear()
        raise
    return x
""",
    """
@bentoml.api
async def stream(self, x: Row) -> Generator[str, None, None]:
    try:
        for value in x:
            await asyncio.sleep(1)
            yield str(value)
    except asyncio.CancelledError:
        self.kept.clear()
        raise
""",
)
rule(
    "PL027",
    "warning",
    "file as root input",
    "A client may send a URL in its place, and the worker downloads what it names.",
    "Take the file as a named field of a form.",
    """
@bentoml.api
def size(self, image: pathlib.Path, /) -> int:
    return image.stat().st_size
""",
    """
@bentoml.api
def size(self, image: pathlib.Path) -> int:
    return image.stat().st_size
""",
)
rule(
    "PL028",
    "error",
    "model loaded again in child processes",
    "Each child holds a copy of its own on the same device.",
    "Keep the model in the worker; give children host values only.",
    """
def load():
    return torch.jit.load("model.pt", map_location=DEVICE).eval()

@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.pool = multiprocessing.get_context("spawn").Pool(2, initializer=load)
""",
    """
def prepare():
    return collections.Counter()

@bentoml.service(resources={"gpu": 1}, threads=1)
class Service:
    def __init__(self):
        self.pool = multiprocessing.get_context("spawn").Pool(2, initializer=prepare)
""",
)
rule(
    "PL029",
    "error",
    "bentofile: no `models`",
    "The service loads a model of the store that neither the bentofile nor a class attribute names: it is not in the image.",
    "List it under `models`, or use `BentoModel` in the class body.",
    """
service: "service:Service"
""",
    """
service: "service:Service"
models:
  - "scorer:latest"
""",
)
rule(
    "PL030",
    "warning",
    "bentofile: package without a version or lock",
    "The next build takes whatever is newest: another image from the same commit.",
    "Pin it (`torch==2.8.0`), or a requirements file with `lock_packages: true`.",
    """
service: "service:Service"
models: ["scorer:latest"]
docker: {cuda_version: "12.8"}
python:
  packages:
    - torch
""",
    """
service: "service:Service"
models: ["scorer:latest"]
docker: {cuda_version: "12.8"}
python:
  packages:
    - torch==2.8.0
""",
)
rule(
    "PL031",
    "warning",
    "bentofile: `include` takes everything",
    "Data, caches and secrets of the folder go into the image, and every change of them makes a new one.",
    "Name the files: `*.py`.",
    """
service: "service:Service"
models: ["scorer:latest"]
include: ["*"]
""",
    """
service: "service:Service"
models: ["scorer:latest"]
include: ["*.py"]
""",
)
rule(
    "PL032",
    "warning",
    "bentofile: GPU service without a CUDA base image or version",
    "The default image has no CUDA; what the wheels do not bring is missing at run time.",
    "`docker: {cuda_version: …}` or a `base_image` that has it.",
    """
service: "service:Service"
models: ["scorer:latest"]
python: {packages: ["torch==2.8.0"]}
docker: {python_version: "3.11"}
""",
    """
service: "service:Service"
models: ["scorer:latest"]
python: {packages: ["scikit-learn==1.8.0"]}
docker: {python_version: "3.11"}
""",
)
rule(
    "PL033",
    "error",
    "a file that lint cannot parse",
    "Neither can Python, or libyaml: the service does not start, or the bento is not built.",
    "Mend it at the line named; a file for a newer Python is judged by that Python (`--python`).",
    """
class Service:
    def predict(self
""",
    """
class Service:
    def predict(self): ...
""",
)
