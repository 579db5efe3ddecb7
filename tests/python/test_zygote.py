"""What a fork inherits that it should not: each hazard as it is, and the guard of the zygote that names it."""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import textwrap

import pytest
from docked import dock, torch_python  # noqa: F401
from harness import PACKAGE, PYTHON, until

from plimsoll import imports, zygote

SAY = textwrap.dedent("""
    import json, os, select, sys, time
    def child(f):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                text = json.dumps(f())
            except BaseException as e:
                text = json.dumps(f"{type(e).__name__}: {e}")
            os.write(w, text.encode()[:4000])
            os._exit(0)
        os.close(w)
        ready = select.select([r], [], [], 8)[0]
        text = os.read(r, 4096) if ready else b'"HANGS"'
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return json.loads(text or b"null")
""")


def in_python(python, code, env=None):
    """What `code` prints as JSON; child(f) is there for a fork."""
    done = subprocess.run([python, "-W", "ignore", "-c", SAY + textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Home:
    """A site-packages of its own, with modules that misbehave; the record of a worker that had them."""

    def __init__(self, folder, python=PYTHON, env=None):
        self.base, self.python = folder / "base", python
        self.env = {**os.environ, "PYTHONUSERBASE": str(self.base), **(env or {})}
        out = subprocess.run([python, "-c", "import site, sys, json; print(json.dumps([site.getusersitepackages(), sys.version, sys.prefix]))"],
                             capture_output=True, text=True, env=self.env, check=True)  # fmt: skip
        site, self.version, self.prefix = json.loads(out.stdout)
        self.site = pathlib.Path(site)
        self.site.mkdir(parents=True)
        self.project = folder / "project"
        self.project.mkdir()
        self.env["PYTHONPATH"] = f"{PACKAGE}:{self.site}"
        self.modules = []

    def module(self, name, code=""):
        path = self.site / f"{name}.py"
        path.write_text(textwrap.dedent(code))
        self.modules.append([name, str(path.resolve()), *imports.identity(path)])
        return path

    def of_the_interpreter(self, *names):
        code = "import importlib, json, sys\nprint(json.dumps([importlib.import_module(n).__file__ for n in sys.argv[1:]]))"
        out = subprocess.run([self.python, "-c", code, *names], capture_output=True, text=True, env=self.env, check=True).stdout
        for name, path in zip(names, json.loads(out.splitlines()[-1])):
            self.modules.append([name, os.path.realpath(path), *imports.identity(path)])

    def record(self, **more):
        record = {"v": 1, "python": self.version, "prefix": self.prefix, "modules": self.modules, "foreign": [], "putenv": [],
                  "cpu_ms": 1000, **more}  # fmt: skip
        return json.dumps({"record": imports.pack(record)})

    def start(self, record=None, env=None):
        return Zygote(self, record if record is not None else self.record(), {**self.env, **(env or {})})


class Zygote:
    """We are its keeper: its children come to us."""

    def __init__(self, home, record, env):
        page_fd, record_fd = os.memfd_create("page"), os.memfd_create("record")
        os.ftruncate(page_fd, 4096)
        os.write(record_fd, record.encode())
        os.lseek(record_fd, 0, os.SEEK_SET)
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [os.dup2(fd, 210 + i) for i, fd in enumerate((record_fd, page_fd, theirs.fileno()))]
        self.log_path = home.base / "log"

        def place():
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the keeper does: whoever runs the tests may ignore it
            for i, fd in enumerate(given):
                os.dup2(fd, 3 + i)
                os.set_inheritable(3 + i, True)

        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([home.python, "-m", "plimsoll.zygote", "service:S"], cwd=home.project, env=env, stdout=log,
                                            stderr=log, preexec_fn=place, pass_fds=(3, 4, 5))  # fmt: skip
        self.page_fd = page_fd
        for fd in (*given, record_fd):
            os.close(fd)
        theirs.close()

    def page(self):
        _, state, standby, modules, took_ms, reason, module = zygote.PAGE.unpack(os.pread(self.page_fd, zygote.PAGE.size, 0))
        return state, reason.partition(b"\0")[0].decode(), module.partition(b"\0")[0].decode(), standby, modules

    def log(self):
        return self.log_path.read_text(errors="replace")

    def outcome(self):
        """"ready", or (reason, module)."""
        def known():
            assert self.process.poll() in (None, 1), self.log()
            return self.page()[0] in (zygote.READY, zygote.REFUSED)
        until(known, "the zygote makes up its mind", 90)
        state, reason, module, *_ = self.page()
        return "ready" if state == zygote.READY else (reason, module)

    def order(self, recipe=b"", answer=True):
        """Our end of the socket on which the child says hello."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        recipe_fd, page_fd, null = os.memfd_create("recipe"), os.memfd_create("page"), os.open("/dev/null", os.O_WRONLY)
        os.write(recipe_fd, recipe or struct.pack("<II", 1, 0) + b"/\0python\0")
        socket.send_fds(self.orders, [zygote.ORDER.pack(zygote.MAGIC, 0, 7, b"PLIMSOLL_GENERATION=a.7")],
                        [theirs.fileno(), recipe_fd, null, page_fd])  # fmt: skip
        theirs.close()
        for fd in (recipe_fd, page_fd, null):
            os.close(fd)
        ours.settimeout(30)
        return ours

    def close(self):
        self.orders.close()
        self.process.kill()
        self.process.wait()
        standby = self.page()[3]
        os.close(self.page_fd)
        with contextlib.suppress(ChildProcessError):
            if standby:
                os.waitpid(standby, 0)


@pytest.fixture(scope="module", autouse=True)
def subreaper():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def outcome():
    """Starts one, says what came of it, ends it."""
    with contextlib.ExitStack() as stack:
        def start(home, *args, **more):
            one = home.start(*args, **more)
            stack.callback(one.close)
            said = one.outcome()
            return said
        yield start


# --- threads, processes, descriptors, signals


def test_an_ordinary_library_and_numpy_are_fine(home, outcome):
    home.module("plain", "VALUE = 1")
    home.of_the_interpreter("numpy", "json")
    assert outcome(home) == "ready"


HAZARDS = {
    "thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
               "hazard starts a thread when it is imported"),
    "signal": ("import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)",
               "hazard changes how signals are handled when it is imported"),
    "mask": ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
             "hazard changes how signals are handled when it is imported"),
    "own_module": ("import yaml", "hazard imports yaml, which is a file of the service"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_a_module_that_may_not_be_forked_is_named(home, outcome, name):
    code, reason = HAZARDS[name]
    (home.project / "yaml.py").write_text("raise SystemExit('the file of the service was run')")
    home.module("before")
    home.module("hazard", code)
    assert outcome(home, home.record(foreign=["yaml"])) == (reason, "hazard")


LEFT = {
    "process": ("import subprocess\nchild = subprocess.Popen(['sleep', '60'])", "have started a process"),
    "sigint": ("import signal\nsignal.signal(signal.SIGINT, lambda *_: None)", "have taken SIGINT"),
    "wakeup": ("import os, signal\nr, w = os.pipe()\nos.set_blocking(w, False)\nsignal.set_wakeup_fd(w)", "a wakeup descriptor"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_after_the_imports_is_a_reason_too(home, outcome, name):
    code, words = LEFT[name]
    home.module("hazard", code)
    reason, _ = outcome(home)
    assert words in reason


def test_a_lock_of_another_thread_stays_locked_for_ever_in_a_fork():
    assert in_python(PYTHON, """
        import threading
        lock = threading.Lock()
        def hold():
            with lock:
                time.sleep(30)
        threading.Thread(target=hold, daemon=True).start()
        while not lock.locked():
            pass
        print(json.dumps(child(lambda: lock.acquire(timeout=0.3))))
    """) is False


def test_an_open_device_is_found():
    assert in_python(PYTHON, """
        from plimsoll import zygote
        before, zygote.DEVICES = zygote.device_fd(), ("/dev/zero",)
        f = open("/dev/zero")
        print(json.dumps([before, zygote.device_fd()]))
    """, {"PYTHONPATH": str(PACKAGE)}) == [None, "/dev/zero"]


# --- hooks, records


def test_hooks_that_must_come_first_mean_no_zygote(home, outcome):
    home.module("plain")
    own = home.project / "agent"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    path = f"{own}:{home.env['PYTHONPATH']}"
    reason, module = outcome(home, env={"PYTHONPATH": path})
    assert module == "sitecustomize" and str(own) in reason
    (own / "sitecustomize.py").write_text("import sys, tracer\nsys.meta_path.insert(0, tracer.Hook())")
    (own / "tracer.py").write_text("class Hook:\n    def find_spec(self, *_):\n        return None")
    assert outcome(home, env={"PYTHONPATH": path}) == ("an import hook is in place before anything is imported", "tracer")


def test_what_bentoml_patches_at_its_import_is_left_to_the_worker(home):
    home.module("safetensors", "print('imported', flush=True)")
    for env, count in (({}, 1), ({"BENTOML_MODEL_PREHEAT": "1"}, 0)):
        one = home.start(env=env)
        assert one.outcome() == "ready" and one.log().count("imported") == count
        one.close()


def test_a_record_that_does_not_fit_is_refused(home, outcome):
    path = home.module("plain")
    assert "another interpreter" in outcome(home, home.record(python="3.5"))[0]
    assert "unreadable" in outcome(home, "{}")[0]
    assert "unreadable" in outcome(home, json.dumps({"record": "AAAA"}))[0]
    assert "unreadable" in outcome(home, json.dumps({"record": imports.pack({"v": 1, "modules": 5})}))[0]
    record = home.record()
    path.write_text("CHANGED = True")
    assert outcome(home, record)[0] == f"changed on disk: {path}"


def test_a_module_that_comes_from_elsewhere_is_refused(home, outcome):
    path = home.module("plain")
    other = home.site / "elsewhere.py"
    other.write_text("")
    home.modules[-1] = ["plain", str(other), *imports.identity(other)]
    reason, module = outcome(home)
    assert module == "plain" and reason.startswith(f"plain came from {path.resolve()}, a worker had it from ")


# --- CUDA, OpenMP, random state: with PyTorch over the dry dock


def torch_home(tmp_path, dock):  # noqa: F811
    return Home(tmp_path, torch_python(), dock.environment)


@pytest.mark.full
def test_a_parallel_region_in_the_parent_hangs_the_child_and_is_caught(tmp_path, dock, outcome):  # noqa: F811
    mine = torch_home(tmp_path, dock)
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one CPU has no parallel regions")
    work = "float(torch.ones(3000000).mul(2).sum())"
    assert in_python(mine.python, f"import torch\n{work}\nprint(json.dumps(child(lambda: {work})))", dock.environment) == "HANGS"
    mine.module("hazard", f"import torch\n{work}")
    assert outcome(mine) == ("hazard starts a thread when it is imported", "hazard")


@pytest.mark.full
def test_cuda_in_the_parent_spoils_the_child_and_is_caught(tmp_path, dock, outcome):  # noqa: F811
    mine = torch_home(tmp_path, dock)
    use = "torch.zeros(4, device='cuda').numel()"
    said = in_python(mine.python, f"import torch\ntorch.cuda.is_available()\n"
                                  f"print(json.dumps([torch.cuda.is_initialized(), child(lambda: {use})]))", dock.environment)  # fmt: skip
    assert said[0] is False and "Cannot re-initialize CUDA in forked subprocess" in said[1]
    mine.module("hazard", "import torch\ntorch.cuda.get_device_capability()")
    reason, module = outcome(mine)
    assert module == "torch" and "uses CUDA when it is imported" in reason


@pytest.mark.full
def test_a_look_for_a_gpu_is_left_to_nvml_at_the_second_try(tmp_path, dock):  # noqa: F811
    mine = torch_home(tmp_path, dock)
    mine.module("looks", "import torch\nprint('available', torch.cuda.is_available(), flush=True)")
    one = mine.start()
    assert one.outcome() == "ready"
    assert one.log().count("available") == 2 and "tried again with PYTORCH_NVML_BASED_CUDA_CHECK=1" in one.log()
    one.close()


@pytest.mark.full
def test_seeds_are_shared_by_forks_until_they_are_sown_anew(dock):  # noqa: F811
    same, other = in_python(torch_python(), """
        import numpy, torch
        from plimsoll import zygote
        def draw():
            return [float(torch.rand(1)), float(numpy.random.rand())]
        def anew():
            zygote.reseed()
            return draw()
        print(json.dumps([[child(draw), child(draw)], [child(anew), child(anew)]]))
    """, {**dock.environment, "PYTHONPATH": str(PACKAGE)})  # fmt: skip
    assert same[0][0] == same[1][0], "PyTorch's; numpy sees to itself"
    assert all(a != b for a, b in zip(*other))


# --- what the service's files do to the environment


def test_the_environment_that_a_service_sets_is_noted_by_who_sets_it(tmp_path):
    home = Home(tmp_path)
    home.module("library", "import os\nos.environ['OWN'] = 'library'\ndef load():\n    os.environ['FROM_FILE'] = 'x'\n")
    code = tmp_path / "service.py"
    code.write_text("import os, library\nos.environ['MINE'] = '1'\nlibrary.load()\ndel os.environ['GIVEN']\n"
                    "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n")  # fmt: skip
    text = f"""
        import sys, runpy
        from plimsoll import imports
        asked = []
        known = {{**os.environ, "MINE": "1", "FROM_FILE": "y"}}
        watch = imports.EnvironmentWatch(known, lambda name, where: asked.append([name, where.rpartition("/")[2]]))
        with watch:
            runpy.run_path({str(code)!r})
        print(json.dumps([watch.seen, asked, os.environ["OWN"]]))
    """
    seen, asked, own = in_python(PYTHON, text, {**home.env, "GIVEN": "g"})
    assert seen == {"MINE": "1", "FROM_FILE": "x", "GIVEN": None} and own == "library"
    assert asked == [["FROM_FILE", "service.py:3"], ["GIVEN", "service.py:4"]]


# --- the order of PR_SET_PDEATHSIG, and what the standby does


def test_death_with_the_parent_must_be_asked_for_after_the_parent_has_changed():
    assert in_python(PYTHON, """
        import ctypes, signal
        prctl = ctypes.CDLL(None).prctl
        prctl(36, 1, 0, 0, 0)
        def ends(early):
            r, w = os.pipe()
            go_r, go_w = os.pipe()
            middle = os.fork()
            if middle == 0:
                if os.fork() == 0:
                    if early:
                        prctl(1, signal.SIGKILL, 0, 0, 0)
                    os.write(w, str(os.getpid()).encode())
                    os.read(go_r, 1)
                    if not early:
                        prctl(1, signal.SIGKILL, 0, 0, 0)
                    os._exit(7)
                signal.pause()  # what it read would be missing to the child, or the other way round
            pid = int(os.read(r, 20))
            os.kill(middle, 9)
            os.waitpid(middle, 0)
            os.write(go_w, b"c")
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([ends(True), ends(False)]))
    """) == [-9, 7]


def test_a_child_that_is_not_wanted_ends_and_many_leave_nothing_behind(home):
    home.module("plain")
    one = home.start()
    assert one.outcome() == "ready"

    def rss():
        return int(pathlib.Path(f"/proc/{one.process.pid}/statm").read_text().split()[1])

    def fds():
        return len(os.listdir(f"/proc/{one.process.pid}/fd"))

    def spawn():
        standby = one.page()[3]
        answer = one.order()
        assert answer.recv(16) == struct.pack("<II", zygote.MAGIC, 1)
        answer.close()  # unanswered: another has taken its place
        assert os.waitstatus_to_exitcode(os.waitpid(standby, 0)[1]) == 0
        until(lambda: one.page()[3] != standby, "the next standby")

    for _ in range(10):
        spawn()
    before = rss(), fds()
    for _ in range(100):
        spawn()
    assert fds() == before[1]
    assert rss() - before[0] < 256, "pages of the zygote"
    one.close()


def test_a_recipe_that_is_none_costs_a_child_and_no_more(home):
    home.module("plain")
    one = home.start()
    assert one.outcome() == "ready"
    for recipe in (b"", struct.pack("<II", 9, 9) + b"/\0", b"x" * 7):
        standby = one.page()[3]
        answer = one.order(recipe or b"\0")
        assert answer.recv(16) == b""
        os.waitpid(standby, 0)
        until(lambda standby=standby: one.page()[3] != standby, "the next standby")
    one.close()


def test_a_standby_goes_with_its_zygote(home):
    home.module("plain")
    one = home.start()
    assert one.outcome() == "ready"
    standby = one.page()[3]
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    assert os.waitpid(standby, 0)[0] == standby
    one.close()
