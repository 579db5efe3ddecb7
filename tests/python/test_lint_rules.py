"""The rules of `plimsoll lint`, each by what it finds and by what is nearly that and is not found."""

import ast
import textwrap

import pytest

from plimsoll.lint.judge import Judge, judge
from plimsoll.lint.rules import RULES, whole
from plimsoll.lint.source import Api, Service, Source

BENTOFILE = {"PL029", "PL030", "PL031", "PL032"}  # judged by the verb: tests/e2e/test_lint.py
BY_AST = [r for r in RULES if r.id not in BENTOFILE | {"PL033"}]
HANDLER = "@bentoml.api\ndef predict(self, x: Row) -> list[float]:\n"


def found(text):
    return [f.rule for f in judge(Source("service.py", text))[0]]


def handler(body):
    """A handler with this body in the service of the examples."""
    return whole(HANDLER + textwrap.indent(textwrap.dedent(body).strip() + "\n", "    "))


RUN = "with torch.inference_mode():\n    y = self.model(torch.tensor([x], device=DEVICE))\n"


def kept(statement, before=""):
    return handler(before + RUN + statement + "\nreturn y.cpu().tolist()\n")


def test_every_rule_has_its_own_row():
    assert [r.id for r in RULES] == [f"PL{n:03d}" for n in range(1, 34)]
    assert all(r.level in ("error", "warning", "note") and r.why and r.fix and r.bad and r.good for r in RULES)


@pytest.mark.parametrize("rule", BY_AST, ids=lambda r: r.id)
def test_the_example_is_found_and_the_near_miss_is_not(rule):
    assert found(whole(rule.bad)) == [rule.id]
    assert found(whole(rule.good)) == []


FOUND = {
    # containers and attributes
    "a dict by request": ("PL005", kept("self.cache[tuple(x)] = y", "").replace("self.kept = []", "self.cache = {}")),
    "a set of tensors": ("PL005", kept("self.kept.add(y)").replace("self.kept = []", "self.kept = set()")),
    "a tensor inside a dict inside a tuple": ("PL005", kept("self.kept.append(({'y': y}, 1))")),
    "extend": ("PL005", kept("self.kept.extend([y, y])")),
    "augmented list": ("PL005", kept("self.kept += [y]")),
    "a local name of the container": ("PL005", kept("box = self.kept\nbox.append(y)")),
    "by a method": ("PL005", whole(HANDLER + textwrap.indent(RUN, "    ") + "    self.keep(y)\n    return x\n\ndef keep(self, what):\n    self.kept.append(what)\n")),
    "a buffer that is joined": ("PL005", kept("self.buffer = torch.cat([self.buffer, y])")),
    "deque without a length": ("PL005", kept("self.recent.append(y)").replace("maxlen=100", "maxlen=None")),
    "a list of the results in a list": ("PL005", kept("self.kept.append([row for row in y])")),
    "the request in a deque": ("PL008", whole('@bentoml.api\ndef predict(self, x: Row, ctx: bentoml.Context) -> Row:\n    self.recent.append(ctx)\n    return x\n')),
    "a traceback in an attribute": ("PL008", handler("try:\n    return x\nexcept ValueError as e:\n    self.last = e.__traceback__\n    raise")),
    "exc_info": ("PL008", handler("import sys\nself.recent.append(sys.exc_info())\nreturn x")),
    "a callback with a tensor": ("PL009", kept("self.task.add_done_callback(lambda _: print(y))")),
    "host values by request": ("PL006", handler("self.kept.append(x)\nreturn x")),
    # inference
    "a helper without inference_mode": ("PL003", whole("def run(self, x):\n    return self.model(torch.tensor([x], device=DEVICE))\n\n" + HANDLER + "    return self.run(x).detach().cpu().tolist()\n")),
    "a model of a class of this file": ("PL003", whole('class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.net = Net().eval()\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def predict(self, x: Row) -> list[float]:\n        return self.net(torch.tensor(x)).tolist()\n')),
    "a model inside an object": ("PL003", whole('class Engine:\n    def __init__(self):\n        self.net = torch.jit.load("m.pt").eval()\n    def run(self, x):\n        return self.net(torch.tensor(x))\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.engine = Engine()\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def predict(self, x: Row) -> list[float]:\n        return self.engine.run(x).tolist()\n')),
    "imported by another name": ("PL007", whole('from torch import inference_mode as quiet\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.net = torch.jit.load("m.pt", map_location=DEVICE).eval()\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def predict(self, x: Row):\n        with quiet():\n            return {"out": self.net(torch.tensor(x, device=DEVICE))}\n')),
    "an async handler that calls a sync helper": ("PL018", whole("def run(self, x):\n    time.sleep(1)\n\n@bentoml.api\nasync def predict(self, x: Row) -> Row:\n    self.run(x)\n    return x\n")),
    "subprocess in async": ("PL018", whole("@bentoml.api\nasync def predict(self, x: Row) -> Row:\n    subprocess.run(['true'])\n    return x\n")),
    "inference in async": ("PL018", whole("@bentoml.api\nasync def predict(self, x: Row) -> list[float]:\n" + textwrap.indent(RUN, "    ") + "    return y.cpu().tolist()\n")),
    "a stream that holds two": ("PL010", whole("@bentoml.api\nasync def stream(self, x: Row) -> Generator[str, None, None]:\n    y = torch.zeros(3, device=DEVICE)\n    yield 'a'\n    yield 'b'\n")),
    # load
    "a tokenizer from the hub": ("PL019", whole('@bentoml.service\nclass Service:\n    def __init__(self):\n        import transformers as t\n        self.tok = t.AutoTokenizer.from_pretrained(NAME)\n\nNAME = "org/model"\n')),
    "by a class method": ("PL001", whole("def load(self):\n    self.other = torch.jit.load('m.pt').eval()\n\n" + HANDLER + "    self.load()\n    return x\n")),
    "in the class body": ("PL002", whole('@bentoml.service(threads=1)\nclass Service:\n    model = torch.jit.load("m.pt").eval()\n    def __is_ready__(self):\n        return True\n')),
    # settings
    "traffic in a constant": ("PL016", whole('TRAFFIC = {"timeout": 1200}\n\n@bentoml.service(traffic=TRAFFIC)\nclass Service:\n    @bentoml.api\n    async def scale(self, x: Row) -> Row:\n        return x\n')),
    "the name is the route": ("PL012", whole("@bentoml.api\ndef livez(self) -> dict:\n    return {}\n")),
    "cpu_count with a GPU": ("PL017", whole('@bentoml.service(resources={"gpu": 1}, workers="cpu_count")\nclass Service:\n    pass\n')),
    "a batch of texts of any length": ("PL020", whole("@bentoml.api(batchable=True, max_batch_size=8)\ndef rows(self, rows: list[str]) -> list[int]:\n    return [int(torch.tensor(list(r.encode()), device=DEVICE).shape[0]) for r in rows]\n")),
    "limit only below": ("PL020", whole("@bentoml.api\ndef predict(self, x: Annotated[list[float], Field(min_length=1)]) -> int:\n    return int(torch.tensor(x, device=DEVICE).shape[0])\n")),
    "pool of processes": ("PL028", whole('from concurrent.futures import ProcessPoolExecutor\n\ndef load():\n    return torch.jit.load("m.pt").eval()\n\n@bentoml.service\nclass Service:\n    def __init__(self):\n        self.pool = ProcessPoolExecutor(2, initializer=load)\n')),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    rule, text = FOUND[name]
    assert rule in found(text)


NOT_FOUND = {
    "the last result only": kept("self.last = y.cpu()"),
    "the last result on the device": kept("self.last = y"),
    "evicted in the same handler": kept("self.kept.append(y)\nif len(self.kept) > 10:\n    del self.kept[0]"),
    "begun anew": whole(HANDLER + "    self.kept = self.kept[-10:]\n    self.kept.append(x)\n    return x\n"),
    "evicted by a thread": whole("def trim(self):\n    while True:\n        self.kept.pop(0)\n\n" + HANDLER + "    self.kept.append(x)\n    return x\n"),
    "removed in finally": kept("self.kept.append(y)\ntry:\n    y = y + 1\nfinally:\n    self.kept.remove(y)"),
    "a list of this request": kept("parts = []\nparts.append(y)"),
    "handed to who knows": kept("self.kept.append(x)\ntrim(self.kept)"),
    "a cache with a size": whole('import cachetools\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.cache = cachetools.LRUCache(100)\n    @bentoml.api\n    def predict(self, x: Row) -> Row:\n        self.cache[tuple(x)] = x\n        return x\n'),
    "counters by fixed keys": whole('STATS = {}\n\n@bentoml.service(threads=1)\nclass Service:\n    @bentoml.api\n    def predict(self, x: Row) -> Row:\n        STATS["last"] = len(x)\n        return x\n'),
    "a work queue with its consumer": whole("def work(self):\n    while True:\n        self.jobs.get()\n\n" + HANDLER + textwrap.indent(RUN, "    ") + "    self.jobs.put(y)\n    return x\n").replace("self.retries", "self.jobs"),
    "the text of an exception": handler("try:\n    return x\nexcept ValueError as e:\n    self.last = str(e)\n    raise"),
    "a mean without a graph": kept("self.mean = self.mean * 0.9 + y.mean() * 0.1"),
    "no_grad by decorator of a helper": whole("@torch.no_grad()\ndef run(self, x):\n    return self.model(torch.tensor([x], device=DEVICE))\n\n" + HANDLER + "    return self.run(x).cpu().tolist()\n"),
    "gradients off for the process": whole(HANDLER + "    return self.model(torch.tensor([x], device=DEVICE)).cpu().tolist()\n").replace('        self.kept = []', '        self.kept = []\n        torch.set_grad_enabled(False)'),
    "a loss in a handler is no model": handler("return float(torch.nn.functional.relu(torch.tensor(x)).sum())"),
    "softmax is no load": handler("return torch.nn.Softmax(dim=0)(torch.tensor(x)).tolist()"),
    "a model that is no torch": whole('import joblib\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.model = joblib.load("m")\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def predict(self, x: Row) -> list[float]:\n        return self.model.predict([x]).tolist()\n'),
    "an image out of a pipeline": whole('@bentoml.service(threads=1)\nclass Service:\n    weights = bentoml.models.HuggingFaceModel("org/m")\n    def __init__(self):\n        from diffusers import AutoPipelineForText2Image\n        self.pipe = AutoPipelineForText2Image.from_pretrained(self.weights)\n        self.pipe.to(device="cuda")\n        self.pipe("warm")\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def draw(self, text: str):\n        return self.pipe(text).images[0]\n'),
    "vectors out of SentenceTransformer": whole('from sentence_transformers import SentenceTransformer\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.model = SentenceTransformer("/models/m", device=DEVICE)\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def embed(self, text: str):\n        return self.model.encode([text])\n'),
    "eval by a later line": whole('@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.model = torch.jit.load("m.pt")\n        self.other = 1\n        self.model.eval()\n    def __is_ready__(self):\n        return True\n    @bentoml.api\n    def predict(self, x: Row) -> list[float]:\n        with torch.inference_mode():\n            return self.model(torch.tensor(x)).tolist()\n'),
    "empty_cache after an OOM": handler("try:\n    return x\nexcept torch.cuda.OutOfMemoryError:\n    torch.cuda.empty_cache()\n    raise"),
    "empty_cache now and then": handler("self.n = 1\nif self.n % 500:\n    return x\ntorch.cuda.empty_cache()\nreturn x"),
    "async that only awaits": whole("@bentoml.api\nasync def predict(self, x: Row) -> Row:\n    await asyncio.get_running_loop().run_in_executor(None, self.run, x)\n    return x\n\ndef run(self, x):\n    time.sleep(1)\n"),
    "a list with a limit by its type": whole("@bentoml.api\ndef predict(self, x: Row) -> int:\n    return int(torch.tensor(x, device=DEVICE).shape[0])\n"),
    "refused when too long": whole("@bentoml.api\ndef predict(self, text: str) -> int:\n    if len(text) > 100:\n        raise ValueError\n    return int(torch.tensor(list(text.encode()), device=DEVICE).shape[0])\n"),
    "a text that is no shape": whole("@bentoml.api\ndef predict(self, text: str) -> int:\n    return len(text)\n"),
    "one request at a time": whole('@bentoml.service(traffic={"max_concurrency": 1})\nclass Service:\n    @bentoml.api\n    def scale(self, x: Row) -> Row:\n        return x\n'),
    "settings from elsewhere": whole('@bentoml.service(**SETTINGS, traffic={"max_concurrency": 9})\nclass Service:\n    @bentoml.api\n    def scale(self, x: Row) -> Row:\n        return x\n'),
    "a base that is not in this file": whole('from mine import Base\n\n@bentoml.service(threads=1)\nclass Service(Base):\n    def __init__(self):\n        self.model = torch.jit.load("m.pt").eval()\n'),
    "a script without a service": "import torch\nMODEL = torch.jit.load('m.pt')\nMODEL(torch.zeros(1))\n",
    "loaded when run as a script": whole('@bentoml.service\nclass Service:\n    pass\n\nif __name__ == "__main__":\n    torch.jit.load("m.pt")\n'),
    "a warm-up on the CPU": whole('@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.model = torch.jit.load("m.pt").eval()\n        with torch.inference_mode():\n            self.model(torch.zeros(1))\n    def __is_ready__(self):\n        return True\n').replace('DEVICE = "cuda"', 'DEVICE = "cpu"'),
    "a local path": whole('@bentoml.service\nclass Service:\n    def __init__(self):\n        import transformers as t\n        self.tok = t.AutoTokenizer.from_pretrained("/models/chat")\n'),
    "a function handed to a pool": whole('def load():\n    torch.jit.load("m.pt")\n\n@bentoml.service(threads=1)\nclass Service:\n    def __init__(self):\n        self.hook = load\n'),
    "a stream that deletes": whole("@bentoml.api\ndef stream(self, x: Row) -> Generator[str, None, None]:\n    y = torch.zeros(3, device=DEVICE)\n    text = str(y.item())\n    del y\n    yield text\n"),
    "a context manager with a tensor": whole("import contextlib\n\n@bentoml.service(threads=1)\nclass Service:\n    @contextlib.contextmanager\n    def scratch(self):\n        y = torch.zeros(3, device=DEVICE)\n        yield y\n    @bentoml.api\n    def predict(self, x: Row) -> Row:\n        with self.scratch():\n            return x\n"),
    "a request in an async generator": whole("@bentoml.api\nasync def stream(self, x: Row):\n    try:\n        yield 'a'\n    except asyncio.CancelledError:\n        raise\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FOUND)
def test_near_miss(name):
    assert found(NOT_FOUND[name]) == []


def test_a_comment_silences_its_line_and_its_rule_only():
    text = kept("self.kept.append(y)  # plimsoll: ignore[PL006, PL005]")
    findings, silenced = judge(Source("s.py", text))
    assert findings == [] and [f.rule for f in silenced] == ["PL005"]
    assert found(kept("self.kept.append(y)  # plimsoll: ignore[PL006]")) == ["PL005"]
    assert found(kept("self.kept.append((y, '# plimsoll: ignore[PL005]'))")) == ["PL005"]


def test_any_code_is_read_to_its_end():
    """Classes of the standard library, taken for services with their methods for APIs."""
    import asyncio.streams
    import http.server
    import inspect
    import logging
    import queue
    import typing

    for module in (ast, asyncio.streams, http.server, inspect, logging, queue, typing, textwrap):
        source = Source(module.__name__, inspect.getsource(module))
        for node in list(source.classes.values()):
            service = Service(node, ast.Name("x", lineno=1, col_offset=0), {})
            methods = source.methods(node).values()
            service.apis = [Api(m, ast.Name("x", lineno=1, col_offset=0), {}) for m in methods]
            source.services.append(service)
        Judge(source).run()


def test_code_without_end_is_left_where_it_is():
    """Calls in a ring and a chain of calls that doubles at each step: bounded, not followed for ever."""
    ring = "".join(f"def f{i}(x):\n    return f{(i + 1) % 60}(x) + f{(i + 7) % 60}(x)\n" for i in range(60))
    text = whole(ring + "\n@bentoml.service(threads=1)\nclass Service:\n    @bentoml.api\n    def go(self, x: Row) -> Row:\n        return f0(x)\n")
    assert found(text) == []
