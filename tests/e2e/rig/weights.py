"""Model folders and GGUF files with true headers and no data: the files are sparse, their sizes right."""

import json
import struct

WIDTH = {"BF16": 2, "F16": 2, "F32": 4}


def tensors(config):
    """Names and shapes of a llama-like model, as transformers names them."""
    h, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim", h // heads)
    yield "model.embed_tokens.weight", [config["vocab_size"], h]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [h]
        yield layer + "post_attention_layernorm.weight", [h]
        yield layer + "self_attn.q_proj.weight", [heads * head, h]
        yield layer + "self_attn.k_proj.weight", [kv * head, h]
        yield layer + "self_attn.v_proj.weight", [kv * head, h]
        yield layer + "self_attn.o_proj.weight", [h, heads * head]
        for part in ("gate", "up"):
            yield layer + f"mlp.{part}_proj.weight", [inner, h]
        yield layer + "mlp.down_proj.weight", [h, inner]
    yield "model.norm.weight", [h]
    yield "lm_head.weight", [config["vocab_size"], h]


def write_safetensors(path, items, dtype="BF16"):
    """One file of (name, shape); returns the bytes of its tensors."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in items:
        size = WIDTH[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return at


def write_model(folder, config, shards=1):
    """config.json, the shards and their index; returns the bytes of all tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    items, total, where = list(tensors(config)), 0, {}
    each = -(-len(items) // shards)
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        part = items[i * each:(i + 1) * each]
        total += write_safetensors(folder / name, part)
        where |= {tensor: name for tensor, _ in part}
    if shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def gguf_key(name, value):
    if isinstance(value, str):
        return _text(name) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        return _text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return _text(name) + struct.pack("<II", 4, value)


def write_gguf(path, keys, items):
    """Keys and (name, dimensions) of f16 tensors; returns the bytes of the tensors."""
    head, at = b"", 0
    for name, shape in items:
        size = 2
        for n in shape:
            size *= n
        head += _text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape)
        head += struct.pack("<IQ", 1, at)
        at += -(-size // 32) * 32
    data = b"GGUF" + struct.pack("<IQQ", 3, len(items), len(keys)) + b"".join(gguf_key(*k) for k in keys.items()) + head
    with open(path, "wb") as f:
        f.write(data)
        f.truncate(-(-len(data) // 32) * 32 + at)
    return at


GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of values, by type
GGUF_STRING, GGUF_ARRAY = 8, 9


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values[0]

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == GGUF_STRING:
            self.string()
        elif kind == GGUF_ARRAY:
            inner, n = self.take("<I"), self.take("<Q")
            if inner == GGUF_STRING:
                for _ in range(n):
                    self.string()
            else:
                self.at += n * GGUF_SIZES[inner]
        else:
            self.at += GGUF_SIZES[kind]


def split_gguf(path, folder, stem, parts=2, align=32):
    """A model in several files, as llama.cpp's gguf-split makes them: keys in the first, tensors in all. Their paths."""
    r = _Reader(path.read_bytes())
    magic, version, tensors, keys = r.take("4s"), r.take("<I"), r.take("<Q"), r.take("<Q")
    assert magic == b"GGUF"
    begin = r.at
    for _ in range(keys):
        r.string()
        r.skip(r.take("<I"))
    metadata, items = r.data[begin:r.at], []
    for _ in range(tensors):
        name, dims = r.string(), r.take("<I")
        shape = [r.take("<Q") for _ in range(dims)]
        items.append((name, shape, r.take("<I"), r.take("<Q")))
    start = -(-r.at // align) * align
    ends = sorted([at for *_, at in items] + [len(r.data) - start])
    out, each = [], -(-tensors // parts)

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    for part in range(parts):
        mine = items[part * each:(part + 1) * each]
        split = (text("split.no") + struct.pack("<IH", 2, part) + text("split.count") + struct.pack("<IH", 2, parts)
                 + text("split.tensors.count") + struct.pack("<Ii", 5, tensors))
        head = struct.pack("<4sIQQ", magic, version, len(mine), 3 + (keys if part == 0 else 0))
        head += (metadata if part == 0 else b"") + split
        body = bytearray()
        for name, shape, kind, at in mine:
            head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, len(body))
            body += r.data[start + at:start + ends[ends.index(at) + 1]]
            body += bytes(-len(body) % align)
        out.append(folder / f"{stem}-{part + 1:05}-of-{parts:05}.gguf")
        out[-1].write_bytes(head + bytes(-len(head) % align) + body)
    return out
