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
