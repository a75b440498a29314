"""Query heads on KV heads in ratios that have no power of two or fill a tile's rows, from checkpoint to logits.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python

Small Llamas with random weights: the CUDA emulator in bf16 against the reference in f64.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
import safetensors_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build/release/bin")).resolve()
HIDDEN, FFN, VOCAB, HEAD_DIM = 64, 96, 64, 16


def write_checkpoint(directory, heads, kv_heads):
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,),
              "lm_head.weight": (VOCAB, HIDDEN)}
    layer = "model.layers.0."
    for name, shape in {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
                        "self_attn.q_proj": (heads * HEAD_DIM, HIDDEN), "self_attn.k_proj": (kv_heads * HEAD_DIM, HIDDEN),
                        "self_attn.v_proj": (kv_heads * HEAD_DIM, HIDDEN), "self_attn.o_proj": (HIDDEN, heads * HEAD_DIM),
                        "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN)}.items():
        shapes[f"{layer}{name}.weight"] = shape
    random = np.random.default_rng(heads)
    values = {name: random.standard_normal(shape) * (0.3 if len(shape) == 2 else 0.1) + (len(shape) == 1)
              for name, shape in shapes.items()}
    safetensors_file.write(directory / "model.safetensors", {
        name: ("BF16", (value.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)) for name, value in values.items()})
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": HEAD_DIM, "num_hidden_layers": 1,
        "vocab_size": VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))


class Groups(unittest.TestCase):
    def tool(self, name, *arguments):
        result = subprocess.run([BIN / name, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_logits_are_the_references(self):
        for heads, kv_heads in ((6, 1), (16, 1), (12, 2), (5, 5)):
            with self.subTest(heads=heads, kv_heads=kv_heads), tempfile.TemporaryDirectory() as scratch:
                scratch = pathlib.Path(scratch)
                write_checkpoint(scratch, heads, kv_heads)
                self.tool("prefill-translate", "--import-hf", scratch, "-o", scratch / "model.mlir")
                self.tool("prefill-opt", scratch / "model.mlir", "--compile", "--target=cuda-emu:sm_80", "-o", scratch / "model.pfm")
                common = ["--weights", scratch, "--tokens", ",".join(str(i * 7 % VOCAB) for i in range(77)), "--all-logits",
                          "--logits-out"]
                self.tool("prefill-run", scratch / "model.pfm", "--weights-cache=off", "--device=cuda-emu:sm_80", *common,
                          scratch / "ours.npy")
                self.tool("prefill-translate", "--interpret", scratch / "model.mlir", *common, scratch / "reference.npy")
                ours, reference = (np.load(scratch / name, allow_pickle=False) for name in ("ours.npy", "reference.npy"))
                error = np.linalg.norm(ours - reference) / np.linalg.norm(reference)
                self.assertLess(error, 0.02)  # bf16
                self.assertGreater(error, 1e-4, "the reference rounds")


if __name__ == "__main__":
    unittest.main()
