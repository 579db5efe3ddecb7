"""Many features of PyTorch, one section each: python features.py [SECTION ...]

Numbers that must come out are asserted; the rest is printed. Exit status 1 when a section fails.
"""

import gc
import sys
import time
import traceback

import torch

MIB = 1 << 20
GIB = 1 << 30
SECTIONS = []


def section(function):
    SECTIONS.append(function)
    return function


def allocated():
    return torch.cuda.memory_allocated() / MIB


def show(tag):
    reserved = torch.cuda.memory_reserved() / MIB
    peak = torch.cuda.max_memory_allocated() / MIB
    free = torch.cuda.mem_get_info()[0] / MIB
    print(
        f"   {tag}: allocated {allocated():.2f} reserved {reserved:.2f} peak {peak:.2f} free {free:.0f} MiB"
    )


def block(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


@section
def cache():
    x = block(100)
    assert allocated() == 100
    del x
    assert allocated() == 0 and torch.cuda.memory_reserved() == 100 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@section
def oom():
    kept = []
    before = torch.cuda.memory_stats()["num_ooms"]
    try:
        while True:
            kept.append(block(3072))
    except torch.OutOfMemoryError as error:
        print("  ", str(error)[:240])
        assert "this process has 39.00 GiB memory in use" in str(error)
    assert len(kept) == 13
    stats = torch.cuda.memory_stats()
    assert stats["num_ooms"] == before + 1
    print("   retries", stats["num_alloc_retries"])


@section
def fragmentation():
    kept = [block(1500) for _ in range(26)]
    kept = kept[::2]
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    kept.append(block(1600))
    assert torch.cuda.memory_stats()["num_alloc_retries"] == retries + 1
    show("1.6 GiB after every second block was freed")


@section
def limit():
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        block(10 * 1024)
        raise AssertionError("the limit had no effect")
    except torch.OutOfMemoryError as error:
        assert "GiB allowed" in str(error)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@section
def linear():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
    model = model.cuda().eval()
    x = torch.randn(8, 1024, device="cuda")
    with torch.inference_mode():
        y = model(x)
    show("inference")
    kept = [model(x) for _ in range(10)]
    show("10 results with their graphs kept")
    kept[0].sum().backward()
    assert tuple(y.shape) == (8, 1024) and model[0].weight.grad is not None


@section
def half():
    layer = torch.nn.Linear(4096, 4096, dtype=torch.float16, device="cuda")
    with torch.inference_mode():
        layer(torch.zeros(4, 16, 4096, dtype=torch.float16, device="cuda"))
    a = torch.randn(4, 128, 64, device="cuda", dtype=torch.bfloat16)
    torch.bmm(a, a.transpose(1, 2))
    torch.matmul(a, a.transpose(1, 2))


@section
def embedding_and_sampling():
    table = torch.nn.Embedding(1000, 64).cuda()
    ids = torch.randint(0, 1000, (4, 16), device="cuda")
    logits = torch.nn.Linear(64, 1000).cuda()(table(ids))
    p = logits.softmax(-1)
    assert p.topk(5)[1].shape == (4, 16, 5)
    torch.multinomial(p[0], 1)
    p.sort(-1)
    p.cumsum(-1)
    (logits > 0).nonzero()
    print(
        "   any",
        (logits > 0).any().item(),
        "nan",
        logits.isnan().any().item(),
        "mask",
        tuple(p[p > 0.5].shape),
    )


@section
def small_ops():
    a = torch.randn(64, 64, device="cuda")
    a.t().contiguous()
    torch.cat([a, a])
    torch.where(a > 0, a, -a)
    a.sum(0)
    a.std()
    a.unique()
    str(a)
    torch.arange(10, device="cuda").tolist()


@section
def transformer():
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4).cuda().eval()
    x = torch.randn(2, 128, 512, device="cuda")
    with torch.inference_mode():
        model(x)
    show("inference")
    model.train()
    model(x).mean().backward()
    show("backward")


@section
def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 16, 1024, 64, device="cuda", dtype=torch.float16)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION):
        torch.cuda.reset_peak_memory_stats()
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        print(f"   {backend.name} peak {torch.cuda.max_memory_allocated() / MIB:.2f} MiB")


@section
def convolution():
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, 1, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).cuda()
    model.eval()
    with torch.inference_mode():
        assert model(torch.randn(4, 3, 224, 224, device="cuda")).shape == (4, 10)
    show("inference")
    model.train()
    torch.cuda.reset_peak_memory_stats()
    model(torch.randn(4, 3, 224, 224, device="cuda")).sum().backward()
    show("training step")
    assert torch.cuda.max_memory_allocated() < 200 * MIB, "garbage in a workspace size"


@section
def lstm_no_cudnn():
    with torch.backends.cudnn.flags(enabled=False):
        assert torch.nn.LSTM(64, 128, 2).cuda()(torch.randn(10, 2, 64, device="cuda"))[0].shape == (
            10,
            2,
            128,
        )


@section
def recurrent():
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        shapes = [{}, {"bidirectional": True}, {"bias": False}, {"dtype": torch.float16}]
        for more in shapes + ([{"proj_size": 32}] if kind is torch.nn.LSTM else []):
            model = kind(64, 128, 2, **more).cuda()
            x = torch.randn(10, 2, 64, device="cuda", dtype=more.get("dtype", torch.float32))
            y = model(x)[0]
            y.float().sum().backward()
            wide = more.get("proj_size", 128) * (2 if more.get("bidirectional") else 1)
            assert tuple(y.shape) == (10, 2, wide), (kind, more, y.shape)
            parameters = sum(p.numel() for p in model.parameters())
            assert sum(p.grad.numel() for p in model.parameters()) == parameters


@section
def linear_algebra():
    a = torch.randn(8, 8, device="cuda")
    torch.linalg.qr(a)
    torch.linalg.inv(a)
    torch.linalg.svd(a)
    torch.fft.fft(a)


@section
def optimizer():
    layer = torch.nn.Linear(1000, 1000).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(4, 1000, device="cuda")).sum().backward()
    before = allocated()
    optimizer.step()
    assert allocated() > before + 7, "two moments of 1000 x 1000 floats"


@section
def autocast():
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.nn.Linear(64, 64).cuda()(torch.randn(4, 64, device="cuda")).dtype == torch.float16


@section
def streams():
    side = torch.cuda.Stream()
    a = block(30)
    with torch.cuda.stream(side):
        block(30)
        a.record_stream(side)
    side.synchronize()
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0


@section
def pinned():
    a = torch.empty(10 * MIB, dtype=torch.uint8, pin_memory=True)
    assert a.is_pinned() and not torch.empty(3).is_pinned()
    assert a.cuda(non_blocking=True).is_cuda


@section
def graphs():
    x = torch.randn(64, 64, device="cuda")
    layer = torch.nn.Linear(64, 64).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        with torch.cuda.stream(torch.cuda.Stream()):
            layer(x)
        with torch.cuda.graph(graph):
            y = layer(x)
        graph.replay()
    pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
    assert len(pools) > 1 and y.shape == (64, 64), pools


@section
def summary():
    x = block(50)
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary(abbreviated=True)
    del x


def main():
    wanted = sys.argv[1:]
    bad = []
    for function in SECTIONS:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        start = time.monotonic()
        try:
            function()
            print(f"ok    {name} {time.monotonic() - start:.2f} s", flush=True)
        except Exception as error:
            print(f"FAIL  {name}: {type(error).__name__} {str(error)[:160]}", flush=True)
            traceback.print_exc()
            bad.append(name)
    if bad:
        sys.exit("failed: " + " ".join(bad))
    print("all sections passed")


if __name__ == "__main__":
    main()
