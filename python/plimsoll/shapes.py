"""The bucket of an input: what about it may matter for memory, rounded so that there are few of them.

    f32[1,3,256,256]        an array or tensor: dtype and shape
    image[1024,768]         a picture: width and height
    str512 bytes512 file4k  a text, bytes, a file: its length
    list16:str128           a list or tuple: its length, and its largest text or array among the first few

Sizes over 8 are rounded up to a power of two. Numbers and switches tell nothing; a model (pydantic) tells what its
fields do. Names come before the values when there are several.
"""

import os

MOST_VALUES = 4
MOST_ITEMS = 16
DTYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def rounded(n):
    """`n`, or the power of two above it: 512, 4k, 2M."""
    if n > 8:
        n = 1 << (n - 1).bit_length()
    for unit, shift in (("G", 30), ("M", 20), ("k", 10)):
        if n >> shift:
            return f"{n >> shift}{unit}"
    return str(n)


def dtype_of(value):
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]  # torch.float32, float32, dtype('<U3')
    letters = name.rstrip("0123456789")
    short = DTYPES.get(letters, letters) + name[len(letters) :]
    return short if short.isalnum() else type(value).__name__


def array(value, skip=0):
    shape = value.shape
    if not isinstance(shape, tuple):
        return None
    return f"{dtype_of(value)}[{','.join(rounded(int(n)) for n in shape[skip:])}]"


def bucket(value, deep=False):
    """The bucket of one value, or None when it tells nothing."""
    if value is None or isinstance(value, (int, float)):
        return None
    if isinstance(value, str):
        return f"str{rounded(len(value))}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"bytes{rounded(len(value))}"
    kind = type(value)
    if hasattr(kind, "shape"):
        return array(value)
    if isinstance(value, (list, tuple)):
        inside = [b for b in map(bucket, value[:MOST_ITEMS]) if b is not None] if not deep else []
        return f"list{rounded(len(value))}" + (f":{max(inside, key=order)}" if inside else "")
    if isinstance(value, dict):
        return f"dict{rounded(len(value))}"
    if hasattr(kind, "__fspath__"):
        return f"file{rounded(os.stat(value).st_size)}"
    if hasattr(kind, "mode") and isinstance(getattr(value, "size", None), tuple):  # PIL
        return f"image[{','.join(rounded(int(n)) for n in value.size)}]"
    fields = getattr(kind, "model_fields", None)
    if isinstance(fields, dict) and not deep:  # pydantic
        return several([(name, getattr(value, name, None)) for name in fields], deep=True)
    return None


def order(text):
    """So that the largest comes last: 8, 16, 1k."""
    return len(text), text


def several(pairs, deep=False):
    """The buckets of a few values with names; one needs no name."""
    found = []
    for name, value in pairs:
        b = bucket(value, deep)
        if b is not None:
            found.append((name, b))
            if len(found) == MOST_VALUES:
                break
    if len(found) == 1:
        return found[0][1]
    return ",".join(f"{name}={b}" for name, b in found) or None


def of_call(names, args, kwargs):
    """The bucket of a handler's input: `names` are its parameters without self. None when its values tell nothing, or
    are of a kind that cannot be looked at."""
    try:
        return several([*zip(names, args), *kwargs.items()])
    except Exception:
        return None


def of_size(n):
    """The bucket of a request whose values nobody has seen: the length of its body."""
    return f"body{rounded(n)}"


def items_of(args):
    """How many items a batch has: the length of its list or array."""
    for value in args:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            return int(shape[0])
        if isinstance(value, (list, tuple)):
            return len(value)
    return 0


def of_batch(args):
    """The bucket of a batch's items: their number is told apart."""
    try:
        for value in args:
            shape = getattr(value, "shape", None)
            if isinstance(shape, tuple) and shape:
                return array(value, skip=1)
            if isinstance(value, (list, tuple)):
                inside = [b for b in map(bucket, value[:MOST_ITEMS]) if b is not None]
                return max(inside, key=order) if inside else None
    except Exception:
        pass
    return None
