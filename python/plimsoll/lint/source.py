"""One file of a service as `plimsoll lint` sees it: its syntax tree, what its names mean, its services and their
settings. Nothing of it is imported or run."""

import ast
import io
import re
import tokenize

UNKNOWN = object()  # a value that only running the code would tell
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IGNORE = re.compile(r"#\s*plimsoll:\s*ignore\[([A-Z0-9, ]+)\]")
DEVICE_WORDS = re.compile(r"\bcuda\b|\bxpu\b|\bmps\b|device_map")


def ignored_lines(text):
    """line -> rules that a comment on it silences. A text like the comment inside a string is none."""
    out = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            found = IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if found:
                out.setdefault(token.start[0], set()).update(re.split(r"[,\s]+", found.group(1).strip(", ")))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        pass
    return out


def is_main_guard(test):
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id in ("__name__",)
        and any(isinstance(c, ast.Constant) and c.value == "__main__" for c in test.comparators)
    )


def at_import(body):
    """The statements that run when the file is imported, blocks opened."""
    for node in body:
        if isinstance(node, ast.If):
            if not is_main_guard(node.test):
                yield from at_import(node.body)
            yield from at_import(node.orelse)
        elif isinstance(node, ast.Try):
            for part in (node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody):
                yield from at_import(part)
        elif isinstance(node, (ast.With, ast.For, ast.While)):
            yield from at_import(node.body)
        else:
            yield node


class Api:
    """A method of a service that answers requests."""

    def __init__(self, node, decorator, settings):
        self.node = node
        self.decorator = decorator
        self.settings = settings  # keyword -> node
        self.is_async = isinstance(node, ast.AsyncFunctionDef)


class Service:
    def __init__(self, node, decorator, settings):
        self.node = node
        self.decorator = decorator
        self.settings = settings
        self.open = None in settings  # **more: what is not seen here may be set there
        self.apis = []


class Source:
    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.tree = ast.parse(text, path)
        self.ignored = ignored_lines(text)
        self.uses_device = bool(DEVICE_WORDS.search(text)) or "nvidia" in text
        self.offline = "HF_HUB_OFFLINE" in text
        self.imports = {}
        self.functions = {}
        self.classes = {}
        self.constants = {}
        self.services = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.imports[name.asname or name.name.split(".")[0]] = (
                        name.name if name.asname else name.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    self.imports[name.asname or name.name] = f"{node.module}.{name.name}"
        for node in at_import(self.tree.body):
            if isinstance(node, FUNCTIONS):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.constants[target.id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.constants[node.target.id] = node.value
        for node in self.classes.values():
            self.find_service(node)

    def find_service(self, node):
        for decorator in node.decorator_list:
            if self.called(decorator) != "bentoml.service":
                continue
            service = Service(node, decorator, self.keywords(decorator))
            for method in self.methods(node).values():
                for d in method.decorator_list:
                    if self.called(d) in ("bentoml.api", "bentoml.task"):
                        service.apis.append(Api(method, d, self.keywords(d)))
                        break
            self.services.append(service)

    def called(self, decorator):
        return self.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)

    @staticmethod
    def keywords(decorator):
        return {k.arg: k.value for k in decorator.keywords} if isinstance(decorator, ast.Call) else {}

    def dotted(self, node):
        """torch.nn.Linear for nn.Linear after `from torch import nn`; None for what is no chain of names."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def bases(self, node):
        """The classes of this file that a class is made of, itself first; and whether all of them are known."""
        out, known, todo = [], True, [node]
        while todo:
            one = todo.pop(0)
            if one in out:
                continue
            out.append(one)
            for base in one.bases:
                name = self.dotted(base)
                if name in self.classes:
                    todo.append(self.classes[name])
                elif name not in ("object", "abc.ABC", "typing.Protocol"):
                    known = False
        return out, known

    def is_module_class(self, node):
        names = {self.dotted(b) for c in self.bases(node)[0] for b in c.bases}
        return bool(names & {"torch.nn.Module", "torch.nn.Sequential", "lightning.LightningModule"})

    def methods(self, node):
        out = {}
        for one in reversed(self.bases(node)[0]):
            out.update({m.name: m for m in one.body if isinstance(m, FUNCTIONS)})
        return out

    def literal(self, node, depth=0):
        """The value of an expression made of literals, arithmetic and constants of the file, else UNKNOWN."""
        if node is None or depth > 8:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.literal(self.constants[node.id], depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.literal(node.operand, depth + 1)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            left, right = self.literal(node.left, depth + 1), self.literal(node.right, depth + 1)
            if not all(isinstance(v, (int, float)) and abs(v) < 1e15 for v in (left, right)):
                return UNKNOWN
            if isinstance(node.op, ast.Mult):
                return left * right
            return left + right if isinstance(node.op, ast.Add) else left - right
        return UNKNOWN

    def mapping(self, node):
        """A dict literal, dict(...) or a constant that is one, as key -> node. Empty for anything else."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            node = self.constants[node.id]
        if isinstance(node, ast.Dict):
            return {k.value: v for k, v in zip(node.keys, node.values) if isinstance(k, ast.Constant)}
        if isinstance(node, ast.Call) and self.dotted(node.func) == "dict":
            return {k.arg: k.value for k in node.keywords if k.arg}
        return {}
