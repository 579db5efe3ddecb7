"""The rules: what the notes of a walk (walk.py) and the settings of a service say against it. One function a rule or a
family of rules; their texts are in rules.py."""

import ast

from plimsoll.lint.source import FUNCTIONS, UNKNOWN
from plimsoll.lint.values import NOTHING, Thing, Value, held
from plimsoll.lint.walk import Walker, own_nodes

HEALTH = {"/readyz", "/livez", "/healthz"}
LONG_TIMEOUT_S = 600
SHORT_WINDOW_MS = 1000
LIMITS = {"max_length", "max_items", "Len", "MaxLen", "max_len"}
FILES = {"pathlib.Path", "PIL.Image.Image", "PIL.Image", "bentoml.validators.ContentType", "io.BytesIO"}
RETRY_WORDS = ("retr", "failed", "pending", "backlog", "redo")
CANCELLED = {"asyncio.CancelledError", "concurrent.futures.CancelledError", "asyncio.exceptions.CancelledError"}


class Finding:
    def __init__(self, rule, node, text):
        self.rule = rule
        self.line = node.lineno
        self.col = node.col_offset + 1
        self.text = text


class Judge:
    def __init__(self, source):
        self.source = source
        self.walker = Walker(source)
        self.findings = []
        self.requests = []  # (api, notes)

    def add(self, rule, node, text):
        if not any(f.rule == rule and f.line == node.lineno for f in self.findings):
            self.findings.append(Finding(rule, node, text))

    def run(self):
        if not self.source.services:
            return []
        module = self.walker.module()
        self.at_import(module)
        self.unfinished_warm_up(module)
        for service in self.source.services:
            self.service(service)
        self.never_eval()
        self.growth()
        return sorted(self.findings, key=lambda f: (f.line, f.rule))

    # ---- import

    def at_import(self, notes):
        said = set()
        for note in notes:
            if note.what not in ("load", "model") or id(note.top) in said:
                continue
            if note.what == "load" and note.model.kind != "model":
                continue
            said.add(id(note.top))
            what = "a model is loaded" if note.what == "load" else "a model is warmed up"
            self.add(
                "PL002", note.top, f"{what} when the file is imported: the arbiter of `bentoml serve` gets a copy too"
            )
        self.remote(notes)
        self.spawned(notes)

    # ---- a service

    def service(self, service):
        thing = Value("thing", ref=Thing(service.node))
        body = self.walker.class_body(service.node, thing)
        self.at_import(body)
        methods = self.source.methods(service.node)
        starts = []
        for name, method in methods.items():
            hook = any((self.source.called(d) or "").startswith("bentoml.on_st") for d in method.decorator_list)
            if name == "__init__" or hook:
                starts.append(self.walker.enter("start", method, thing))
        for notes in starts:
            self.unfinished_warm_up(notes)
            self.remote(notes)
            self.spawned(notes)
        served = []
        for api in service.apis:
            notes = self.walker.enter("request", api.node, thing, self.unlimited(api))
            served.append((api, notes))
            self.handler(api, notes)
        self.requests += served
        self.settings(service)
        self.readiness(service, thing, served)
        for api in service.apis:
            self.api_settings(api)
        for node in self.class_attributes(service.node):
            self.store_attribute(node)

    def class_attributes(self, cls):
        return [n for n in cls.body if isinstance(n, (ast.Assign, ast.AnnAssign)) and n.value is not None]

    def store_attribute(self, node):
        call = node.value
        name = self.source.dotted(call.func) if isinstance(call, ast.Call) else None
        if name and name.startswith("bentoml.") and name.endswith(".get") and name.count(".") == 2:
            self.add("PL025", node, f"`{name}` in the class body: the bento does not record the model")

    def readiness(self, service, thing, served):
        classes, known = self.source.bases(service.node)
        if not known or "__is_ready__" in self.source.methods(service.node):
            return
        owns = any(holds_model(value) for value in thing.ref.attrs.values())
        if owns or any(n.what == "model" for _, notes in served for n in notes):
            self.add("PL013", service.node, f"{service.node.name} holds a model and has no `__is_ready__`")

    # ---- settings of the decorator

    def settings(self, service):
        get = service.settings.get
        at = service.decorator
        traffic = self.source.mapping(get("traffic"))
        sync = [a for a in service.apis if not a.is_async]
        limit = self.source.literal(traffic.get("max_concurrency"))
        if "max_concurrency" in traffic and "threads" not in service.settings and not service.open and sync:
            if limit is UNKNOWN or (isinstance(limit, int) and limit > 1):
                said = "" if limit is UNKNOWN else f" of {limit}"
                self.add(
                    "PL014", at, f"max_concurrency{said} and one thread: `{sync[0].node.name}` runs one after another"
                )
        timeout = self.source.literal(traffic.get("timeout"))
        if "timeout" in traffic and sync:
            self.add("PL015", at, f"a 504 after the timeout does not stop `{sync[0].node.name}` or free its memory")
        if isinstance(timeout, (int, float)) and timeout >= LONG_TIMEOUT_S:
            self.add(
                "PL016", at, f"timeout of {timeout} s: the context of each finished request stays until it is over"
            )
        if "concurrency" in traffic and "max_concurrency" not in traffic:
            self.add("PL024", at, "`concurrency` limits nothing: it is a hint for the autoscaler")
        workers = self.source.literal(get("workers"))
        gpus = self.source.literal(self.source.mapping(get("resources")).get("gpu"))
        if isinstance(gpus, str) and gpus.isdigit():
            gpus = int(gpus)
        if isinstance(gpus, int) and gpus > 0:
            if workers == "cpu_count" or (isinstance(workers, int) and workers > gpus):
                self.add(
                    "PL017", at, f"workers={workers} with {gpus} GPU{'s' * (gpus > 1)}: one copy of the model each"
                )

    def api_settings(self, api):
        name = api.node.name
        route = self.source.literal(api.settings.get("route")) if "route" in api.settings else "/" + name
        if route in HEALTH:
            self.add("PL012", api.decorator, f"`{name}` answers POST {route}; a probe's GET never reaches it")
        if self.source.literal(api.settings.get("batchable")) is True:
            if "max_batch_size" not in api.settings and None not in api.settings:
                self.add("PL021", api.decorator, f"`{name}` takes batches of up to 100, whatever that needs")
            window = self.source.literal(api.settings.get("max_latency_ms"))
            if isinstance(window, (int, float)) and window < SHORT_WINDOW_MS:
                self.add("PL023", api.decorator, f"a request of `{name}` older than {window} ms is refused with 503")
        args = api.node.args
        for arg in args.posonlyargs[1:] if len(args.posonlyargs) > 1 else []:
            if self.is_file(arg.annotation):
                self.add("PL027", api.node, f"`{arg.arg}` may be a URL: the worker fetches what a client names")
        if api.is_async and not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(api.node)):
            for node in own_nodes(api.node):
                if isinstance(node, ast.ExceptHandler) and self.catches_cancel(node.type):
                    self.add("PL026", node, f"`{name}` is not cancelled when its client goes away: this does not run")

    def catches_cancel(self, node):
        kinds = node.elts if isinstance(node, ast.Tuple) else [node]
        return any(self.source.dotted(k) in CANCELLED for k in kinds if k is not None)

    def is_file(self, node):
        return any(self.source.dotted(n) in FILES for n in ast.walk(node)) if node is not None else False

    # ---- what a handler does

    def handler(self, api, notes):
        name = api.node.name
        for note in notes:
            if note.what == "load" and note.model.kind == "model":
                self.add("PL001", note.site, f"`{name}` loads a model: the request that comes first pays for it")
            elif note.what == "model" and note.graph:
                self.add("PL003", note.node, "model called without inference_mode: what backward would need is kept")
            elif note.what == "empty_cache" and not note.guarded and not note.in_except:
                self.add(
                    "PL011", note.node, f"`empty_cache()` in every `{name}`: the next request asks the driver again"
                )
            elif note.what == "callback" and note.value.kind == "tensor":
                self.add("PL009", note.node, "a callback holds a tensor until it has run")
            elif note.what == "keep":
                self.kept_attribute(note)
            elif (
                note.what == "return" and note.depth == 0 and held(note.value).dev and held(note.value).kind == "tensor"
            ):
                self.add("PL007", note.node, f"`{name}` returns a tensor that lies on the device")
            elif (
                note.what == "yield" and note.depth == 0 and held(note.value).kind == "tensor" and held(note.value).dev
            ):
                self.add("PL007", note.node, f"`{name}` yields a tensor that lies on the device")
        self.remote(notes)
        self.spawned(notes)
        self.across_yield(notes)
        self.stops_loop(api, notes)
        self.lengths(api, notes)

    def kept_attribute(self, note):
        kept = held(note.value)
        if kept.kind in ("exception", "request"):
            self.add(
                "PL008", note.node, f"`{note.name}` keeps {AN[kept.kind]} after the request, and its frames with it"
            )
        elif kept.kind == "tensor" and note.grows and (kept.graph or (note.widens and kept.dev)):
            why = "the autograd graph of every request" if kept.graph else "every request's part"
            self.add("PL005", note.node, f"`{note.name}` grows by {why}")

    def across_yield(self, notes):
        said = set()
        for note in notes:
            if note.what != "yield" or not note.held or note.fn in said:
                continue
            if any((self.source.called(d) or "").endswith("contextmanager") for d in note.fn.decorator_list):
                continue
            said.add(note.fn)
            names = ", ".join(f"`{n}`" for n in sorted(note.held))
            self.add("PL010", note.node, f"{names} on the device as long as the client reads")

    def stops_loop(self, api, notes):
        if not api.is_async:
            return
        found = [n for n in notes if n.what in ("blocking", "model") and not n.off_loop]
        if found:
            first = min(found, key=lambda n: n.top.lineno)
            what = f"`{first.name}`" if first.what == "blocking" else "inference"
            self.add("PL018", first.top, f"{what} in async `{api.node.name}`: nothing else runs meanwhile, /livez too")

    def lengths(self, api, notes):
        used = set()
        for note in notes:
            if note.what == "shape":
                used |= note.src
        used -= self.walker.capped
        args = api.node.args
        for arg in args.posonlyargs + args.args + args.kwonlyargs:
            if f"{id(api.node)}:{arg.arg}" in used:
                self.add("PL020", arg, f"`{arg.arg}` becomes the shape of a tensor, at any length")
                return

    def unlimited(self, api):
        """The parameters of a handler that are texts or lists of any length, as values that remember it."""
        batch = self.source.literal(api.settings.get("batchable")) is True
        out = {}
        args = api.node.args
        for arg in args.posonlyargs + args.args + args.kwonlyargs:
            if arg.annotation is not None and self.no_limit(arg.annotation, batch):
                out[arg.arg] = NOTHING.with_src([f"{id(api.node)}:{arg.arg}"])
        return out

    def no_limit(self, node, batch, depth=0):
        if depth > 6:
            return False
        if isinstance(node, ast.Name) and node.id in self.source.constants:
            return self.no_limit(self.source.constants[node.id], batch, depth + 1)
        name = self.source.dotted(node)
        if name in ("str", "list", "typing.List", "bytes"):
            return True
        if not isinstance(node, ast.Subscript):
            return False
        owner = self.source.dotted(node.value)
        if owner == "typing.Annotated" and isinstance(node.slice, ast.Tuple) and node.slice.elts:
            if any(self.is_limit(m) for m in node.slice.elts[1:]):
                return False
            return self.no_limit(node.slice.elts[0], batch, depth + 1)
        if owner in ("list", "typing.List", "collections.abc.Sequence", "typing.Sequence"):
            return self.no_limit(node.slice, False, depth + 1) if batch else True
        if owner in ("typing.Optional",):
            return self.no_limit(node.slice, batch, depth + 1)
        return False

    def is_limit(self, node):
        if not isinstance(node, ast.Call):
            return False
        last = (self.source.dotted(node.func) or "").rsplit(".", 1)[-1]
        names = {k.arg for k in node.keywords}
        return bool(names & LIMITS) or last in ("MaxLen",) or (last == "Len" and len(node.args) > 1)

    # ---- start, network, children

    def remote(self, notes):
        for note in notes:
            if note.what == "download":
                self.add("PL019", note.site, f"`{note.name}` fetches over the network when the worker runs")

    def spawned(self, notes):
        loads_at_import = any(f.rule == "PL002" for f in self.findings)
        for note in notes:
            if note.what != "spawn":
                continue
            if note.target is not None and self.loads(note.target):
                self.add("PL028", note.node, f"each child runs `{note.target.name}`, which loads the model once more")
            elif note.imports_again and loads_at_import:
                self.add("PL028", note.node, "each child imports this file again, which loads the model once more")

    def loads(self, fn):
        probe = Walker(self.source)
        probe.module()
        return (
            any(n.what == "load" for n in probe.enter("start", fn, None)) if not isinstance(fn, ast.Lambda) else False
        )

    def unfinished_warm_up(self, notes):
        if not self.source.uses_device:
            return
        last = None
        for note in notes:
            if note.what == "model":
                last = note
            elif note.what == "sync":
                last = None
        if last is not None:
            self.add(
                "PL022", last.node, "the warm-up only queues work: nothing waits for the device before ready is said"
            )

    # ---- over all handlers

    def never_eval(self):
        for model in self.walker.models:
            if model.graph and model.settles and model.called and not model.ready:
                self.findings_at_line("PL004", model.line, "the model stays in training mode: no `eval()`")

    def findings_at_line(self, rule, line, text):
        node = next(
            (n for n in ast.walk(self.source.tree) if getattr(n, "lineno", 0) == line and isinstance(n, ast.stmt)), None
        )
        if node is not None:
            self.add(rule, node, text)

    def growth(self):
        """What is kept in something that outlives the request."""
        for _, notes in self.requests:
            for note in notes:
                if note.what == "store":
                    self.grown(note)

    def grown(self, note):
        box, kept = note.container, note.value
        name = box.name or "a container"
        if kept.kind in ("exception", "request"):
            self.add("PL008", note.node, f"`{name}` keeps {AN[kept.kind]}: its frames hold what the request held")
            return
        retry = any(w in name.lower() for w in RETRY_WORDS)
        bounded = box.bounded or box.evicts or self.evicted_elsewhere(box)
        if kept.kind == "tensor" and (kept.dev or kept.graph) and (retry or (box.kind == "queue" and not bounded)):
            self.add(
                "PL009", note.node, f"`{name}` holds tensors of what is to be done again, not the request as it came"
            )
        elif bounded or box.escapes:
            return
        elif kept.kind == "tensor" and (kept.dev or kept.graph):
            self.add("PL005", note.node, f"`{name}` has no bound and keeps a device tensor of each request")
        elif not note.fixed and kept.kind != "function":
            self.add("PL006", note.node, f"`{name}` has no bound and grows with each request")

    def evicted_elsewhere(self, box):
        """Does code that no walk came by (a thread's loop, a hook) take something out of it?"""
        for fn in ast.walk(self.source.tree):
            if not isinstance(fn, FUNCTIONS) or fn in self.walker.walked:
                continue
            for node in own_nodes(fn):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    takes = node.func.attr in (
                        "pop",
                        "popitem",
                        "popleft",
                        "clear",
                        "remove",
                        "get",
                        "get_nowait",
                        "discard",
                    )
                    if takes and named(node.func.value) == box.name:
                        return True
                if isinstance(node, ast.Delete) and any(
                    isinstance(t, ast.Subscript) and named(t.value) == box.name for t in node.targets
                ):
                    return True
                if (
                    isinstance(node, ast.Assign)
                    and fn.name != "__init__"
                    and any(named(t) == box.name for t in node.targets)
                ):
                    return True
        return False


AN = {"exception": "an exception", "request": "a request"}


def named(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def holds_model(value, depth=0):
    value = held(value)
    if value.kind == "thing" and depth < 4:
        return any(holds_model(v, depth + 1) for v in value.ref.attrs.values())
    return value.kind == "model"


def facts(source):
    """What a bentofile.yaml must know of the file of its service."""
    records = any(
        isinstance(n.value, ast.Call)
        and (source.dotted(n.value.func) or "").rsplit(".", 1)[-1] in ("BentoModel", "HuggingFaceModel")
        for service in source.services
        for n in service.node.body
        if isinstance(n, (ast.Assign, ast.AnnAssign))
    )
    judge = Judge(source)
    judge.run()
    stored = any(
        isinstance(n, ast.Call) and source.dotted(n.func) == "bentoml.models.get" for n in ast.walk(source.tree)
    )
    imports = set(source.imports.values())
    return {
        "services": [s.node.name for s in source.services],
        "records_models": records,
        "holds_models": bool(judge.walker.models) or stored,
        "device": source.uses_device and any(i.split(".")[0] in ("torch", "vllm", "transformers") for i in imports),
    }


def judge(source):
    """(findings, silenced) of one file."""
    found = Judge(source).run()
    silenced = [f for f in found if f.rule in source.ignored.get(f.line, ())]
    return [f for f in found if f not in silenced], silenced
