"""`plimsoll plan` as a person runs it: files with true headers in, exit status and words out."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rig.server import ROOT, clean_environment, paths
from rig.weights import write_gguf, write_model, write_safetensors

DATA = ROOT / "tests/data/plan"
CONFIGS = DATA / "configs"
GOLDEN = DATA / "golden"
MODELS = {"llama-2-13b": 4096, "llama-3.1-8b": 32768, "llama-3.1-70b": 32768, "gemma-3-12b": 32768,
          "qwen3-next-80b-a3b": 32768}
CARDS = ["h100x4", "h200x2", "b200x2"]
SMALL = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
         "torch_dtype": "bfloat16"}


def plan(*words, env=None, cwd=ROOT):
    environment = {**clean_environment(), "HOME": "/nonexistent", **(env or {})}
    return subprocess.run([paths.plimsoll, "plan", *map(str, words)], capture_output=True, text=True, timeout=60,
                          env=environment, cwd=cwd)


def document(*words, status=0, **more):
    done = plan(*words, "--json", **more)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", MODELS)
def test_engine_flags_are_the_golden_ones(model):
    text = ""
    for card in CARDS:
        for engine in ("vllm", "sglang") if card == "h100x4" else ("vllm",):
            done = plan(f"tests/data/plan/configs/{model}", "--gpu", card, "--max-len", MODELS[model], "--expect", "2000+500",
                        "--flags", engine)
            assert done.returncode == 0, done.stderr
            text += f"## {card} {engine}\n{done.stdout}"
            if engine == "vllm":
                assert "--shutdown-timeout 60" in done.stdout
                share = float(done.stdout.split(" --gpu-memory-utilization ")[-1].split()[0])
                assert 0.85 <= share <= 0.90
    golden = GOLDEN / f"{model}.txt"
    if os.environ.get("PL_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "PL_WRITE_GOLDEN=1 writes them anew when the change is meant"


@pytest.mark.asan
def test_weights_are_the_bytes_of_the_headers(tmp_path):
    total = write_model(tmp_path / "one", SMALL)
    d = document(tmp_path / "one", "--gpu", "t4")
    assert d["weights_total_bytes"] == total
    assert d["budget"]["weights"]["source"] == "header"
    assert d["request_bytes"] == 4 * 2 * 2 * 32 * 2 * 2048
    sharded = write_model(tmp_path / "many", SMALL, shards=5)
    assert document(tmp_path / "many", "--gpu", "t4")["weights_total_bytes"] == sharded == total
    assert document(tmp_path / "many/config.json", "--gpu", "t4")["weights_total_bytes"] == total
    # without files the configuration says the same, to the byte
    (tmp_path / "none").mkdir()
    shutil.copy(tmp_path / "one/config.json", tmp_path / "none")
    bare = document(tmp_path / "none", "--gpu", "t4")
    assert bare["weights_total_bytes"] == total and bare["budget"]["weights"]["source"] == "formula"


def test_a_70b_model_is_read_by_its_headers_alone(tmp_path):
    config = json.loads((CONFIGS / "llama-3.1-70b/config.json").read_text())
    total = write_model(tmp_path / "m", config, shards=30)
    assert total == 141107412992  # as the public index of the model says
    d = document(tmp_path / "m", "--gpu", "h100x4", "--max-len", 32768)
    assert d["weights_total_bytes"] == total and d["fits"]


@pytest.mark.asan
def test_damaged_files_are_refused_with_place_and_remedy(tmp_path):
    write_model(tmp_path, SMALL, shards=3)
    victim = tmp_path / "model-00002-of-00003.safetensors"
    size = victim.stat().st_size
    os.truncate(victim, size - 1)
    done = plan(tmp_path, "--gpu", "t4")
    assert done.returncode == 3 and "cut off" in done.stderr and "00002" in done.stderr
    os.truncate(victim, 5)
    assert plan(tmp_path, "--gpu", "t4").returncode == 3
    victim.unlink()
    done = plan(tmp_path, "--gpu", "t4")
    assert done.returncode == 3 and "named in the index and is not there" in done.stderr
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4,\n "hidden_size": oops}')
    done = plan(tmp_path, "--gpu", "t4")
    assert done.returncode == 3 and "config.json: 2:" in done.stderr
    (tmp_path / "config.json").write_text('{"model_type":"x\\u001b[31m","num_hidden_layers":4,"hidden_size":256,"num_attention_heads":8}')
    done = plan(tmp_path / "config.json", "--gpu", "t4")
    assert "\x1b" not in done.stdout + done.stderr
    done = plan(tmp_path, "--gpu", "t4", "--json")
    assert json.loads(done.stderr)["error"]["code"] == "config"


def test_float32_is_loaded_in_16_bit_and_draft_layers_are_not_loaded(tmp_path):
    items = [(f"model.layers.{i}.mlp.up_proj.weight", [512, 256]) for i in range(5)]
    (tmp_path / "config.json").write_text(json.dumps({**SMALL, "torch_dtype": "float32", "num_nextn_predict_layers": 1}))
    total = write_safetensors(tmp_path / "model.safetensors", items, dtype="F32")
    d = document(tmp_path, "--gpu", "t4")
    assert d["weights_total_bytes"] == total
    assert d["budget"]["weights"]["bytes"] == total * 4 // 5 // 2
    assert document(tmp_path, "--gpu", "t4", "--engine", "torch")["budget"]["weights"]["bytes"] == total * 4 // 5


def test_pickled_weights_count_by_their_size(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    for i in (1, 2):
        with open(tmp_path / f"pytorch_model-{i:05}-of-00002.bin", "wb") as f:
            f.truncate(3 << 20)
    d = document(tmp_path, "--gpu", "t4")
    assert d["weights_total_bytes"] == 6 << 20 and d["budget"]["weights"]["source"] == "file sizes"


@pytest.mark.asan
def test_gguf_whole_and_split(tmp_path):
    keys = {"general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 4096,
            "llama.embedding_length": 256, "llama.feed_forward_length": 512, "llama.attention.head_count": 8,
            "llama.attention.head_count_kv": 2, "tokenizer.ggml.tokens": ["word"] * 300000}
    layers = [(f"blk.{i}.ffn_up.weight", [256, 512]) for i in range(2)]
    total = write_gguf(tmp_path / "m.gguf", keys, [("token_embd.weight", [256, 1000]), *layers])
    d = document(tmp_path / "m.gguf", "--gpu", "t4")
    assert d["engine"] == "llama.cpp" and d["weights_total_bytes"] == total
    assert d["token_bytes"] == 2 * 2 * 2 * 32 * 2
    # llama.cpp itself cannot be asked: this is no whole model
    assert d["measured"]["why_not"] and "no dry run" in plan(tmp_path / "m.gguf", "--gpu", "t4").stdout
    assert document(tmp_path, "--gpu", "t4")["weights_total_bytes"] == total
    write_gguf(tmp_path / "s-00001-of-00002.gguf", keys, layers[:1])
    write_gguf(tmp_path / "s-00002-of-00002.gguf", {"split.no": 1}, layers[1:])
    assert document(tmp_path / "s-00001-of-00002.gguf", "--gpu", "t4")["weights_total_bytes"] == 2 * 2 * 256 * 512
    done = plan(tmp_path, "--gpu", "t4")
    assert done.returncode == 2 and "2 GGUF models" in done.stderr
    os.truncate(tmp_path / "m.gguf", 1 << 20)
    done = plan(tmp_path / "m.gguf", "--gpu", "t4")
    assert done.returncode == 3 and "GGUF, byte" in done.stderr
    flags = plan(tmp_path / "s-00001-of-00002.gguf", "--gpu", "t4", "--flags", "llama.cpp", "--kv", "q8_0").stdout
    assert "-ctk q8_0" in flags and "-cram 0" in flags and "--fit off" in flags


def test_names_of_hub_and_store(tmp_path):
    done = plan("org/model", "--gpu", "t4")
    assert done.returncode == 2 and "nothing is downloaded" in done.stderr and "hf download org/model" in done.stderr
    hub = tmp_path / "hub/models--org--model"
    total = write_model(hub / "snapshots/abc", SMALL)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("abc")
    assert document("org/model", "--gpu", "t4", env={"HF_HUB_CACHE": str(tmp_path / "hub")})["weights_total_bytes"] == total
    store = tmp_path / "store"
    write_model(store / "models/mine/v1", SMALL)
    (store / "models/mine/latest").write_text("v1")
    bento = store / "bentos/service/b2"
    bento.mkdir(parents=True)
    (bento / "bento.yaml").write_text("service: service:S\nname: service\nmodels:\n- tag: mine:v1\n  module: ''\ndocker: {}\n")
    for name in ("mine:v1", "mine", "mine:latest", "service:b2", bento):
        assert document(name, "--gpu", "t4", env={"BENTOML_HOME": str(store)})["weights_total_bytes"] == total, name
    done = plan("mine:v9", "--gpu", "t4", env={"BENTOML_HOME": str(store)})
    assert done.returncode == 2 and "bentoml models list" in done.stderr


def test_exit_status_says_which_kind_of_no():
    small, large = CONFIGS / "llama-3.1-8b", CONFIGS / "llama-3.1-70b"
    assert plan(small, "--gpu", "h100").returncode == 0
    assert plan(large, "--gpu", "l4").returncode == 1
    done = plan(large, "--gpu", "l4", "--flags", "vllm")
    assert done.returncode == 1 and done.stdout == "" and "does not fit" in done.stderr
    for words in (["--gpu", "t5"], ["--gpu", "x:24GB"], ["--max-len", "many"], ["--kv", "fp3"], ["--tp", "0"],
                  ["--utilization", "1.5"], ["--expect", "12"], ["--engine", "triton"], ["--flags", "torch"],
                  ["--max-len", "1000000"], ["--gpu", "h100", "--total-gib", "3"], ["--nonsense"]):
        gpu = [] if "--gpu" in words else ["--gpu", "h100"]
        done = plan(small, *gpu, *words)
        assert done.returncode == 2 and done.stderr.startswith("plimsoll: "), words
    assert plan("/nonexistent/model", "--gpu", "h100").returncode == 5
    assert plan(ROOT / "README.md", "--gpu", "h100").returncode == 2
    assert plan(small, "--total-gib", "79.2", "--json").returncode == 0


def test_a_cap_is_not_taken_for_what_fits():
    done = plan(CONFIGS / "llama-2-13b", "--gpu", "card:40GiB", "--concurrency", 32, "--expect", "3596+500", "--utilization", "95%")
    assert done.returncode == 1
    assert "32 is a cap, not what fits: so many requests of 4096 tokens would need 100.000 GiB of KV" in done.stdout
    assert "the engine would preempt" in done.stdout and "Utilization 0.95 leaves no guard" in done.stdout


def test_an_encoder_is_bounded_by_no_cache(tmp_path):
    config = {"model_type": "bert", "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768,
              "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = plan(tmp_path, "--gpu", "t4")
    assert done.returncode == 0 and "no cache bounds the requests" in done.stdout
    d = document(tmp_path, "--gpu", "t4")
    assert "capacity_expected" not in d and d["capacity"] == [] and d["changes"] == []
    assert "max_concurrency" not in plan(tmp_path, "--gpu", "t4", "--yaml").stdout


def test_no_card_at_hand_cannot_be_judged():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a card")
    done = plan(CONFIGS / "llama-3.1-8b")
    assert done.returncode == 4 and "--gpu h100" in done.stderr


def test_the_card_at_hand_is_asked(tmp_path):
    """A library with NVML's six calls, as no card does on cue: two cards, one third taken by others."""
    source = tmp_path / "nvml.c"
    source.write_text("""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(unsigned long)(i + 1); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { (void)d; strncpy(s, "NVIDIA L4", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) {
    m[0] = 23034ull << 20; m[2] = d == (void *)2 ? 5000ull << 20 : 0; m[1] = m[0] - m[2]; return 0; }
""")
    compiler = shutil.which("cc") or shutil.which("gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    d = document(CONFIGS / "llama-3.1-8b", "--max-len", 8192, "--tp", 2, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert d["gpu"] == "l4" and d["cards"] == 2 and d["total_bytes"] == 22478 << 20
    assert d["budget"]["foreign"]["bytes"] == 5000 << 20
    share = next(f["value"] for f in d["flags"] if f["flag"] == "--gpu-memory-utilization")
    assert share == "0.627"  # 0.85 less the 22.3 % that others hold: vLLM refuses to start with more than is free


def test_yaml_uses_keys_that_exist(tmp_path):
    schema = json.loads(subprocess.run([paths.plimsoll, "config", "schema"], capture_output=True, text=True, check=True).stdout)
    known = json.dumps(schema)
    keys = {"general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 4096,
            "llama.embedding_length": 256, "llama.attention.head_count": 8}
    gguf = tmp_path / "m.gguf"
    write_gguf(gguf, keys, [("token_embd.weight", [256, 1000])])
    done = plan(CONFIGS / "llama-3.1-8b", "--gpu", "h100", "--flags", "llama.cpp")
    assert done.returncode == 2 and "is no GGUF" in done.stderr
    for model, more in (("llama-3.1-8b", ["--expect", "2000+500"]), ("gemma-3-12b", ["--engine", "sglang"]),
                        (gguf, ["--kv", "q8_0"]), ("llama-2-13b", ["--engine", "torch"])):
        done = plan(CONFIGS / model, "--gpu", "h100", "--max-len", 4096, "--yaml", "--k8s", *more)
        assert done.returncode == 0, done.stderr
        service = done.stdout.split("\n# provisional")[0].splitlines()[2:]
        for line in service:
            if line.startswith("    ") and not line.startswith("      "):
                assert f'"{line.split(":")[0].strip()}"' in known, line
        assert "nvidia.com/gpu: 1" in done.stdout and "memory: " in done.stdout


def test_json_and_text_say_the_same():
    words = [CONFIGS / "llama-2-13b", "--gpu", "card:40GiB", "--expect", "600+200:80%,2640+1000:20%", "--strategies"]
    d = document(*words)
    text = plan(*words).stdout
    for row in d["strategies"]:
        line = next(line for line in text.splitlines() if line.startswith(f"  {row['name']}  "))
        assert f" {row['concurrency']} " in line
    assert [s["concurrency"] for s in d["strategies"]] == [3, 3, 9, 18, 20, 26]
    assert d["kind"] == "plan" and d["v"] == 1 and d["fits"] is True
    assert sum(t["bytes"] for t in d["budget"].values()) == d["total_bytes"]


def test_one_safetensors_file_needs_a_configuration(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", [("a", [4])])
    done = plan(tmp_path / "x.safetensors", "--gpu", "t4")
    assert done.returncode == 3 and "config.json" in done.stderr
