"""The reference interpreter against Hugging Face transformers: test/golden, every model, every length."""

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
import numpy_decoder  # noqa: E402
from check_logits import rel_error  # noqa: E402

GOLDEN = ROOT / "test" / "golden"
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
MODELS = sorted(path.parent.name for path in GOLDEN.glob("*/config.json"))


class ReferenceGolden(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def run_tool(self, tool, *arguments):
        done = subprocess.run([str(BIN / tool), *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def translate(self, *arguments):
        self.run_tool("prefill-translate", *arguments)

    def import_model(self, name):
        path = pathlib.Path(self.scratch.name) / f"{name}.mlir"
        self.translate("--import-hf", GOLDEN / name, "-o", path)
        return path

    def logits(self, name, model, count, *options):
        """[count, vocab], or [vocab] without --all-logits, of the first `count` tokens of the golden."""
        tokens = json.loads((GOLDEN / name / "tokens.json").read_text())[:count]
        out = pathlib.Path(self.scratch.name) / "logits.npy"
        self.translate("--interpret", model, "--weights", GOLDEN / name, "--tokens", ",".join(map(str, tokens)),
                       "--logits-out", out, *options)
        return np.load(out)

    def check_model(self, name):
        golden = json.loads((GOLDEN / name / "golden.json").read_text())
        expected = np.load(GOLDEN / name / "logits_f32.npy")
        model = self.import_model(name)
        # Attention is causal: row n - 1 of the longest prompt is the last row of the prompt of length n.
        rows = self.logits(name, model, max(golden["lengths"]), "--all-logits")
        for index, length in enumerate(golden["lengths"]):
            with self.subTest(length=length):
                self.assertLess(rel_error(rows[length - 1], expected[index]), 1e-5)


    def check_int8(self, name):
        """A fused module with int8 weights against numpy, which computes in f64 too and quantizes as docs/spec.md says."""
        golden = json.loads((GOLDEN / name / "golden.json").read_text())
        fused = pathlib.Path(self.scratch.name) / f"{name}-fused.mlir"
        self.run_tool("prefill-opt", self.import_model(name), "--compile-to=fused", "--weights=int8", "-o", fused)
        count = max(golden["lengths"])
        rows = self.logits(name, fused, count, "--all-logits")
        config = json.loads((GOLDEN / name / "config.json").read_text())
        weights = numpy_decoder.load_safetensors(GOLDEN / name)
        tokens = json.loads((GOLDEN / name / "tokens.json").read_text())[:count]
        expected = numpy_decoder.forward(config, weights, tokens, int8=np.float64)
        # Logits are written as f32: one rounding of 2^-24 of the value. An integer rounded otherwise makes 1e-3.
        for row in range(count):
            self.assertLess(rel_error(rows[row], expected[row]), 1e-7, f"row {row}")

    def test_models_are_there(self):
        self.assertGreaterEqual(len(MODELS), 11)

    def test_every_row(self):
        expected = np.load(GOLDEN / "llama-gqa3" / "logits_f32_allrows.npy")
        rows = self.logits("llama-gqa3", self.import_model("llama-gqa3"), len(expected), "--all-logits")
        self.assertLess(rel_error(rows, expected), 1e-5)

    def test_chunked_is_one_shot(self):
        for name in ("llama-gqa3", "mistral-window"):
            model = self.import_model(name)
            whole = self.logits(name, model, 129)
            for chunk in (1, 7, 64, 128):
                with self.subTest(name=name, chunk=chunk):
                    self.assertTrue(np.array_equal(self.logits(name, model, 129, "--chunk", chunk), whole))

    def test_rounding_to_the_model_is_as_good_as_transformers(self):
        for name in ("llama-mha", "qwen3"):
            golden = json.loads((GOLDEN / name / "golden.json").read_text())
            expected = np.load(GOLDEN / name / "logits_f32.npy")
            rows = self.logits(name, self.import_model(name), 129, "--all-logits", "--rounding=model")
            for index, length in enumerate(golden["lengths"]):
                if length <= 129:
                    with self.subTest(name=name, length=length):
                        error = rel_error(rows[length - 1], expected[index])
                        self.assertLess(error, 2 * golden["bf16_rel_error"][index])
                        self.assertGreater(error, 1e-4)  # it does round

    def test_tiny_continues_its_text(self):
        golden = json.loads((GOLDEN / "tiny" / "golden.json").read_text())
        directory = ROOT / golden["model"]
        prompt, continuation = golden["prompt_tokens"], golden["continuation_tokens"]
        model, out = (pathlib.Path(self.scratch.name) / name for name in ("tiny.mlir", "logits.npy"))
        self.translate("--import-hf", directory, "-o", model)
        # The continuation is greedy: every token is the largest logit of the row before it.
        tokens = prompt + continuation[:-1]
        self.translate("--interpret", model, "--weights", directory, "--tokens", ",".join(map(str, tokens)),
                       "--all-logits", "--logits-out", out)
        rows = np.load(out)[len(prompt) - 1:]
        self.assertLess(rel_error(rows[0], np.load(GOLDEN / "tiny" / "logits_f32.npy")), 1e-5)
        self.assertEqual([int(row.argmax()) for row in rows], continuation)


def add_model(name):
    method = "test_" + name.replace("-", "_")
    setattr(ReferenceGolden, method, lambda self: self.check_model(name))
    setattr(ReferenceGolden, method + "_int8", lambda self: self.check_int8(name))


for model_name in MODELS:
    add_model(model_name)

if __name__ == "__main__":
    unittest.main()
