"""`plimsoll drydock` without PyTorch: C programs over the stand-in runtime and NVML, faults, and what stands in the way."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from rig import dock, paths
from rig.server import run_plimsoll

HOLD, LOOK, EVERY_STUB = dock.built("hold"), dock.built("look"), dock.built("every_stub")
LABEL = "dry run: values not computed, library workspaces not counted"
MIB = 1 << 20


@pytest.fixture
def dry(tmp_path):
    before = dock.tables()
    yield dock.Dock(tmp_path, tmp_path / "cache")
    assert dock.tables() == before, "a card table is left"


def use(report, row=0, device=0):
    return report["processes"][row]["devices"][device]


# ---- running


def test_a_program_sees_the_card_and_the_report_tells_what_it_took(dry):
    done = dry.run(HOLD, 1000, flags=["--gpu", "a100-40"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "up 1000 MiB, 39042 of 40442 MiB free, read back xxxxx\n"
    assert done.stderr.startswith(f"plimsoll drydock: {LABEL}\n")
    assert done.report["label"] == LABEL and done.report["dry_run"] is True and done.report["status"] == 0
    assert use(done.report)["peak_device_bytes"] == 1400 * MIB
    assert use(done.report)["context_bytes"] == 400 * MIB
    assert "peak_allocated_bytes" not in use(done.report), "known only where PyTorch was asked"
    assert done.report["devices"][0]["peak_bytes"] == 1400 * MIB


def test_the_runtime_of_cuda_12_is_there_too(dry):
    done = dry.run(HOLD, 10, env={"HOLD_RUNTIME": "libcudart.so.12"})
    assert done.returncode == 0 and done.stdout.startswith("up 10 MiB"), done.stderr


def test_a_full_card_refuses(dry):
    done = dry.run(HOLD, 1500, flags=["--gpu", "mine:1GiB", "--context", "100MiB"])
    assert done.returncode == 1
    assert done.stdout == "refused 1500 MiB: out of memory; 924 of 1024 MiB free\n"
    assert use(done.report)["refused"] == 1 and use(done.report)["largest_refused_bytes"] == 1500 * MIB


# Runs inside one dry dock: holds memory in children and lets a watcher look before and after one of them is killed.
SCENE = """
import os, subprocess, sys
hold, look, *amounts = sys.argv[1:]
children = []
for card, mib in enumerate(amounts):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(card)}
    children.append(subprocess.Popen([hold, mib], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env))
    assert children[-1].stdout.readline().startswith("up")
print("pids", *(c.pid for c in children), flush=True)
subprocess.run([look], check=True)
children[0].kill()
children[0].wait()
subprocess.run([look], check=True)
for c in children[1:]:
    c.communicate()
"""


def scene(dry, *amounts, flags):
    done = dry.run(sys.executable, "-c", SCENE, HOLD, LOOK, *amounts, flags=["--gpu", "mine:4GiB", "-q", *flags])
    assert done.returncode == 0, done.stderr
    pids, *lines = done.stdout.splitlines()
    return pids.split()[1:], lines


def test_two_processes_share_a_machine_and_a_watcher_sees_both(dry):
    (a, b), lines = scene(dry, 1000, 500, flags=["--count", 2])
    assert lines == [f"0 mine used 1400 of 4096 MiB pid {a} 1400", f"1 mine used 900 of 4096 MiB pid {b} 900",
                     "0 mine used 0 of 4096 MiB", f"1 mine used 900 of 4096 MiB pid {b} 900"]


def test_the_status_is_the_commands(dry):
    assert dry.run("bash", "-c", "exit 7").returncode == 7
    killed = dry.run("bash", "-c", "kill -TERM $$")
    assert killed.returncode == -signal.SIGTERM and killed.report["status"] == 128 + signal.SIGTERM


def test_json_is_one_document_after_the_commands_output(dry):
    done = dry.run("echo", "mine", flags=["--json"])
    first, document = done.stdout.splitlines()
    assert first == "mine" and json.loads(document)["kind"] == "drydock" and done.stderr == ""


def test_every_written_function_reports_success_and_every_out_parameter_is_written(dry):
    assert dry.run("true").returncode == 0
    folder, = (dry.cache / "drydock").iterdir()
    done = dry.run(EVERY_STUB, *sorted(p for p in folder.iterdir() if p.name.startswith(("libcuda.", "libcudart."))))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 20


def test_the_written_libraries_are_kept(dry):
    dry.run("true")
    first = {p: p.stat().st_mtime_ns for p in (dry.cache / "drydock").rglob("*.so*")}
    dry.run("true")
    assert {p: p.stat().st_mtime_ns for p in (dry.cache / "drydock").rglob("*.so*")} == first


def test_a_function_that_is_lacking_is_named_once(dry):
    dry.run("true")
    folder, = (dry.cache / "drydock").iterdir()
    done = dry.run(EVERY_STUB, folder / "libcuda.so.1", folder / "libcuda.so.1")
    assert done.stderr.count("the dry dock lacks cuPointerGetAttributes") == 1
    assert "PLIMSOLL_DRYDOCK_TRACE=1" in done.stderr
    assert "cuPointerGetAttributes" in done.report["lacking"]


# ---- faults


def test_the_nth_allocation_is_refused(dry):
    assert dry.run(HOLD, 10, 0, 5, flags=["--fail", "6"]).returncode == 0
    assert dry.run(HOLD, 10, 0, 5, flags=["--fail", "5"]).returncode == 1


def test_a_cap_refuses_below_the_total(dry):
    done = dry.run(HOLD, 700, flags=["--gpu", "mine:4GiB", "--cap", "1GiB"])
    assert done.returncode == 1 and "3696 of 4096 MiB free" in done.stdout


@pytest.mark.parametrize("fault, line", [
    ("lost", "0 error 15 GPU is lost\n"),
    ("foreign:1GiB", "0 mine used 1024 of 4096 MiB\nno xid: 10\n"),
    ("xid:79", "0 mine used 0 of 4096 MiB\nxid 79\n"),
])
def test_a_watcher_meets_the_fault(dry, fault, line):
    assert dry.run(LOOK, "-x", flags=["--gpu", "mine:4GiB", "--fault", f"0={fault}"]).stdout == line


def test_per_process_figures_can_be_hidden(dry):
    (a,), lines = scene(dry, 100, flags=["--fault", "0=hidden"])
    assert lines[0] == f"0 mine used 500 of 4096 MiB pid {a} unknown"


def test_a_lost_card_gives_an_error_that_is_not_out_of_memory(dry):
    assert "unknown error" in dry.run(HOLD, 10, flags=["--fault", "0=lost"]).stdout


def test_a_silent_card_answers_again_when_the_fault_is_cleared(dry):
    name = f"plimsoll-drydock-{os.getpid()}-test"
    run = dry.start(HOLD, 10, flags=["--fault", "0=silent", "-q"], env={"PLIMSOLL_DRYDOCK_SHM": name})
    while name not in dock.tables():
        assert run.poll() is None, run.stderr.read()
    assert run.poll() is None
    done = subprocess.run([paths.plimsoll, "drydock", "--fault", "0=none"], capture_output=True, text=True,
                          env=dry.environment({"PLIMSOLL_DRYDOCK_SHM": name}))
    assert done.returncode == 0, done.stderr
    assert run.communicate("", timeout=60)[0].startswith("up 10 MiB")
    assert run.returncode == 0


def test_memory_of_ended_processes_can_be_kept(dry):
    (a,), lines = scene(dry, 1000, flags=["--fault", "0=kept"])
    assert lines == [f"0 mine used 1400 of 4096 MiB pid {a} 1400", "0 mine used 1400 of 4096 MiB"]


# ---- what stands in the way: one sentence, with the remedy


@pytest.mark.parametrize("words, status, part", [
    (["--gpu", "a100", "--", "true"], 2, "known: t4 l4 a10 "),
    (["--gpu", "mine:24GB", "--", "true"], 2, "two readings"),
    (["--count", "17", "--", "true"], 2, "from 1 to 16"),
    (["--fault", "0=broken", "--", "true"], 2, "known: silent lost"),
    (["--fault", "3=lost", "--", "true"], 2, "there are 1 cards"),
    (["--lag", "3", "--", "true"], 2, "not a duration"),
    (["--context", "many", "--", "true"], 2, "not a number of bytes"),
    ([], 2, "a command behind --"),
    (["--", "no-such-program"], 127, "no such program on PATH"),
    (["--", "./no-such-program"], 127, "No such file"),
    (["--", "/etc/hostname"], 126, "is not a program"),
])
def test_bad_input(dry, words, status, part):
    done = run_plimsoll("drydock", *words, env=dry.environment())
    assert done.returncode == status, done.stderr
    assert part in done.stderr and done.stderr.count("\n") <= 2 and done.stdout == ""


def test_the_names_are_listed():
    done = run_plimsoll("drydock", "--list", "--json")
    names = {g["name"]: g["total_bytes"] for g in json.loads(done.stdout)["gpus"]}
    assert names["a100-40"] == 40442 * MIB and {"t4", "l4", "h100", "rtx4090"} <= set(names)


def fake_torch(folder, version):
    """An environment whose `torch` says that it was built so."""
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").touch()
    (folder / "torch/version.py").write_text(version)
    python.write_text(f"#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} \"$@\"\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("version, part", [
    ("__version__ = '2.15.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "2.15.0+cpu"),
    ("__version__ = '2.15.0+rocm7'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.0'\n", "built for ROCm"),
])
def test_a_pytorch_without_cuda_is_refused(dry, tmp_path, version, part):
    done = dry.run(fake_torch(tmp_path / "env", version), "-c", "pass")
    assert done.returncode == 3 and part in done.stderr and done.report is None
    assert "plain wheel" in done.stderr


def test_a_pytorch_of_another_cuda_is_refused(dry, tmp_path):
    python = fake_torch(tmp_path / "env", "__version__ = '1.13.0+cu117'\ncuda = '11.7'\n")
    (tmp_path / "env/torch/lib").mkdir()
    done = dry.run(python, "-c", "pass")
    assert done.returncode == 3 and "torch 1.13.0+cu117" in done.stderr and "CUDA 12 and 13" in done.stderr


def test_a_library_that_is_broken_is_named(dry, tmp_path):
    python = fake_torch(tmp_path / "env", "__version__ = '2.15.0'\ncuda = '13.2'\n")
    (tmp_path / "env/torch/lib").mkdir()
    (tmp_path / "env/torch/lib/libtorch_cuda.so").write_bytes(b"half a download")
    done = dry.run(python, "-c", "pass")
    assert done.returncode == 3 and "libtorch_cuda.so: not an ELF file" in done.stderr


def test_a_python_without_pytorch_is_told_and_run(dry):
    done = dry.run(sys.executable, "-c", "print('runs')")
    assert done.returncode == 0 and done.stdout == "runs\n" and "has no torch" in done.stderr


def test_the_cache_folder_cannot_be_made(dry, tmp_path):
    (tmp_path / "file").touch()
    done = dry.run("true", env={"PLIMSOLL_CACHE": str(tmp_path / "file/below")})
    assert done.returncode == 5 and "PLIMSOLL_CACHE" in done.stderr


@pytest.mark.skipif(dock.sanitized(), reason="ASan wants terabytes of addresses")
def test_too_few_addresses_are_told_before_the_start(dry):
    words = " ".join(dry.words("true"))
    done = subprocess.run(["bash", "-c", f"ulimit -v 4000000; {words}"], env=dry.environment(), capture_output=True, text=True)
    assert done.returncode == 5 and "ulimit -v" in done.stderr


def in_own_mounts(dry, mount):
    """The verb with another /dev/shm, which takes root and a mount namespace."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare")
    words = " ".join(dry.words("true"))
    done = subprocess.run(["unshare", "-m", "bash", "-c", f"{mount} && {words}"], env=dry.environment(), capture_output=True, text=True)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mount namespace is to be had here")
    return done


def test_a_full_dev_shm_is_told(dry):
    done = in_own_mounts(dry, "mount -t tmpfs -o size=64k none /dev/shm")
    assert done.returncode == 5 and "--shm-size" in done.stderr and "No space left" in done.stderr


def test_a_read_only_dev_shm_is_told(dry):
    done = in_own_mounts(dry, "mount -t tmpfs -o ro none /dev/shm")
    assert done.returncode == 5 and "writable /dev/shm" in done.stderr


def test_a_table_left_by_a_killed_run_is_removed_by_the_next(dry):
    run = dry.start("cat", flags=["-q"])
    while f"plimsoll-drydock-{run.pid}" not in dock.tables():
        assert run.poll() is None
    run.kill()
    run.communicate()
    assert f"plimsoll-drydock-{run.pid}" in dock.tables()
    assert dry.run("true").returncode == 0
    assert f"plimsoll-drydock-{run.pid}" not in dock.tables()
