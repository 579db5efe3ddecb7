"""Is this the code that the lane was compared with, and has nobody put a wrapper around it?

The lane stands in for the functions below. Their sources are hashed; a hash that is not known (another release of
BentoML, or a tracing library that patched it) switches the lane off.

    python -m plimsoll.lane.fingerprint      prints the table of what is installed, for known.py, once the differential
                                             tests have passed on it
"""

import hashlib
import importlib
import inspect
import os
import re
import sys
import types

from plimsoll.lane.known import KNOWN

WATCHED = (
    ("_bentoml_impl.server.app", "ServiceAppFactory.api_endpoint"),
    ("_bentoml_impl.server.app", "ServiceAppFactory.api_endpoint_wrapper"),
    ("_bentoml_impl.server.app", "ServiceAppFactory._add_response_headers"),
    ("_bentoml_impl.server.app", "ServiceAppFactory._to_thread"),
    ("_bentoml_impl.server.app", "ServiceAppFactory.routes"),
    ("_bentoml_impl.server.app", "ServiceAppFactory.middlewares"),
    ("_bentoml_impl.server.app", "ServiceAppFactory.__call__"),
    ("_bentoml_impl.server.app", "ContextMiddleware.__call__"),
    ("_bentoml_impl.serde", "Serde.parse_request"),
    ("_bentoml_impl.serde", "JSONSerde"),
    ("_bentoml_sdk.io_models", "IOMixin.from_http_request"),
    ("_bentoml_sdk.io_models", "IOMixin.to_http_response"),
    ("_bentoml_sdk.io_models", "IOMixin.mime_type"),
    ("_bentoml_sdk.io_models", "IORootModel"),
    ("_bentoml_sdk.method", "APIMethod._local_call"),
    ("bentoml._internal.context", "ServiceContext"),
    ("bentoml._internal.server.base_app", "BaseAppFactory.__call__"),
    ("bentoml._internal.server.base_app", "BaseAppFactory.middlewares"),
    ("bentoml._internal.server.http.instruments", "RunnerTrafficMetricsMiddleware"),
    ("prometheus_client.metrics", "Histogram.observe"),
    ("starlette.applications", "Starlette.__call__"),
    ("starlette.applications", "Starlette.build_middleware_stack"),
    ("starlette.routing", "Router.__call__"),
    ("plimsoll.records", "wrap"),
    ("plimsoll.records", "Edge.__call__"),
    ("plimsoll.deadline", "Deadline.__call__"),
)


GENERATED = re.compile(r".* (/.*/(contextlib|typing)\.py|<attrs generated .*>)")  # methods that nobody replaced
INJECTOR = os.path.join("simple_di", "__init__.py")  # BentoML's own wrapper


def strange(function, module):
    """What has been put around or in place of a function of `module`, or None."""
    code = getattr(function, "__code__", None)
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:
        if type(function) is not types.FunctionType or code is None or not code.co_filename.endswith(INJECTOR):
            return f"wrapped by {type(function).__module__ if code is None else code.co_filename}"
        return strange(inner, module)
    if code is not None and code.co_filename != getattr(sys.modules.get(module), "__file__", None):
        return f"replaced by {code.co_filename}"
    return None


def source_of(module, path):
    """The text that is hashed, or a word in its place that no text is like."""
    thing = importlib.import_module(module)
    first, *rest = path.split(".")
    thing = getattr(thing, first)
    for part in rest:
        thing = inspect.getattr_static(thing, part)
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, classmethod):
        thing = thing.__func__
    members = vars(thing).values() if isinstance(thing, type) else (thing,)
    for member in members:
        member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(member, types.FunctionType) or hasattr(member, "__wrapped__"):
            found = strange(member, module)
            if found is not None and not GENERATED.fullmatch(found):
                return found
    try:
        return inspect.getsource(inspect.unwrap(thing) if not isinstance(thing, type) else thing)
    except (TypeError, OSError):
        return "without a source"


def current():
    out = {}
    for module, path in WATCHED:
        try:
            text = source_of(module, path)
        except (ImportError, AttributeError):
            text = "not there"
        out[f"{module}:{path}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return out


def why_not():
    """None, or what is not as it was tested. Our own functions are looked at for wrappers, not for their text."""
    from plimsoll import bento

    for module, path in WATCHED:
        if not module.startswith("plimsoll."):
            continue
        text = source_of(module, path)
        if text.startswith(("wrapped by", "replaced by", "without")):
            return f"{module}:{path} is {text}"
    changed = [k for k, v in current().items() if not k.startswith("plimsoll.") and v not in KNOWN.get(k, ())]
    if not changed:
        return None
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"this is not the tested code of BentoML ({bento.version()}): {changed[0]}{more}"


def main():
    print('"""Sources that the differential tests have passed on: made by `python -m plimsoll.lane.fingerprint`."""\n')
    print("KNOWN = {")
    for name, value in current().items():
        if not name.startswith("plimsoll."):
            print(f'    "{name}": ("{value}",),')
    print("}")


if __name__ == "__main__":
    main()
