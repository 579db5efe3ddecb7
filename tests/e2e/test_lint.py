"""`plimsoll lint` as a person and as CI run it: the tutorials' material with exactly its findings, paths in, status out."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from rig.server import ROOT, clean_environment, paths

DATA = ROOT / "tests/data/tutorials"
EXPECTED = json.loads((DATA / "expected.json").read_text())
JUDGED = {name: e for name, e in EXPECTED.items() if e.get("findings") is not None}
sys.path.insert(0, str(ROOT / "python"))


def lint(*words, cwd=ROOT, given=None, env=None):
    return subprocess.run([paths.plimsoll, "lint", *map(str, words)], capture_output=True, text=True, timeout=100, cwd=cwd,
                          input=given, env={**clean_environment(), "VIRTUAL_ENV": sys.prefix, **(env or {})})


def document(*words, **more):
    done = lint(*words, "--json", **more)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def ids(rows):
    return [r["rule"] for r in rows]


def test_the_tutorials_get_exactly_their_findings():
    d = document(DATA)
    assert d["v"] == 1 and d["kind"] == "lint" and d["exit"] == 1 and d["refused"] == []
    got = {}
    for key in ("findings", "notes", "silenced"):
        for row in d[key]:
            name = row["file"].removeprefix(f"{DATA}/")
            got.setdefault(name, {"findings": [], "notes": [], "silenced": []})[key].append((row["line"], row["rule"]))
    for name, expected in JUDGED.items():
        mine = got.pop(name, {"findings": [], "notes": [], "silenced": []})
        assert sorted(mine["findings"]) == sorted((f["line"], f["rule"]) for f in expected["findings"]), name
        assert [rule for _, rule in mine["notes"]] == expected.get("notes", []), name
        assert [rule for _, rule in mine["silenced"]] == expected.get("suppressed", []), name
    assert got == {} and len(JUDGED) >= 40


@pytest.mark.parametrize(
    "name, usual, strict", [("gpu_cache.py", 1, 1), ("cpu_cache_unbounded.py", 0, 1), ("concurrency_as_limit.py", 0, 1)]
)
def test_the_status_is_that_of_errors_or_of_warnings_too(name, usual, strict):
    assert lint(DATA / "bad" / name).returncode == usual
    assert lint(DATA / "bad" / name, "--strict").returncode == strict


def test_notes_decide_nothing():
    done = lint(DATA / "good", "--strict")
    assert done.returncode == 0 and " PL015 note " in done.stdout


@pytest.mark.asan
def test_what_a_person_reads(tmp_path):
    done = lint("bad/gpu_cache.py", "good/tutorial_service.py", "good/suppressed.py", cwd=DATA)
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.splitlines() == [
        "bad/gpu_cache.py:42:13 PL005 error `CACHE` has no bound and keeps a device tensor of each request",
        "",
        "good/tutorial_service.py:22:2 PL015 note a 504 after the timeout does not stop `predict` or free its memory",
        "",
        "3 files: 1 error, 0 warnings, 1 note, 1 silenced by comments",
        "why, and what to write instead: plimsoll lint --rules --select PL005",
    ]
    assert lint("bad/gpu_cache.py", "-q", cwd=DATA).stdout.count("\n") == 1
    quiet = lint("good/cpu_cache.py", cwd=DATA)
    assert quiet.returncode == 0 and quiet.stdout == "1 file: 0 errors, 0 warnings, 0 notes\n"


def test_rules_are_listed_and_explained():
    from plimsoll.lint.rules import RULES

    listed = lint("--rules").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [r.id for r in RULES]
    told = lint("--rules", "--select", "PL005").stdout
    assert "why  Each request leaves its tensor" in told and "self.kept.append(y)" in told and "PL006" not in told
    assert [r["id"] for r in document("--rules", "--select", "PL001,PL033")["rules"]] == ["PL001", "PL033"]
    assert lint("--rules", "--select", "PL999").returncode == 2


def test_select_and_ignore():
    everything = ids(document(DATA / "bad/tutorial_service.py")["findings"])
    assert ids(document(DATA / "bad/tutorial_service.py", "--select", "PL012,PL014")["findings"]) == ["PL014", "PL012"]
    left = ids(document(DATA / "bad/tutorial_service.py", "--ignore", "PL002")["findings"])
    assert left == [r for r in everything if r != "PL002"]
    done = lint(DATA / "bad", "--select", "PL5")
    assert done.returncode == 2 and "no rule is called 'PL5'" in done.stderr


def test_a_file_on_stdin():
    text = (DATA / "bad/gpu_cache.py").read_text()
    done = lint("--stdin-name", "here.py", "-q", given=text)
    assert done.returncode == 1 and done.stdout.startswith("here.py:42:13 PL005 error ")


def test_paths_that_are_no_answer(tmp_path):
    done = lint("gone.py")
    assert done.returncode == 5 and done.stderr == "plimsoll: gone.py: No such file or directory\n"
    done = lint("gone.py", DATA / "bad/gpu_cache.py")
    assert done.returncode == 5 and "PL005" in done.stdout
    done = lint(tmp_path)
    assert done.returncode == 4 and "no .py file" in done.stderr
    assert lint().returncode == 2
    big = tmp_path / "big.py"
    big.write_text("x = 1\n" * 400000)
    done = lint(big)
    assert done.returncode == 5 and "over 2097152 bytes" in done.stderr
    done = lint(DATA, "--python", tmp_path / "none")
    assert done.returncode in (3, 5) and "none" in done.stderr


@pytest.mark.parametrize(
    "name, content, line",
    [
        ("a.py", b"def f(:\n", 1),
        ("a.py", b"x = 1\nif x\n    pass\n", 2),
        ("a.py", b"# coding: nonsense\n", 1),
        ("a.py", b"x = '\xff'\n", 1),
        ("a.py", b"x = 1\0\n", 1),
        ("a.py", b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", 1),
        ("a.py", b"x = " + b"-" * 20000 + b"1\n", 1),
        ("bentofile.yaml", b"service: 'a:B'\nmodels: [\n", 3),
        ("bentofile.yaml", b"service: &a [*a]\n", 1),
        ("bentofile.yaml", b"x: " + b"[" * 100, 1),
    ],
)
def test_a_file_that_cannot_be_parsed(tmp_path, name, content, line):
    (tmp_path / name).write_bytes(content)
    d = document(tmp_path)
    assert ids(d["findings"]) == ["PL033"] and d["findings"][0]["line"] == line and d["exit"] == 1
    assert d["findings"][0]["text"]


def test_nothing_of_the_user_is_imported(tmp_path):
    """Modules beside the service that would shadow the standard library, and a service that writes when it is imported."""
    marker = tmp_path / "imported"
    for name in ("json", "ast", "os", "re", "tokenize", "plimsoll", "sitecustomize", "service"):
        (tmp_path / f"{name}.py").write_text(f"import bentoml\nopen({str(marker)!r}, 'w').write('x')\n@bentoml.service\nclass S:\n    pass\n")
    done = lint(".", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0 and done.stdout.startswith("8 files: 0 errors") and not marker.exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_folders_that_are_not_the_users_code(tmp_path):
    bad = (DATA / "bad/gpu_cache.py").read_text()
    for folder in (".git", "venv", "node_modules/x", "mine", "my_env"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "service.py").write_text(bad)
    (tmp_path / "my_env/pyvenv.cfg").write_text("")
    d = document(".", cwd=tmp_path)
    assert [f["file"] for f in d["findings"]] == ["./mine/service.py"] and d["files"] == 1


BENTO = 'service: "service:S"\n'
WITH_MODEL = "import bentoml, torch\n@bentoml.service\nclass S:\n    def __init__(self):\n        self.m = torch.jit.load(bentoml.models.get('a:b').path)\n"
OF_CLASS = "import bentoml\n@bentoml.service\nclass S:\n    w = bentoml.models.BentoModel('a:b')\n"


@pytest.mark.parametrize(
    "bentofile, service, expected",
    [
        (BENTO, WITH_MODEL, ["PL029"]),
        (BENTO, OF_CLASS, []),
        (BENTO, "import bentoml\n@bentoml.service\nclass S:\n    pass\n", []),
        (BENTO + "models: []\n", WITH_MODEL, ["PL029"]),
        (BENTO + "models: [{tag: 'a:b'}]\n", WITH_MODEL, []),
        (BENTO.replace("service:S", "gone:S"), OF_CLASS, ["PL029"]),
        (BENTO + "# plimsoll: ignore[PL029]\n", WITH_MODEL, ["PL029"]),
        (BENTO.strip() + "  # plimsoll: ignore[PL029]\n", WITH_MODEL, []),
        (BENTO + "python: {packages: ['torch>=2', 'x==1', 'git+https://h/x', './local']}\n", OF_CLASS, ["PL030", "PL032"]),
        (BENTO + "python: {lock_packages: true, packages: [numpy]}\n", OF_CLASS, []),
        (BENTO + "include: ['**/*', '*.py']\n", OF_CLASS, ["PL031"]),
        (BENTO + "python: {packages: ['torchmetrics==1.0']}\n", OF_CLASS, []),
        (BENTO + "docker: {cuda_version: '12.8'}\npython: {packages: ['vllm==0.9']}\n", OF_CLASS, []),
        (BENTO, OF_CLASS.replace("import bentoml", "import bentoml, torch\nDEVICE = 'cuda'"), ["PL032"]),
    ],
)
def test_bentofiles(tmp_path, bentofile, service, expected):
    (tmp_path / "bentofile.yaml").write_text(bentofile)
    (tmp_path / "service.py").write_text(service)
    rows = document(tmp_path / "bentofile.yaml")["findings"]
    assert sorted(ids(rows)) == expected


def test_the_examples_of_the_bentofile_rules(tmp_path):
    from plimsoll.lint.rules import RULES

    for rule in RULES:
        if rule.id in ("PL029", "PL030", "PL031", "PL032"):
            (tmp_path / "bentofile.yaml").write_text(rule.bad)
            assert ids(document(tmp_path)["findings"]) == [rule.id]
            (tmp_path / "bentofile.yaml").write_text(rule.good)
            assert document(tmp_path)["findings"] == []
        elif rule.id == "PL033":
            (tmp_path / "bentofile.yaml").unlink()
            (tmp_path / "service.py").write_text(rule.bad)
            assert ids(document(tmp_path)["findings"]) == ["PL033"]


def test_the_pre_commit_hook_stops_a_commit(tmp_path):
    """The hook file of this repository, run by pre-commit itself on a staged service."""
    import yaml

    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]}))
    shutil.copy(DATA / "bad/gpu_cache.py", tmp_path / "service.py")
    env = {**clean_environment(), "PATH": f"{paths.plimsoll.parent}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(tmp_path / "home"),
           "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*words):
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)

    assert run("git", "init", "-q").returncode == 0 and run("git", "add", "service.py").returncode == 0
    check = [sys.executable, "-m", "pre_commit"]
    assert run(*check, "validate-manifest", ROOT / ".pre-commit-hooks.yaml").returncode == 0
    done = run(*check, "run", "plimsoll-lint")
    assert done.returncode == 1 and "service.py:42:13 PL005 error" in done.stdout, done.stdout + done.stderr
    shutil.copy(DATA / "good/cpu_cache.py", tmp_path / "service.py")
    assert run("git", "add", "service.py").returncode == 0
    done = run(*check, "run", "plimsoll-lint")
    assert done.returncode == 0, done.stdout + done.stderr
