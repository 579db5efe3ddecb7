"""What `make requirements` and the threat model say of the tests that they name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from named_tests import tier  # noqa: E402

PAGE = ROOT / "docs/requirements.md"


def told(root):
    done = subprocess.run([sys.executable, ROOT / "scripts/requirements.py", root], capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.fixture
def clone(tmp_path):
    """As much of the repository as the script reads."""
    (tmp_path / "docs").mkdir()
    shutil.copy(PAGE, tmp_path / "docs")
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path)
    for folder in ("tests", "engines"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    return tmp_path


def change(clone, old, new):
    page = clone / "docs/requirements.md"
    text = page.read_text()
    assert old in text
    page.write_text(text.replace(old, new, 1))


def test_every_demand_has_its_tests(clone):
    status, out = told(clone)
    assert status == 0 and "35 demands" in out and "MISSING" not in out


def test_a_demand_without_a_test_is_printed_as_missing(clone):
    change(clone, "`e2e/test_soak.py::test_check_is_the_checklist_on_one_page`", "nothing yet")
    status, out = told(clone)
    assert status == 1 and "MISSING    no test shows it" in out and "A14: no test shows it" in out


def test_a_test_that_is_gone_is_named(clone):
    change(clone, "test_check_is_the_checklist_on_one_page", "test_that_was_renamed")
    status, out = told(clone)
    assert status == 1 and "A14: there is no e2e/test_soak.py::test_that_was_renamed" in out


def test_a_row_that_is_lost_is_noticed(clone):
    change(clone, "| A14 |", "| A13 |")
    status, out = told(clone)
    assert status == 1 and "A14: 0 rows" in out and "A13: 2 rows" in out


@pytest.mark.parametrize("reference, where", [
    ("e2e/test_soak.py::test_check_is_the_checklist_on_one_page", "test-full"),  # its own mark
    ("e2e/test_real_vllm.py::test_a_stream_ends_with_done", None),
    ("e2e/test_soak.py::cases", None),  # no test, though it is there
    ("e2e/rig/server.py::test_nothing", None),
    ("e2e/test_admission.py::test_the_queue_is_bounded_by_count", "test"),
    ("unit/worker/test_state.c::only_warmed_leads_to_ready", "test"),
    ("unit/worker/test_state.c::nobody_wrote_this", None),
    ("fuzz/fuzz_wire.c", "test"),
    ("fuzz/fuzz_of_nothing.c", None),
    ("ctest::alerts", "test"),
    ("ctest::nothing", None),
])  # fmt: skip
def test_a_reference_has_a_tier_or_is_none(reference, where):
    assert tier(ROOT, reference) == where


def test_the_mark_of_a_whole_file_counts():
    name = next(
        line[4:].partition("(")[0]
        for line in (ROOT / "tests/e2e/test_real_vllm.py").read_text().splitlines()
        if line.startswith("def test_")
    )
    assert tier(ROOT, f"e2e/test_real_vllm.py::{name}") == "test-full"
