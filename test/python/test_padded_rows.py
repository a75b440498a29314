"""bf16 rows of a multiple of 4 KiB lie a line apart (prefill-plan-memory's pad-rows): the plan and the kernels of every
instruction set must agree on it, with passes left out too, and the numbers be those of the same model in f32, where rows
are not padded."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
# Two layers of a width whose rows are padded: 2048 x 2 bytes.
SHAPE = ["--synthesize", "llama-3.2-1b", "--layers", "2", "--vocab", "512"]
TOKENS = 37


def relative_error(values, reference):
    return np.linalg.norm(values - reference) / np.linalg.norm(reference)


class PaddedRows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.place = pathlib.Path(cls.directory.name)
        cls.model = cls.place / "model.mlir"
        cls.run_tool("prefill-translate", *SHAPE, "-o", cls.model)
        cls.f32 = cls.logits(cls.compile("f32"))
        cls.module = cls.compile("bf16")

    @staticmethod
    def run_tool(name, *arguments):
        return subprocess.run([BIN / name, *map(str, arguments)], capture_output=True, text=True, check=True).stdout

    @classmethod
    def compile(cls, dtype, *options):
        module = cls.place / (dtype + "".join(options).replace("/", "_") + ".pfm")
        cls.run_tool("prefill-opt", cls.model, "--compile", "--target=cpu", "--dtype=" + dtype, *options, "-o", module)
        return module

    @classmethod
    def logits(cls, module, *options, tokens=TOKENS, all_rows=True):
        out = cls.place / "logits.npy"
        prompt = ",".join(str(i * 13 % 512) for i in range(tokens))
        cls.run_tool("prefill-run", module, "--random-weights", "1", "--tokens", prompt, "--logits-out", out,
                     *(["--all-logits"] if all_rows else []), *options)
        return np.load(out).astype(np.float64)

    def test_plan_has_padded_rows(self):
        for dtype, width, padded in (("bf16", 2, True), ("f32", 4, False)):
            config = self.run_tool("prefill-opt", self.model, "--compile-to=config", "--target=cpu", "--dtype=" + dtype)
            rows = set(map(int, re.findall(r"row_bytes = (\d+)", config)))
            self.assertIn(2048 * width + (64 if padded else 0), rows)
            self.assertIn(8192 * width + (64 if padded else 0), rows)

    def test_every_instruction_set(self):
        ran = []
        for isa in ("avx2", "avx512", "avx512_bf16", "amx_bf16"):
            with self.subTest(isa):
                try:
                    logits = self.logits(self.module, "--isa", isa)
                except subprocess.CalledProcessError as error:
                    self.assertIn("this CPU supports", error.stderr)
                    continue
                ran.append(isa)
                self.assertLess(relative_error(logits, self.f32), 2e-2)
        self.assertIn("avx2", ran)

    def test_few_rows_chunks_and_poison(self):
        """Bits of a row depend on nothing beside it, so few rows give those of many; poisoned buffers find rows out of place."""
        columns = self.f32.shape[-1]
        whole = self.logits(self.module).reshape(TOKENS, columns)
        for tokens in (1, 5, 16):
            with self.subTest(tokens):
                self.assertTrue(np.array_equal(self.logits(self.module, tokens=tokens).reshape(tokens, columns),
                                               whole[:tokens]))
        with self.subTest("chunks"):
            self.assertTrue(np.array_equal(self.logits(self.module, "--poison", "--chunk", "5").reshape(TOKENS, columns),
                                           whole))
        with self.subTest("last row"):
            self.assertTrue(np.array_equal(self.logits(self.module, all_rows=False).reshape(columns), whole[-1]))

    def test_passes_left_out(self):
        for flag in ("prefill-plan-memory", "prefill-tile", "prefill-convert-attention-to-online",
                     "prefill-fold-kv-append-into-epilogue"):
            with self.subTest(flag):
                logits = self.logits(self.compile("bf16", "--disable-pass=" + flag))
                self.assertLess(relative_error(logits, self.f32), 2e-2)


if __name__ == "__main__":
    unittest.main()
