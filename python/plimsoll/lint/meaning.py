"""What an expression does and what comes out of it: the half of a walk (walk.py) that reads calls."""

import ast

from plimsoll.lint import values as v
from plimsoll.lint.source import UNKNOWN
from plimsoll.lint.values import NOTHING, PLAIN, Container, Thing, Value, held, join

NO_GRAD = ("torch.inference_mode", "torch.no_grad", "torch.autograd.inference_mode", "torch.autograd.no_grad")
OFF_LOOP = {
    "asyncio.to_thread",
    "anyio.to_thread.run_sync",
    "starlette.concurrency.run_in_threadpool",
    "threading.Thread",
}
ADDS = {"append", "appendleft", "add", "insert", "put", "put_nowait", "extend", "update", "setdefault"}
REMOVES = {"pop", "popitem", "popleft", "clear", "remove", "discard", "move_to_end"}
CALLBACKS = {"add_done_callback", "call_later", "call_soon", "call_at", "call_soon_threadsafe"}
PLAIN_CALLS = {
    "int",
    "float",
    "bool",
    "len",
    "repr",
    "type",
    "id",
    "hash",
    "format",
    "isinstance",
    "round",
    "hasattr",
    "range",
}
SAME_AS_ARGUMENTS = {
    "list",
    "tuple",
    "set",
    "sorted",
    "reversed",
    "zip",
    "enumerate",
    "iter",
    "next",
    "map",
    "filter",
    "str",
}
MODEL_QUIET = {
    "parameters", "named_parameters", "state_dict", "load_state_dict", "children", "modules",
    "buffers", "eval", "zero_grad",
    "register_forward_hook", "register_buffer", "add_module", "named_modules", "get_inputs",
    "get_outputs", "encode_plus",
}  # fmt: skip
MODEL_GRAPH_CALLS = {"forward", "encode_image", "encode_text", "get_image_features", "get_text_features"}
MODEL_RUNS = {
    "generate", "predict", "predict_proba", "encode", "transcribe", "translate", "run", "chat", "embed", "transform",
    "create_completion", "create_chat_completion", "translate_batch",
}  # fmt: skip


class Expressions:
    """Mixed into Walker. `ev(node, frame)` is the Value of an expression; what happens in it is noted."""

    def ev(self, node, frame):
        if node is None:
            return PLAIN
        handler = getattr(self, "ev_" + type(node).__name__, None)
        if handler is not None:
            return handler(node, frame)
        return join(*[self.ev(c, frame) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)])

    def ev_Constant(self, node, frame):
        return PLAIN

    def ev_JoinedStr(self, node, frame):
        for part in node.values:
            self.ev(part, frame)
        return PLAIN

    def ev_FormattedValue(self, node, frame):
        self.ev(node.value, frame)
        return PLAIN

    def ev_Compare(self, node, frame):
        sides = [self.ev(n, frame) for n in [node.left, *node.comparators]]
        tensors = [s for s in sides if s.kind == "tensor"]
        return join(*tensors) if tensors else PLAIN

    def ev_Name(self, node, frame):
        for names in (frame.env, self.globals):
            if node.id in names:
                return names[node.id]
        if node.id in self.source.functions:
            return Value("function", ref=self.source.functions[node.id])
        return NOTHING

    def ev_Attribute(self, node, frame):
        owner = self.ev(node.value, frame)
        if owner.kind == "thing":
            if node.attr in owner.ref.attrs:
                return owner.ref.attrs[node.attr]
            return NOTHING
        if owner.kind == "tensor":
            return PLAIN if node.attr in v.TENSOR_PLAIN else owner
        if owner.kind == "exception":
            return owner if node.attr in ("__traceback__", "__cause__", "__context__", "tb_frame") else PLAIN
        if owner.kind == "model":
            return owner
        return NOTHING.with_src(owner.src) if owner.src else NOTHING

    def ev_Subscript(self, node, frame):
        owner = self.ev(node.value, frame)
        self.ev(node.slice, frame)
        if isinstance(node.slice, ast.Slice) and node.slice.upper is not None:
            return held(owner).with_src(())
        return held(owner)

    def ev_Slice(self, node, frame):
        for part in (node.lower, node.upper, node.step):
            self.ev(part, frame)
        return PLAIN

    def ev_Lambda(self, node, frame):
        return Value("function", ref=node)

    def ev_Await(self, node, frame):
        value = self.ev(node.value, frame)
        frame.early += 1
        return value

    def ev_Yield(self, node, frame):
        value = self.ev(node.value, frame)
        names = {
            name: val
            for name, val in frame.env.items()
            if val.kind == "tensor" and val.dev and name not in frame.params
        }
        self.note("yield", node, frame, value=value, held=names)
        frame.early += 1
        return NOTHING

    def ev_YieldFrom(self, node, frame):
        value = self.ev(node.value, frame)
        self.note("yield", node, frame, value=value, held={})
        frame.early += 1
        return NOTHING

    def comprehension(self, node, frame, *elements):
        env = dict(frame.env)
        for part in node.generators:
            self.assign(part.target, held(self.ev(part.iter, frame)), node, frame)
            for test in part.ifs:
                self.ev(test, frame)
        value = join(*[self.ev(e, frame) for e in elements])
        frame.env.clear()
        frame.env.update(env)
        return value

    def ev_ListComp(self, node, frame):
        return self.comprehension(node, frame, node.elt)

    ev_SetComp = ev_GeneratorExp = ev_ListComp

    def ev_DictComp(self, node, frame):
        return self.comprehension(node, frame, node.value)

    def literal_container(self, node, kind, parts, frame):
        contents = join(*[held(self.ev(p, frame)) for p in parts if p is not None])
        container = Container(kind, False, False, node=node)
        container.contents = contents
        self.containers.append(container)
        return Value("container", ref=container, src=contents.src)

    def ev_List(self, node, frame):
        return self.literal_container(node, "list", node.elts, frame)

    def ev_Set(self, node, frame):
        return self.literal_container(node, "set", node.elts, frame)

    def ev_Dict(self, node, frame):
        return self.literal_container(node, "dict", node.values, frame)

    def ev_Tuple(self, node, frame):
        return join(*[held(self.ev(p, frame)) for p in node.elts])

    def ev_Starred(self, node, frame):
        return self.ev(node.value, frame)

    def ev_IfExp(self, node, frame):
        self.ev(node.test, frame)
        return join(self.ev(node.body, frame), self.ev(node.orelse, frame))

    def ev_NamedExpr(self, node, frame):
        value = self.ev(node.value, frame)
        self.assign(node.target, value, node, frame)
        return value

    # ---- calls

    def ev_Call(self, node, frame):
        name = self.source.dotted(node.func)
        if name in v.WRAPS_MODEL and node.args:
            return self.ev(node.args[0], frame)
        owner = self.ev(node.func.value, frame) if isinstance(node.func, ast.Attribute) else None
        args = [self.ev(a, frame) for a in node.args]
        keywords = {k.arg: self.ev(k.value, frame) for k in node.keywords}
        if name is not None:
            made = self.named_call(name, node, frame, args, keywords)
            if made is not None:
                return made
        if owner is not None:
            return self.method_call(owner, node.func.attr, node, frame, args, keywords)
        called = self.ev(node.func, frame)
        if called.kind == "function":
            return self.call_function(called.ref, None, node, frame, args, keywords)
        return self.call_value(called, node, frame, args, keywords)

    def call_value(self, called, node, frame, args, keywords):
        """model(x), tokenizer(text)."""
        every = [*args, *keywords.values()]
        if called.kind == "model":
            return self.run_model(called, node, frame, called.ref.graph)
        if called.kind == "tokenizer":
            if not {"max_length", "truncation"} & set(keywords):
                self.note("shape", node, frame, src=join(*every).src if every else frozenset())
            return Value("tensor") if "return_tensors" in keywords else PLAIN
        self.escape(every)
        return NOTHING

    def run_model(self, model, node, frame, graph):
        model.ref.called = True
        graph = graph and not frame.nograd and not self.grad_off
        self.note("model", node, frame, model=model.ref, graph=graph)
        return Value("tensor", dev=self.source.uses_device, graph=graph)

    def escape(self, given):
        for value in given:
            if value.kind == "container":
                value.ref.escapes = True

    def named_call(self, name, node, frame, args, keywords):
        """Calls that are known by their full name; None: none of them."""
        last = name.rsplit(".", 1)[-1]
        if v.downloads(self.source, name, node):
            self.note("download", node, frame, name=name, site=node)
        loaded = v.loader(self.source, name, node)
        if loaded is not None:
            if loaded.kind == "model":
                self.models.append(loaded.ref)
            self.note("load", node, frame, name=name, site=node, model=loaded)
            return loaded
        if name in v.CONTAINERS or name.startswith(v.BOUNDED_TYPES):
            return self.made_container(name, node, frame, args, keywords)
        if name == "torch.cuda.empty_cache":
            self.note("empty_cache", node, frame)
            return PLAIN
        if last == "synchronize":
            self.note("sync", node, frame)
        if name in v.BLOCKING or (name.startswith(("requests.", "httpx.")) and last in v.HTTP and name.count(".") == 1):
            self.note("blocking", node, frame, name=name)
            return NOTHING
        if (
            name in ("torch.set_grad_enabled", "torch.autograd.set_grad_enabled")
            and self.source.literal(node.args[0] if node.args else None) is False
        ):
            self.grad_off = True
        if name == "sys.exc_info":
            return Value("exception")
        off_loop = name in OFF_LOOP or last in ("run_in_executor",)
        if off_loop:
            return self.elsewhere(name, last, node, frame, args, keywords)
        if self.spawns(name, last, node, frame, keywords):
            return NOTHING
        if name == "threading.Timer" or last in CALLBACKS:
            self.note("callback", node, frame, value=self.captured(node, frame, args, keywords))
            return NOTHING
        if name in ("functools.partial", "partial"):
            return join(*args, *keywords.values())
        if name in PLAIN_CALLS or name.startswith(("numpy.", "math.", "time.", "logging.", "json.")):
            if name.startswith("numpy."):
                return PLAIN.with_src(join(*args).src) if args else PLAIN
            return PLAIN
        if name in SAME_AS_ARGUMENTS:
            worst = join(*[held(a) for a in args])
            if name == "str":
                return PLAIN.with_src(worst.src)
            return worst
        if name.startswith("torch."):
            return self.torch_call(name, last, node, frame, args, keywords)
        if name in self.source.functions and name not in frame.env:
            return self.call_function(self.source.functions[name], None, node, frame, args, keywords)
        if name in self.source.classes and name not in frame.env:
            return self.instance(self.source.classes[name], node, frame, args, keywords)
        return None

    def torch_call(self, name, last, node, frame, args, keywords):
        every = [*args, *keywords.values()]
        if name.startswith("torch.cuda.") or name in NO_GRAD:
            return PLAIN
        if name.startswith("torch.") and last in v.CREATES and name.count(".") == 1:
            src = frozenset().union(*[a.src for a in every]) if every else frozenset()
            if last in v.FROM_INPUT:
                self.note("shape", node, frame, src=src)
            where = v.keyword(node, "device")
            dev = where is not None and self.source.literal(where) != "cpu" and self.source.uses_device
            tensors = [a for a in args if a.kind == "tensor"]
            if where is None and last.endswith("_like") or last in ("as_tensor",):
                dev = dev or any(t.dev for t in tensors)
            return Value("tensor", dev=dev, src=src)
        tensors = [held(a) for a in every if held(a).kind == "tensor"]
        return join(*tensors) if tensors else NOTHING

    def made_container(self, name, node, frame, args, keywords):
        kind = v.CONTAINERS.get(name, "dict")
        bounded = name.startswith(v.BOUNDED_TYPES)
        limit = None
        if kind == "deque":
            limit = v.keyword(node, "maxlen") or (node.args[1] if len(node.args) > 1 else None)
        elif kind == "queue":
            limit = v.keyword(node, "maxsize") or (node.args[0] if node.args else None)
        if limit is not None and self.source.literal(limit) not in (None, 0):
            bounded = True
        contents = join(*[held(a) for a in args])
        container = Container(kind, False, bounded, node=node)
        container.contents = contents
        self.containers.append(container)
        return Value("container", ref=container, src=contents.src)

    def instance(self, cls, node, frame, args, keywords):
        thing = Value("thing", ref=Thing(cls))
        init = self.source.methods(cls).get("__init__")
        if init is not None:
            self.call_function(init, thing, node, frame, args, keywords)
        return thing

    def elsewhere(self, name, last, node, frame, args, keywords):
        """A function that is run on a thread: still a part of the request, not of the event loop."""
        places = list(node.args)
        if last == "run_in_executor":
            places = places[1:]
        given = args[len(node.args) - len(places) :]
        target = v.keyword(node, "target") if name == "threading.Thread" else (places[0] if places else None)
        if target is None:
            return NOTHING
        fn, me = self.callable_at(target, frame)
        if fn is None:
            self.escape(given)
            return NOTHING
        return self.call_function(fn, me, node, frame, given[1:], {}, off_loop=True)

    def callable_at(self, node, frame):
        """self.run or run -> its function and what it is bound to."""
        if isinstance(node, ast.Attribute):
            owner = self.ev(node.value, frame)
            if owner.kind == "thing":
                return self.source.methods(owner.ref.cls).get(node.attr), owner
            return None, None
        value = self.ev(node, frame)
        if value.kind == "function":
            return value.ref, None
        return None, None

    def spawns(self, name, last, node, frame, keywords):
        """A pool or a process: what is run in each child?"""
        pool = last in ("Pool", "ProcessPoolExecutor") or name in (
            "torch.multiprocessing.spawn",
            "multiprocessing.spawn",
        )
        process = last == "Process"
        if not pool and not process:
            return False
        target = v.keyword(node, "initializer") or v.keyword(node, "target")
        if target is None and last == "spawn" and node.args:
            target = node.args[0]
        if target is None and last == "Pool" and len(node.args) > 1:
            target = node.args[1]
        fn, _ = self.callable_at(target, frame) if target is not None else (None, None)
        spawned = "spawn" in ast.dump(node) or "spawn" in name
        self.note("spawn", node, frame, target=fn, imports_again=spawned)
        return True

    def captured(self, node, frame, args, keywords):
        """The worst that a callback was given, the names in a lambda included."""
        found = [*args, *keywords.values()]
        for arg in [*node.args, *[k.value for k in node.keywords]]:
            if isinstance(arg, ast.Lambda):
                found += [self.ev(n, frame) for n in ast.walk(arg.body) if isinstance(n, ast.Name)]
        return join(*[held(f) for f in found])

    def method_call(self, owner, attr, node, frame, args, keywords):
        every = [*args, *keywords.values()]
        if owner.kind == "thing":
            return self.call_method(owner, attr, node, frame, args, keywords)
        if owner.kind == "model":
            return self.model_method(owner, attr, node, frame)
        if owner.kind == "tokenizer":
            if attr in ("decode", "batch_decode"):
                return PLAIN
            return self.call_value(owner, node, frame, args, keywords)
        if owner.kind == "container":
            return self.container_method(owner, attr, node, frame, args)
        if owner.kind == "tensor":
            return self.tensor_method(owner, attr, node, frame)
        if attr == "synchronize":
            self.note("sync", node, frame)
        if attr in CALLBACKS:
            self.note("callback", node, frame, value=self.captured(node, frame, args, keywords))
            return NOTHING
        if attr in ("run_in_executor", "submit"):
            return self.elsewhere(attr, attr, node, frame, args, keywords)
        if attr in ("Pool", "Process") and self.spawns(attr, attr, node, frame, keywords):
            return NOTHING
        if attr in ("with_traceback",):
            return owner
        self.escape(every)
        if owner.kind in ("exception", "plain"):
            return PLAIN.with_src(owner.src)
        return NOTHING.with_src(owner.src) if owner.src else NOTHING

    def call_method(self, owner, attr, node, frame, args, keywords):
        method = self.source.methods(owner.ref.cls).get(attr)
        if method is not None:
            return self.call_function(method, owner, node, frame, args, keywords)
        value = owner.ref.attrs.get(attr)
        if value is None:
            self.escape([*args, *keywords.values()])
            return NOTHING
        if value.kind == "function":
            return self.call_function(value.ref, None, node, frame, args, keywords)
        return self.call_value(value, node, frame, args, keywords)

    def model_method(self, owner, attr, node, frame):
        model = owner.ref
        if attr in v.KEEPS_MODEL:
            if attr == "eval" or (attr == "train" and node.args and self.source.literal(node.args[0]) is False):
                model.ready = True
            if attr == "requires_grad_" and node.args and self.source.literal(node.args[0]) is False:
                model.graph = False
            return owner
        if attr in MODEL_QUIET:
            return NOTHING
        if attr in MODEL_GRAPH_CALLS:
            return self.run_model(owner, node, frame, model.graph)
        if attr in MODEL_RUNS:
            return self.run_model(owner, node, frame, False)
        return self.run_model(owner, node, frame, False) if attr.startswith(("generate", "infer")) else NOTHING

    def container_method(self, owner, attr, node, frame, args):
        container = owner.ref
        if attr in ADDS:
            fixed = attr == "setdefault" and node.args and self.source.literal(node.args[0]) is not UNKNOWN
            value = join(*[held(a) for a in args])
            self.store(container, value, node, frame, fixed=bool(fixed))
            return container.contents if attr == "setdefault" else PLAIN
        if attr in REMOVES or (container.kind == "queue" and attr in ("get", "get_nowait")):
            self.remove(owner, node, frame)
            return container.contents
        return container.contents

    def tensor_method(self, owner, attr, node, frame):
        if owner.dev and attr in ("item", "tolist", "cpu", "numpy"):
            self.note("sync", node, frame)  # the host waits for the value
        if attr in v.TENSOR_PLAIN:
            return PLAIN
        if attr == "cpu":
            return Value("tensor", False, owner.graph, owner.src)
        if attr == "cuda":
            return Value("tensor", True, owner.graph, owner.src)
        if attr in ("detach", "detach_"):
            return Value("tensor", owner.dev, False, owner.src)
        if attr == "to":
            where = node.args[0] if node.args else v.keyword(node, "device")
            text = self.source.literal(where) if where is not None else None
            name = self.source.dotted(where) if where is not None else None
            if text == "cpu":
                return Value("tensor", False, owner.graph, owner.src)
            if where is None or (name or "").startswith("torch.") or (name or "").endswith("dtype"):
                return owner
            return Value("tensor", self.source.uses_device, owner.graph, owner.src)
        return owner
