"""What people install: the wheel in a fresh environment, its structure, manual pages, completions."""

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rig import wire
from rig.eventlog import EventLog
from rig.server import ROOT, clean_environment, paths, run_plimsoll

sys.path.insert(0, str(ROOT / "scripts"))


def is_sanitized():
    return b"__asan_init" in paths.plimsoll.read_bytes() or b"__tsan_init" in paths.plimsoll.read_bytes()


plain_build = pytest.mark.skipif(is_sanitized(), reason="a build with a sanitizer is not packed")


def installed_tree(folder):
    """The build under test, installed as `make wheel` does it."""
    subprocess.run(["cmake", "--install", paths.build, "--prefix", folder, "--strip"], check=True, capture_output=True)
    (folder / "libexec/plimsoll/llama").unlink(missing_ok=True)  # only a build for wheels finds the engine's libraries again
    return folder


def make_wheel(tree, out, *more):
    return subprocess.run([sys.executable, ROOT / "scripts/wheel.py", tree, "--out", out, *more], capture_output=True, text=True)


@plain_build
def test_a_wheel_is_whole_and_runs_on_its_own_libraries(tmp_path):
    tree = installed_tree(tmp_path / "tree")
    done = make_wheel(tree, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "dist").glob("*.whl")
    name, version, *tag = path.stem.split("-")
    assert name == "plimsoll" and re.fullmatch(r"py3-none-manylinux_2_34_\w+", "-".join(tag))
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        info = f"plimsoll-{version}.dist-info"
        rows = {row[0]: row for row in csv.reader(io.StringIO(z.read(f"{info}/RECORD").decode()))}
        assert set(rows) == set(z.namelist())
        for member, digest, size in rows.values():
            content = z.read(member)
            if member != f"{info}/RECORD":
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert int(size) == len(content)
        assert f"Tag: {'-'.join(tag)}\n" in z.read(f"{info}/WHEEL").decode()
        metadata = z.read(f"{info}/METADATA").decode()
        assert f"\nVersion: {version}\n" in metadata and f"Requires-Dist: plimsoll-llama=={version}; extra == 'llama'" in metadata
        modes = {i.filename: i.external_attr >> 16 for i in z.infolist()}
        for part in ("scripts/plimsoll", "data/libexec/plimsoll/keeper", "data/libexec/plimsoll/watch"):
            assert modes[f"plimsoll-{version}.data/{part}"] & 0o111
        for part in (f"python-{version}/plimsoll/worker.py", f"python-{version}/plimsoll/lane/eligible.py", "alerts.yaml", "drydock/names.txt",
                     "drydock/libplimsoll-drydock.so", "drydock/inside.py"):
            assert f"plimsoll-{version}.data/data/share/plimsoll/{part}" in modes
        brought = [Path(n).name for n in modes if "/lib/plimsoll/" in n]
        # The libraries that the packages of a Debian bring have their licences beside them.
        assert any(n.startswith("libuv") for n in brought) and "libcrypto.so.3" in brought
        notes = z.read(f"{info}/licenses/LIBRARIES.txt").decode()
        assert all(n in notes for n in brought)
        assert any(n.startswith(f"{info}/licenses/libuv") for n in modes) or shutil.which("dpkg-query") is None
        # Nothing says where it was built.
        assert not [n for n in modes if n.startswith(f"plimsoll-{version}.data") and str(tmp_path).encode() in z.read(n)]
    # The tree now holds what the wheel does. Its own libraries win over LD_LIBRARY_PATH.
    (tmp_path / "other").mkdir()
    (tmp_path / "other/libcrypto.so.3").write_bytes(b"no library")
    env = {**clean_environment(), "LD_LIBRARY_PATH": str(tmp_path / "other")}
    loaded = subprocess.run(["ldd", tree / "bin/plimsoll"], env=env, capture_output=True, text=True, check=True).stdout
    from wheel import SYSTEM

    for soname, place in re.findall(r"^\s*(\S+) => (\S+)", loaded, re.M):
        assert soname in SYSTEM or Path(place).resolve() == (tree / "lib/plimsoll" / soname).resolve(), (soname, place)
    asked = subprocess.run([tree / "bin/plimsoll", "doctor", "--json", "--run_dir", tmp_path / "run", "--state_dir", tmp_path / "state"],
                           env=env, capture_output=True, text=True, cwd=tmp_path)
    parts = {c["name"]: c for c in json.loads(asked.stdout)["checks"]}["parts"]
    assert parts["state"] == "ok" and parts["text"].startswith(f"{tree}: ") and parts["text"].endswith("libraries of its own")


@plain_build
def test_a_symbol_that_is_too_new_fails_by_its_name(tmp_path):
    tree = installed_tree(tmp_path / "tree")
    done = make_wheel(tree, tmp_path / "dist", "--glibc", "2.32")
    assert done.returncode == 1 and not list((tmp_path / "dist").glob("*"))
    assert re.search(r"bin/plimsoll: \w+@GLIBC_2\.3[34] \(at most 2\.32\)", done.stderr), done.stderr


# ---- the whole way, as somebody installs it


def hidden(folders):
    """Words in front of a command that keep these folders out of its reach: empty ones lie on them. None: not possible here."""
    words = "".join(f"mount -t tmpfs none '{f}' && " for f in folders)
    trial = ["unshare", "--map-root-user", "--mount"] if os.geteuid() != 0 else ["unshare", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*trial, "sh", "-c", words + "true"], capture_output=True).returncode != 0:
        return None
    return [*trial, "sh", "-c", words + 'exec "$@"', "sh"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """What `make wheel` makes."""
    dist = tmp_path_factory.mktemp("dist")
    made = subprocess.run([ROOT / "scripts/make-wheel.sh", dist], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return dist


class Installed:
    """A fresh environment with wheels, and servers that run from it while the clone and its builds are out of reach."""

    def __init__(self, folder, dist, what):
        self.folder, self.venv = folder, folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", self.venv], check=True)
        subprocess.run([self.venv / "bin/pip", "install", "--no-index", "--find-links", dist, what], check=True, capture_output=True)
        self.env = {**clean_environment(), "BENTOML_HOME": str(paths.digits_home), "BENTOML_DO_NOT_TRACK": "True", "VIRTUAL_ENV": str(self.venv),
                    "PATH": f"{self.venv}/bin:/usr/bin:/bin"}
        self.run_dir = Path(f"/tmp/pl-wheel-{os.getpid()}")  # sockets: a short path
        self.server = None
        needed = [str(folder), sys.prefix, os.environ.get("PL_LLAMA_MODEL", "/none")]
        out_of_reach = [str(ROOT), str(paths.build.resolve())] + [f for f in (os.environ.get("PL_LLAMA_DIR"),) if f]
        self.before = hidden([f for f in out_of_reach if not any(n.startswith(f) for n in needed)]) or []

    def parts(self, cwd):
        asked = subprocess.run([*self.before, "plimsoll", "doctor", "--json", "--admin", "none", "--port", "0", "--state_dir", self.folder / "state"],
                               env=self.env, capture_output=True, text=True, cwd=cwd)
        return {c["name"]: c for c in json.loads(asked.stdout)["checks"]}

    def serve(self, *words, cwd):
        log = EventLog(self.folder / "stderr")
        with open(log.path, "wb") as err:
            self.server = subprocess.Popen(
                [*self.before, "plimsoll", "serve", *map(str, words), "--host", "127.0.0.1", "--port", "0", "--admin", "none", "--run_dir", self.run_dir,
                 "--state_dir", self.folder / "state", "--cache_dir", self.folder / "cache"],
                env=self.env, cwd=cwd, stderr=err, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        alive = lambda: self.server.poll() is None  # noqa: E731
        listen = log.wait_for("main.started", timeout=90, alive=alive)["listen"]
        log.wait_for("main.ready", timeout=120, alive=alive)
        return "127.0.0.1", int(listen.rpartition(":")[2])

    def end(self):
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(60) == 0
        shutil.rmtree(self.run_dir, ignore_errors=True)


@pytest.fixture
def install(tmp_path, wheels):
    made = []

    def make(what):
        made.append(Installed(tmp_path, wheels, what))
        return made[-1]

    yield make
    for one in made:
        one.end()


@plain_build
@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_wheel_serves_in_a_fresh_environment(install, tmp_path):
    here = install("plimsoll")
    venv = here.venv
    # BentoML as this environment has it: what is tested is that the wheel goes beside it.
    import bentoml

    [site] = venv.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{Path(bentoml.__path__[0]).parent}\n")
    shutil.copytree(paths.digits, tmp_path / "app")
    checks = here.parts(tmp_path / "app")
    assert checks["parts"]["text"] == f"{venv}: keeper, watch, python, drydock; libraries of its own"
    assert checks["python"]["text"].endswith(f"({venv}/bin/python)") and checks["bentoml"]["state"] == "ok"
    imported = subprocess.run([venv / "bin/python", "-c", "import plimsoll; print(plimsoll.__file__)"], env=here.env, capture_output=True, text=True)
    assert imported.stdout.startswith(f"{venv}/"), imported.stderr
    address = here.serve(cwd=tmp_path / "app")
    answer = wire.request(address, "POST", "/predict", json.loads((paths.digits / "samples/three.json").read_text()))
    assert answer.status == 200 and answer.json()["digit"] == 3
    subprocess.run([venv / "bin/pip", "uninstall", "--yes", "plimsoll"], check=True, capture_output=True, text=True)  # under the running server
    assert wire.request(address, "GET", "/livez").status == 200
    assert not [p for p in venv.rglob("*plimsoll*") if p.is_file()]


@plain_build
@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_engine_for_gguf_files_is_an_extra(install, wheels, tmp_path):
    if not list(wheels.glob("plimsoll_llama-*.whl")):
        pytest.skip("PLIMSOLL_NO_LLAMA is set, or libllama is not there")
    here = install("plimsoll[llama]")
    assert here.parts(tmp_path)["parts"]["text"] == f"{here.venv}: keeper, watch, python, drydock, llama; libraries of its own"
    [model] = Path(os.environ["PL_LLAMA_MODEL"]).glob("*.gguf")
    address = here.serve(model, "--llama.ctx_size", "512", cwd=tmp_path)
    answer = wire.request(address, "POST", "/v1/completions", {"prompt": "One, two,", "max_tokens": 3}, timeout=60)
    assert answer.status == 200 and answer.json()["usage"]["completion_tokens"] == 3


# ---- the image


def containerfile():
    """[(instruction, words)] of deploy/Containerfile, continued lines joined."""
    lines = [line for line in (ROOT / "deploy/Containerfile").read_text().splitlines() if not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines() if line.strip()]


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody():
    stages, user, final = {"debian:12-slim"}, "0:0", None
    for what, words in containerfile():
        assert what in ("FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"), what
        words = words.split() if what != "HEALTHCHECK" else [words]
        if what == "FROM":
            assert words[0] in stages, f"FROM {words[0]}"
            stages.add(words[-1])
            final = words[-1]
            user = user if words[0] == "plimsoll" else "0:0"
        elif what == "USER":
            user = words[0]
        elif what == "COPY" and words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
        elif what == "COPY":
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
        elif what == "HEALTHCHECK":
            program, *rest = json.loads(words[0].partition("CMD ")[2])
            assert program == "/usr/bin/plimsoll" and run_plimsoll(rest[0], "--help", *rest[1:]).returncode == 0
        elif what == "RUN":
            for script in re.findall(r"\bscripts/\S+", " ".join(words)):
                assert os.access(ROOT / script, os.X_OK), script
    assert final == "plimsoll" and re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert not re.search(r"password|secret|token", (ROOT / "deploy/Containerfile").read_text().replace("Nothing secret", ""), re.I)


# ---- manual pages and completions


def complete(*words):
    """What bash offers for the last of the words."""
    script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; _plimsoll plimsoll "${COMP_WORDS[COMP_CWORD]}" ""; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", ROOT / "deploy/completions/plimsoll.bash", *words], capture_output=True, text=True, check=True,
                          cwd="/")
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def table():
    return json.loads(run_plimsoll("help", "--json").stdout)


def test_completion_offers_every_verb_and_every_option(table):
    verbs = {v["name"] for v in table["verbs"]}
    assert {"serve", "status", "explain", "soak", "plan"} <= verbs <= complete("plimsoll", "")
    shared = {"--" + f["name"] for f in table["shared"]}
    for verb in table["verbs"]:
        offered = complete("plimsoll", verb["name"], "-")
        wanted = {"--" + f["name"] for f in verb["flags"]} | shared
        wanted |= {"--" + f["name"] for f in table["server"]} if verb["server"] else set()
        wanted |= {"--" + f["name"] for f in table["keys"]} if verb["keys"] else set()
        assert wanted <= offered, (verb["name"], wanted - offered)
        for option in offered - {o for o in offered if re.fullmatch("-[a-zA-Z]", o)}:
            assert option.startswith("--"), option


def test_completion_knows_what_comes_next():
    assert complete("plimsoll", "sta") == {"status"}
    assert complete("plimsoll", "config", "s") >= {"show", "schema"}
    assert complete("plimsoll", "serve", "--mode", "") == {"observe", "guard", "enforce"}
    assert complete("plimsoll", "restart", "--mode", "") == {"auto", "overlap", "handover"}
    assert complete("plimsoll", "serve", "--traffic.m") == {"--traffic.max_stream", "--traffic.max_concurrency"}
    assert complete("plimsoll", "serve", "--config", "/etc/passw") >= {"/etc/passwd"}
    assert "env" in complete("plimsoll", "serve", "--", "env")


def test_zsh_and_fish_understand_their_completions():
    if shutil.which("zsh"):
        done = subprocess.run(["zsh", "-n", ROOT / "deploy/completions/_plimsoll"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")

    def offered(line):
        script = f"source {ROOT}/deploy/completions/plimsoll.fish; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True)
        return {row.split("\t")[0] for row in done.stdout.splitlines()}

    assert offered("plimsoll sta") == {"status"}
    assert offered("plimsoll restart --mode ") == {"auto", "overlap", "handover"}
    assert offered("plimsoll serve --traffic.m") == {"--traffic.max_stream", "--traffic.max_concurrency"}


def test_help_names_every_verb_in_its_group(table):
    text = run_plimsoll("help").stdout
    groups = {v["group"] for v in table["verbs"]} - {""}
    assert groups == {"Run", "Diagnose", "Prove", "Ship"}
    assert [line for line in text.splitlines() if line in groups] == ["Run", "Diagnose", "Prove", "Ship"]
    for verb in table["verbs"]:
        assert (re.search(rf"^  {verb['name']} ", text, re.M) is not None) == (verb["group"] != "")
        one = run_plimsoll("help", verb["name"])
        assert one.returncode == 0 and one.stdout == run_plimsoll(verb["name"], "--help").stdout
    bad = run_plimsoll("help", "sereve")
    assert bad.returncode == 2 and "sereve" in bad.stderr


@pytest.mark.parametrize("page", ["plimsoll.1", "plimsoll.yaml.5"])
def test_manual_pages_are_clean(page, table):
    path = ROOT / "docs/man" / page
    if shutil.which("mandoc"):
        done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-c", path], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    text = re.sub(".\b", "", done.stdout)  # bold is a letter over a letter
    if page == "plimsoll.1":
        for verb in table["verbs"]:
            assert verb["group"] == "" or f"plimsoll {verb['name']}" in text
        for flag in table["verbs"][0]["flags"] + table["keys"] + table["shared"]:
            assert f"--{flag['name']}" in text
