"""The measuring and the comparing half of gpu_check.sh. Needs PyTorch only to measure.

    gpu_check.py measure SNAPSHOTS.PY > facts.json      on whatever card PyTorch sees
    gpu_check.py card|context facts.json                for the dry dock that shall be like it
    gpu_check.py compare gpu.json dock.json

A fact is "section.name": number. Facts that must be equal: allocated bytes, OOM points, the sums of the snapshots.
Reserved bytes and segments must be equal where no library takes a workspace; where one may, the difference is shown and
not judged.
"""

import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
# section -> libraries may take workspaces or choose other kernels there
LOOSE = {"convolution", "linear", "transformer", "attention", "card"}
PATTERNS = ("steady_leak", "plateau_cache", "dynamic_shapes_frag", "inference_clean", "small_pool", "multi_stream",
            "dynamic_shapes_frag@max_split_size_mb:128", "dynamic_shapes_frag@roundup_power2_divisions:4",
            "expandable_unmap@expandable_segments:True", "stress:1", "stress:1@expandable_segments:True",
            "stress:1@max_split_size_mb:64")


def measure_sections():
    """In a process of its own: the first use of the card is part of it."""
    import torch

    facts = {}
    cuda = torch.cuda

    def note(section, **values):
        facts.update({f"{section}.{name}": value for name, value in values.items()})

    def fresh():
        cuda.synchronize()
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()

    def state(section, prefix=""):
        cuda.synchronize()
        figures = {"allocated": cuda.memory_allocated(), "reserved": cuda.memory_reserved(),
                   "peak": cuda.max_memory_allocated(), "segments": len(cuda.memory_snapshot())}
        note(section, **{prefix + name: value for name, value in figures.items()})

    def block(size):
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    torch.empty(1, device="cuda")
    cuda.empty_cache()
    free, total = cuda.mem_get_info()
    reserved = cuda.memory_reserved()
    facts["card.name"] = cuda.get_device_name()
    note("card", total=total, others_and_context=total - free - reserved)
    for size in (1, MIB, MIB + 1, 10 * MIB - 513, 10 * MIB, 10 * MIB + 1, 25 * MIB):
        fresh()
        x = block(size)
        state("sizes", f"{size}.")
        del x
    with torch.inference_mode():
        fresh()
        model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
        model(torch.zeros(8, 1024, device="cuda"))
        state("linear")
        del model
        fresh()
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().eval()
        model(torch.zeros(2, 128, 512, device="cuda"))
        state("transformer")
        del model, layer
        fresh()
        q = torch.zeros(2, 16, 1024, 64, device="cuda", dtype=torch.float16)
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        state("attention")
        del q
        fresh()
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU())
        model = model.cuda().eval()
        model(torch.zeros(4, 3, 224, 224, device="cuda"))
        state("convolution")
        del model
    fresh()
    kept = []
    try:
        while True:
            kept.append(block(512 * MIB))
    except torch.OutOfMemoryError as error:
        text = str(error)
    stats = cuda.memory_stats()
    note("oom", blocks=len(kept), num_ooms=stats["num_ooms"], num_alloc_retries=stats["num_alloc_retries"],
         says_tried="Tried to allocate 512.00 MiB" in text)
    state("oom")
    for i in range(0, len(kept), 2):
        kept[i] = None
    retries = cuda.memory_stats()["num_alloc_retries"]
    kept.append(block(700 * MIB))
    note("fragmented", retries=cuda.memory_stats()["num_alloc_retries"] - retries)
    state("fragmented")
    json.dump(facts, sys.stdout)


def measure(snapshots):
    done = subprocess.run([sys.executable, __file__, "sections"], stdout=subprocess.PIPE, check=True)
    facts = json.loads(done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        words = [f"p{i}={pattern}" for i, pattern in enumerate(PATTERNS)]
        subprocess.run([sys.executable, snapshots, folder, *words], check=True, stderr=subprocess.DEVNULL)
        for i, pattern in enumerate(PATTERNS):
            with open(os.path.join(folder, f"p{i}.json"), encoding="utf-8") as file:
                made = json.load(file)
            sums, stats = made["snapshot"], made["stats_from_torch"]["0"]
            for name in ("segments", "total_size", "allocated_size", "active_size", "requested_size"):
                facts[f"snapshot {pattern}.{name}"] = sums[name]
            for name in ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "num_ooms", "num_alloc_retries"):
                facts[f"snapshot {pattern}.{name}"] = stats[name]
    json.dump(facts, sys.stdout)


def compare(a, b):
    bad = 0
    print(f"{'fact':62s} {'GPU':>16s} {'dry dock':>16s} {'difference':>14s}")
    for name in [*a, *(n for n in b if n not in a)]:
        left, right = a.get(name), b.get(name)
        section, _, figure = name.partition(".")
        judged = section not in LOOSE or figure == "allocated"
        number = all(isinstance(x, (int, float)) for x in (left, right))
        difference = "" if left == right else f"{right - left:+d}" if number else "other"
        mark = "" if left == right else "  DIFFERS" if judged else "  (not judged)"
        bad += bool(left != right and judged)
        print(f"{name:62s} {left!s:>16.16s} {right!s:>16.16s} {difference:>14s}{mark}")
    print(f"{len(a)} facts, {bad} differ that should not")
    return 1 if bad else 0


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    what, *paths = sys.argv[1:]
    if what == "sections":
        measure_sections()
    elif what == "measure":
        measure(*paths)
    elif what == "card":
        facts = read(paths[0])
        print(f"{facts['card.name']}:{facts['card.total']}")
    elif what == "context":
        print(max(0, read(paths[0])["card.others_and_context"]))
    else:
        sys.exit(compare(*map(read, paths)))


main()
