"""Is this the code that the lane was compared with, and has nobody put a wrapper around it?

The lane stands in for the functions below. Their sources are hashed; a hash that is not known (another release of
BentoML, or a tracing library that patched it) switches the lane off.

    python -m plimsoll.lane.fingerprint      prints the table of what is installed (httptools too), for known.py, once
                                             the differential tests have passed on it
"""

import hashlib
import importlib
import inspect
import os
import re
import sys
import types

from plimsoll import bento
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
    ("uvicorn.protocols.http.h11_impl", "H11Protocol"),
    ("uvicorn.protocols.http.httptools_impl", "HttpToolsProtocol"),  # where httptools is
    ("uvicorn.server", "Server.shutdown"),
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


def find(module, path):
    """The class or function; ImportError when its module is not there."""
    thing = importlib.import_module(module)
    first, *rest = path.split(".")
    thing = getattr(thing, first)
    for part in rest:
        thing = inspect.getattr_static(thing, part)
    if isinstance(thing, property):
        thing = thing.fget
    return thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing


def tampered(thing, module):
    """What somebody has put around or in place of it, or None."""
    for member in vars(thing).values() if isinstance(thing, type) else (thing,):
        member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if isinstance(member, types.FunctionType) or hasattr(member, "__wrapped__"):
            found = strange(member, module)
            if found is not None and not GENERATED.fullmatch(found):
                return found
    return None


def hashed(data):
    return hashlib.sha256(data).hexdigest()[:16]


def file_of(module):
    with open(sys.modules[module].__file__, "rb") as f:
        return hashed(f.read())


def source_of(thing):
    return hashed(inspect.getsource(thing if isinstance(thing, type) else inspect.unwrap(thing)).encode())


def why_not():
    """None, or what is not as it was tested. A file that is known as a whole is not taken apart: that takes long. Of
    our own code it matters only whether it is our own."""
    whole = {}
    for module, path in WATCHED:
        name = f"{module}:{path}"
        try:
            thing = find(module, path)
            around = tampered(thing, module)
            if around is not None:
                return f"{name} is {around}"
            if module.startswith("plimsoll."):
                continue
            if module not in whole:
                whole[module] = file_of(module) in KNOWN.get(module, ())
            if whole[module] or source_of(thing) in KNOWN.get(name, ()):
                continue
        except ImportError:
            continue  # what BentoML needs has been imported by now; this is not used
        except (AttributeError, TypeError, OSError):
            pass  # not there, or without a source
        return f"this is not the tested code of BentoML ({bento.version()}): {name}"
    return None


def main():
    print('"""Sources that the differential tests have passed on: made by `python -m plimsoll.lane.fingerprint`."""\n')
    print("KNOWN = {")
    told = set()
    for module, path in WATCHED:
        if module.startswith("plimsoll."):
            continue
        thing = find(module, path)
        if module not in told:
            print(f'    "{module}": ("{file_of(module)}",),')
            told.add(module)
        print(f'    "{module}:{path}": ("{source_of(thing)}",),')
    print("}")


if __name__ == "__main__":
    main()
