"""A decoder forward pass in plain numpy float64: a witness that shares no code with torch.

It reads the same config.json and safetensors as everybody else, for the models
under test/golden (Llama, Qwen2, Qwen3, Mistral). It is written to be read, not
to be fast. `make_goldens.py` uses it to say how far float32 is from the exact
result, and to check that the goldens notice deliberate mistakes.
"""

import json
import math
import pathlib
import struct

import numpy as np


def load_safetensors(directory: pathlib.Path) -> dict:
    """All tensors of all *.safetensors in `directory`, as float64 arrays by name."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        blob = path.read_bytes()
        (length,) = struct.unpack("<Q", blob[:8])
        header = json.loads(blob[8:8 + length])
        for name, info in header.items():
            if name == "__metadata__":
                continue
            begin, end = info["data_offsets"]
            raw = blob[8 + length + begin:8 + length + end]
            if info["dtype"] == "BF16":
                values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            elif info["dtype"] == "F16":
                values = np.frombuffer(raw, "<f2")
            elif info["dtype"] == "F32":
                values = np.frombuffer(raw, "<f4")
            else:
                raise ValueError(f"{path.name}: {name} has dtype {info['dtype']}")
            tensors[name] = values.astype(np.float64).reshape(info["shape"])
    return tensors


def inverse_frequencies(config: dict, head_dim: int, dtype) -> np.ndarray:
    """RoPE's inverse frequencies, [head_dim / 2], in `dtype` (numpy.float32 or numpy.float64).

    float32 repeats transformers bit for bit (almost: one value in a few hundred
    is off by one ulp): the exponent, the power, its reciprocal and the scaling
    are each rounded to float32, and the power is correctly rounded, which a
    float32 `powf` is not.
    """
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    exponent = np.arange(0, head_dim, 2).astype(dtype) / dtype(head_dim)
    inv_freq = dtype(1.0) / (float(theta) ** exponent.astype(np.float64)).astype(dtype)
    if kind == "default":
        return inv_freq
    factor = dtype(rope["factor"])
    if kind == "linear":
        return inv_freq / factor
    if kind != "llama3":
        raise ValueError(f"rope type '{kind}'")
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    wavelength = dtype(2 * math.pi) / inv_freq
    smooth = (dtype(original) / wavelength - dtype(low)) / dtype(high - low)
    smoothed = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    result = np.where(wavelength > original / low, inv_freq / factor, inv_freq)
    medium = (wavelength >= original / high) & (wavelength <= original / low)
    return np.where(medium, smoothed, result)


def quantize_rows(x: np.ndarray, dtype) -> tuple:
    """Integers of [-127, 127] and scales [rows, 1] of x [rows, channels]: quantize_rows of docs/spec.md.

    `dtype` is that of the arithmetic. It decides only ties, such as half of the
    row's largest value, and what an error as small as the dtype's makes one.
    """
    x = x.astype(dtype)
    largest = np.abs(x).max(-1, keepdims=True)
    none = largest < 2.0 ** -100
    largest = np.where(none, dtype(1), largest)
    integers = np.rint(x * (dtype(127) / largest)).astype(np.float64)
    return np.where(none, 0, integers), np.where(none, 0, (largest / dtype(127)).astype(np.float64))


def forward(config: dict, weights: dict, tokens, *, angles=np.float32, int8=None, cache=None, stored=None,
            window_delta=0, position_delta=None, rope=True, gqa_repeat=True) -> np.ndarray:
    """Logits of every row, [len(tokens), vocab_size] float64.

    `angles` is the dtype in which RoPE's frequencies and angles are computed:
    float32 is what transformers does whatever the model's dtype, float64 is exact.

    `int8` makes the layers' linears products of 8-bit integers, as
    --weights=int8 does; it is the dtype in which numbers are quantized: float32
    as in kernels, float64 as in the reference interpreter.

    `cache` [layers, 2, rows, kv_heads, head_dim] has keys and values that
    attention reads in place of its own, so that a row depends on no other row of
    this program. Its own are appended to the list `stored`, layer by layer.

    The rest are deliberate mistakes: a window wider by `window_delta` keys,
    `position_delta` added to the positions of the queries but not the keys,
    no RoPE, KV heads tiled instead of repeated.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    eps = config["rms_norm_eps"]
    window = config.get("sliding_window") if config["model_type"] == "mistral" else None
    assert config["hidden_act"] == "silu"

    def linear(x, name):
        weight = weights[name + ".weight"]
        if int8:
            x, row_scale = quantize_rows(x, int8)
            weight, column_scale = quantize_rows(weight, int8)
            y = x @ weight.T * (row_scale * column_scale.T)  # the product is exact: integers below 2^53
        else:
            y = x @ weight.T
        return y + weights[name + ".bias"] if name + ".bias" in weights else y

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weights[name + ".weight"]

    inv_freq = inverse_frequencies(config, head_dim, angles)

    def rotate(x, positions):  # x: [rows, heads, head_dim]
        if not rope:
            return x
        angle = positions.astype(angles)[:, None] * inv_freq
        cos, sin = (f(angle.astype(np.float64))[:, None, :] for f in (np.cos, np.sin))
        first, second = x[..., :head_dim // 2], x[..., head_dim // 2:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    rows = len(tokens)
    at = np.arange(rows)
    visible = at[None, :] <= at[:, None]
    if window is not None:
        visible &= at[None, :] > at[:, None] - (window + window_delta)
    group = heads // kv_heads
    kv_of = np.arange(heads) // group if gqa_repeat else np.arange(heads) % kv_heads

    x = weights["model.embed_tokens.weight"][np.asarray(tokens)]
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}."
        y = norm(x, base + "input_layernorm")
        q = linear(y, base + "self_attn.q_proj").reshape(rows, heads, head_dim)
        k = linear(y, base + "self_attn.k_proj").reshape(rows, kv_heads, head_dim)
        v = linear(y, base + "self_attn.v_proj").reshape(rows, kv_heads, head_dim)
        if base + "self_attn.q_norm.weight" in weights:
            q, k = norm(q, base + "self_attn.q_norm"), norm(k, base + "self_attn.k_norm")
        q, k = rotate(q, at + (position_delta or 0)), rotate(k, at)
        if stored is not None:
            stored.append(np.stack([k, v]))
        if cache is not None:
            k, v = cache[layer].astype(np.float64)
        scores = np.einsum("ihd,jhd->hij", q, k[:, kv_of]) / math.sqrt(head_dim)
        scores = np.where(visible, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        o = np.einsum("hij,jhd->ihd", p, v[:, kv_of]).reshape(rows, heads * head_dim)
        x = x + linear(o, base + "self_attn.o_proj")
        y = norm(x, base + "post_attention_layernorm")
        gate = linear(y, base + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, base + "mlp.up_proj"), base + "mlp.down_proj")
    x = norm(x, "model.norm")
    head = "model.embed_tokens" if config.get("tie_word_embeddings") else "lm_head"
    return x @ weights[head + ".weight"].T
