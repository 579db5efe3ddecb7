"""Which endpoints may use the lane, and in one clause why the others may not."""

import inspect
import json
import logging
import os

from _bentoml_sdk.io_models import IOMixin, IORootModel
from bentoml._internal.container import BentoMLContainer
from opentelemetry.metrics import _internal as otel_metrics
from pydantic import BaseModel

from plimsoll import deadline
from plimsoll.lane.endpoint import Endpoint

FILE = '"type": "file"'


def why_not_service(factory):
    config = BentoMLContainer.config
    access = logging.getLogger("uvicorn.access")
    for reason, met in (
        ("the service adds ASGI middleware", factory.service.middlewares),
        ("CORS is BentoML's own here", factory.enable_access_control),
        ("the service runs a command of its own", factory.service.has_custom_command()),
        ("max_concurrency is BentoML's own here", factory.max_concurrency),
        ("a dependency is called with pickle", not factory.is_main),
        ("a tracing exporter is set", config.tracing.exporter_type.get() is not None),
        ("tracing.sample_rate is not zero", config.tracing.sample_rate.get()),
        ("OpenTelemetry has a meter provider", otel_metrics._METER_PROVIDER is not None),
        ("http.response.trace_id is on", BentoMLContainer.http.response.trace_id.get()),
        ("logging.access.format.span_id is not 016x", BentoMLContainer.logging_formatting.get()["span_id"] != "016x"),
        ("BentoML's access log is on", BentoMLContainer.api_server_config.logging.access.enabled.get()),
        ("uvicorn's access log is on", access.hasHandlers() and access.isEnabledFor(logging.INFO)),
        ("uvicorn takes the client's address from a header", "FORWARDED_ALLOW_IPS" in os.environ),
        ("its time limit is BentoML's own", not has_our_deadline(factory)),
    ):
        if met:
            return reason
    return None


def has_our_deadline(factory):
    return not factory.timeout or any(m.cls is deadline.Deadline for m in factory.middlewares)


def same(cls, name, owner):
    return inspect.getattr_static(cls, name) is inspect.getattr_static(owner, name)


def why_not_endpoint(factory, name, record):
    method = factory.service.apis[name]
    for reason, met in (
        ("batchable", method.batchable),
        ("a stream", method.is_stream),
        ("a task", method.is_task),
        ("its route has parameters", "{" in method.route),
        ("its handler was wrapped or replaced", method.func is not record.wrapper),
    ):
        if met:
            return reason
    spec, out = method.input_spec, method.output_spec
    base = IORootModel if issubclass(spec, IORootModel) else BaseModel
    parses = same(spec, "from_http_request", IOMixin) and same(spec, "model_validate_json", base)
    if not parses or issubclass(spec, IORootModel) and not same(spec, "model_validate", IORootModel):
        return "its input model has a parser of its own"
    if not same(out, "to_http_response", IOMixin):
        return "its output model makes replies of its own"
    if spec.multipart_fields or out.multipart_fields:
        return "files"
    for model in spec, out:
        try:
            model.mime_type()
            text = json.dumps(model.model_json_schema())
        except Exception as exc:
            return f"a model without a schema ({type(exc).__name__})"
        if FILE in text:
            return "files"
    return None


def compile_service(factory, records):
    """(why none, {path: Endpoint}, {index of the endpoint: why not}). `records`: the records.Endpoints in the order of
    the service's APIs."""
    why = why_not_service(factory)
    if why is not None:
        return why, {}, {}
    lanes, reasons, seen = {}, {}, set()
    for (name, _), record in zip(factory.service.apis.items(), records):
        why = why_not_endpoint(factory, name, record)
        if why is None and record.path in seen:
            why = "another endpoint has its route"
        if why is None and not record.path.isascii():
            why = "its route is not ASCII"
        seen.add(record.path)
        if why is None:
            lanes[record.path.encode("ascii")] = Endpoint(factory, name, record)
        else:
            reasons[record.index] = why
    return None, lanes, reasons
