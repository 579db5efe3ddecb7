"""Does a 13B Llama fit a 40 GB card, and how many sequences of 4,096 tokens beside it? Weights and KV cache only.

    plimsoll drydock --gpu a100-40 -- python examples/drydock/llama13b.py

Needs PyTorch (any CUDA build) and no GPU. Status 0: what PyTorch's allocator says is within 1 % of the arithmetic.
"""

import sys

import torch

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY, TOKENS = 40, 5120, 40, 13824, 32000, 4096
GIB = 2.0**30
HALF = 2  # bytes of a float16

SQUARE = (HIDDEN, HIDDEN)
LAYER = {"q": SQUARE, "k": SQUARE, "v": SQUARE, "o": SQUARE, "gate": (INNER, HIDDEN), "up": (INNER, HIDDEN),
         "down": (HIDDEN, INNER), "norm_in": (HIDDEN,), "norm_out": (HIDDEN,)}
TOP = {"embedding": (VOCABULARY, HIDDEN), "head": (VOCABULARY, HIDDEN), "norm": (HIDDEN,)}


def make(shapes):
    return {name: torch.empty(shape, dtype=torch.float16, device="cuda") for name, shape in shapes.items()}


def elements(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes.values())


def sequence():
    """Keys and values of one sequence, a pair for each layer."""
    shape = (2, HEADS, TOKENS, HIDDEN // HEADS)
    return [torch.empty(shape, dtype=torch.float16, device="cuda") for _ in range(LAYERS)]


def near(name, measured, computed):
    print(f"{name}: {measured / GIB:.3f} GiB, computed {computed / GIB:.3f} GiB")
    return abs(measured - computed) <= computed / 100


def main():
    allocated = torch.cuda.memory_allocated
    model = [make(TOP)] + [make(LAYER) for _ in range(LAYERS)]
    weights = allocated()
    good = near("weights", weights, HALF * (elements(TOP) + LAYERS * elements(LAYER)))
    kept = []
    try:
        while True:
            kept.append(sequence())
            if len(kept) == 1:
                computed = HALF * 2 * LAYERS * HIDDEN * TOKENS
                good &= near("KV of one sequence of 4,096 tokens", allocated() - weights, computed)
    except torch.OutOfMemoryError as error:
        print(f"{len(kept)} sequences kept, the next one is refused: {str(error).split('. ')[0]}")
    free, total = torch.cuda.mem_get_info()
    used = f"{(total - free) / GIB:.2f} of {total / GIB:.2f} GiB used"
    print(f"device: {used}, {len(model) - 1} layers, {torch.cuda.get_device_name()}")
    return 0 if good else 1


sys.exit(main())
