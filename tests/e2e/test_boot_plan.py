"""An engine's memory at its start: what was planned of its model, what it says itself, and the start before."""

import json
import subprocess

import pytest

from rig import dock, paths
from rig.server import ROOT
from rig.weights import write_model
from test_command import VLLM
from test_llm import lines_of
from test_main_killed import kill_main

GIB = 1 << 30
START = (ROOT / "tests/data/vllm/boot/gpu.log").read_text()
# 2 KiB of cache a token, as the recorded one; more than 2 GiB of weights, in files without data.
BIG = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 4096, "num_hidden_layers": 4,
       "num_attention_heads": 16, "num_key_value_heads": 1, "vocab_size": 262144, "max_position_embeddings": 2048,
       "torch_dtype": "bfloat16"}


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def model(tmp_path):
    """(folder, bytes of its weights)"""
    return tmp_path / "model", write_model(tmp_path / "model", BIG)


def say(path, weights, kv, activation=2.8 * GIB, graphs=0.6 * GIB, other=0.35 * GIB):
    """The recorded form with these bytes in its lines."""
    tokens = int(kv) // 2048 // 128 * 128
    swap = {"took 14.99 GiB": f"took {weights / GIB:.2f} GiB", "memory: 54.06 GiB": f"memory: {kv / GIB:.2f} GiB",
            "442,848 tokens": f"{tokens:,} tokens", "for 32,768 tokens": "for 2,048 tokens", "13.51x": f"{tokens / 2048:.2f}x",
            "0.6 GiB (actual)": f"{graphs / GIB:.2f} GiB (actual)", "0.6 GiB for CUDAGraph": f"{graphs / GIB:.2f} GiB for CUDAGraph",
            "15.34 GiB for consumed": f"{(weights + other) / GIB:.2f} GiB for consumed",
            "2.8 GiB for peak": f"{activation / GIB:.2f} GiB for peak"}
    text = START
    for old, new in swap.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def vllm(serve, folder, *command, **more):
    return serve(None, "--", VLLM, "serve", folder, *command, **more)


def planned(server):
    """{(component, state): bytes}"""
    found = {}
    for line in lines_of(server, "plimsoll_plan_bytes"):
        labels = dict(part.split("=") for part in line.partition("{")[2].partition("}")[0].replace('"', "").split(","))
        found[labels["component"], labels["state"]] = float(line.rpartition(" ")[2])
    return found


def kept_by(server):
    """The file of what was learnt, once it is there."""
    path = server.folder / "state/learnt/vllm.json"
    server.wait_until(path.exists, what="what was learnt is kept")
    return path


def near(got, want):
    return abs(got - want) <= 0.011 * GIB


@pytest.mark.asan
def test_weights_that_are_more_than_their_files_are_told(serve, tmp_path, model):
    folder, weights = model
    server = vllm(serve, folder, "--say", say(tmp_path / "start", 1.25 * weights, 8 * GIB), env=NO_GPU).ready()
    drift = server.wait_for("plan.drift")
    assert (drift["component"], drift["against"], drift["planned_bytes"]) == ("weights", "plan", weights)
    assert abs(drift["ratio"] - 0.25) < 0.01 and "repacks or widens" in drift["likely"]
    checked = server.wait_for("plan.checked")
    assert checked["capacity"] == 2048 and near(checked["activation_bytes"], 2.8 * GIB)
    told = planned(server)
    assert told["weights", "planned"] == weights and near(told["weights", "actual"], 1.25 * weights)
    assert near(told["kv", "actual"], 8 * GIB) and near(told["non_torch", "actual"], 0.35 * GIB)
    assert ("kv", "planned") not in told, "without a GPU nothing is known of what it leaves"
    assert not server.log.find("plan.drift", lambda e: e["component"] == "kv"), "the planner counts 2 KiB a token too"


def test_without_a_model_here_there_is_no_plan(serve, tmp_path):
    server = vllm(serve, "org/model", "--say", say(tmp_path / "start", 5 * GIB, 8 * GIB)).ready()
    assert server.wait_for("plan.checked")["against"] == "nothing"
    assert {state for _, state in planned(server)} == {"actual"}


def test_a_model_that_is_not_understood_is_told_and_delays_nothing(serve, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": ')
    server = vllm(serve, tmp_path / "model", "--say", say(tmp_path / "start", 5 * GIB, 8 * GIB), env=NO_GPU).ready()
    checked = server.wait_for("plan.checked")
    assert (checked["against"], checked["plan_status"]) == ("nothing", 3)


@pytest.mark.skipif(dock.sanitized(), reason="the stand-ins cannot be preloaded into a sanitized main")
def test_every_part_is_planned_measured_and_kept_for_the_next_start(serve, cache, tmp_path, model):
    folder, weights = model
    done = subprocess.run([paths.plimsoll, "plan", folder, "--json", "--gpu", "a100-40", "--utilization", "0.92", "--tp", "1"],
                          capture_output=True, text=True, timeout=60)
    parts = {k: v["bytes"] for k, v in json.loads(done.stdout)["budget"].items()}
    start = say(tmp_path / "start", weights, parts["kv"], parts["activation"], parts["graphs"], parts["non_torch"])
    server = vllm(serve, folder, "--say", start, env={"PLIMSOLL_CACHE": str(cache)},
                  before=[paths.plimsoll, "drydock", "-q", "--gpu", "a100-40", "--"]).ready()
    assert server.wait_for("plan.checked")["against"] == "plan"
    told = planned(server)
    for part in ("weights", "kv", "activation", "graphs", "non_torch"):
        assert told[part, "planned"] == parts[part], part
        assert near(told[part, "actual"], parts[part]), part
    assert told["margin", "planned"] == parts["margin"]
    assert not server.log.find("plan.drift")
    assert server.status()["services"][0]["plan"]["length"] == 2048

    say(start, weights, parts["kv"] - 6 * GIB, parts["activation"], parts["graphs"] + 6 * GIB, parts["non_torch"])
    assert server.verb("restart", "--all").returncode == 0
    assert server.wait_for("plan.checked", count=2)["against"] == "last"
    (drift,) = server.log.find("plan.drift")
    assert (drift["component"], drift["against"]) == ("graphs", "last") and near(drift["last_bytes"], parts["graphs"])
    assert "fewer capture sizes" in drift["likely"] and drift["kv_ratio"] < -0.05
    assert near(planned(server)["graphs", "last"], parts["graphs"])


def test_a_start_that_was_checked_is_not_checked_again_by_the_next_main(serve, tmp_path):
    server = vllm(serve, "tiny", "--say", say(tmp_path / "start", 5 * GIB, 8 * GIB)).ready()
    server.wait_for("plan.checked")
    kept_by(server)
    kill_main(server)
    server.wait_until(lambda: planned(server).get(("weights", "actual")) == 5 * GIB, what="the figures are there again")
    server.verb("restart", "--all")
    assert server.wait_for("plan.checked", count=2)["against"] == "last"
    assert len(server.log.find("plan.checked")) == 2 and not server.log.find("plan.drift")


def test_what_an_older_plimsoll_kept_is_understood(serve, tmp_path):
    server = vllm(serve, "tiny", "--say", say(tmp_path / "start", 5 * GIB, 8 * GIB)).ready()
    server.wait_for("plan.checked")
    path = kept_by(server)
    server.terminate()
    assert server.wait_exit() == 0
    kept = json.loads(path.read_text())
    assert set(kept["boot"]["parts"]) == {"weights", "kv", "activation", "graphs", "non_torch"}
    kept["boot"] = {"kv_bytes": 4 * GIB, "command": kept["boot"]["command"]}
    path.write_text(json.dumps(kept))
    server.again().ready()
    assert server.wait_for("plan.checked", since=server.mark)["last_bytes"] == 4 * GIB
    drift = server.wait_for("plan.drift", since=server.mark)
    assert (drift["component"], drift["against"], drift["ratio"]) == ("kv", "last", 1)


def test_a_start_that_was_refused_says_what_would_fit(serve):
    server = vllm(serve, "tiny", "--fail", "kv")
    failed = server.wait_for("worker.start_failed")
    assert failed["cause"] == "config_failed"
    assert "holds 1920 tokens and max_model_len asks for 2048: lower it to 1920" in failed["sentence"]
