"""Rows of a multiple of 4 KiB lie a line apart (prefill-plan-memory's pad-rows): the plan, the kernels of every instruction
set, those of this machine with passes left out too, and the runtime, which copies logits out, must agree on it, and the
numbers be those of the same model in f32 without that pass, whose rows are dense."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
# Two layers of widths whose rows are padded: 2048 x 2 or 4 bytes, 8192 x 1, 2 or 4, and logits of 1024 x 4.
SHAPE = ["--synthesize", "llama-3.2-1b", "--layers", "2", "--vocab", "1024"]
TOKENS = 37
# What modules are compiled with, and how far they may be from f32. A row out of place is 1 away. An int8 product is about
# 1 % off here: steps of 1/127 of a maximum of 3.5 deviations, in weights and in activations; several follow each other.
# f16 has three bits more than bf16. In f32 instruction sets differ by the order of sums of up to 8192 terms, whose roundings
# of 6e-8 add up to the root of their number; this machine's own gives the reference's bits (test_few_rows_chunks_and_poison).
BOUNDS = {("f32",): 1e-5, ("f16",): 2e-2 / 8, ("bf16",): 2e-2, ("bf16", "--weights=int8"): 5e-2}


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
        cls.f32 = cls.logits(cls.compile("f32", "--isa=native", "--disable-pass=prefill-plan-memory"))
        cls.modules = {options: cls.compile(*options) for options in BOUNDS}

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
        prompt = ",".join(str(i * 13 % 1024) for i in range(tokens))
        cls.run_tool("prefill-run", module, "--random-weights", "1", "--tokens", prompt, "--logits-out", out,
                     *(["--all-logits"] if all_rows else []), *options)
        return np.load(out).astype(np.float64)

    def test_plan_has_padded_rows(self):
        for expected, *options in (((2048 * 2 + 64, 8192 * 2 + 64, 1024 * 4 + 64), "--dtype=bf16"),
                                   ((2048 * 4 + 64, 8192 * 4 + 64, 1024 * 4 + 64), "--dtype=f32"),
                                   ((2048 * 2 + 64, 8192 * 2 + 64, 1024 * 4 + 64), "--dtype=f16"),
                                   ((2048 * 4, 8192 * 4, 1024 * 4), "--dtype=f32", "--disable-pass=prefill-plan-memory"),
                                   ((2048, 8192 + 64), "--dtype=bf16", "--weights=int8")):
            with self.subTest(options):
                config = self.run_tool("prefill-opt", self.model, "--compile-to=config", "--target=cpu", *options)
                self.assertLessEqual(set(expected), set(map(int, re.findall(r"row_bytes = (\d+)", config))))

    def test_every_instruction_set(self):
        for options, bound in BOUNDS.items():
            ran = []
            variants = re.findall(r"cpu:(\w+)", self.run_tool("prefill-run", self.modules[options], "--describe"))
            self.assertLessEqual({"avx2", "avx512", "avx512_bf16"}, set(variants))
            for isa in variants:
                with self.subTest(isa, options=options):
                    try:
                        logits = self.logits(self.modules[options], "--isa", isa)
                    except subprocess.CalledProcessError as error:
                        self.assertIn("this CPU supports", error.stderr)
                        continue
                    ran.append(isa)
                    self.assertLess(relative_error(logits, self.f32), bound)
            self.assertIn("avx2", ran)
            with self.subTest("native", options=options):  # the compiler knows this CPU as well as the runtime does
                native = self.run_tool("prefill-run", self.compile(*options, "--isa=native"), "--describe")
                self.assertEqual(re.findall(r"cpu:(\w+)", native), ran)

    def test_few_rows_chunks_and_poison(self):
        """Bits of a row depend on nothing beside it, so few rows give those of many; poisoned buffers find rows out of place."""
        columns = self.f32.shape[-1]
        for options, module in self.modules.items():
            whole = self.logits(module).reshape(TOKENS, columns)
            if options == ("f32",):  # where rows lie changes no arithmetic
                self.assertTrue(np.array_equal(whole, self.f32.reshape(TOKENS, columns)))
            for tokens in (1, 5, 16):
                with self.subTest(tokens, options=options):
                    self.assertTrue(np.array_equal(self.logits(module, tokens=tokens).reshape(tokens, columns),
                                                   whole[:tokens]))
            with self.subTest("chunks", options=options):
                self.assertTrue(np.array_equal(self.logits(module, "--poison", "--chunk", "5").reshape(TOKENS, columns),
                                               whole))
            with self.subTest("last row", options=options):
                self.assertTrue(np.array_equal(self.logits(module, all_rows=False).reshape(columns), whole[-1]))

    def test_passes_left_out(self):
        for options, flags in ((("f32",), ("prefill-tile", "prefill-convert-attention-to-online")),
                               (("f16",), ("prefill-tile",)),
                               (("bf16",), ("prefill-plan-memory", "prefill-tile", "prefill-convert-attention-to-online",
                                            "prefill-fold-kv-append-into-epilogue")),
                               (("bf16", "--weights=int8"), ("prefill-plan-memory",))):
            for flag in flags:
                with self.subTest(flag, options=options):
                    logits = self.logits(self.compile(*options, "--isa=native", "--disable-pass=" + flag))
                    self.assertLess(relative_error(logits, self.f32), BOUNDS[options])


if __name__ == "__main__":
    unittest.main()
