"""Real values for small tensors: `plimsoll drydock --values`.

Device memory of the dry dock is host memory. So an operation whose tensors are all small runs again by PyTorch's CPU
kernels on aliases of the same bytes. Larger operations stay as they are: only their memory counts, and a small tensor
that is computed from a large one holds what happened to be there. Good for control flow on device scalars: stop
flags, `.item()` loops, masks, a tiny generate loop.
"""

import ctypes
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

LIMIT = 65536  # elements
aten = torch.ops.aten
SKIP = {aten.empty.memory_format, aten.empty_strided.default, aten._local_scalar_dense.default, aten.empty_like.default,
        aten.new_empty.default, aten.new_empty_strided.default, aten.set_.source_Storage_storage_offset}
BY_VALUE = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def alias(t):
    """A CPU tensor over the bytes of the device tensor t."""
    size = t.untyped_storage().nbytes()
    if size == 0:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    memory = (ctypes.c_char * size).from_address(t.untyped_storage().data_ptr())
    raw = torch.frombuffer(memory, dtype=torch.uint8)
    return torch.empty(0, dtype=t.dtype).set_(raw.untyped_storage(), t.storage_offset(), t.shape, t.stride())


def tensors(tree):
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def to_cpu(x):
    if isinstance(x, torch.Tensor) and x.is_cuda:
        return alias(x)
    if isinstance(x, torch.device) and x.type == "cuda":
        return torch.device("cpu")
    return x


def to_cuda(x):
    return x.cuda() if isinstance(x, torch.Tensor) else x


def on_cpu(func, args, kwargs):
    kwargs = {k: None if k == "generator" else v for k, v in kwargs.items()}  # a CUDA generator is of no use to the CPU
    return func(*tree_map(to_cpu, args), **tree_map(to_cpu, kwargs))


class SmallValues(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        inputs = tensors((args, kwargs))
        on_device = any(x.is_cuda for x in inputs) or "cuda" in str(kwargs.get("device"))
        if not on_device or func in SKIP or any(x.numel() > LIMIT for x in inputs):
            return func(*args, **kwargs)
        try:
            return run_both(func, args, kwargs, inputs)
        except torch.OutOfMemoryError:
            raise
        except (NotImplementedError, RuntimeError):
            return func(*args, **kwargs)


def run_both(func, args, kwargs, inputs):
    if BY_VALUE & set(func.tags):
        return tree_map(to_cuda, on_cpu(func, args, kwargs))
    out = func(*args, **kwargs)
    outputs = tensors(out)
    mutable = func._schema.is_mutable
    only_views = all(o._is_view() or any(o is i for i in inputs) for o in outputs)
    if any(x.numel() > LIMIT for x in outputs) or (only_views and not mutable):
        return out
    values = tensors(on_cpu(func, args, kwargs))
    if mutable:
        return out  # the CPU run wrote into the aliases already
    for o, value in zip(outputs, values):
        if not o.is_cuda:
            o.copy_(value)
        elif o.shape == value.shape:
            alias(o).copy_(value)
    return out


def start():
    """In this thread, and in every thread that begins from now on."""
    SmallValues().__enter__()
    begin = threading.Thread._bootstrap_inner

    def begin_with_values(thread):
        with SmallValues():
            begin(thread)

    threading.Thread._bootstrap_inner = begin_with_values
