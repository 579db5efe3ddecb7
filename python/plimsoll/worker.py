"""The entry of a Python worker: BentoML's own worker entry, with records, without a change to the user's service.

    python -m plimsoll.worker IDENT --fd 3 --service-name NAME --worker-id 1 ...

The arguments are those of `python -m _bentoml_impl.worker.service`. Environment:

    PLIMSOLL_PAGE_FD      descriptor of the page (shm.h)
    PLIMSOLL_CONTROL_FD   descriptor of the control socket (control.py)
    PLIMSOLL_GENERATION   BOOT.NUMBER, the keeper's name for this start
    PLIMSOLL_ZYGOTE_REFUSED  why this start was not left to the zygote (zygote.py), if it was tried
    PLIMSOLL_HOSTS_FILE   names hosts that are wanted (hosts.py)

What happens, in order: the service's module is imported, once, by BentoML; its handlers are wrapped; main is told about
it and says `go`, and where the dependencies are that run apart; deployment hooks run if this start is a new deployment;
then BentoML makes the instance and serves. A dependency that runs apart is a worker like any other with --service-name;
its timeout, concurrency and access log are BentoML's own, since nobody stands before it. A worker that a zygote has
forked comes here too, and starts over by exec when something does not fit.

Private names of BentoML are used, each probed: a missing one costs its feature, not the service.
    _bentoml_impl.worker.service.main                         the entry itself; without it nothing can be started
    _bentoml_impl.loader.load                                 clear words about a service that cannot be loaded
    _bentoml_sdk.service.factory.Service.to_asgi, APIMethod.func           records
    bentoml._internal.server.http.traffic.TimeoutMiddleware                no timer is left behind
    _bentoml_impl.client.proxy2.SessionManager.get_session                 calls under way outlive an old session
    uvicorn.Server.startup                                                 a dependency that leaves its shared socket
    _bentoml_impl.server.serving.server_on_deployment                      hooks and the table of tasks
    bentoml._internal.configuration.containers.BentoMLContainer.remote_runner_mapping   where dependencies are
"""

import contextlib
import functools
import json
import os
import stat
import sys
import time

from plimsoll import (
    agent,
    bento,
    control,
    deadline,
    describe,
    drain,
    explain,
    hosts,
    imports,
    lane,
    page,
    records,
    sessions,
)  # fmt: skip


def kept_back(text):
    """The descriptor of this number, out of reach of the user's subprocesses; None when there is none."""
    try:
        os.set_inheritable(int(text), False)
    except (ValueError, OSError):
        return None
    return int(text)


class Launcher:
    """`child`: of a zygote (zygote.Child), or None; `known`: the environment that its imports have seen."""

    def __init__(self, argv, child=None, known=None):
        self.argv = argv
        self.child = child
        self.cpu_ms = 0  # until the service was imported
        self.watch = imports.EnvironmentWatch(known, self._differs if child else None)
        self.ident = next((a for a in argv if not a.startswith("-")), ".")
        if "--fd" in argv[:-1]:
            kept_back(argv[argv.index("--fd") + 1])  # a stray that keeps the listener would make dead sockets hang
        self.degraded = []
        self.loaded = None  # what BentoML's loader returned
        self.served = False
        self.fast_lane = "auto"
        self.overrides = None  # BentoML settings of this service that main's configuration sets
        self.page = self._open_page()
        self.endpoints = []
        self.verbs = explain.Verbs(self._ended)
        self.recorder = records.Recorder(self.page, self.degrade, self.verbs.history)
        # who is named shares its socket with others, and takes leave of it before it ends
        shares = "--service-name" in argv
        self.drain = drain.Drain(lambda: self.control.tell(drained=True)) if shares else None
        self.lane = lane.Lane(self.recorder)
        self.asks = {**agent.answers(self.recorder), "lane": lambda _: {"lane": self.lane.table()}}
        self.asks["imports"] = self._imports
        if self.drain:
            self.asks["drain"] = lambda _: self.drain.begin()
        self.control = self._open_control()
        refused = os.environ.pop("PLIMSOLL_ZYGOTE_REFUSED", None)
        if refused:
            self.degrade("zygote", refused)

    def degrade(self, feature, reason):
        self.degraded.append({"feature": feature, "reason": str(reason)})
        print(f"event=worker.degraded feature={feature} reason={json.dumps(str(reason))}", file=sys.stderr, flush=True)

    def feature(self, bit):
        with self.page.lock:
            self.page.set("features", self.page.get("features") | bit)

    def _open_page(self):
        fd = kept_back(os.environ.pop("PLIMSOLL_PAGE_FD", ""))
        try:
            if fd is None:
                raise ValueError("PLIMSOLL_PAGE_FD names no descriptor")
            mine = page.Page(fd)
        except (ValueError, OSError) as exc:
            self.degrade("page", exc)
            mine = page.Page()
        mine.open(*page.generation())
        return mine

    def _open_control(self):
        fd = kept_back(os.environ.pop("PLIMSOLL_CONTROL_FD", ""))
        try:
            if fd is None or not stat.S_ISSOCK(os.fstat(fd).st_mode):
                raise ValueError("PLIMSOLL_CONTROL_FD names no socket")
        except (ValueError, OSError) as exc:
            self.degrade("control", exc)
            return None
        return control.Control(fd, self.asks)

    def _differs(self, name, where):
        """The libraries were imported before the service has set it: too late."""
        if self.child is not None and not self.child.proven:
            self.child.start_over(f"{where} sets {name} otherwise than when the libraries were imported")

    def _imports(self, _):
        """For a zygote: what has been imported by now, after warm-up."""
        owners = [s.inner.__module__ for s in self.loaded.all_services().values() if hasattr(s, "inner")]
        record = imports.make_record(self.watch, owners, self.cpu_ms)
        return {"record": imports.pack(record), "modules": len(record["modules"]), "cpu_ms": record["cpu_ms"]}

    def _ended(self):
        """(in flight, {route: requests ended})"""
        with self.page.lock:
            return self.page.get("in_flight"), {e.path: e.ended for e in self.endpoints if e.ended}

    # --- patches

    def install(self):
        """Puts everything in place and returns BentoML's entry."""
        try:
            import _bentoml_impl.worker.service as entry

            run = entry.main
        except (ImportError, AttributeError) as exc:
            if isinstance(exc, ImportError) and not (exc.name or "").startswith("_bentoml_impl.worker"):
                raise  # BentoML is there, but something it needs is not
            raise bento.Whole(f"BentoML {bento.version()} has no worker entry that we can start") from None
        # multiprocessing's spawn starts children from the spec of __main__; ours is no more on their path
        sys.modules["__main__"].__spec__ = entry.__spec__
        sys.argv[0] = entry.__file__
        self._patch("load", "_bentoml_impl.loader", "load", self._load_with_words)
        self._patch("deadline", "bentoml._internal.server.http.traffic", "TimeoutMiddleware", self._deadline)
        if self.drain is not None:
            self._patch("drain", "uvicorn", "Server.startup", self.drain.around_startup)
        self._patch("records", "_bentoml_sdk.service.factory", "Service.to_asgi", self._to_asgi_with_records)
        return run

    def _patch(self, feature, module, name, replace):
        try:
            owner = __import__(module, fromlist=["_"])
            *path, last = name.split(".")
            for step in path:
                owner = getattr(owner, step)
            setattr(owner, last, replace(getattr(owner, last)))
        except (ImportError, AttributeError) as exc:
            self.degrade(feature, exc)

    def _deadline(self, _):
        self.feature(page.F_DEADLINE)
        return deadline.Deadline

    def _load_with_words(self, original):
        @functools.wraps(original)
        def load(*args, **kwargs):
            try:
                with self.watch:
                    service = original(*args, **kwargs)
            except Exception as exc:
                if self.child is not None:
                    self.child.start_over(f"cannot load {self.ident} in a fork: {bento.why(exc)}")
                print(f"cannot load {self.ident}: {bento.why(exc)}", file=sys.stderr, flush=True)
                raise
            self._accept(service)
            return service

        return load

    def _accept(self, service):
        bento.refuse_other_kinds(service, self.ident)
        bento.apply_envs(service)
        self.loaded = service

    def _to_asgi_with_records(self, original):
        def to_asgi(service, *args, **kwargs):
            early = self.loaded is None and not self._lost("load")  # the user's own module calls it
            if early or self.served:
                return original(service, *args, **kwargs)
            self.served = True
            if self.loaded is None:
                self._accept(service)
            if self.child is not None:
                self.child.look_at_verdict()
            self.cpu_ms = time.process_time() * 1000
            with self.page.lock:
                self.page.stamp("imported_ms")
            routes = self._wrap(service)
            timeout_s = self._agree(service)
            entry = service is self.loaded
            here = [name for name in self.loaded.all_services() if name not in self._elsewhere()]
            moved = bento.limits_moved(here, timeout_s, service.name, self.overrides)
            self.lane.prepare(service, self.endpoints, self._why_no_lane(), timeout_s)
            with moved if entry else contextlib.nullcontext():
                app = original(service, *args, **kwargs)
            self.feature(page.F_RECORDS | (page.F_OVERRIDES if entry else 0))
            return records.Edge(app, self.recorder, routes, self.drain)

        return to_asgi

    def _lost(self, feature):
        return any(d["feature"] == feature for d in self.degraded)

    def _why_no_lane(self):
        if self.fast_lane == "off":
            return "fast_lane is off"
        return next((d["reason"] for d in self.degraded if d["feature"] in ("deadline", "records")), None)

    # --- one service

    def _wrap(self, service):
        """Wraps the handlers of the service that this process serves; those of a dependency are wrapped in its own."""
        endpoints = []
        title = os.environ.get("PLIMSOLL_WORKER_NAME", service.name)  # as the metrics name it
        for index, (name, method) in enumerate(service.apis.items()):
            path = describe.join_paths(bento.path_prefix(service), method.route)
            kind, names = describe.kind_of(method), describe.parameters(method.func)
            endpoint = records.Endpoint(index, path, kind, bool(method.batchable), title, names)
            try:
                endpoint.wrapper = method.func = records.wrap(method.func, self.recorder, endpoint)
            except AttributeError as exc:
                endpoint.at_edge = True
                self.degrade(f"records:{name}", exc)
            endpoints.append(endpoint)
        self.endpoints = endpoints
        prefix = describe.join_paths(bento.path_prefix(service)).rstrip("/")
        own_code_first = bool(getattr(service, "middlewares", ()))
        return records.Routes(endpoints, prefix, own_code_first, bool(getattr(service, "mount_apps", ())))

    def _elsewhere(self):
        """{name: URI} of the services that run in processes of their own."""
        try:
            from bentoml._internal.configuration.containers import BentoMLContainer

            return BentoMLContainer.remote_runner_mapping.get()
        except (ImportError, AttributeError):
            return {}

    def _find_dependencies(self, runner_map):
        """Puts the URIs where BentoML looks for them, and into the environment for subprocesses."""
        try:
            from bentoml._internal.configuration.containers import BentoMLContainer

            known = {**BentoMLContainer.remote_runner_mapping.get(), **runner_map}
            BentoMLContainer.remote_runner_mapping.set(known)
        except (ImportError, AttributeError) as exc:
            self.degrade("dependencies", exc)  # each is made in this process
            return
        os.environ["BENTOML_RUNNER_MAP"] = json.dumps(known)
        self._patch("sessions", "_bentoml_impl.client.proxy2", "SessionManager.get_session", sessions.replace)

    def _agree(self, service):
        """Tells main about the service and does what it says; returns the deadline in seconds."""
        go = None
        elsewhere = self._elsewhere()
        if self.control is not None:
            go = self.control.describe(describe.describe(service, self.degraded, elsewhere))
            if go is None:
                self.degrade("handshake", "nobody said go")
            self.verbs.install(self.control, go)
            self.control.serve()
            self.feature(page.F_CONTROL)
        if go is None:
            self._keep_task_table(service)
            return describe.timeout_s(service) + 1
        self.overrides = go.get("overrides") if isinstance(go.get("overrides"), dict) else {}
        self._set_threads(service, self.overrides.pop("threads", None))
        if go.get("deploy") is True:
            self._deploy(elsewhere)
        if go.get("runner_map") and isinstance(go["runner_map"], dict):
            self._find_dependencies(go["runner_map"])
        self.fast_lane = go.get("fast_lane", "auto")
        self.asks["configure"](go)
        timeout_ms = go.get("timeout_ms")
        if not isinstance(timeout_ms, int) or timeout_ms <= 0:
            return describe.timeout_s(service) + 1
        return timeout_ms // 1000 if timeout_ms % 1000 == 0 else timeout_ms / 1000

    def _set_threads(self, service, threads):
        """BentoML reads this one setting from the decorator's own dictionary, not from its configuration."""
        if threads is None:
            return
        try:
            service.config["threads"] = threads
        except (AttributeError, TypeError) as exc:
            self.degrade("threads", exc)

    def _deploy(self, elsewhere):
        """Hooks run and the table of tasks is made anew, once for each deployment: it would drop running jobs. Whoever
        comes first does it for the whole service, its dependencies included, as BentoML's arbiter does."""
        try:
            from _bentoml_impl.server.serving import server_on_deployment
        except ImportError as exc:
            if describe.wants_deployment(self.loaded):
                self.degrade("deployment", exc)
            return
        for one in bento.services_here(self.loaded).values():
            if one is self.loaded or one.name not in elsewhere:
                server_on_deployment(one)

    def _keep_task_table(self, service):
        """Nobody could say whether this is a new deployment: nothing is dropped, but a task needs its table."""
        try:
            if not describe.has_tasks(service):
                return
            from _bentoml_impl.tasks.result import Sqlite3Store
            from bentoml._internal.configuration.containers import BentoMLContainer

            Sqlite3Store.init_db(BentoMLContainer.result_store_file.get())
        except (ImportError, AttributeError, OSError) as exc:
            self.degrade("tasks", exc)


def main(child=None, known=None):
    hosts.install()
    launcher = Launcher(sys.argv[1:], child, known)
    bento.leave_the_path()
    try:
        bento.require()
        run = launcher.install()
        run(args=launcher.argv, prog_name="plimsoll.worker", standalone_mode=True)
    except bento.Whole as exc:
        if launcher.control is not None:
            launcher.control.fallback(str(exc))  # main ends us and starts the service in the other way
        sys.exit(f"{exc}: run it with command: [bentoml, serve, ...]")
    except bento.Refused as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
