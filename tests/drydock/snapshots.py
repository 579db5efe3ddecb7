"""Makes PyTorch memory snapshots of known patterns: run under the dry dock (or on a real GPU).

    python snapshots.py FOLDER [TITLE=]PATTERN[@SETTINGS] ...      SETTINGS: PYTORCH_CUDA_ALLOC_CONF; `stress:SEED` is one too

Each pattern runs in a process of its own, forked after the import of PyTorch and before its first use of CUDA: the allocator
begins anew each time. FOLDER/TITLE.pickle is the snapshot, FOLDER/TITLE.json what memory_stats() said just before it, which does
not come from the pickle, beside sums over the pickle. FRACTION=0.9 limits the process.
"""
import collections
import gc
import json
import os
import pathlib
import pickle
import random
import sys

import torch

MIB = 1 << 20
DEVICE = "cuda"
KEEP = {}
CACHE = []


def block(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=DEVICE)


def steady_leak():
    for _ in range(60):
        _x = torch.ones(1, 4096, device=DEVICE)
        hidden = torch.empty(256, 1024, device=DEVICE)
        CACHE.append(hidden * 2)


def plateau_cache():
    for _ in range(6):
        for rows in (64, 128, 256, 512, 1024):
            a = torch.empty(rows, 4096, device=DEVICE)
            b = a + 1
            del a, b


def dynamic_shapes_frag():
    rng = random.Random(7)
    live = []
    for _ in range(160):
        base = rng.choice([1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37])
        live.append(block(base * rng.choice([0.25, 0.5, 1, 1.5, 2.25])))
        if len(live) > 24:
            live.pop(rng.randrange(len(live)))
    for index in range(0, len(live), 2):
        live[index] = None
    KEEP["live"] = live


def oom():
    kept = KEEP.setdefault("kept", [])
    try:
        for index in range(10000):
            kept.append(block(100 + 7 * (index % 5)))
    except torch.OutOfMemoryError as error:
        KEEP["message"] = str(error)


def expandable_unmap():
    blocks = [block(50) for _ in range(10)]
    for index in (1, 2, 3, 7):
        blocks[index] = None
    torch.cuda.empty_cache()
    KEEP["blocks"] = blocks


def multi_stream():
    streams = [torch.cuda.Stream() for _ in range(3)]
    KEEP["streams"] = streams
    KEEP["tensors"] = []
    for round_number in range(8):
        for stream in streams:
            with torch.cuda.stream(stream):
                a = block(3)
                b = block(0.5)
                c = torch.empty(1000, device=DEVICE)
                KEEP["tensors"].append(b if round_number % 2 else c)
                a.record_stream(torch.cuda.current_stream(0) if round_number % 3 else streams[0])
                del a, b, c


def pending_free():
    """Needs a device whose events complete late; with a fast device the blocks are simply free."""
    stream = torch.cuda.Stream()
    KEEP["stream"] = stream
    blocks = [block(10) for _ in range(4)]
    KEEP["kept"] = block(2)
    for item in blocks[:3]:
        item.record_stream(stream)
    del blocks[:], item


def perceptron():
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
    KEEP["model"] = model.cuda().eval()
    return KEEP["model"]


def inference_clean():
    model = perceptron()
    with torch.inference_mode():
        for _ in range(12):
            model(torch.randn(32, 512, device=DEVICE)).sum().cpu().tolist()


def stacks_all():
    KEEP["model"] = torch.nn.Linear(256, 256).cuda()
    for _ in range(3):
        CACHE.append(KEEP["model"](torch.randn(8, 256, device=DEVICE)))


def max_split():
    dynamic_shapes_frag()
    KEEP["x"] = [block(200), block(150)]
    KEEP["x"].pop(0)
    KEEP["y"] = block(60)


def roundup():
    for mib in (1.1, 2.3, 5.7, 9.9, 33.3):
        KEEP[mib] = block(mib)


def small_pool():
    KEEP["t"] = [
        torch.empty(random.Random(i).randrange(1, 200000), dtype=torch.uint8, device=DEVICE)
        for i in range(120)
    ]
    for index in range(0, 120, 3):
        KEEP["t"][index] = None


def cuda_graph_pool():
    x = torch.zeros(64, 64, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    model = torch.nn.Linear(64, 64).cuda()
    KEEP.update(x=x, graph=graph, model=model)
    with torch.inference_mode():
        with torch.cuda.graph(graph):
            KEEP["y"] = model(x)
        graph.replay()


def ring_overflow():
    for index in range(500):
        _a = block(1 + index % 3)
        del _a


def empty():
    pass


def two_devices():
    KEEP["a"] = torch.empty(5 * MIB, device="cuda:0")
    KEEP["b"] = [torch.empty(7 * MIB, device="cuda:1") for _ in range(3)]
    KEEP["b"].pop(1)


def user_metadata():
    torch.cuda.memory._set_memory_metadata("req-1")
    KEEP["a"] = block(3)
    torch.cuda.memory._set_memory_metadata("req-2")
    KEEP["b"] = block(5)
    torch.cuda.memory._set_memory_metadata("")


def stress(seed):
    rng = random.Random(seed)
    live = []
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(900):
        if live and rng.random() < 0.485:
            live.pop(rng.randrange(len(live)))
        else:
            size = int(2 ** rng.uniform(4, 27.3))
            try:
                with torch.cuda.stream(streams[rng.choice([0, 0, 0, 0, 1, 2])]):
                    live.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
            except torch.OutOfMemoryError:
                live = live[::2]
        if rng.random() < 0.004:
            torch.cuda.empty_cache()
    KEEP["live"] = live


SAME_PATTERN = {"no_context": steady_leak, "state_ctx": steady_leak, "alloc_ctx": steady_leak}
CONTEXT = {"no_context": None, "state_ctx": "state", "alloc_ctx": "alloc"}
STATS = (
    "allocated_bytes.all", "reserved_bytes.all", "active_bytes.all", "inactive_split_bytes.all",
    "requested_bytes.all", "segment.all", "segment.large_pool", "segment.small_pool", "allocation.all",
    "active.all", "inactive_split.all",
)


def facts(snapshot, stats, context, stacks):
    segments = snapshot["segments"]
    blocks = [b for s in segments for b in s["blocks"]]
    traces = snapshot["device_traces"]
    per_device = {}
    for device, values in stats.items():
        row = {f"{key}.current": values[f"{key}.current"] for key in STATS if f"{key}.current" in values}
        row.update({f"{key}.peak": values[f"{key}.peak"] for key in STATS[:2]})
        row["num_ooms"] = values["num_ooms"]
        row["num_alloc_retries"] = values["num_alloc_retries"]
        per_device[device] = row
    return {
        "torch": torch.__version__,
        "top_keys": sorted(snapshot),
        "context": context,
        "stacks": stacks,
        "stats_from_torch": per_device,
        "snapshot": {
            "segments": len(segments),
            "total_size": sum(s["total_size"] for s in segments),
            "allocated_size": sum(s["allocated_size"] for s in segments),
            "active_size": sum(s["active_size"] for s in segments),
            "requested_size": sum(s["requested_size"] for s in segments),
            "blocks": dict(collections.Counter(b["state"] for b in blocks)),
            "trace_counts": {
                str(device): dict(collections.Counter(e["action"] for e in trace))
                for device, trace in enumerate(traces)
            },
        },
    }


def make(folder, name, title):
    torch.cuda.init()
    if os.environ.get("FRACTION"):
        torch.cuda.set_per_process_memory_fraction(float(os.environ["FRACTION"]))
    context = CONTEXT.get(name, None if name.startswith("stress:") else "all")
    stacks = "all" if name == "stacks_all" else "python"
    entries = 100 if name == "ring_overflow" else 200000
    if name != "no_history":
        torch.cuda.memory._record_memory_history(enabled="all", context=context, stacks=stacks, max_entries=entries)
    if name.startswith("stress:"):
        stress(int(name.split(":")[1]))
    elif name == "no_history":
        steady_leak()
    else:
        SAME_PATTERN.get(name, globals().get(name))()
    gc.collect()
    if name != "pending_free":
        torch.cuda.synchronize()
    stats = {d: torch.cuda.memory_stats(d) for d in range(torch.cuda.device_count())}
    path = folder / f"{title}.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    result = facts(pickle.loads(path.read_bytes()), stats, context, stacks)
    if "message" in KEEP:
        result["oom_message"] = KEEP["message"]
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    for word in sys.argv[2:]:
        words, _, settings = word.partition("@")
        title, _, name = words.rpartition("=")
        title = title or name.replace(":", "")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
            try:
                make(folder, name, title)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(f"{word} failed")


if __name__ == "__main__":
    main()
