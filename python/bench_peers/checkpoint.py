"""Writes the measured model, once: a Hugging Face checkpoint and a GGUF file of the same bf16 weights, and of these in 8 bits.

The weights are normal with a deviation of 1 / sqrt(fan-in), the norms' gains near 1, so that activations neither vanish
nor grow and the engines' logits can be compared. Runs in the harness's environment (numpy, ml_dtypes, safetensors, gguf).
"""
import json
import zlib

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file


def _tensor(name, shape, scale, mean=0.0):
    """bf16 normal values, deterministic in the tensor's name."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    values = generator.standard_normal(shape, dtype=np.float32)
    values *= np.float32(scale)
    if mean:
        values += np.float32(mean)
    return values.astype(ml_dtypes.bfloat16)


def tensors(shape):
    """Yields (Hugging Face name, GGUF name, bf16 array [out, in])."""
    q_width, kv_width = shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", "token_embd.weight", _tensor("embed", (shape.vocab, shape.hidden), 0.02)
    for layer in range(shape.layers):
        for name, gguf_name, rows, columns in [
            ("self_attn.q_proj", "attn_q", q_width, shape.hidden),
            ("self_attn.k_proj", "attn_k", kv_width, shape.hidden),
            ("self_attn.v_proj", "attn_v", kv_width, shape.hidden),
            ("self_attn.o_proj", "attn_output", shape.hidden, q_width),
            ("mlp.gate_proj", "ffn_gate", shape.intermediate, shape.hidden),
            ("mlp.up_proj", "ffn_up", shape.intermediate, shape.hidden),
            ("mlp.down_proj", "ffn_down", shape.hidden, shape.intermediate),
        ]:
            yield (f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{gguf_name}.weight",
                   _tensor(f"{layer}.{name}", (rows, columns), columns ** -0.5))
        for name, gguf_name in [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")]:
            yield (f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{gguf_name}.weight",
                   _tensor(f"{layer}.{name}", (shape.hidden,), 0.1, 1.0))
    yield "model.norm.weight", "output_norm.weight", _tensor("norm", (shape.hidden,), 0.1, 1.0)


def interleave_rope_rows(weight, heads):
    """Rows of a q or k projection in GGUF's order: the two halves of each head's rotary pairs become neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(shape, hf_directory, gguf_path, report=lambda text: None):
    """Writes hf_directory/{config.json, model.safetensors} and gguf_path, unless both are complete already.

    A file gets its name only when it is whole."""
    if (hf_directory / "model.safetensors").is_file() and gguf_path.is_file():
        return
    report(f"generating {shape.name}: {shape.weight_bytes() / 2**30:.1f} GiB of bf16 weights")
    writer = gguf_writer(shape, gguf_path, gguf.LlamaFileType.MOSTLY_BF16)
    loaded = {}
    for name, gguf_name, array in tensors(shape):
        loaded[name] = array
        if array.ndim == 1:
            writer.add_tensor(gguf_name, array.astype(np.float32))
            continue
        array = in_gguf_order(shape, gguf_name, array)
        writer.add_tensor(gguf_name, np.ascontiguousarray(array).view(np.uint8),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)
    finish(writer, gguf_path)
    save_hf(hf_directory, shape.hf_config(), loaded)


def write_int8(shape, hf_directory, gguf_path, report=lambda text: None):
    """The same model in 8 bits, in two formats, unless both are complete already.

    hf_directory: as compressed-tensors has it, for vLLM: the layers' projections as integers with a scale for each output
    channel, activations to be quantized row by row. gguf_path: Q8_0, integers with a scale for each 32 neighbours in a row."""
    if (hf_directory / "model.safetensors").is_file() and gguf_path.is_file():
        return
    report(f"generating {shape.name} in 8 bits")
    writer = gguf_writer(shape, gguf_path, gguf.LlamaFileType.MOSTLY_Q8_0)
    loaded = {}
    for name, gguf_name, array in tensors(shape):
        if array.ndim == 1:
            loaded[name] = array
            writer.add_tensor(gguf_name, array.astype(np.float32))
            continue
        if ".layers." in name:
            loaded[name], loaded[name + "_scale"] = quantized_rows(array.astype(np.float32))
        else:
            loaded[name] = array
        kind = gguf.GGMLQuantizationType.Q8_0
        array = in_gguf_order(shape, gguf_name, array).astype(np.float32)
        writer.add_tensor(gguf_name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    finish(writer, gguf_path)
    save_hf(hf_directory, dict(shape.hf_config(), quantization_config=COMPRESSED_TENSORS), loaded)


COMPRESSED_TENSORS = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
        "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}}}}


def quantized_rows(weight):
    """Integers from -127 to 127 of an f32 matrix, and the scale of each row, f32 [rows, 1]."""
    scale = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)
    return np.rint(weight / scale).astype(np.int8), scale


def gguf_writer(shape, path, file_type):
    """With all but the tensors; the file has another name until `finish`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path.with_suffix(".partial"), "llama")
    writer.add_name("bench-peers")
    writer.add_file_type(file_type)
    writer.add_context_length(shape.max_positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.q_heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_vocab_size(shape.vocab)
    # The engines get token ids; without a vocabulary llama.cpp takes its size from the key above.
    writer.add_tokenizer_model("no_vocab")
    return writer


def in_gguf_order(shape, gguf_name, array):
    if ".attn_q." in gguf_name:
        return interleave_rope_rows(array, shape.q_heads)
    if ".attn_k." in gguf_name:
        return interleave_rope_rows(array, shape.kv_heads)
    return array


def finish(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".partial").rename(path)


def save_hf(directory, config, loaded):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    save_file(loaded, directory / "partial", metadata={"format": "pt"})
    (directory / "partial").rename(directory / "model.safetensors")
