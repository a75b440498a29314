"""Meta's own tensor names and row order: the same model, so the same logits.

Hugging Face's conversion permutes the rows of W_q and W_k within each head, from pairs of neighbours (2i, 2i + 1) to pairs
(i, i + head_dim / 2). The golden is put back into Meta's order here, and must still give the golden's logits. Left in
Hugging Face's order under Meta's names it must not: then the names would not matter and the test would show nothing.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "test" / "python"))
import safetensors_file  # noqa: E402
from check_logits import rel_error  # noqa: E402

GOLDEN = ROOT / "test" / "golden" / "llama-gqa3"
TRANSLATE = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")) / "prefill-translate"
LENGTH = 65
NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "tok_embeddings",
    "lm_head": "output",
    "model.": "",
}


def meta_name(name):
    for old, new in NAMES.items():
        name = name.replace(old, new)
    return name


def meta_order(weight, head_dim):
    """Row h * d + j * d/2 + i of Hugging Face is row h * d + 2i + j of Meta."""
    rows, columns = weight.shape
    return weight.reshape(rows // head_dim, 2, head_dim // 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


class MetaNames(unittest.TestCase):
    def last_row(self, directory):
        model, out = directory / "model.mlir", directory / "logits.npy"
        tokens = json.loads((GOLDEN / "tokens.json").read_text())[:LENGTH]
        for arguments in (
            ("--import-hf", directory, "-o", model),
            ("--interpret", model, "--weights", directory, "--tokens", ",".join(map(str, tokens)), "--logits-out", out),
        ):
            done = subprocess.run([str(TRANSLATE), *map(str, arguments)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        return np.load(out)

    def error_with(self, reorder):
        """The error of the last row's logits under Meta's names."""
        config = json.loads((GOLDEN / "config.json").read_text())
        tensors = {}
        for name, (dtype, array) in safetensors_file.read(GOLDEN / "model.safetensors").items():
            if reorder and (".q_proj." in name or ".k_proj." in name):
                array = meta_order(array, config["head_dim"])
            tensors[meta_name(name)] = (dtype, array)
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            (directory / "config.json").write_text(json.dumps(config))
            safetensors_file.write(directory / "model.safetensors", tensors)
            expected = np.load(GOLDEN / "logits_f32_allrows.npy")[LENGTH - 1]
            return rel_error(self.last_row(directory), expected)

    def test_same_logits(self):
        self.assertLess(self.error_with(reorder=True), 1e-5)

    def test_order_matters(self):
        self.assertGreater(self.error_with(reorder=False), 1e-3)


if __name__ == "__main__":
    unittest.main()
