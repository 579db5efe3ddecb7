"""Leak patterns of known size, 400 requests each: what the allocator holds more after each request."""

import torch

REQUESTS = 400
SHAPES = [3, 17, 64, 5, 130, 257, 33, 511, 90, 1024]
model = (
    torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda().eval()
)
KEPT = []


def clean(_):
    with torch.inference_mode():
        return model(torch.randn(1, 512, device="cuda")).cpu().tolist()


def graph_not_kept(_):
    return model(torch.randn(1, 512, device="cuda"))[0, 0].item()


def changing_shapes(i):
    with torch.inference_mode():
        model(torch.randn(SHAPES[i % 10], 512, device="cuda")).cpu()


def kept_result(_):
    with torch.inference_mode():
        KEPT.append(model(torch.randn(1, 512, device="cuda")))


def kept_result_with_graph(_):
    KEPT.append(model(torch.randn(1, 512, device="cuda")))


EXPECTED_KIB = {
    clean: 0.0,
    graph_not_kept: 0.0,
    changing_shapes: 0.0,
    kept_result: 2.0,
    kept_result_with_graph: 12.0,
}

for request, expected in EXPECTED_KIB.items():
    KEPT.clear()
    torch.cuda.empty_cache()
    seen = []
    for i in range(REQUESTS + 1):
        request(i)
        if i % 100 == 0:
            seen.append((torch.cuda.memory_allocated() >> 10, torch.cuda.memory_reserved() >> 10))
    growth = (seen[-1][0] - seen[1][0]) / (REQUESTS - 100)
    print(f"{request.__name__:24s} {growth:5.1f} KiB a request; allocated, reserved KiB each 100: {seen}")
    assert abs(growth - expected) < 0.1
print("leaks ok")
