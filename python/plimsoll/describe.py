"""What main is told about a service: its settings in Plimsoll's words, its routes, its hooks.

    python -m plimsoll.describe IDENT [--working-dir DIR]      prints it as JSON; imports the service, makes no instance
"""

import argparse
import inspect
import json
import os
import platform
import sys
import warnings

from plimsoll import bento

EXAMPLE_BYTES = 64 * 1024

# BentoML's key -> (Plimsoll's key, how its value is written)
SETTINGS = {
    ("traffic", "timeout"): ("traffic.timeout", "seconds"),
    ("traffic", "max_concurrency"): ("traffic.max_concurrency", "plain"),
    ("workers",): ("workers", "plain"),
    ("threads",): ("threads", "plain"),
    ("metrics", "namespace"): ("metrics.namespace", "plain"),
    ("http", "host"): ("http.host", "plain"),
    ("http", "port"): ("http.port", "plain"),
    ("http", "cors", "enabled"): ("cors.enabled", "switch"),
    ("http", "cors", "access_control_allow_origins"): ("cors.allow_origins", "list"),
    ("http", "cors", "access_control_allow_origin_regex"): ("cors.allow_origin_regex", "plain"),
    ("http", "cors", "access_control_allow_methods"): ("cors.allow_methods", "list"),
    ("http", "cors", "access_control_allow_headers"): ("cors.allow_headers", "list"),
    ("http", "cors", "access_control_allow_credentials"): ("cors.allow_credentials", "switch"),
    ("http", "cors", "access_control_expose_headers"): ("cors.expose_headers", "list"),
    ("http", "cors", "access_control_max_age"): ("cors.max_age", "seconds"),
    ("logging", "access", "enabled"): ("logs.access", "switch"),
    ("logging", "access", "skip_paths"): ("logs.access_skip", "list"),
}


def written(value, form):
    """A value as it would stand in plimsoll.yaml."""
    if form == "seconds":
        ms = round(float(value) * 1000)
        return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
    if form == "switch":
        return "on" if value else "off"
    if form == "list":
        return value if isinstance(value, str) else ",".join(map(str, value))
    return os.path.expandvars(value) if isinstance(value, str) else str(value)


def in_our_words(config):
    """The settings of one BentoML service configuration that Plimsoll knows too."""
    out = {}
    for path, (key, form) in SETTINGS.items():
        value = config
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            continue
        try:
            out[key] = written(value, form)
        except (TypeError, ValueError):
            continue  # BentoML refuses it, in its own words
    return out


def options(text):
    """BENTOML_CONFIG_OPTIONS: `a.b=1 a.c=2`, with YAML values."""
    import yaml

    out = {}
    for word in text.split():
        path, equals, value = word.partition("=")
        tree = yaml.safe_load(value) if equals else None
        for step in reversed(path.split(".")):
            tree = {step.strip('"'): tree}
        out = bento.merged(out, tree)
    return out


def bentoml_services():
    """The `services` part of BentoML's own configuration: its file, overrides and options, the later ones above. What
    cannot be read is left out: BentoML complains about it itself when it starts."""
    tree = {}
    with_file = os.environ.get("BENTOML_CONFIG")
    try:
        import yaml

        if with_file:
            with open(os.path.expanduser(os.path.expandvars(with_file)), "rb") as f:
                tree = bento.merged(tree, yaml.safe_load(f) or {})
        tree = bento.merged(tree, json.loads(os.environ.get("BENTOML_CONFIG_OVERRIDES") or "{}"))
        tree = bento.merged(tree, options(os.environ.get("BENTOML_CONFIG_OPTIONS") or ""))
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):
        pass
    services = tree.get("services")
    return services if isinstance(services, dict) else {}


def settings(service):
    """By origin. Keys below the service's name in BentoML's configuration beat the decorator; nameless ones are only
    defaults, so they are told where the decorator is silent."""
    decorator = in_our_words(service.config)
    if bento.path_prefix(service):
        decorator["route.path"] = join_paths(bento.path_prefix(service))
    services = bentoml_services()
    defaults = {k: v for k, v in in_our_words(services).items() if k not in decorator}
    named = services.get(service.name)
    return {
        "decorator": decorator,
        "bentoml_config": {**defaults, **(in_our_words(named) if isinstance(named, dict) else {})},
    }


def timeout_s(service):
    """The timeout that BentoML itself would use, in seconds."""
    named = bentoml_services()
    for config in (named.get(service.name), service.config, named):
        traffic = config.get("traffic") if isinstance(config, dict) else None
        value = traffic.get("timeout") if isinstance(traffic, dict) else None
        if isinstance(value, (int, float)) and value > 0:
            return value
    return 60


# --- routes


class NoExample(Exception):
    """The author wrote no value here, and none is invented."""


def example_of(schema, defs):
    """A value made of the defaults and examples in a JSON schema."""
    if schema.get("examples"):
        return schema["examples"][0]
    if "example" in schema:
        return schema["example"]
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if "$ref" in schema:
        return example_of(defs.get(schema["$ref"].rpartition("/")[2], {}), defs)
    if len(schema.get("allOf", ())) == 1:
        return example_of(schema["allOf"][0], defs)
    if schema.get("type") == "object" and "properties" in schema:
        return example_object(schema, defs)
    raise NoExample


def example_object(schema, defs):
    out = {}
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        try:
            out[name] = example_of(field, defs)
        except NoExample:
            if name in required:
                raise
    return out


def example(method):
    """The body of a request that the author's own values make, as JSON text, or None."""
    spec = method.input_spec
    if spec.mime_type() != "application/json":
        return None
    with warnings.catch_warnings():  # defaults that JSON cannot hold are left to the service
        warnings.simplefilter("ignore")
        schema = spec.model_json_schema()
    if schema.get("type") == "object" and not schema.get("properties") and not schema.get("examples"):
        return None  # nothing to send is nothing the author wrote
    try:
        text = json.dumps(example_of(schema, schema.get("$defs", {})), separators=(",", ":"))
    except (NoExample, TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= EXAMPLE_BYTES else None


def kind_of(method):
    if getattr(method, "is_task", False):
        return "task"
    if method.is_stream:
        return "stream"
    return "async" if inspect.iscoroutinefunction(method.func) else "sync"


def parameters(func):
    """The names of a handler's parameters, self left out."""
    try:
        return tuple(inspect.signature(func).parameters)[1:]
    except (TypeError, ValueError):
        return ()


def join_paths(*parts):
    """As BentoML joins a prefix and a route."""
    out = ""
    for part in parts:
        if part:
            out = out.rstrip("/") + "/" + part.lstrip("/")
    return out or "/"


def route(service, name, method):
    out = {
        "name": name,
        "path": join_paths(bento.path_prefix(service), method.route),
        "kind": kind_of(method),
        "batchable": bool(method.batchable),
        "content_type": method.input_spec.mime_type(),
    }
    try:
        body = example(method)
    except Exception:  # a schema of the user's own making may raise anything; then there is no example
        body = None
    return out if body is None else {**out, "example": body}


# --- the whole


def members_with(inner, mark):
    return [n for n in dir(inner) if getattr(getattr(inner, n, None), mark, False)]


def own_config(service):
    """What is set for this very service: by its decorator, and by its name in BentoML's configuration."""
    named = bentoml_services().get(service.name)
    return bento.merged(service.config, named) if isinstance(named, dict) else service.config


def runs_apart(config):
    """BentoML's way with a process of its own is worth it when the dependency scales by itself."""
    return config.get("workers") not in (None, 1) or "threads" in config or bool(config.get("resources"))


def ranks(service):
    """How far below `service` each one of its dependencies lies, on the longest way: who calls it ends before it."""
    out = {}

    def walk(one, rank):
        if out.get(one.name, -1) >= rank:
            return
        out[one.name] = rank
        for below in one.dependencies.values():
            if below.on is not None and not below.url and not below.deployment:
                walk(below.on, rank + 1)

    walk(service, 0)
    return out


def dependencies(service, elsewhere=()):
    """Those that may get processes of their own; `elsewhere` names those that run already."""
    out = []
    rank = ranks(service)
    for one in bento.services_here(service).values():
        if one is service or one.name in elsewhere:
            continue
        config = own_config(one)
        out.append({
            "name": one.name,
            "separate": runs_apart(config),
            "workers": config.get("workers") or 1,
            "rank": rank.get(one.name, 1),
        })  # fmt: skip
    return out


def has_tasks(service):
    return any(getattr(m, "is_task", False) for m in service.apis.values())


def wants_deployment(service):
    """Whether something is to be done once for each deployment, of the service or of what it depends on."""
    return any(
        has_tasks(s) or members_with(s.inner, "__bentoml_deployment_hook__")
        for s in bento.services_here(service).values()
    )


def describe(service, degraded=(), elsewhere=()):
    return {
        "name": service.name,
        "bentoml": bento.version(),
        "python": platform.python_version(),
        "settings": settings(service),
        "routes": [route(service, name, method) for name, method in service.apis.items()],
        "path_prefix": bento.path_prefix(service),
        "is_ready": hasattr(service.inner, "__is_ready__"),
        "deployment_hooks": len(members_with(service.inner, "__bentoml_deployment_hook__")),
        "tasks": sum(1 for m in service.apis.values() if getattr(m, "is_task", False)),
        "wants_deployment": wants_deployment(service),
        "dependencies": dependencies(service, elsewhere),
        "degraded": list(degraded),
    }


def bentoml_load(ident, working_dir):
    from _bentoml_impl import loader

    if hasattr(loader, "load"):
        return loader.load(ident, working_dir, standalone_load=True)
    return loader.import_service(*loader.normalize_identifier(ident, working_dir))  # the first releases of 1.4


def load(ident, working_dir):
    try:
        service = bentoml_load(ident, working_dir)
    except Exception as exc:
        print(f"cannot load {ident}: {bento.why(exc)}", file=sys.stderr, flush=True)
        raise
    bento.refuse_other_kinds(service, ident)
    return service


def main():
    parser = argparse.ArgumentParser(prog="python -m plimsoll.describe", description=__doc__.splitlines()[0])
    parser.add_argument("ident", help="service:Class, a folder, or the tag of a bento")
    parser.add_argument("--working-dir", help="folder of the service")
    given = parser.parse_args()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout is ours; what the user's code prints goes to stderr
    bento.leave_the_path()
    try:
        bento.require()
        document = {"v": 1, "describe": describe(load(given.ident, given.working_dir))}
    except bento.Refused as exc:
        sys.exit(str(exc))
    print(json.dumps(document, separators=(",", ":")), file=answer, flush=True)


if __name__ == "__main__":
    main()
