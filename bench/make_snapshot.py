"""Writes a large memory snapshot in the schema of torch 2.15: keys, types, sharing are right, the numbers are random.

    python3 bench/make_snapshot.py OUT.pickle --events 2000000 --frames 80 --stacks 20000

--stacks 0 gives every event a stack of its own. The numbers are no consistent history of an allocator.
"""

import argparse
import os
import pickle
import random

MIB = 1 << 20
START_US = 1764430000000000
ACTIONS = ("alloc", "free_requested", "free_completed")


def some_frames(count):
    return [
        {"name": f"fn_{i}", "filename": f"/opt/app/site-packages/pkg/mod_{i % 300}.py", "line": i % 2000}
        for i in range(count)
    ]


def trace(rng, events, depth, stacks):
    frames = some_frames(4000)
    known = [[rng.choice(frames) for _ in range(depth)] for _ in range(stacks)]
    for index in range(events):
        stack = rng.choice(known) if known else [rng.choice(frames) for _ in range(depth)]
        yield {
            "action": ACTIONS[index % 3],
            "addr": 0x7F2A00000000 + 512 * rng.randrange(1 << 24),
            "size": 512 * rng.randrange(1, 1 << 16),
            "stream": 0,
            "pool_id": (0, 0),
            "user_metadata": "POST /predict b8",
            "compile_context": "N/A",
            "time_us": START_US + index,
            "frames": list(stack),
        }


def segment(index):
    address = 0x7F2A00000000 + index * 20 * MIB
    used = {"address": address, "size": 5 * MIB, "requested_size": 5 * MIB - 7, "state": "active_allocated"}
    rest = {"address": address + 5 * MIB, "size": 15 * MIB, "requested_size": 0, "state": "inactive"}
    for block in (used, rest):
        block["frames"] = []
    return {
        "device": 0, "address": address, "total_size": 20 * MIB, "allocated_size": 5 * MIB, "active_size": 5 * MIB,
        "requested_size": 5 * MIB - 7, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [], "blocks": [used, rest],
    }  # fmt: skip


def snapshot(events, depth, stacks, seed=1):
    return {
        "segments": [segment(i) for i in range(100)],
        "device_traces": [list(trace(random.Random(seed), events, depth, stacks))],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
        },
        "external_annotations": [{"name": "step", "stage": "START", "device": 0, "time_us": START_US}],
        "host_segments": [],
        "host_traces": [],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--frames", type=int, default=80, help="depth of each stack")
    parser.add_argument("--stacks", type=int, default=20_000, help="how many different ones")
    options = parser.parse_args()
    with open(options.out, "wb") as out:
        pickle.dump(snapshot(options.events, options.frames, options.stacks), out, protocol=4)
    print(f"{options.out}: {os.path.getsize(options.out) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
