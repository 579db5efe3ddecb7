"""One endpoint in the lane: from a body to the handler's arguments, from its output to a body; and how BentoML's own
code gets the outcome of a handler that has run already."""

import copy
import inspect
import json
import types

from _bentoml_impl.serde import JSONSerde
from _bentoml_sdk.io_models import ARGS, KWARGS, IORootModel, is_file_type
from bentoml._internal.utils import get_original_func
from bentoml._internal.utils.http import set_cookies
from starlette.responses import Response

from plimsoll.lane import context

PLAIN = frozenset((dict, list, tuple, str, bytes, int, float, bool, type(None)))
# What cannot become text while it is dumped: the dump that BentoML makes only to look at its type is left out for it.
NEVER_TEXT = frozenset((dict, list, int, float, bool))

OUTCOME = "plimsoll.outcome"  # in the scope of a request that is given back


class Outcome:
    """What became of a handler, for BentoML's code to make a reply of."""

    __slots__ = ("error", "output", "response")

    def __init__(self, error, output, response):
        self.error = error
        self.output = output
        self.response = response


class Endpoint:
    """`record` is the records.Endpoint that its requests are counted under."""

    def __init__(self, factory, name, record):
        service = factory.service
        method = service.apis[name]
        self.name = name
        self.record = record
        # past our wrapper: the lane accounts by itself
        inner = copy.copy(method)
        inner.func = method.func.__wrapped__
        self.local = inner._local_call(factory._service_instance)
        self.is_async = inspect.iscoroutinefunction(get_original_func(self.local))
        self.quick = 0  # how many runs in a row took little time
        self.ctx_param = method.ctx_param
        self.context = service.context
        self._input_of(method.input_spec)
        self._output_of(method.output_spec, service.name)

    def _input_of(self, spec):
        self.input_spec = spec
        self.root_input = bool(getattr(spec, "__root_input__", False))
        self.input_is_root = issubclass(spec, IORootModel)
        self.fields = tuple(spec.model_fields)
        self.special = ARGS in self.fields or KWARGS in self.fields
        self.body_is_text = self.input_is_root and spec.model_json_schema().get("type") in ("string", "file")
        self.plain_input = not (self.input_is_root or self.root_input or self.special or self.ctx_param is not None)
        self.validate = spec.model_validate_json

    def _output_of(self, spec, title):
        self.output_spec = spec
        self.output_is_root = issubclass(spec, IORootModel)
        self.serialize = JSONSerde().serialize_model
        self.skip_dump = False
        if self.output_is_root:
            field = spec.model_fields["root"]
            self.skip_dump = field.annotation in NEVER_TEXT and not field.metadata
        sample = dict(Response(content=b"", media_type=spec.mime_type()).raw_headers)
        self.reply_tail = (
            b"\r\ncontent-type: " + sample[b"content-type"].replace(b"%", b"%%")
            + b"\r\nserver: BentoML Service/" + title.encode("latin-1").replace(b"%", b"%%")
            + b"\r\nx-bentoml-request-id: %016x\r\n\r\n"
        )  # fmt: skip

    def parse(self, body):
        """(args, kwargs) as ServiceAppFactory.api_endpoint makes them; raises what it would raise."""
        if not body:
            body = b"{}"
        if self.plain_input:
            data = self.validate(body)
            return (), {name: getattr(data, name) for name in self.fields}
        spec = self.input_spec
        args, kwargs = (), {}
        if self.input_is_root:
            root = spec.model_validate(body if self.body_is_text else json.loads(body)).root
            if self.root_input:
                args = (root,)
            else:
                kwargs = {"root": root}
        elif self.root_input:
            args = (self.validate(body),)
        else:
            data = self.validate(body)
            kwargs = {name: getattr(data, name) for name in self.fields}
        if self.ctx_param is not None:
            kwargs[self.ctx_param] = self.context
        if self.special:
            if ARGS in kwargs:
                args = (*args, kwargs.pop(ARGS))
            if KWARGS in kwargs:
                kwargs.update(kwargs.pop(KWARGS))
        return args, kwargs

    def encode(self, output):
        """The body of the reply, or None when BentoML's own to_http_response must see the output."""
        kind = type(output)
        if kind not in PLAIN:
            if isinstance(output, (Response, types.GeneratorType, types.AsyncGeneratorType)):
                return None
            if self.output_is_root and is_file_type(kind):
                return None
        if not self.output_is_root:
            return b"".join(self.serialize(output).data)
        model = output if isinstance(output, IORootModel) else self.output_spec(output)
        if not (self.skip_dump and kind in NEVER_TEXT):
            rendered = model.model_dump()
            if isinstance(rendered, str):
                return rendered.encode("utf-8")
            if isinstance(rendered, bytes):
                return rendered
        return b"".join(self.serialize(model).data)


def answer_outcomes(factory):
    """Lets BentoML's api_endpoint_wrapper make the reply for what has run in the lane already."""
    original = factory.api_endpoint

    async def api_endpoint(name, request):
        outcome = request.scope.pop(OUTCOME, None)
        if outcome is None:
            return await original(name, request)
        if outcome.response is not None and outcome.response.touched:
            context.set_response(outcome.response)
        if outcome.error is not None:
            raise outcome.error
        method = factory.service.apis[name]
        response = outcome.output
        if not isinstance(response, Response):
            response = await method.output_spec.to_http_response(response, JSONSerde())
        if method.ctx_param is not None:
            ctx = factory.service.context
            response.status_code = ctx.response.status_code
            response.headers.update(ctx.response.metadata)
            set_cookies(response, ctx.response.cookies)
        return response

    factory.api_endpoint = api_endpoint
