"""Follows a way through the code of a service from where it begins (import, start, request) and notes what happens on
it, in order: loads, calls of a model, what is kept, what is removed. The rules (judge.py) look at these notes only.

Functions and methods of the same file are followed where they are called; one that is only handed on (to a pool, as a
hook) is not. Conditions are not decided: both branches are seen, one after the other.
"""

import ast

from plimsoll.lint import values as v
from plimsoll.lint.meaning import NO_GRAD, Expressions
from plimsoll.lint.source import FUNCTIONS, UNKNOWN, at_import
from plimsoll.lint.values import NOTHING, PLAIN, Value, held, join

DEEPEST, MOST_CALLS = 10, 4000


class Note:
    """Something that happens on the way. `node` is where; `top` is the statement or call of the first frame."""

    def __init__(self, what, node, frame, **more):
        self.what = what
        self.node = node
        self.top = frame.calls[0] if frame.calls else node
        self.fn = frame.fn
        self.depth = len(frame.calls)
        self.nograd = frame.nograd
        self.guarded = frame.guarded
        self.in_except = frame.in_except
        self.off_loop = frame.off_loop
        self.__dict__.update(more)


class Frame:
    def __init__(self, fn, me, caller=None, call=None):
        self.fn = fn
        self.me = me  # Value of self, or None
        self.env = {}
        self.calls = [] if caller is None else [*caller.calls, call]
        self.nograd = caller.nograd if caller else False
        self.guarded = caller.guarded if caller else False
        self.off_loop = caller.off_loop if caller else False
        self.in_except = caller.in_except if caller else False
        self.in_finally = False
        self.globals = set()
        self.params = set()
        self.returns = []
        self.early = 0  # places so far where it might have ended
        self.generator = self.fn is not None and any(
            isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(self.fn)
        )


def own_nodes(fn):
    """The nodes of a function without those of functions inside it."""
    todo = list(fn.body) if isinstance(fn.body, list) else [fn.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))


def is_threshold(test):
    """A condition that holds now and then: a comparison of size, a remainder."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and any(isinstance(o, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for o in node.ops):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
    return False


class Walker(Expressions):
    """Walks of one file. `globals` and the attributes of services live from one walk to the next."""

    def __init__(self, source):
        self.source = source
        self.globals = {}
        self.place = "module"
        self.notes = []
        self.capped = set()  # parameters that code cuts or refuses by length
        self.models = []
        self.containers = []
        self.walked = set()
        self.stack = []
        self.calls = 0
        self.grad_off = False

    # ---- entry points

    def module(self):
        self.place, self.notes = "module", []
        frame = Frame(None, None)
        frame.env = self.globals
        for node in at_import(self.source.tree.body):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                continue
            mark = len(self.notes)
            self.statement(node, frame)
            for note in self.notes[mark:]:
                note.top = node
        return self.notes

    def class_body(self, cls, thing):
        """What runs in the body of a class at import."""
        self.place, self.notes = "module", []
        for one in reversed(self.source.bases(cls)[0]):
            frame = Frame(None, None)
            for node in one.body:
                if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                    continue
                mark = len(self.notes)
                self.statement(node, frame)
                for note in self.notes[mark:]:
                    note.top = node
            thing.ref.attrs.update(frame.env)
        return self.notes

    def enter(self, place, fn, me, params=None):
        """Follows a method from its beginning; `params` are the values of its parameters, by name."""
        self.place, self.notes = place, []
        self.follow(fn, Frame(fn, me), params or {})
        return self.notes

    def note(self, what, node, frame, **more):
        self.notes.append(Note(what, node, frame, **more))

    # ---- functions

    def follow(self, fn, frame, params):
        self.walked.add(fn)
        self.stack.append(fn)
        args = fn.args
        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if arg is not None:
                frame.env[arg.arg] = params.get(arg.arg) or self.by_annotation(arg.annotation)
                frame.params.add(arg.arg)
        if frame.me is not None and not isinstance(fn, ast.Lambda):
            first = (args.posonlyargs + args.args)[:1]
            if first:
                frame.env[first[0].arg] = frame.me
        if isinstance(fn, ast.Lambda):
            frame.returns.append(self.ev(fn.body, frame))
        else:
            for decorator in fn.decorator_list:
                if self.source.called(decorator) in NO_GRAD:
                    frame.nograd = True
            self.block(fn.body, frame)
        self.stack.pop()
        models = [r for r in frame.returns if r.kind == "model"]
        return models[-1] if models else join(*frame.returns) if frame.returns else PLAIN

    def by_annotation(self, node):
        name = self.source.dotted(node) if node is not None else None
        if name in ("torch.Tensor", "Tensor"):
            return Value("tensor", dev=self.place != "request" or bool(self.stack[:-1]))
        if name in ("bentoml.Context", "starlette.requests.Request", "fastapi.Request"):
            return Value("request")
        return NOTHING

    def call_function(self, fn, me, call, frame, args, keywords, off_loop=False):
        """A function of this file, called with these values."""
        if fn in self.stack or len(self.stack) >= DEEPEST or self.calls >= MOST_CALLS:
            return NOTHING
        self.calls += 1
        inner = Frame(fn, me, frame, call)
        inner.off_loop = inner.off_loop or off_loop
        if isinstance(fn, ast.Lambda) or (fn not in self.source.functions.values() and me is None):
            inner.env = dict(frame.env)  # a function inside a function sees what is around it
        names = [a.arg for a in fn.args.posonlyargs + fn.args.args]
        static = any(self.source.dotted(d) == "staticmethod" for d in getattr(fn, "decorator_list", ()))
        if me is not None and not static:
            names = names[1:]
        params = dict(zip(names, args))
        params.update({k: val for k, val in keywords.items() if k})
        mark = len(self.notes)
        result = self.follow(fn, inner, params)
        if result.kind == "model":
            for note in self.notes[mark:]:
                if note.what in ("load", "download"):
                    note.site = call  # to the reader the load is where it was asked for
        if inner.generator and not isinstance(fn, ast.Lambda):
            return NOTHING if result.kind == "plain" else result
        return result

    # ---- statements

    def block(self, body, frame):
        for node in body:
            self.statement(node, frame)

    def statement(self, node, frame):
        handler = getattr(self, "do_" + type(node).__name__, None)
        if handler is not None:
            handler(node, frame)
            return
        for child in ast.iter_child_nodes(node):  # assert, match and what later versions bring
            if isinstance(child, ast.expr):
                self.ev(child, frame)
            elif isinstance(child, ast.stmt):
                self.statement(child, frame)
            elif hasattr(child, "body"):
                self.block(child.body, frame)

    def do_Expr(self, node, frame):
        self.ev(node.value, frame)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in v.KEEPS_MODEL:
            model = self.ev(call.func.value, frame)
            if model.kind == "model":
                model.ref.line = node.lineno

    def do_FunctionDef(self, node, frame):
        frame.env[node.name] = Value("function", ref=node)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node, frame):
        pass

    def do_Import(self, node, frame):
        pass

    do_ImportFrom = do_Pass = do_Break = do_Continue = do_Nonlocal = do_Import

    def do_Global(self, node, frame):
        frame.globals.update(node.names)

    def do_Return(self, node, frame):
        value = self.ev(node.value, frame) if node.value is not None else PLAIN
        frame.returns.append(value)
        self.note("return", node, frame, value=value)
        frame.early += 1

    def do_Raise(self, node, frame):
        if node.exc is not None:
            self.ev(node.exc, frame)
        frame.early += 1

    def do_Assign(self, node, frame):
        value = self.ev(node.value, frame)
        for target in node.targets:
            self.assign(target, value, node, frame)

    def do_AnnAssign(self, node, frame):
        if node.value is not None:
            self.assign(node.target, self.ev(node.value, frame), node, frame)

    def do_AugAssign(self, node, frame):
        value = self.ev(node.value, frame)
        target = self.ev(node.target, frame)
        if target.kind == "container":
            self.store(target.ref, value, node, frame)
        elif isinstance(node.target, (ast.Attribute, ast.Name)):
            self.assign(node.target, join(target, value), node, frame, grows=True)

    def do_If(self, node, frame):
        self.ev(node.test, frame)
        self.caps(node.test, frame)
        was = frame.guarded
        frame.guarded = was or is_threshold(node.test)
        self.block(node.body, frame)
        frame.guarded = was
        self.block(node.orelse, frame)
        if is_threshold(node.test) and node.body and isinstance(node.body[-1], (ast.Return, ast.Continue, ast.Raise)):
            frame.guarded = True  # the rest is what happens otherwise

    def do_While(self, node, frame):
        self.do_If(node, frame)

    def do_For(self, node, frame):
        items = self.ev(node.iter, frame)
        self.assign(node.target, held(items), node, frame)
        self.block(node.body, frame)
        self.block(node.orelse, frame)

    do_AsyncFor = do_For

    def do_With(self, node, frame):
        was = frame.nograd
        for item in node.items:
            value = self.ev(item.context_expr, frame)
            call = item.context_expr
            name = self.source.dotted(call.func if isinstance(call, ast.Call) else call)
            if name in NO_GRAD or (name in ("torch.set_grad_enabled", "torch.autograd.set_grad_enabled")):
                frame.nograd = True
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node, frame)
        self.block(node.body, frame)
        frame.nograd = was

    do_AsyncWith = do_With

    def do_Try(self, node, frame):
        self.block(node.body, frame)
        for handler in node.handlers:
            was, frame.in_except = frame.in_except, True
            if handler.name:
                frame.env[handler.name] = Value("exception")
            self.block(handler.body, frame)
            frame.in_except = was
        self.block(node.orelse, frame)
        was, frame.in_finally = frame.in_finally, True
        self.block(node.finalbody, frame)
        frame.in_finally = was

    do_TryStar = do_Try

    def do_Delete(self, node, frame):
        for target in node.targets:
            if isinstance(target, ast.Name):
                frame.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                self.remove(self.ev(target.value, frame), node, frame)

    # ---- keeping and removing

    def assign(self, target, value, node, frame, grows=False):
        if isinstance(target, ast.Name):
            if target.id in frame.globals:
                self.keep_name(self.globals, target.id, value, node, frame, grows, target)
            elif frame.env is self.globals:
                frame.env[target.id] = self.lasting(value, target.id)
            else:
                frame.env[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.ev(target.value, frame)
            if owner.kind == "thing":
                self.keep_name(owner.ref.attrs, target.attr, value, node, frame, grows, target)
        elif isinstance(target, ast.Subscript):
            owner = self.ev(target.value, frame)
            if owner.kind == "container":
                if isinstance(target.slice, ast.Slice):
                    self.remove(owner, node, frame)
                else:
                    fixed = self.source.literal(target.slice) is not UNKNOWN
                    self.store(owner.ref, value, node, frame, fixed=fixed)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.assign(part.value if isinstance(part, ast.Starred) else part, held(value), node, frame)

    def lasting(self, value, name):
        if value.kind == "container":
            value.ref.lasting = True
            value.ref.name = value.ref.name or name
        return value

    def keep_name(self, names, name, value, node, frame, grows, target):
        """A global or an attribute gets a value: it outlives the request."""
        old = names.get(name, PLAIN)
        if old.kind == "container" and self.place == "request":
            self.remove(old, node, frame)  # it begins anew, or is cut
        if self.place == "request":
            own = ast.dump(target).replace("Store()", "Load()")
            mine = grows or any(
                isinstance(n, (ast.Name, ast.Attribute)) and ast.dump(n) == own for n in ast.walk(node.value)
            )
            widens = mine and not grows and self.widens(node.value)
            self.note("keep", node, frame, value=value, grows=mine, widens=widens, name=name)
        elif value.kind == "container":
            self.lasting(value, name)
        both = value.kind != "model" and old.kind == "model"
        names[name] = old if both else value

    def widens(self, node):
        return any(
            isinstance(n, ast.Call)
            and (self.source.dotted(n.func) or "").rsplit(".", 1)[-1] in ("cat", "concat", "stack", "vstack")
            for n in ast.walk(node)
        )

    def store(self, container, value, node, frame, fixed=False):
        kept = held(value)
        container.contents = join(container.contents, kept)
        if self.place != "request" or not container.lasting:
            return
        container.stores[id(frame)] = frame.early
        self.note("store", node, frame, container=container, value=kept, fixed=fixed)

    def remove(self, value, node, frame):
        container = value.ref if value.kind == "container" else None
        if container is None:
            return
        since = container.stores.get(id(frame))
        skipped = since is not None and frame.early > since and not frame.in_finally and not frame.guarded
        if not skipped:
            container.evicts = True

    def caps(self, test, frame):
        """`if len(x) > N`: what is as long as x is looked after, be it an input or a container."""
        for node in ast.walk(test):
            if not isinstance(node, ast.Compare):
                continue
            for side in [node.left, *node.comparators]:
                if isinstance(side, ast.Call) and self.source.dotted(side.func) == "len" and side.args:
                    value = self.ev(side.args[0], frame)
                    self.capped |= value.src
                    if value.kind == "container":
                        value.ref.evicts = True
