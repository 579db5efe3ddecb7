"""Runs the tests of C and of Python together; the last line of output is `N passed, N failed, N skipped`.

    test.py WHAT [--preset P] [-- or anything else: goes to pytest]

WHAT is a row of PLANS. Run it through `make`, which sets up first; the interpreter is that of the test environment.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST_TIMEOUT_S = 120  # of a C test; pytest's is in pyproject.toml

# Parts in order: (kinds, preset, marker expression for pytest). A preset of None is the one asked for.
PLANS = {
    "quick": [("c", "dev", ""), ("python", "dev", "not full")],
    "default": [("c", "asan", ""), ("python e2e", "dev", "not full"), ("e2e", "asan", "asan")],
    "full": [("c", "asan", ""), ("python e2e", "dev", ""), ("e2e", "asan", "")],
    "unit": [("c", None, "")],
    "e2e": [("e2e", None, "not full")],
    "sanitized": [("c", None, ""), ("e2e", None, "not full")],
}
LEFT_OUT = {
    "quick": "end-to-end tests (make test)",
    "default": "tests marked `full` and most end-to-end tests under ASan (make test-full)",
    "unit": "Python and end-to-end tests (make test)",
    "e2e": "C tests, tests marked `full` (make test-full)",
    "sanitized": "Python tests, tests marked `full` (make test-full)",
}


# End-to-end tests mostly wait. These compute (PyTorch, llama.cpp), or take ports by number: they run one after the
# other, while the others run beside them.
APART = (
    "chaos", "command", "dashboard", "dependencies", "device", "doc_outputs", "drydock", "explain", "handover",
    "hostile", "leaky", "llama", "remote", "soak", "storm", "verdicts", "watch",
)  # fmt: skip


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)


def build(preset, tally):
    if subprocess.run([ROOT / "scripts/build.sh", preset], cwd=ROOT).returncode == 0:
        return True
    tally.fail(f"build of preset {preset}")
    return False


def count_cmocka(name, output, ok, tally):
    """cmocka's own lines. A test that did not end has failed; so has one more if only the exit status is bad."""
    lines = re.findall(r"^\[\s+(RUN|OK|FAILED|SKIPPED|ERROR)\s+\] (\S.*)$", output.split("test(s) run.")[0], re.M)
    running, before = None, tally.failed
    for what, test in lines:
        if what == "RUN":
            running = test
        elif test == running:
            running = None
            if what == "OK":
                tally.passed += 1
            elif what == "SKIPPED":
                tally.skipped += 1
            elif what == "FAILED":
                tally.fail(f"{name}: {test}")
    if running:
        tally.fail(f"{name}: {running} (did not end)")
    if not ok and tally.failed == before:
        tally.fail(name)


def run_c(preset, tally):
    junit = ROOT / f"build/{preset}/ctest.xml"
    junit.unlink(missing_ok=True)
    subprocess.run(
        ["ctest", "--test-dir", ROOT / f"build/{preset}", "--output-on-failure", "-j", str(os.cpu_count() or 2),
         "--timeout", str(TEST_TIMEOUT_S), "--no-tests=error", "--output-junit", junit,
         "--test-output-size-passed", "4000000", "--test-output-size-failed", "4000000"],
        cwd=ROOT)
    if not junit.exists():
        tally.fail(f"ctest of preset {preset}")
        return
    for case in ET.parse(junit).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        output = case.findtext("system-out") or ""
        if re.search(r"^\[\s+RUN\s+\] ", output, re.M):
            count_cmocka(name, output, status == "run", tally)
        elif status == "run":
            tally.passed += 1
        elif status in ("notrun", "disabled"):
            tally.skipped += 1
        else:
            tally.fail(name)


def is_apart(path):
    return path.name.removeprefix("test_").startswith(APART)


def lanes_of(kinds):
    """What runs beside each other: lists of (kind, number, files), each list in order. The first has what computes; the
    tests of Python follow what mostly waits."""
    files = {kind: sorted((ROOT / "tests" / kind).rglob("test_*.py")) for kind in kinds}
    if "e2e" not in files:
        return [[(kind, 0, files[kind])] for kind in kinds]
    lanes = [[("e2e", 0, [f for f in files["e2e"] if is_apart(f)])]]
    lanes.append([("e2e", 1, [f for f in files["e2e"] if not is_apart(f)])])
    lanes[1] += [(kind, 0, files[kind]) for kind in kinds if kind != "e2e"]
    return lanes


def run_lane(lane, preset, marker, more, said, statuses):
    env = {**os.environ, "PLIMSOLL_BUILD": str(ROOT / "build" / preset), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTEST_ADDOPTS", None)
    env.setdefault("TSAN_OPTIONS", f"suppressions={ROOT / 'tests/support/tsan.supp'}")
    for kind, number, files in lane:
        junit = ROOT / f"build/{preset}/pytest-{kind}-{number}.xml"
        junit.unlink(missing_ok=True)
        words = [sys.executable, "-m", "pytest", *files, f"--junit-xml={junit}", *more]
        if marker:
            words += ["-m", marker]
        statuses.append((kind, junit, subprocess.run(words, cwd=ROOT, env=env, stdout=said, stderr=said).returncode))


def run_pytest(kinds, preset, marker, more, tally):
    """Lanes side by side; what the second one said is printed after the first one's."""
    (ROOT / f"build/{preset}").mkdir(parents=True, exist_ok=True)
    runs = []
    for number, lane in enumerate(lanes_of(kinds)):
        said = None if number == 0 else open(ROOT / f"build/{preset}/pytest-{number}.log", "w+")
        statuses = []
        thread = threading.Thread(target=run_lane, args=(lane, preset, marker, more, said, statuses))
        thread.start()
        runs.append((lane, thread, said, statuses))
    for lane, thread, said, statuses in runs:
        thread.join()
        if len(statuses) < len(lane):
            tally.fail(f"pytest of tests/{lane[len(statuses)][0]} (could not be run)")
        if said is not None:
            said.seek(0)
            sys.stdout.write(said.read())
            said.close()
        for kind, junit, status in statuses:
            count_pytest(kind, preset, junit, status, tally)


def count_pytest(kind, preset, junit, status, tally):
    before = tally.failed
    if junit.exists():
        for case in ET.parse(junit).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')} [{preset}]"
            if case.find("failure") is not None or case.find("error") is not None:
                tally.fail(name)
            elif case.find("skipped") is not None:
                tally.skipped += 1
            else:
                tally.passed += 1
    if status not in (0, 5) and tally.failed == before:
        tally.fail(f"pytest of tests/{kind} (exit status {status})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=PLANS)
    parser.add_argument("--preset", default="dev")
    asked, more = parser.parse_known_args()
    more = [word for word in more if word != "--"]
    tally, began, built = Tally(), time.monotonic(), {}
    for kinds, preset, marker in PLANS[asked.what]:
        preset = preset or asked.preset
        part_began = time.monotonic()
        print(f"==== {kinds}, build/{preset}{f', {marker}' if marker else ''}", flush=True)
        if preset not in built:
            built[preset] = build(preset, tally)
        if built[preset]:
            if kinds == "c":
                run_c(preset, tally)
            else:
                run_pytest(kinds.split(), preset, marker, more, tally)
        print(f"==== {kinds}, build/{preset}: {time.monotonic() - part_began:.0f} s", flush=True)
    for name in tally.failures:
        print(f"FAILED {name}")
    if asked.what in LEFT_OUT:
        print(f"left out: {LEFT_OUT[asked.what]}")
    if os.environ.get("PLIMSOLL_NO_TORCH") and any("e2e" in kinds for kinds, _, _ in PLANS[asked.what]):
        print("left out: PyTorch over the dry dock: allocator, snapshots, OOMs, leaks (PLIMSOLL_NO_TORCH is set)")
    print(f"{time.monotonic() - began:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped", flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
