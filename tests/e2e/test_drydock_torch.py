"""The real PyTorch over `plimsoll drydock`: its allocator, snapshots, OOMs, small values, and a BentoML service that leaks."""

import json
import re
import sys

import pytest

from rig import dock, paths
from rig.server import ROOT

pytestmark = pytest.mark.timeout(240)
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
EXPECTED = json.loads((ROOT / "tests/data/drydock/snapshots.json").read_text())


@pytest.fixture(params=["2.15", pytest.param("2.8", marks=pytest.mark.full)])
def version(request):
    return request.param


@pytest.fixture
def python(version):
    return dock.torch_python({"2.15": "PL_TORCH_ENV", "2.8": "PL_TORCH28_ENV"}[version])


@pytest.fixture
def python215():
    return dock.torch_python()


@pytest.fixture
def dry(tmp_path, cache):
    before = dock.tables()
    yield dock.Dock(tmp_path, cache)
    assert dock.tables() == before, "a card table is left"


def use(report, row=0, device=0):
    return report["processes"][row]["devices"][device]


def test_13b_on_40_gb_keeps_four_sequences(dry, python):
    done = dry.run("/bin/sh", "-c", 'python=$1; shift; "$python" "$@"; grep VmHWM /proc/self/status', "sh", python,
                   ROOT / "examples/drydock/llama13b.py", flags=["--gpu", "a100-40"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 sequences kept, the next one is refused: CUDA out of memory" in done.stdout
    weights, kv = (float(x) for x in re.findall(r": ([\d.]+) GiB, computed", done.stdout))
    assert 24.24 <= weights <= 24.48 and kv == 3.125
    figures = use(done.report)
    assert figures["ooms"] == 1 and figures["largest_oom_bytes"] == 80 * MIB and figures["context_bytes"] == 400 * MIB
    assert figures["peak_allocated_bytes"] >= (weights + 4 * kv - 0.01) * GIB
    assert figures["peak_device_bytes"] == figures["peak_reserved_bytes"] + 400 * MIB


def test_every_feature_runs(dry, python, version):
    done = dry.run(python, dock.programs / "features.py", flags=["--context", "0"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all sections passed"
    assert done.report["lacking"] == []


def test_processes_on_one_card_see_each_other(dry, python):
    done = dry.run(python, dock.programs / "neighbours.py", flags=["--gpu", "mine:10GiB"])
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "neighbours ok", done.stdout + done.stderr


def test_leaks_grow_by_the_known_bytes(dry, python):
    done = dry.run(python, dock.programs / "leaks.py")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "leaks ok", done.stdout + done.stderr


# ---- snapshots: the recorded ones, made again


def groups():
    """Patterns that may share a dry dock: {(torch, flags, fraction): [name, ...]}."""
    found = {}
    for name, e in EXPECTED.items():
        found.setdefault((e["torch"], tuple(e["flags"]), e.get("fraction", "")), []).append(name)
    return found


CASES = [pytest.param(*group, id=" ".join(map(str, group)), marks=[pytest.mark.full] if group[0] == "2.8" else []) for group in groups()]


@pytest.mark.parametrize("torch, flags, fraction", CASES)
def test_recorded_snapshots_are_made_again(dry, torch, flags, fraction):
    python = dock.torch_python("PL_TORCH_ENV" if torch == "2.15" else "PL_TORCH28_ENV")
    names = groups()[torch, flags, fraction]
    out = dry.folder / "snapshots"
    out.mkdir()
    words = [f"{name}={EXPECTED[name]['pattern']}@{EXPECTED[name]['settings']}" for name in names]
    done = dry.run(python, dock.programs / "snapshots.py", out, *words, flags=["--context", "0", *flags],
                   env={"FRACTION": fraction} if fraction else {}, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        made, expected = json.loads((out / f"{name}.json").read_text()), EXPECTED[name]
        for device, stats in expected["facts"]["stats_from_torch"].items():
            ours = made["stats_from_torch"][device]
            assert {key: ours.get(key) for key in stats} == stats, name
        for key, value in expected["facts"].get("snapshot", {}).items():
            assert made["snapshot"][key] == value, f"{name}: {key}"
        assert made.get("oom_message") == expected.get("oom_message"), name


# ---- switches


VALUES = """
import torch
a = torch.arange(10, device="cuda").float()
assert (a * 2).sum().item() == 90.0 and a.max().item() == 9.0
assert (a > 4).nonzero().flatten().tolist() == [5, 6, 7, 8, 9] and a[a > 7].tolist() == [8.0, 9.0]
assert not bool((a > 100).any()) and torch.full((3,), 7.5, device="cuda").tolist() == [7.5] * 3
stop, steps = torch.zeros(1, dtype=torch.bool, device="cuda"), 0
while not stop.item():                       # a stop flag on the device
    steps += 1
    stop |= torch.tensor(steps, device="cuda") >= 5
assert steps == 5
torch.manual_seed(1)
table, head = torch.nn.Embedding(50, 16).cuda(), torch.nn.Linear(16, 50).cuda()
tokens = torch.zeros(1, 1, dtype=torch.long, device="cuda")
with torch.inference_mode():                 # a tiny sampled generate loop
    while tokens.shape[1] < 12 and tokens[0, -1].item() != 49:
        p = head(table(tokens)).softmax(-1)[:, -1]
        assert abs(p.sum().item() - 1) < 1e-3
        tokens = torch.cat([tokens, torch.multinomial(p, 1)], 1)
assert len(set(tokens[0].tolist())) > 3, tokens
import threading
seen = []
threading.Thread(target=lambda: seen.append(torch.arange(4, device="cuda").sum().item())).start()
while not seen: pass
assert seen == [6]
print("values ok")
"""


def test_values_of_small_tensors_are_right_when_asked_for(dry, python):
    done = dry.run(python, "-c", VALUES, flags=["--values"])
    assert done.stdout == "values ok\n", done.stdout + done.stderr


def test_values_are_not_computed_otherwise(dry, python215):
    done = dry.run(python215, "-c", "import torch; print(torch.full((3,), 7.5, device='cuda').sum().item())")
    assert done.stdout == "0.0\n", done.stdout + done.stderr


def test_workspaces_count_when_they_are_given(dry, python215):
    code = ("import torch; c = torch.nn.Conv2d(3, 8, 3).cuda(); x = torch.empty(1, 3, 64, 64, device='cuda')\n"
            "with torch.inference_mode(): c(x)\nprint(torch.cuda.max_memory_allocated())")
    small, large = (int(dry.run(python215, "-c", code, flags=f).stdout) for f in ([], ["--workspace", "64MiB"]))
    assert large - small == 64 * MIB or large - small > 63 * MIB, (small, large)


def test_a_refused_allocation_ends_in_an_oom_where_nothing_can_be_freed(dry, python215):
    code = "import torch\na = torch.empty(30 << 20, device='cuda')\nb = torch.empty(30 << 20, device='cuda')"
    done = dry.run(python215, "-c", code, flags=["--fail", "2"])
    assert done.returncode == 1 and "torch.OutOfMemoryError: CUDA out of memory" in done.stderr
    assert use(done.report)["ooms"] == 1


def test_the_asynchronous_backend_has_figures(dry, python215):
    code = ("import torch; x = torch.empty(100 << 20, dtype=torch.uint8, device='cuda')\n"
            "print(torch.cuda.memory_allocated() >> 20, torch.cuda.memory_reserved() >> 20); del x\n"
            "print(torch.cuda.memory_allocated() >> 20, torch.cuda.memory_reserved() >> 20)")
    done = dry.run(python215, "-c", code, env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    assert done.stdout.split("\n")[:2] == ["100 100", "0 100"], done.stdout + done.stderr


def test_sharing_memory_with_another_process_is_refused_as_a_driver_refuses(dry, python215):
    code = "import torch\nx = torch.empty(1 << 20, device='cuda')\nx.untyped_storage()._share_cuda_()"
    done = dry.run(python215, "-c", code)
    assert done.returncode == 1 and "operation not supported" in done.stderr


def test_a_snapshot_of_the_run_is_left(dry, python215):
    done = dry.run(python215, "-c", "import torch; x = torch.empty(5 << 20, device='cuda')", flags=["--record", dry.folder / "rec"])
    file, = (dry.folder / "rec").iterdir()
    assert file.name == f"mem.dry-run.{done.report['processes'][0]['pid']}.pickle" and file.stat().st_size > 500


def test_a_name_that_is_not_used_any_more_is_traced(dry, python215):
    done = dry.run(python215, "-c", "import torch; torch.empty(1, device='cuda')", flags=["--trace"])
    assert "entry cuMemCreate found" in done.stderr and "stub __cudaRegisterFunction" in done.stderr


# ---- an unmodified BentoML service under `plimsoll serve`, in the dry dock


@pytest.fixture
def served(serve, python215, tmp_path, cache, monkeypatch):
    """served(VARIANT): the service ready, `plimsoll serve` as the dry dock's command."""
    if dock.sanitized():
        pytest.skip("the stand-ins cannot be preloaded into a sanitized main")

    def start(variant, *flags):
        report = tmp_path / "report.json"
        words = [paths.plimsoll, "drydock", "--report", report, "--"]
        server = serve("service:OnCuda", *flags, service="on_cuda", python=python215, before=words,
                       env={"VARIANT": variant, "PLIMSOLL_CACHE": str(cache)})
        server.report = report
        return server.ready()
    return start


@pytest.mark.parametrize("variant, bytes_a_request", [("clean", 0), ("kept_result", 4 * KIB), ("kept_graph", 40 * KIB)])
def test_a_service_grows_by_the_known_bytes_a_request(served, variant, bytes_a_request):
    server = served(variant)
    def predict():
        return server.post("/predict", {"x": [1.0, 2.0, 3.0]}).json()["allocated"]
    for _ in range(5):
        predict()
    before = predict()
    for _ in range(49):
        predict()
    assert predict() - before == 50 * bytes_a_request
    assert server.post("/card").json()["name"] == "NVIDIA A100-SXM4-40GB"
    server.terminate()
    assert server.wait_exit() == 0
    worker = max(json.loads(server.report.read_text())["processes"], key=lambda p: p["devices"][0].get("peak_allocated_bytes", 0))
    assert worker["devices"][0]["peak_allocated_bytes"] > 32 * MIB


def test_serve_listens_on_loopback_only_and_says_dry_run_everywhere(served):
    server = served("clean", "--host", "0.0.0.0")
    status = server.status()
    assert status["dry_run"] is True and status["listen"][0].startswith("127.0.0.1:")
    assert "listening on 127.0.0.1 only" in server.log.text()
    assert "plimsoll_dry_run 1\n" in server.get("/metrics").text()
    assert server.wait_for("main.started")["dry_run"] is True
    assert "DRY RUN" in server.verb("status").stdout.splitlines()[0]


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_serve_in_the_dry_dock_refuses_another_address(dry):
    done = dry.run(paths.plimsoll, "serve", "service:OnCuda", "--host", "192.0.2.1", "--python", sys.executable,
                   env={"PWD": str(paths.services)}, flags=["-q"])
    assert done.returncode == 2 and "--allow-drydock" in done.stderr


def test_outside_the_dry_dock_nothing_says_dry_run(feature):
    assert feature.status()["dry_run"] is False
    assert "plimsoll_dry_run 0\n" in feature.get("/metrics").text()
