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


@plain_build
@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_wheel_serves_in_a_fresh_environment(tmp_path):
    made = subprocess.run([ROOT / "scripts/make-wheel.sh", tmp_path / "dist"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    [wheel] = (tmp_path / "dist").glob("plimsoll-*.whl")
    subprocess.run([venv / "bin/pip", "install", "--no-index", wheel], check=True, capture_output=True)
    # BentoML as this environment has it: what is tested is that the wheel goes beside it.
    site = Path(subprocess.run([sys.executable, "-c", "import bentoml; print(bentoml.__path__[0])"], check=True, capture_output=True,
                               text=True).stdout.strip()).parent
    [own_site] = venv.glob("lib/python*/site-packages")
    (own_site / "others.pth").write_text(f"{site}\n")
    shutil.copytree(paths.digits, tmp_path / "app")
    folders = [str(ROOT), str(paths.build.resolve())]
    folders = [f for f in folders if not str(tmp_path).startswith(f) and not str(site).startswith(f)]
    env = {**clean_environment(), "BENTOML_HOME": str(paths.digits_home), "BENTOML_DO_NOT_TRACK": "True", "VIRTUAL_ENV": str(venv),
           "PATH": f"{venv}/bin:/usr/bin:/bin"}
    before = hidden(folders) or []
    asked = subprocess.run([*before, "plimsoll", "doctor", "--json", "--admin", "none", "--port", "0", "--state_dir", tmp_path / "state"],
                           env=env, capture_output=True, text=True, cwd=tmp_path / "app")
    checks = {c["name"]: c for c in json.loads(asked.stdout)["checks"]}
    assert checks["parts"]["text"].startswith(f"{venv}: keeper, watch, python, drydock") and checks["parts"]["text"].endswith("of its own")
    assert checks["python"]["text"].endswith(f"({venv}/bin/python)") and checks["bentoml"]["state"] == "ok"
    imported = subprocess.run([venv / "bin/python", "-c", "import plimsoll; print(plimsoll.__file__)"], env=env, capture_output=True, text=True)
    assert imported.stdout.startswith(f"{venv}/"), imported.stderr
    run_dir = Path(f"/tmp/pl-wheel-{os.getpid()}")  # sockets: a short path
    with open(tmp_path / "stderr", "wb") as err:
        process = subprocess.Popen([*before, "plimsoll", "serve", "--host", "127.0.0.1", "--port", "0", "--admin", "none", "--run_dir", str(run_dir),
                                    "--state_dir", str(tmp_path / "state"), "--cache_dir", str(tmp_path / "cache")],
                                   env=env, cwd=tmp_path / "app", stderr=err, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    log = EventLog(tmp_path / "stderr")
    try:
        listen = log.wait_for("main.started", None, 90, 1, 0, lambda: process.poll() is None)["listen"]
        log.wait_for("main.ready", None, 120, 1, 0, lambda: process.poll() is None)
        answer = wire.request(("127.0.0.1", int(listen.rpartition(":")[2])), "POST", "/predict", json.loads((paths.digits / "samples/three.json").read_text()))
        assert answer.status == 200, answer
    finally:
        process.terminate()
        assert process.wait(60) == 0
        shutil.rmtree(run_dir, ignore_errors=True)
    left = subprocess.run([venv / "bin/pip", "uninstall", "--yes", "plimsoll"], check=True, capture_output=True, text=True)
    assert left.returncode == 0
    assert not [p for p in venv.rglob("*plimsoll*") if p.is_file()]


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
