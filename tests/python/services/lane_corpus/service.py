"""A service with many kinds of endpoints, for the differential test of the fast lane."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import decimal
import enum
import threading
import typing as t
import uuid
from typing import Annotated

import anyio.from_thread
import bentoml
import numpy as np
import pydantic
from bentoml.exceptions import BentoMLException, InvalidArgument, NotFound, ServiceUnavailable
from bentoml.validators import ContentType, DType, Shape
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from typing_extensions import Literal

startup_variable: contextvars.ContextVar[str] = contextvars.ContextVar("startup_variable", default="unset")
module_variable: contextvars.ContextVar[str] = contextvars.ContextVar("module_variable", default="unset")
module_variable.set("set at import")


class Colour(str, enum.Enum):
    red = "red"
    blue = "blue"


class Point(BaseModel):
    x: float
    y: float = 0.0
    label: t.Optional[str] = None


class Order(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    id: int
    points: t.List[Point] = []
    when: t.Optional[datetime.datetime] = None
    colour: Colour = Colour.red
    tags: t.Dict[str, int] = {}


class Loose(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


class Shouting(BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def no_digits(cls, v: str) -> str:
        if any(c.isdigit() for c in v):
            raise ValueError("no digits, please")
        return v

    @pydantic.field_serializer("text")
    def shout(self, v: str) -> str:
        return v.upper()


class Aliased(BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    inner: int = Field(alias="outerName")


@dataclasses.dataclass
class Pair:
    left: int
    right: str


class Teapot(BentoMLException):
    error_code = type(InvalidArgument.error_code)(418)


class Denied(BentoMLException):
    error_code = type(InvalidArgument.error_code)(403)


@bentoml.service
class Corpus:
    def __init__(self) -> None:
        self.calls = 0
        startup_variable.set("set in __init__")

    @bentoml.api
    def variables(self) -> dict:
        seen = {"startup": startup_variable.get(), "module": module_variable.get()}
        startup_variable.set("set by a handler")
        return seen

    @bentoml.api
    async def avariables(self) -> dict:
        seen = {"startup": startup_variable.get(), "module": module_variable.get()}
        startup_variable.set("set by a handler")
        return seen

    # plain values
    @bentoml.api
    def ints(self, x: int = 1) -> dict:
        return {"x": x}

    @bentoml.api
    async def aints(self, x: int = 1) -> dict:
        return {"x": x}

    @bentoml.api
    def text(self, s: str) -> str:
        return s + "!"

    @bentoml.api
    async def atext(self, s: str) -> str:
        return s + "!"

    @bentoml.api
    def floats(self, x: float) -> float:
        return x * 2

    @bentoml.api
    def bools(self, flag: bool) -> bool:
        return not flag

    @bentoml.api
    def anything(self, v):
        return v

    @bentoml.api
    async def aanything(self, v):
        return v

    @bentoml.api
    def nothing(self) -> None:
        return None

    @bentoml.api
    def no_args(self) -> t.List[int]:
        return [1, 2, 3]

    @bentoml.api
    def raw_bytes(self, n: int = 3) -> bytes:
        return bytes(range(n))

    @bentoml.api
    def bytes_in(self, b: bytes) -> int:
        return len(b)

    @bentoml.api
    def special(self, kind: str) -> t.Any:
        return {
            "nan": float("nan"),
            "inf": float("inf"),
            "ninf": float("-inf"),
            "big": 10**40,
            "bignest": {"a": [10**30, -(2**63), 2**64]},
            "set": {1},
            "tuple": (1, "a"),
            "decimal": decimal.Decimal("1.10"),
            "uuid": uuid.UUID(int=7),
            "datetime": datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc),
            "date": datetime.date(2024, 5, 6),
            "timedelta": datetime.timedelta(seconds=90),
            "enum": Colour.blue,
            "dataclass": Pair(1, "r"),
            "model": Point(x=1),
            "models": [Point(x=1), Point(x=2, label="é")],
            "npfloat": np.float32(1.5),
            "npint": np.int64(3),
            "nparray": np.arange(3),
            "npdict": {"a": np.float64(2.5)},
            "bytes": b"abc",
            "badbytes": b"\xff\xfe",
            "bytesdict": {"a": b"abc"},
            "badbytesdict": {"a": b"\xff"},
            "surrogate": "\ud800",
            "surrogatedict": {"a": "\ud800"},
            "unicode": {"ключ": "日本語 \U0001f600 \u2028 \x7f \x00"},
            "string": "plain",
            "empty": "",
            "intkeys": {1: 2, None: 3, True: 4},
            "tuplekeys": {(1, 2): 3},
            "lambda": lambda: 1,
            "object": object(),
            "ellipsis": ...,
            "complex": 1j,
            "nested": {"a": {"b": {"c": [1, [2, [3]]]}}},
            "range": range(3),
            "gen": (i for i in "abc"),
            "type": int,
            "exception": ValueError("as a value"),
        }[kind]

    @bentoml.api
    def typed_special(self, kind: str) -> t.Dict[str, float]:
        return {
            "nan": {"v": float("nan")},
            "inf": {"v": float("inf")},
            "str": {"v": "x"},
            "int": {"v": 1},
            "none": None,
        }[kind]

    @bentoml.api
    def dict_special(self, kind: str) -> dict:
        return {
            "nan": {"v": float("nan")},
            "list": [1],
            "np": {"a": np.arange(2)},
            "model": {"p": Point(x=3)},
            "str": "text",
            "dt": {"d": datetime.date(2020, 1, 2)},
            "pairs": [("a", 1)],
        }[kind]  # type: ignore

    @bentoml.api
    def list_out(self, n: int = 3) -> t.List[float]:
        return [i / 3 for i in range(n)]

    @bentoml.api
    def wrong_output(self) -> int:
        return "not an int"  # type: ignore

    @bentoml.api
    def coerced_output(self) -> int:
        return "12"  # type: ignore

    # models
    @bentoml.api
    def order(self, order: Order) -> Order:
        return order

    @bentoml.api
    async def aorder(self, order: Order) -> Order:
        return order

    @bentoml.api
    def points(self, points: t.List[Point]) -> t.List[Point]:
        return points[::-1]

    @bentoml.api
    def model_as_dict(self, x: float) -> Point:
        return {"x": x}  # type: ignore

    @bentoml.api
    def other_model(self, x: float) -> Point:
        return Order(id=1)  # type: ignore

    @bentoml.api
    def shouting(self, m: Shouting) -> Shouting:
        return m

    @bentoml.api
    def loose(self, m: Loose) -> Loose:
        return m

    @bentoml.api
    def aliased(self, m: Aliased) -> Aliased:
        return m

    @bentoml.api
    def root_model(self, m: Order, /) -> int:
        return m.id

    @bentoml.api
    def root_model_out(self, m: Shouting, /) -> Shouting:
        return m

    # roots
    @bentoml.api
    def root_str(self, s: str, /) -> str:
        return s[::-1]

    @bentoml.api
    def root_int(self, n: int, /) -> int:
        return n + 1

    @bentoml.api
    def root_list(self, v: t.List[int], /) -> int:
        return sum(v)

    @bentoml.api
    def root_dict(self, v: t.Dict[str, t.Any], /) -> t.Dict[str, t.Any]:
        return v

    @bentoml.api
    def root_any(self, v, /):
        return v

    @bentoml.api
    def root_default(self, n: int = 41, /) -> int:
        return n + 1

    @bentoml.api
    def root_array(self, a: np.ndarray, /) -> float:
        return float(a.sum())

    # kinds of parameters
    @bentoml.api
    def optional(self, a: t.Optional[int] = None, b: t.Optional[str] = "b") -> dict:
        return {"a": a, "b": b}

    @bentoml.api
    def union(self, v: t.Union[int, str, t.List[int]]) -> t.Any:
        return {"type": type(v).__name__, "v": v}

    @bentoml.api
    def enums(self, c: Colour, m: Literal["fast", "slow"] = "fast") -> t.Any:
        return {"c": c, "m": m}

    @bentoml.api
    def times(self, d: datetime.date, dt: datetime.datetime, td: datetime.timedelta = datetime.timedelta(0)) -> t.Any:
        return {"d": d.isoformat(), "dt": dt.isoformat(), "td": td.total_seconds()}

    @bentoml.api
    def time_out(self, y: int = 2024) -> datetime.datetime:
        return datetime.datetime(y, 1, 2, 3, 4, 5)

    @bentoml.api
    def enum_out(self) -> Colour:
        return Colour.red

    @bentoml.api
    def uuid_inout(self, u: uuid.UUID) -> uuid.UUID:
        return u

    @bentoml.api
    def decimal_inout(self, d: decimal.Decimal) -> decimal.Decimal:
        return d * 2

    @bentoml.api
    def optional_out(self, some: bool) -> t.Optional[str]:
        return "some" if some else None

    @bentoml.api
    def union_out(self, kind: str) -> t.Union[int, str, t.Dict[str, int]]:
        return {"i": 1, "s": "text", "d": {"a": 1}}[kind]

    @bentoml.api
    def limits(
        self, n: Annotated[int, Field(ge=1, le=10)], s: Annotated[str, Field(min_length=2, max_length=4)] = "abc"
    ) -> dict:
        return {"n": n, "s": s}

    @bentoml.api
    def field_defaults(self, n: int = Field(default=7, ge=1), v: t.List[int] = Field(default_factory=list)) -> dict:
        return {"n": n, "v": v}

    @bentoml.api
    def var_kwargs(self, a: int, **kwargs: t.Any) -> dict:
        return {"a": a, "rest": kwargs}

    @bentoml.api
    def var_args(self, *args: int) -> t.Any:
        return list(args)

    @bentoml.api
    def kw_only(self, *, a: int, b: int = 2) -> int:
        return a * b

    @bentoml.api
    def tuple_in(self, v: t.Tuple[int, str]) -> t.Tuple[int, str]:
        return v

    @bentoml.api
    def set_in(self, v: t.Set[int]) -> int:
        return len(v)

    # arrays
    @bentoml.api
    def array(self, a: np.ndarray) -> np.ndarray:
        return a * 2

    @bentoml.api
    def typed_array(
        self, a: Annotated[np.ndarray, DType("float32"), Shape((2, 2))]
    ) -> Annotated[np.ndarray, DType("float32")]:
        return a + 1

    @bentoml.api
    def array_as_list(self) -> np.ndarray:
        return [1, 2, 3]  # type: ignore

    # media types
    @bentoml.api
    def html(self) -> Annotated[str, ContentType("text/html")]:
        return "<p>é</p>"

    @bentoml.api
    def csv(self) -> Annotated[bytes, ContentType("text/csv")]:
        return b"a,b\n1,2\n"

    # replies made by the handler
    @bentoml.api
    def response(self, status: int = 200) -> t.Any:
        return JSONResponse({"made": "by hand"}, status_code=status, headers={"x-made": "yes"})

    @bentoml.api
    async def aresponse(self) -> t.Any:
        return PlainTextResponse("async by hand", status_code=202)

    @bentoml.api
    def streaming_response(self) -> t.Any:
        return StreamingResponse(iter([b"a", b"b"]), media_type="text/plain")

    @bentoml.api
    def hidden_generator(self) -> t.Any:
        def gen() -> t.Iterator[str]:
            yield "one"
            yield "two"

        return gen()

    @bentoml.api
    async def hidden_async_generator(self) -> t.Any:
        async def gen() -> t.AsyncIterator[str]:
            yield "one"
            yield "two"

        return gen()

    @bentoml.api
    def stream(self, n: int = 2) -> t.Generator[str, None, None]:
        for i in range(n):
            yield f"part {i}\n"

    @bentoml.api
    async def astream(self, n: int = 2) -> t.AsyncGenerator[str, None]:
        for i in range(n):
            yield f"part {i}\n"

    @bentoml.api(batchable=True)
    def batched(self, v: t.List[int]) -> t.List[int]:
        return [x * 2 for x in v]

    # context
    @bentoml.api
    def with_ctx(self, ctx: bentoml.Context, n: int = 1) -> dict:
        return {
            "n": n,
            "ua": ctx.request.headers.get("user-agent"),
            "q": dict(ctx.request.query_params),
            "m": ctx.request.method,
        }

    @bentoml.api
    def sets_ctx(self, ctx: bentoml.Context, status: int = 418) -> dict:
        ctx.response.status_code = status
        ctx.response.headers["x-set"] = "by handler"
        ctx.response.set_cookie("c", "1")
        return {"ok": True}

    @bentoml.api
    async def actx(self, ctx: bentoml.Context) -> dict:
        body = await ctx.request.body()
        return {"len": len(body), "path": ctx.request.url.path, "h": sorted(ctx.request.headers.keys())}

    @bentoml.api
    def quiet_context(self) -> dict:
        request = Corpus.context.request
        return {"path": request.url.path, "ct": request.headers.get("content-type")}

    @bentoml.api
    def quiet_header(self) -> dict:
        Corpus.context.response.headers["x-quiet"] = "1"
        return {"ok": 1}

    @bentoml.api
    def own_id(self) -> dict:
        from bentoml._internal.context import trace_context

        return {
            "id": format(trace_context.request_id, "016x"),
            "same": trace_context.span_id == trace_context.request_id,
            "trace": trace_context.trace_id != 0,
        }

    @bentoml.api
    async def aown_id(self) -> dict:
        from bentoml._internal.context import trace_context

        return {
            "id": format(trace_context.request_id, "016x"),
            "same": trace_context.span_id == trace_context.request_id,
            "sampled": trace_context.sampled,
        }

    @bentoml.api
    def parent_trace(self) -> dict:
        from bentoml._internal.context import trace_context

        return {"trace": format(trace_context.trace_id, "032x"), "sampled": trace_context.sampled}

    # where the handler runs
    @bentoml.api
    def thread(self) -> dict:
        try:
            asyncio.get_running_loop()
            loop = True
        except RuntimeError:
            loop = False
        return {
            "main": threading.current_thread() is threading.main_thread(),
            "loop": loop,
            "name": threading.current_thread().name,
        }

    @bentoml.api
    def runs_asyncio(self) -> int:
        async def inner() -> int:
            await asyncio.sleep(0)
            return 5

        return asyncio.run(inner())

    @bentoml.api
    def from_thread(self) -> str:
        async def inner() -> str:
            return "main" if threading.current_thread() is threading.main_thread() else "other"

        return anyio.from_thread.run(inner)

    @bentoml.api
    async def task_scope(self) -> dict:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        with anyio.fail_after(5):
            await anyio.sleep(0)
        return {"task": asyncio.current_task() is not None}

    # errors; every call is counted, so that running a handler twice would show
    @bentoml.api
    def fails(self, kind: str) -> t.Any:
        self.calls += 1
        if kind == "validation":
            Point(x="no")  # type: ignore
        raise {
            "value": ValueError("v"),
            "key": KeyError("k"),
            "runtime": RuntimeError("r"),
            "assertion": AssertionError(),
            "stop": StopIteration("s"),
            "stopasync": StopAsyncIteration(),
            "memory": MemoryError(),
            "timeout": TimeoutError("t"),
            "oserror": OSError(5, "io"),
            "recursion": RecursionError("deep"),
            "invalid": InvalidArgument("bad <thing> é"),
            "notfound": NotFound("gone"),
            "teapot": Teapot("short"),
            "denied": Denied("secret"),
            "unavailable": ServiceUnavailable("busy"),
            "bento": BentoMLException("plain"),
            "http": HTTPException(status_code=409, detail="conflict"),
            "surrogate": InvalidArgument("\ud800"),
            "group": ExceptionGroup("g", [ValueError("1")]),
        }[kind]

    @bentoml.api
    async def afails(self, kind: str) -> t.Any:
        self.calls += 1
        raise {
            "value": ValueError("v"),
            "invalid": InvalidArgument("bad"),
            "stop": KeyError("s"),
            "timeout": asyncio.TimeoutError(),
            "cancelled": asyncio.CancelledError(),
            "unavailable": ServiceUnavailable("busy"),
        }[kind]

    @bentoml.api
    def count(self) -> int:
        self.calls += 1
        return self.calls

    @bentoml.api
    def size(self, s: str) -> int:
        return len(s)

    @bentoml.api
    def big(self, n: int = 100000) -> str:
        return "x" * n

    @bentoml.api
    def big_list(self, n: int = 20000) -> t.List[int]:
        return list(range(n))

    @bentoml.api(route="/v1/renamed")
    def renamed(self, x: int = 1) -> int:
        return x
