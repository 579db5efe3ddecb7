"""What keeps the documentation true: links, markers, figures, and what may differ between a page and a run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
import check_docs  # noqa: E402
import doc_outputs  # noqa: E402


@pytest.fixture
def clone(tmp_path):
    """The pages, to be spoilt, with as much of the rest as is looked at."""
    for name in ("docs", "examples", "deploy", "src/cli", "src/config", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.md"):
        shutil.copy(path, tmp_path)
    for name in ("CMakeLists.txt", "Makefile", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("include", "drydock", "python", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def complaints(clone):
    done = subprocess.run([sys.executable, ROOT / "tests/check_docs.py", clone], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_pages_as_they_are_have_nothing_wrong(clone):
    assert complaints(clone)[0] == 0, complaints(clone)[1]


@pytest.mark.parametrize("text, said", [
    ("[there](nowhere.md)", "nowhere.md leads nowhere"),
    ("[there](plan.md#no-such-heading)", "the page has no such heading"),
    ("```console\n$ ls\n```", "a console block without a marker"),
    ("<!-- run: nothing -->\n```console\n$ ls\n```", "no such scene: nothing"),
    ("<!-- run: shell -->\nand no block", "a marker without a console block"),
    ("<!-- not run: -->\n```console\n$ ls\n```", "a marker that says nothing"),
    ("    $ ls\n    file", "belong into a console block"),
    ("    14:02:11.207 WARN worker.replace", "belong into a console block"),
    ("run `plimsoll replant x`", "no such verb"),
    ("run `make tea`", "no such target"),
    ("run `plimsoll config show --origins`", "--origins: no verb and no key"),
    ("`plimsoll serve --traffic.timeouts 3s -- cmd --foreign`", "--traffic.timeouts: no verb and no key"),
    ("<!-- figures: docs/bench.md -->\n| a | 123456.7 |", "123456.7 does not stand in the pages"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(clone, text, said):
    page = clone / "docs/plan.md"
    line = page.read_text().count("\n") + 2
    page.write_text(f"{page.read_text()}\n{text}\n")
    status, out = complaints(clone)
    assert status == 1 and said in out
    assert f"docs/plan.md:{line}:" in out or f"docs/plan.md:{line + 1}:" in out, out


def test_a_page_that_nobody_finds_is_told(clone):
    (clone / "docs/lonely.md").write_text("# Lonely\n")
    assert "docs/lonely.md:1: no way leads here" in complaints(clone)[1]


def test_a_room_that_the_tour_leaves_out_is_told(clone):
    page = clone / "docs/architecture.md"
    page.write_text(page.read_text().replace("| ledger |", "| ledgers |"))
    assert "differ: ['ledger', 'ledgers']" in complaints(clone)[1]


@pytest.mark.parametrize("heading, anchor", [
    ("Files read ahead", "files-read-ahead"), ("`plimsoll snapshot replay FILE`", "plimsoll-snapshot-replay-file"),
    ("A. It must not leak, and says so", "a-it-must-not-leak-and-says-so"), ("[a](b.md) c", "a-c"),
])  # fmt: skip
def test_anchors_are_githubs(heading, anchor):
    assert check_docs.slug(heading) == anchor


@pytest.mark.parametrize("one, other, numbers, same", [
    ("pid 12   age 9s", "pid 4711  age 1h32m", False, True),
    ("14:02:11.207 WARN", "03:50:26.510 WARN", False, True),
    ("gap 9.5 s, 0 held", "gap 9.6 s, 0 held", False, True),
    ("gap 9.5 s, 0 held", "gap 9.5 s, 1 held", False, False),
    ("gap 9.5 s, 0 held", "gap 9.5 s, 1 held", True, True),
    ("leak, 1.5 MiB a request", "leak, 1.6 MiB a request", True, True),
    ("leak, 1.5 MiB a request", "cache, 1.5 MiB a request", True, False),
    ("weights 14.958 GiB", "weights 14.959 GiB", False, False),
    ("id=7f3a5b00c0ffee12", "id=0000000000000001", False, True),
    ("▁▂▃ 1", "▁█ 1", False, True),
    ("PL005 error", "PL006 error", False, False),
])  # fmt: skip
def test_what_may_differ_between_a_page_and_a_run(one, other, numbers, same):
    assert (doc_outputs.masked(one, numbers) == doc_outputs.masked(other, numbers)) == same


def block_of(text):
    return doc_outputs.Block(doc_outputs.BLOCK.search(text))


def test_a_block_is_commands_each_with_its_output():
    block = block_of("<!-- run: shell; numbers vary; after: is_served; status: 2; show: 3 -->\n```console\n"
                     "$ one \\\n  --more\nfirst\n\n$ two\n```\n")  # fmt: skip
    assert block.commands == [("$ one \\\n  --more\n", "first\n\n"), ("$ two\n", "")]
    assert (block.scene, block.numbers, block.after, block.status, block.show) == ("shell", True, "is_served", 2, 3)


@pytest.mark.parametrize("mark, body", [("shell; number varies", "$ ls\n"), ("shell", "ls\n")])
def test_a_block_that_is_not_understood_is_an_error(mark, body):
    with pytest.raises(AssertionError):
        block_of(f"<!-- run: {mark} -->\n```console\n{body}```\n")
