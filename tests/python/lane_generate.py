"""Services and requests out of a number: the same number makes the same ones.

An endpoint gets random parameters, a random kind (sync, async, root input, context, keyword-only) and a random output,
often not the one that its annotation promises; its requests are values that fit, values that do not, and bytes that are
no JSON.
"""

import json
import random

HEAD = '''
import datetime
import enum
import typing as t

import bentoml
import numpy as np
import pydantic
from bentoml.exceptions import InvalidArgument, NotFound, ServiceUnavailable
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse
from typing_extensions import Annotated, Literal


class Colour(str, enum.Enum):
    red = "red"
    blue = "blue"

'''

SIMPLE = {
    "int": (0, 1, -7, 2**40),
    "float": (0.5, 3, -1e9, 1e-7),
    "str": ("", "abc", "\u00e9\u65e5", 'q"\\\n', "x" * 300),
    "bool": (True, False),
    "dict": ({}, {"a": 1}, {"k": [None, {"z": "\u00fc"}]}),
    "list": ([], [1, "a", None], [[1], [2]]),
    "t.List[int]": ([], [1, 2, 3], list(range(50))),
    "t.List[float]": ([0.1], [1, 2.5]),
    "t.Dict[str, int]": ({}, {"a": 1}),
    "t.Optional[int]": (None, 4),
    "t.Union[int, str]": (1, "one"),
    "t.Tuple[int, str]": ([1, "a"],),
    "Colour": ("red", "blue"),
    'Literal["a", "b"]': ("a", "b"),
    "datetime.datetime": ("2024-05-06T07:08:09", "2024-05-06T07:08:09Z"),
    "Annotated[int, Field(ge=0, le=9)]": (0, 9),
    "Annotated[str, Field(max_length=3)]": ("", "abc"),
    "np.ndarray": ([1, 2], [[1.5, 2], [3, 4]]),
    "t.Any": (1, "x", None, {"a": [1]}, 1.5),
}
WRONG = (None, "no", -1, 10**30, 1.5, [], {}, [[]], {"a": {}}, "red", True, "\u0000", 1e308)
BROKEN = ("", " ", "{", "}", "nul", '{"a":1,}', "[1,2", '{"a":NaN}', '{"a":"\\ud800"}', "\ufeff{}", "{}{}", "'x'", '"' + "y" * 30000 + '"')
OUTPUTS = (
    *["{first}"] * 8, '{{"got": {first}}}', "[{first}, {first}]", "None", "1", '"text"', "b'bytes'", "1.5", "float('nan')", "[]",
    '{{"a": [1, {{"b": None}}]}}', "np.arange(3)", "np.float32(1.5)", "Colour.red", "datetime.date(2024, 1, 2)", "(1, 'a')",
    'JSONResponse({{"by": "hand"}}, status_code=201)', "2**70", "'\\ud800'", "object()", "(i for i in 'ab')",
)  # fmt: skip
RAISED = ("ValueError('v')", "KeyError('k')", "InvalidArgument('bad')", "NotFound('gone')", "ServiceUnavailable('busy')", "MemoryError()", "TypeError()")
HEADERS = ({}, {}, {}, {}, {"content-type": "application/json"}, {"content-type": "application/json; charset=utf-8"}, {"content-type": "text/plain"},
           {"accept": "*/*", "x-request-id": "r-1"}, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"connection": "close"})  # fmt: skip


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.models = {}

    def pick(self, values):
        return self.random.choice(list(values))

    def model(self):
        """Its text; {field: annotation} is kept under its name."""
        name = f"Model{len(self.models)}"
        fields = {f"f{i}": self.pick(SIMPLE) for i in range(self.random.randint(1, 4))}
        fields = {k: v for k, v in fields.items() if v != "np.ndarray"} or {"f0": "int"}
        optional = {k for k in fields if self.random.random() < 0.3 and fields[k] in ("int", "str", "bool")}
        lines = [f"class {name}(BaseModel):"]
        if self.random.random() < 0.3:
            lines.append(f'    model_config = pydantic.ConfigDict(extra="{self.pick(("allow", "forbid"))}")')
        order = sorted(fields, key=lambda f: f in optional)
        lines += [f"    {f}: {fields[f]}" + (f" = {SIMPLE[fields[f]][0]!r}" if f in optional else "") for f in order]
        self.models[name] = fields
        return "\n".join(lines) + "\n\n\n"

    def annotation(self):
        if self.models and self.random.random() < 0.25:
            name = self.pick(self.models)
            return name if self.random.random() < 0.7 else f"t.List[{name}]"
        return self.pick(SIMPLE)

    def fitting(self, annotation):
        if annotation.startswith("t.List[Model"):
            return [self.fitting(annotation[7:-1]) for _ in range(self.random.randint(0, 3))]
        if annotation in self.models:
            return {f: self.fitting(a) for f, a in self.models[annotation].items()}
        return self.pick(SIMPLE[annotation])

    def endpoint(self, n):
        """(text, path, {parameter: annotation}, root)"""
        r = self.random
        name, root = f"e{n}", r.random() < 0.2
        params = {f"p{i}": self.annotation() for i in range(1 if root else r.randint(0, 3))}
        first = next(iter(params), None)
        words, defaults = ["self"], False
        if not root and r.random() < 0.15:
            words.append("ctx: bentoml.Context")
        if not root and r.random() < 0.2:
            words.append("*")
        for p, a in params.items():
            defaults = (defaults or r.random() < 0.3) and a in SIMPLE and a not in ("np.ndarray", "datetime.datetime", "t.Tuple[int, str]", "Colour")
            words.append(f"{p}: {a}" + (f" = {SIMPLE[a][0]!r}" if defaults else ""))
        if root:
            words.append("/")
        words = [w for w in words if w != "*"] if not params else words
        if not self._in_order(words):
            words = [w.partition(" = ")[0] for w in words]
        output = self.pick(OUTPUTS).format(first=first or "7")
        promised = params[first] if first and output == first and r.random() < 0.8 else self.pick((*["t.Any"] * 8, "dict", "list", "str", "int", "float", "t.List[int]", *self.models))
        body = [f"        return {output}"]
        if "ctx: bentoml.Context" in words and r.random() < 0.3:
            body.insert(0, self.pick(('        ctx.response.headers["x-set"] = "1"', "        ctx.response.status_code = 418", '        ctx.response.set_cookie("c", "1")')))
        if r.random() < 0.12:
            condition = f"repr({first})[-1:] in '1a]'" if first else "True"
            body.insert(0, f"        if {condition}:\n            raise {self.pick(RAISED)}")
        kind = "async def" if r.random() < 0.4 else "def"
        text = f"    @bentoml.api\n    {kind} {name}({', '.join(words)}) -> {promised}:\n" + "\n".join(body) + "\n\n"
        return text, f"/{name}", params, root

    def _in_order(self, words):
        """Whether no parameter without a default follows one with a default."""
        seen = False
        for word in words[1:]:
            if "*" == word:
                return True
            if "=" in word:
                seen = True
            elif seen and word != "/":
                return False
        return True

    def body(self, params, root):
        r = self.random
        if r.random() < 0.1:
            return self.pick(BROKEN)
        values = {p: self.fitting(a) for p, a in params.items()}
        if values and r.random() < 0.2:
            values[self.pick(values)] = self.pick(WRONG)
        if root:
            value = next(iter(values.values()))
            return value if isinstance(value, str) and r.random() < 0.5 else json.dumps(value)
        if values and r.random() < 0.1:
            values.pop(self.pick(values))
        if r.random() < 0.1:
            values["extra"] = 1
        return json.dumps(values, ensure_ascii=r.random() < 0.5, separators=self.pick(((",", ":"), (", ", ": "))))


def make(seed, endpoints=30, requests=8):
    """(text of service.py, cases)"""
    maker = Maker(seed)
    text = HEAD + "".join(maker.model() for _ in range(4)) + "@bentoml.service\nclass Generated:\n"
    made = [maker.endpoint(n) for n in range(endpoints)]
    text += "".join(e[0] for e in made)
    cases = []
    for _, path, params, root in made:
        for _ in range(requests):
            case = {"method": "POST", "path": path, "headers": maker.pick(HEADERS), "body": maker.body(params, root)}
            if maker.random.random() < 0.03:
                case["pieces"] = 7
            cases.append(case)
    maker.random.shuffle(cases)
    for number, case in enumerate(cases):
        case["id"] = number
    return text, cases
