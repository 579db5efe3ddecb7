"""What the watch process sees, what main says of it, and that nothing of it can take the gateway down."""

import json
import os
import re
import signal
import subprocess

import pytest

from rig import dock, host, paths
from rig.server import ROOT, clean_environment, run_plimsoll

SERVER = ROOT / "tests/e2e/servers/on_card.py"
HOLD = dock.built("hold")
PYTHON = str(paths.python)
MIB, GIB = 1 << 20, 1 << 30
QUICK = ("--device.sample", "200ms")
UUID = "GPU-44525944-4f43-4b2d-4445-564943452d00"


def figures(server):
    """{name{labels}: value} of the page."""
    reply = server.get("/metrics")
    assert reply.status == 200
    return {k: float(v) for k, _, v in (line.rpartition(" ") for line in reply.text().splitlines()) if not k.startswith("#")}


def figure(server, name, **labels):
    """The value of the series with these labels, or None."""
    for key, value in figures(server).items():
        if key.partition("{")[0] == name and all(f'{k}="{v}"' in key for k, v in labels.items()):
            return value
    return None


def watch_of(server):
    return host.watch_of(server.status()["pid"]["keeper"])


def engine(serve, *flags, hold=None, **more):
    words = ["--hold", HOLD, hold] if hold is not None else []
    return serve(None, *QUICK, *flags, "--", PYTHON, SERVER, "--port", "{port}", *words, **more)


# ---- without a GPU


@pytest.fixture
def plain(serve):
    return engine(serve).ready()


def test_a_machine_without_a_driver_has_host_figures_and_no_gpu(plain):
    plain.wait_until(lambda: figure(plain, "plimsoll_host_memory_bytes", kind="pss"), what="pss")
    page = figures(plain)
    kinds = {k for k in ("current", "anon", "file") if f'plimsoll_cgroup_memory_bytes{{kind="{k}"}}' in page}
    assert kinds, "no memory group is visible"
    for name in ("rss", "anon", "swap", "pss"):
        assert figure(plain, "plimsoll_host_memory_bytes", kind=name, worker="1") is not None
    assert not [key for key in page if key.startswith(("plimsoll_gpu_", "plimsoll_device_", "plimsoll_memory_component"))]
    for process in ("main", "keeper", "watch"):
        rss, anon, swap = (figure(plain, "plimsoll_own_memory_bytes", process=process, kind=k) for k in ("rss", "anon", "swap"))
        assert MIB < rss < 200 * MIB and 0 < anon < rss and swap >= 0, (process, rss, anon, swap)
    assert plain.status()["gpus"] == []
    assert "device." not in plain.log.text()


def test_doctor_says_that_there_is_no_gpu(tmp_path):
    done = run_plimsoll("doctor", "--run_dir", tmp_path / "run", "--state_dir", tmp_path / "state", "--admin", "none",
                        env={**clean_environment(), "LD_LIBRARY_PATH": ""}, cwd=tmp_path)
    assert re.search(r"^ok +gpu +no NVIDIA driver here", done.stdout, re.M), done.stdout
    assert re.search(r"^ok +cgroup ", done.stdout, re.M), done.stdout


def test_metrics_and_requests_are_answered_while_watch_is_stopped_for_ever(plain):
    watch = plain.wait_until(lambda: watch_of(plain))
    os.kill(watch, signal.SIGSTOP)
    silent = plain.wait_for("device.silent")
    assert f"watch (pid {watch}) does not run" in silent["reason"]
    for _ in range(20):
        assert plain.get("/metrics").status == 200 and plain.get("/readyz").status == 200
        assert plain.post("/say", "x").status == 200
    os.kill(watch, signal.SIGCONT)
    plain.wait_for("device.back")
    os.kill(watch, signal.SIGSTOP)  # it is stopped when the whole ends: that must not wait for it
    plain.terminate()
    assert plain.wait_exit() == 0


def test_a_watch_that_ends_is_said_and_started_again(plain):
    first = plain.wait_until(lambda: watch_of(plain))
    os.kill(first, signal.SIGKILL)
    silent = plain.wait_for("device.silent")
    assert "SIGKILL" in silent["reason"] and "started again" in silent["reason"]
    plain.wait_for("device.back")
    second = plain.wait_until(lambda: watch_of(plain))
    assert second != first
    plain.wait_until(lambda: figure(plain, "plimsoll_own_memory_bytes", process="watch", kind="rss"))
    assert plain.get("/say").status == 200


def test_watch_outlives_a_killed_main(plain):
    watch = plain.wait_until(lambda: watch_of(plain))
    workers = plain.workers()
    os.kill(plain.main_pid(), signal.SIGKILL)
    plain.wait_for("main.started", count=2)
    plain.wait_until(plain.try_status)
    adopted = plain.wait_for("main.adopted")
    assert adopted["workers"] == 1
    assert watch_of(plain) == watch and plain.workers() == workers
    plain.wait_until(lambda: figure(plain, "plimsoll_host_memory_bytes", kind="rss"))


def test_another_period_is_another_watch(serve, tmp_path):
    file = tmp_path / "plimsoll.yaml"
    text = "device: {{sample: {}}}\nservices:\n  s:\n    command: [{}, {}, --port, '{{port}}']\n"
    file.write_text(text.format("300ms", PYTHON, SERVER))
    server = serve(None, "-c", file).ready()
    first = server.wait_until(lambda: watch_of(server))
    assert "--period-ms\x00300" in open(f"/proc/{first}/cmdline").read()
    file.write_text(text.format("700ms", PYTHON, SERVER))
    assert server.verb("reload").returncode == 0
    second = server.wait_until(lambda: (pid := watch_of(server)) and pid != first and pid)
    assert "--period-ms\x00700" in open(f"/proc/{second}/cmdline").read()
    assert "device.silent" not in server.log.text()


# ---- what a worker prints


OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 108.00 MiB. GPU 0 has a total capacity of 39.49 GiB of which "
       "66.00 MiB is free. Including non-PyTorch memory, this process has 39.43 GiB memory in use. Of the allocated memory 35.67 "
       "GiB is allocated by PyTorch, and 3.76 GiB is reserved by PyTorch but unallocated. If reserved")
WARNING = ("[W CUDACachingAllocator.cpp:3933] memory allocation failed with OOM on device 0 while trying to allocate 612368384 "
           "bytes (free: 442630144, total: 85017493504).")


def say(server, text, path="/say"):
    try:
        return server.post(path, text)
    except (ConnectionError, AssertionError):
        return None


def test_words_about_memory_become_events(plain):
    say(plain, WARNING)
    retry = plain.wait_for("memory.retries")
    assert retry["count"] == 1 and retry["size_bytes"] == 612368384 and retry["free_bytes"] == 442630144
    say(plain, OOM)
    oom = plain.wait_for("memory.oom")
    assert oom["oom_verdict"] == "fragmentation" and oom["requested_bytes"] == 108 * MIB and oom["kind"] == "torch"
    say(plain, "(EngineCore pid=412) INFO 11-29 16:20:11 [gpu_worker.py:298] Available KV cache memory: 2.50 GiB")
    line = plain.wait_for("engine.line")
    assert line["kind"] == "vllm_available" and line["text"] == "Available KV cache memory: 2.50 GiB"
    say(plain, 'a customer writes "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already '
               'allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)"')
    def again():
        say(plain, WARNING)
        return plain.log.text().count('"memory.retries"') == 2
    plain.wait_until(again)  # one of its kind a second
    second = plain.wait_for("memory.retries", count=2)
    assert second["count"] == 2 + second.get("suppressed", 0)
    assert plain.log.text().count('"memory.oom"') == 1


def test_the_death_carries_the_verdict(plain):
    say(plain, OOM, "/end?1")
    death = plain.wait_for("worker.death")
    assert death["cause"] == "gpu_out_of_memory" and death["oom_verdict"] == "fragmentation"
    assert death["requested_bytes"] == 108 * MIB
    assert "3.76 GiB are cached but in pieces" in death["sentence"]


def test_the_last_words_count_however_close_they_are_to_others(plain):
    """The keeper lets a pipe rest after each look at it; a death within that rest is told with what it holds."""
    for count in range(1, 6):
        say(plain, f"{count}\n{OOM}", "/end_soon?1")  # one that is not in quarantine
        death = plain.wait_for("worker.death", count=count)
        assert (death["cause"], death["oom_verdict"]) == ("gpu_out_of_memory", "fragmentation")
        plain.wait_for("worker.ready", count=count + 1)


def test_a_death_without_a_message_has_no_verdict(plain):
    say(plain, "bye", "/end?9")
    death = plain.wait_for("worker.death")
    assert death["cause"] == "exited" and "oom_verdict" not in death and "requested_bytes" not in death


# ---- in the dry dock


@pytest.fixture
def docked(serve, tmp_path, request):
    """docked(GPU flags, hold=MIB): the engine as the dry dock's command; `fault` changes the faults of the running one."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")
    name = f"plimsoll-drydock-{os.getpid()}-{abs(hash(request.node.name)) % 100000}"
    env = {"PLIMSOLL_CACHE": str(tmp_path / "cache"), "PLIMSOLL_DRYDOCK_SHM": name}

    def start(*flags, hold=None):
        server = engine(serve, hold=hold, before=[paths.plimsoll, "drydock", "-q", *flags, "--"], env=env)

        def fault(text):
            done = subprocess.run([paths.plimsoll, "drydock", "--fault", text], capture_output=True, text=True,
                                  env={**clean_environment(), **env})
            assert done.returncode == 0, done.stderr

        server.fault = fault
        return server.ready()

    return start


def gpu(server):
    return server.status()["gpus"][0]


def test_the_figures_of_a_card(docked):
    server = docked("--gpu", "mine:4GiB", "--count", 2, hold=1000)
    found = [server.wait_for("device.found", {"gpu": n}) for n in (0, 1)]
    assert [f["total_bytes"] for f in found] == [4 * GIB, 4 * GIB] and found[0]["uuid"] == UUID
    used = server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", gpu="0", kind="used"))
    assert used == 1400 * MIB
    assert figure(server, "plimsoll_gpu_memory_bytes", gpu="0", uuid=UUID, kind="free") == 4 * GIB - used
    assert figure(server, "plimsoll_gpu_memory_bytes", gpu="0", kind="foreign") == 0, "its child's memory is the worker's"
    assert figure(server, "plimsoll_gpu_temperature_celsius", gpu="0") == 40
    assert figure(server, "plimsoll_gpu_power_watts", gpu="0") == 60
    assert figure(server, "plimsoll_gpu_throttled", gpu="1") == 0
    assert figure(server, "plimsoll_gpu_in_service", gpu="0") == 1
    assert figure(server, "plimsoll_memory_component_bytes", gpu="0", component="other", worker="1") == 1400 * MIB
    assert figure(server, "plimsoll_memory_component_bytes", gpu="1") is None
    assert figure(server, "plimsoll_device_sample_age_seconds") < 5
    row = gpu(server)
    assert row == {"gpu": 0, "uuid": UUID, "name": "mine", "total_bytes": 4 * GIB, "used_bytes": 1400 * MIB, "foreign_bytes": 0,
                   "utilization_ratio": row["utilization_ratio"], "in_service": True, "sample_age_ms": row["sample_age_ms"]}


def test_a_kv_cache_that_the_engine_tells_is_a_part(docked):
    server = docked("--gpu", "mine:4GiB", hold=1000)
    say(server, "Available KV cache memory: 0.50 GiB")
    server.wait_until(lambda: figure(server, "plimsoll_memory_component_bytes", component="kv") == GIB / 2)
    assert figure(server, "plimsoll_memory_component_bytes", component="other") == 1400 * MIB - GIB / 2


def test_a_silent_card_makes_the_page_stale_and_nothing_else(docked):
    server = docked("--gpu", "mine:4GiB", hold=100)
    server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", kind="used"))
    server.fault("0=silent")
    silent = server.wait_for("device.silent")
    assert silent["gpu"] == 0 and "does not return" in silent["reason"] and silent["age_ms"] >= 5000
    assert server.post("/say", "x").status == 200
    server.wait_until(lambda: figure(server, "plimsoll_gpu_in_service", gpu="0") == 0)
    assert figure(server, "plimsoll_gpu_memory_bytes") is None, "what is not known is absent"
    assert figure(server, "plimsoll_device_sample_age_seconds") >= 5
    assert figure(server, "plimsoll_host_memory_bytes", kind="rss") > 0, "the host's figures do not wait for the driver"
    assert gpu(server)["in_service"] is False and "used_bytes" not in gpu(server)
    server.fault("0=none")
    server.wait_for("device.back")
    server.wait_until(lambda: figure(server, "plimsoll_gpu_in_service", gpu="0") == 1)


def test_a_driver_that_hangs_from_the_start_holds_up_nothing(docked):
    server = docked("--gpu", "mine:4GiB", "--fault", "0=silent")
    assert server.wait_for("device.silent")["gpu"] == 0
    assert server.post("/say", "x").status == 200
    server.terminate()
    assert server.wait_exit() == 0


def test_a_lost_card_is_said_and_comes_back(docked):
    server = docked("--gpu", "mine:4GiB", "--count", 2)
    server.wait_for("device.found", count=2)
    server.fault("1=lost")
    lost = server.wait_for("device.lost")
    assert lost["gpu"] == 1 and "NVML error 15" in lost["reason"]
    server.wait_until(lambda: figure(server, "plimsoll_gpu_in_service", gpu="1") == 0)
    assert figure(server, "plimsoll_gpu_memory_bytes", gpu="1") is None
    assert figure(server, "plimsoll_gpu_in_service", gpu="0") == 1
    server.fault("1=none")
    assert server.wait_for("device.back")["gpu"] == 1
    server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", gpu="1", kind="total") == 4 * GIB)


def test_every_xid_is_told_and_counted(docked):
    server = docked("--gpu", "mine:4GiB")
    server.wait_for("device.found")
    server.fault("0=xid:79")
    assert server.wait_for("device.xid")["xid"] == 79
    server.fault("0=xid:13")
    assert server.wait_for("device.xid", count=2)["xid"] == 13
    server.fault("0=xid:79")
    server.wait_for("device.xid", count=3)
    server.wait_until(lambda: figure(server, "plimsoll_gpu_xid_total", xid="79") == 2)
    assert figure(server, "plimsoll_gpu_xid_total", gpu="0", uuid=UUID, xid="13") == 1


def test_a_death_after_an_xid_names_it(docked):
    server = docked("--gpu", "mine:4GiB", hold=100)
    server.wait_until(lambda: figure(server, "plimsoll_memory_component_bytes", gpu="0"))
    server.fault("0=xid:48")
    server.wait_for("device.xid")
    say(server, "RuntimeError: CUDA error: uncorrectable ECC error encountered", "/end?1")
    death = server.wait_for("worker.death")
    assert death["cause"] == "gpu_error" and "Xid 48" in death["sentence"] and "ECC" in death["sentence"]


def test_a_neighbour_is_what_is_used_and_not_ours(docked):
    server = docked("--gpu", "mine:4GiB", hold=500)
    server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", kind="used") == 900 * MIB)
    server.fault("0=foreign:1GiB")
    came = server.wait_for("device.neighbour")
    assert came["from_bytes"] == 0 and came["to_bytes"] == GIB and came["gpu"] == 0
    server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", kind="foreign") == GIB)
    assert gpu(server)["foreign_bytes"] == GIB and gpu(server)["used_bytes"] == GIB + 900 * MIB
    server.fault("0=foreign:0")
    left = server.wait_for("device.neighbour", count=2)
    assert left["from_bytes"] == GIB and left["to_bytes"] == 0


def test_hidden_processes_leave_what_was_used_before_the_first_of_ours(docked):
    server = docked("--gpu", "mine:4GiB", "--fault", "0=hidden,0=foreign:512MiB", hold=500)
    server.wait_until(lambda: figure(server, "plimsoll_gpu_memory_bytes", kind="used") == 1412 * MIB)
    assert figure(server, "plimsoll_gpu_memory_bytes", kind="foreign") in (None, 512 * MIB)
    assert figure(server, "plimsoll_memory_component_bytes") is None


def test_memory_that_does_not_come_back_takes_the_card_out_of_service(docked):
    server = docked("--gpu", "mine:4GiB", hold=1000)
    server.wait_until(lambda: figure(server, "plimsoll_memory_component_bytes", component="other") == 1400 * MIB)
    server.fault("0=kept")
    os.killpg(server.workers()[1], signal.SIGKILL)  # at once: the child that holds it shall not tidy up
    kept = server.wait_for("device.memory_not_returned")
    assert kept["bytes"] == 1400 * MIB and kept["worker"] == 1 and kept["gpu"] == 0
    server.wait_for("worker.ready", count=2)
    server.wait_until(lambda: figure(server, "plimsoll_gpu_in_service", gpu="0") == 0)
    assert "device.neighbour" not in server.log.text(), "it was ours"
    server.fault("0=none,0=foreign:0")
    server.wait_for("device.back")
    server.wait_until(lambda: figure(server, "plimsoll_gpu_in_service", gpu="0") == 1)


def test_a_successor_starts_when_the_memory_is_back(docked):
    server = docked("--gpu", "mine:2GiB", hold=1400)
    server.wait_until(lambda: figure(server, "plimsoll_memory_component_bytes", component="other") == 1800 * MIB)
    os.kill(server.workers()[1], signal.SIGKILL)
    server.wait_for("worker.ready", count=2)
    assert "device.memory_not_returned" not in server.log.text()
    assert "worker.start_failed" not in server.log.text()
    status = json.loads(server.verb("status", "--json").stdout)
    assert status["gpus"][0]["in_service"] is True


@pytest.mark.timeout(240)
def test_pytorchs_own_message_is_an_event_and_a_cause_of_nothing(serve, tmp_path):
    """The real allocator on a card that is too small: the worker survives it, as PyTorch does. Observed only: on a slow
    machine the forecast would have it replaced before."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")
    server = serve("service:OnCuda", *QUICK, "--mode", "observe", service="on_cuda", python=dock.torch_python(),
                   before=[paths.plimsoll, "drydock", "-q", "--gpu", "mine:500MiB", "--"],
                   env={"VARIANT": "kept_graph", "PLIMSOLL_CACHE": str(tmp_path / "cache")}).ready()
    while server.post("/predict", {"x": [1.0]}).status == 200:
        pass
    oom = server.wait_for("memory.oom")
    assert oom["kind"] == "torch" and oom["oom_verdict"] == "shortage" and oom["requested_bytes"] > 0
    assert figure(server, "plimsoll_memory_component_bytes", component="other") > 400 * MIB
    assert "worker.death" not in server.log.text()
