"""What we must know of BentoML before and while a service is loaded: is it there, what went wrong, what the service
wants from its environment, and how BentoML's own limits are moved out of the way."""

import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import sys

OLDEST = (1, 2)
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Refused(Exception):
    """A reason to stop that is told in one sentence, without a traceback."""


class Whole(Refused):
    """BentoML's worker entry is not there, or not for this service; `bentoml serve` as a whole can run it."""


def leave_the_path():
    """Takes our folder out of PYTHONPATH and sys.path: the user's code and its subprocesses see what they would see
    without us. All our modules are imported by now."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left = [p for p in given if os.path.abspath(p or ".") != PACKAGE_FOLDER]
    if left == given:
        return  # we came another way, perhaps from where everything else lies
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != PACKAGE_FOLDER]
    if left:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)
    else:
        del os.environ["PYTHONPATH"]


def version():
    try:
        return importlib.metadata.version("bentoml")
    except importlib.metadata.PackageNotFoundError:
        return ""


def require():
    """Raises Refused when this interpreter has no BentoML that we can run."""
    spec = importlib.util.find_spec("bentoml")
    if spec is None or spec.origin is None:  # a folder called bentoml is not BentoML
        raise Refused(f"BentoML is not installed in {sys.executable}: pip install bentoml")
    found = version()
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers and tuple(map(int, numbers.groups())) < OLDEST:
        raise Whole(f"BentoML {found} is older than 1.2 and has no worker entry")


def why(error):
    """The line of an exception that says most. BentoML tries an import string as a tag too, and tells of that first."""
    text = str(error).strip()
    by_path = re.search(r"importing by python module path: '(.*)'\.", text, re.DOTALL)
    lines = (by_path.group(1) if by_path else text).splitlines()
    return lines[0] if lines else type(error).__name__


def path_prefix(service):
    """Where its routes begin, "" for the root: the first releases of 1.4 know no such setting."""
    return getattr(service, "path_prefix", None) or ""


def services_here(service):
    """It and everything below it by name, without what runs elsewhere (a dependency with a URL or a deployment)."""
    try:
        return service.all_services(exclude_urls=True)
    except TypeError:  # the first releases of 1.4 leave nothing out
        pass
    found = {service.name: service}
    for dependency in service.dependencies.values():
        elsewhere = getattr(dependency, "url", None) or getattr(dependency, "deployment", None)
        if dependency.on is not None and not elsewhere:
            found.update(services_here(dependency.on))
    return found


def refuse_other_kinds(service, ident):
    """Services of BentoML 1.1 have another worker, and those with a command of their own have none."""
    if not all(hasattr(service, name) for name in ("apis", "to_asgi", "inner")):
        raise Whole(f"{ident} is a legacy service (bentoml.legacy)")
    if getattr(service, "cmd", None) is not None or hasattr(service.inner, "__command__"):
        raise Whole(f"{ident} starts a command of its own (cmd)")


def apply_envs(service):
    """Sets what the decorators declare with envs=[...]: the environment wins over the declared value, as in BentoML."""
    for owner in service.all_services().values():
        for env in getattr(owner, "envs", ()):
            if env.stage == "build" or env.name in os.environ:
                continue
            if not env.value:
                raise Refused(
                    f"Environment variable '{env.name}' is required by service '{owner.name}' but not set: set it, "
                    "or give it a value in the service's envs"
                )
            os.environ[env.name] = str(env.value)


def merged(below, above):
    """`above` laid over `below`, dictionaries key by key."""
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else value
    return out


@contextlib.contextmanager
def limits_moved(names, timeout_s, root=None, root_settings=None):
    """While BentoML reads its configuration: no 429 and no access log of its own, and its 504 comes at `timeout_s`, for
    every service by name (a nameless setting is only a default, which a decorator beats). What the user overrides
    stays; the environment is as before afterwards. `root_settings` are what main sets for the service `root` alone."""
    ours = {"traffic": {"timeout": timeout_s, "max_concurrency": None}, "logging": {"access": {"enabled": False}}}
    saved = {k: os.environ.get(k) for k in ("BENTOML_CONFIG_OVERRIDES", "BENTOML_CONFIG_OPTIONS")}
    try:
        given = json.loads(saved["BENTOML_CONFIG_OVERRIDES"] or "{}")
    except ValueError:
        given = None  # BentoML will say so itself
    if isinstance(given, dict):
        overrides = merged(given, {"services": {name: ours for name in names}})
        if root is not None and isinstance(root_settings, dict):
            overrides = merged(overrides, {"services": {root: root_settings}})
        os.environ["BENTOML_CONFIG_OVERRIDES"] = json.dumps(overrides)
    if saved["BENTOML_CONFIG_OPTIONS"]:  # read last, so it would win
        lines = [
            f"services.{name}.traffic.timeout={timeout_s} services.{name}.traffic.max_concurrency=null "
            f"services.{name}.logging.access.enabled=false"
            for name in names
        ]
        os.environ["BENTOML_CONFIG_OPTIONS"] = " ".join([saved["BENTOML_CONFIG_OPTIONS"], *lines])
    log = logging.getLogger("bentoml._internal.configuration.containers")

    def not_about_ours(record):
        return "override from json" not in str(record.msg)

    if not saved["BENTOML_CONFIG_OVERRIDES"]:
        log.addFilter(not_about_ours)
    try:
        yield
    finally:
        log.removeFilter(not_about_ours)
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
