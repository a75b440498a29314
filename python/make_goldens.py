#!/usr/bin/env python3
"""Make the checkpoints and golden logits under test/golden with Hugging Face transformers.

Run it through scripts/make-goldens, which brings torch and transformers.
test/golden/README.md describes the files and derives the tolerances.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import numpy_decoder
from check_logits import rel_error
from command_line import ArgumentParser

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTHS = [1, 2, 63, 64, 65, 127, 128, 129, 513]
TINY = ROOT / "test" / "models" / "tiny"
TINY_PROMPT = "This program is free software"
TINY_TOKENS = 64


def base(model_type, architecture, **changes):
    """A config.json in the classic (transformers 4) spelling."""
    config = {
        "architectures": [architecture],
        "bos_token_id": None,
        "eos_token_id": None,
        "hidden_act": "silu",
        "hidden_size": 64,
        "initializer_range": 0.02,
        "intermediate_size": 128,
        "max_position_embeddings": 1024,
        "model_type": model_type,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": 128,
    }
    config.update(changes)
    return {key: config[key] for key in sorted(config) if config[key] != "absent"}


def llama(**changes):
    return base("llama", "LlamaForCausalLM",
                **{"attention_bias": False, "mlp_bias": False, "rope_scaling": None, "rms_norm_eps": 1e-5, **changes})


# name -> (config in the classic spelling, spelling of the committed config.json, bytes of a shard or None)
MODELS = {
    # No head_dim and no num_key_value_heads: both follow from the rest.
    "llama-mha": (llama(num_key_value_heads="absent", intermediate_size=176), "v4", None),
    # Group 3, head_dim no power of two and not hidden / heads, a vocabulary no multiple of 16.
    "llama-gqa3": (llama(hidden_size=96, num_attention_heads=6, head_dim=24, vocab_size=131,
                         intermediate_size=176), "v4", None),
    # Stored in f16, with values that bf16 does not hold. Grouped heads of 40: no whole vectors of either width.
    "llama-f16": (llama(head_dim=40, vocab_size=136, torch_dtype="float16"), "v4", None),
    "llama-mqa": (llama(num_key_value_heads=1, head_dim=32, vocab_size=144), "v5", None),
    # Wavelengths 6.3, 14.3 (kept), 32 (smoothed), 74 and more (divided by 8).
    "llama-rope-llama3": (llama(head_dim=32, rope_theta=500000.0, tie_word_embeddings=True, rope_scaling={
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64, "rope_type": "llama3"}), "v4", None),
    "llama-rope-linear": (llama(head_dim=32, rope_scaling={"factor": 4.0, "rope_type": "linear"}), "v5", None),
    "llama-sharded": (llama(intermediate_size=160), "v5", 80_000),
    "llama-bias": (llama(attention_bias=True, mlp_bias=True, head_dim=40), "v4", None),
    # Group 5 and a hidden size that is a multiple of 16 but not of 32.
    "qwen2": (base("qwen2", "Qwen2ForCausalLM", hidden_size=80, num_attention_heads=5, num_key_value_heads=1,
                   rope_theta=1000000.0, tie_word_embeddings=True, sliding_window=32, max_window_layers=1,
                   use_sliding_window=False, vocab_size=160), "v4", None),
    "qwen3": (base("qwen3", "Qwen3ForCausalLM", head_dim=32, attention_bias=False, rope_theta=1000000.0,
                   tie_word_embeddings=True, sliding_window=None, max_window_layers=2,
                   use_sliding_window=False), "v5", None),
    "mistral": (base("mistral", "MistralForCausalLM", num_attention_heads=8, head_dim=16, rms_norm_eps=1e-5,
                     sliding_window=None, intermediate_size=176), "v4", None),
    "mistral-window": (base("mistral", "MistralForCausalLM", head_dim=32, rms_norm_eps=1e-5, sliding_window=48),
                       "v5", None),
}
ALL_ROWS = {"llama-gqa3": 65}  # every row's logits, for one length


def stored_dtype(name: str):
    return getattr(torch, MODELS[name][0]["torch_dtype"])


def draw(model, name: str) -> dict:
    """Fill `model` (float32) with values that the stored type holds exactly; returns them in it by name."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    state = {}
    for key, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        value = rng.standard_normal(shape)
        if key.endswith("norm.weight"):
            value = 1.0 + 0.25 * value
        elif key.endswith(".bias"):
            value *= 0.25
        else:
            value /= np.sqrt(shape[1])
            if key.endswith("q_proj.weight"):
                value *= 2.0  # sharper attention: a wrong mask or rotation shows
        rounded = torch.from_numpy(value).to(stored_dtype(name))
        state[key] = rounded.contiguous()
        with torch.no_grad():
            parameter.copy_(rounded.to(parameter.dtype))
    return state


@torch.no_grad()
def logits(model, tokens) -> np.ndarray:
    """[len(tokens), vocab], float32 (float64 for a float64 model), of one prompt without a cache."""
    out = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return (out if out.dtype == torch.float64 else out.float()).numpy()


def load(directory: pathlib.Path, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    return model.eval()


def write_json(path: pathlib.Path, value) -> None:
    text = json.dumps(value, indent=2)
    # A list of numbers on one line.
    text = re.sub(r"\[[-+.\deE,\s]*\]", lambda m: " ".join(m.group().split()).replace("[ ", "[").replace(" ]", "]"), text)
    path.write_text(text + "\n")


def versions() -> dict:
    return {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}


def three_digits(values) -> list:
    return [float(f"{v:.3g}") for v in values]


def make_checkpoint(name: str, out: pathlib.Path) -> None:
    config, style, shard_bytes = MODELS[name]
    kind = config["model_type"]
    arguments = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "torch_dtype")}
    hf_config = transformers.AutoConfig.for_model(kind, **json.loads(json.dumps(arguments)))
    hf_config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32).eval()
    state = draw(model, name)
    if style == "v5" or shard_bytes:
        stored = transformers.AutoModelForCausalLM.from_config(hf_config, dtype=stored_dtype(name))
        stored.load_state_dict(state, strict=not config["tie_word_embeddings"])
        stored.save_pretrained(out, max_shard_size=shard_bytes or "1GB")
        (out / "generation_config.json").unlink(missing_ok=True)
    else:
        save_file(state, str(out / "model.safetensors"), metadata={"format": "pt"})
    if style == "v4":
        write_json(out / "config.json", config)
    for path in out.glob("*.safetensors"):
        os.chmod(path, 0o644)
    if shard_bytes:
        assert len(list(out.glob("*.safetensors"))) >= 2, f"{name}: not sharded"
        assert (out / "model.safetensors.index.json").is_file()

    # What was written must load to the very same model.
    written = json.loads((out / "config.json").read_text())
    assert ("rope_parameters" in written) == (style == "v5"), f"{name}: config.json is not in the {style} spelling"
    probe = list(range(1, 100))
    same = np.array_equal(logits(model, probe), logits(load(out, torch.float32), probe))
    assert same, f"{name}: the written checkpoint gives other logits than the model in memory"


def make_model(name: str, out: pathlib.Path) -> None:
    make_checkpoint(name, out)
    config = json.loads((out / "config.json").read_text())
    vocab = config["vocab_size"]
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()) + 1))
    tokens = [int(t) for t in rng.integers(0, vocab, max(LENGTHS))]
    tokens[1] = vocab - 1
    (out / "tokens.json").write_text(json.dumps(tokens) + "\n")

    in_f32, in_bf16, in_f64 = (load(out, d) for d in (torch.float32, torch.bfloat16, torch.float64))
    in_f16 = load(out, torch.float16) if stored_dtype(name) == torch.float16 else None
    weights = numpy_decoder.load_safetensors(out)
    f32, bf16, f16, record = [], [], [], {"f32_vs_hf_f64": [], "f32_vs_witness": [], "f32_vs_exact_angles": []}
    for n in LENGTHS:
        prompt = tokens[:n]
        rows = logits(in_f32, prompt)
        f32.append(rows[-1])
        bf16.append(logits(in_bf16, prompt)[-1])
        if in_f16 is not None:
            f16.append(logits(in_f16, prompt)[-1])
        record["f32_vs_hf_f64"].append(rel_error(rows[-1], logits(in_f64, prompt)[-1]))
        witness = numpy_decoder.forward(config, weights, prompt)
        error = rel_error(rows, witness)
        assert error < 1e-5, f"{name}: transformers and the numpy witness differ by {error:.1e} at {n} tokens"
        record["f32_vs_witness"].append(rel_error(rows[-1], witness[-1]))
        exact = numpy_decoder.forward(config, weights, prompt, angles=np.float64)
        record["f32_vs_exact_angles"].append(rel_error(rows[-1], exact[-1]))
    f32, bf16 = np.stack(f32).astype(np.float32), np.stack(bf16).astype(np.float32)
    np.save(out / "logits_f32.npy", f32)
    np.save(out / "logits_bf16.npy", bf16)
    if f16:
        np.save(out / "logits_f16.npy", np.stack(f16).astype(np.float32))
    if name in ALL_ROWS:
        np.save(out / "logits_f32_allrows.npy", logits(in_f32, tokens[:ALL_ROWS[name]]).astype(np.float32))

    # A golden that a wrong compiler would also match is worth nothing: make the mistakes and look.
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    mistakes = {"queries one position late": {"position_delta": 1}, "no RoPE": {"rope": False}}
    if 1 < kv_heads < heads:
        mistakes["KV heads tiled"] = {"gqa_repeat": False}
    if config["model_type"] == "mistral" and config["sliding_window"]:
        mistakes["window one key wider"] = {"window_delta": 1}
        mistakes["window one key narrower"] = {"window_delta": -1}
    n = 129
    effect = {what: rel_error(numpy_decoder.forward(config, weights, tokens[:n], **how)[-1], f32[LENGTHS.index(n)])
              for what, how in mistakes.items()}
    for what, error in effect.items():
        assert error > 1e-3, f"{name}: '{what}' changes the logits by {error:.1e} only"

    bf16_error = [rel_error(bf16[i], f32[i]) for i in range(len(LENGTHS))]
    int8 = numpy_decoder.forward(config, weights, tokens[:max(LENGTHS)], int8=np.float32)  # causal: every length's rows
    write_json(out / "golden.json", {
        "name": name,
        "config_style": MODELS[name][1],
        "lengths": LENGTHS,
        "versions": versions(),
        "logits_std": three_digits(f32.std(axis=1)),
        "bf16_rel_error": three_digits(bf16_error),
        **({"f16_rel_error": three_digits([rel_error(a, b) for a, b in zip(f16, f32)])} if f16 else {}),
        "int8_rel_error": three_digits([rel_error(int8[n - 1], row) for n, row in zip(LENGTHS, f32)]),
        "f32_rel_error": {k: three_digits(v) for k, v in record.items()},
        "effect_of_mistakes_at_129": {k: float(f"{v:.3g}") for k, v in effect.items()},
    })
    print(f"{name:18} std {f32.std():.2f}  bf16 error {min(bf16_error):.4f}..{max(bf16_error):.4f}  f32 error vs "
          f"HF f64 {max(record['f32_vs_hf_f64']):.1e}, witness {max(record['f32_vs_witness']):.1e}, "
          f"exact angles {max(record['f32_vs_exact_angles']):.1e}  smallest mistake {min(effect.values()):.3f}",
          flush=True)


def make_tiny(out: pathlib.Path) -> None:
    """The trained model's greedy continuation of one prompt; its checkpoint is test/models/tiny."""
    in_f32, in_bf16 = load(TINY, torch.float32), load(TINY, torch.bfloat16)
    prompt = list(TINY_PROMPT.encode())

    def greedy(model):
        tokens, margin = list(prompt), float("inf")
        for _ in range(TINY_TOKENS):
            row = logits(model, tokens)[-1]
            second, first = np.sort(row)[-2:]
            margin = min(margin, float(first - second))
            tokens.append(int(row.argmax()))
        return tokens[len(prompt):], margin

    continuation, margin = greedy(in_f32)
    bf16_continuation, _ = greedy(in_bf16)
    assert bf16_continuation == continuation, \
        f"tiny: bf16 continues differently: {bytes(bf16_continuation)} against {bytes(continuation)}"
    row, bf16_row = logits(in_f32, prompt)[-1], logits(in_bf16, prompt)[-1]
    np.save(out / "logits_f32.npy", row.astype(np.float32))
    np.save(out / "logits_bf16.npy", bf16_row.astype(np.float32))
    (out / "prompt.txt").write_bytes(bytes(prompt))
    (out / "continuation.txt").write_bytes(bytes(continuation))
    write_json(out / "golden.json", {
        "name": "tiny",
        "model": "test/models/tiny",
        "prompt_tokens": prompt,
        "continuation_tokens": continuation,
        "smallest_margin": float(f"{margin:.3g}"),
        "bf16_rel_error": float(f"{rel_error(bf16_row, row):.3g}"),
        "versions": versions(),
    })
    print(f"tiny: margin {margin:.2f}, bf16 error {rel_error(bf16_row, row):.4f}, {bytes(prompt + continuation)}")


def compare(made: pathlib.Path, committed: pathlib.Path) -> list:
    """What in `committed` is not what was just made; checkpoints to the byte, logits to 1e-5 (bf16 and f16: 1e-2)."""
    wrong = []
    names = {p.name for p in made.iterdir()} | ({p.name for p in committed.iterdir()} if committed.is_dir() else set())
    for name in sorted(names):
        a, b = made / name, committed / name
        if not (a.is_file() and b.is_file()):
            wrong.append(f"{committed.name}/{name}: only {'made' if a.is_file() else 'committed'}")
        elif name.endswith(".npy"):
            error = rel_error(np.load(b), np.load(a))
            if error > (1e-2 if "f16" in name else 1e-5):
                wrong.append(f"{committed.name}/{name}: relative difference {error:.1e}")
        elif name != "golden.json" and a.read_bytes() != b.read_bytes():
            wrong.append(f"{committed.name}/{name}: differs")
    return wrong


def main() -> int:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare with what is committed")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "test" / "golden")
    parser.add_argument("names", nargs="*", help=f"of tiny, {', '.join(MODELS)}")
    args = parser.parse_args()
    known = [*MODELS, "tiny"]
    unknown = [n for n in args.names if n not in known]
    if unknown:
        print(f"error: unknown golden '{unknown[0]}', valid: {', '.join(known)}", file=sys.stderr)
        return 2

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wrong = []
    for name in args.names or known:
        with tempfile.TemporaryDirectory() as scratch:
            made = pathlib.Path(scratch)
            (make_tiny if name == "tiny" else lambda out: make_model(name, out))(made)
            target = args.out / name
            if args.check:
                wrong += compare(made, target)
                continue
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for path in made.iterdir():
                shutil.copyfile(path, target / path.name)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
