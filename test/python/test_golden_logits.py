"""The tools against Hugging Face transformers: import, compile, run, compare.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python

For every checkpoint in test/golden, for f32 and bf16, for every prompt length:
f32 within F32_REL of transformers' float32 logits, bf16 no further from them
than HALF_FACTOR times transformers' own bfloat16 run. test/golden/README.md
says where the bounds come from. Needs numpy and the tools, not torch.

Decoding here follows the model's own greedy choice. Prompts split at any place
with given tokens (teacher forcing) need the C API: the runtime's C++ tests.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from check_logits import rel_error  # noqa: E402

BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")).resolve()
GOLDEN = ROOT / "test" / "golden"
TINY = ROOT / "test" / "models" / "tiny"

MODELS = [
    "llama-bias", "llama-f16", "llama-gqa3", "llama-mha", "llama-mqa", "llama-rope-linear", "llama-rope-llama3",
    "llama-sharded", "mistral", "mistral-window", "qwen2", "qwen3",
]
DTYPES = ["f32", "bf16"]
LAYOUTS = ["contiguous", "head_major", "paged_nhd:16", "paged_vnni"]
LAYOUT_MODELS = ["llama-gqa3", "mistral-window"]
F32_REL = 1e-5
HALF_FACTOR = 2.0
MAX_SEQ = 640
TIMEOUT_S = 300

scratch = None
modules = {}


def setUpModule():
    missing = [t for t in ("prefill-translate", "prefill-opt", "prefill-run") if not os.access(BIN / t, os.X_OK)]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found in {BIN}: build the tools, or set PREFILL_BIN to their directory")
    global scratch
    scratch = tempfile.TemporaryDirectory()


def tearDownModule():
    if scratch is not None:
        scratch.cleanup()


def run_tool(tool: str, *arguments) -> bytes:
    """Standard output of the tool; fails the test with the tool's own words."""
    command = [str(BIN / tool), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}: {' '.join(command)}\n"
                             f"{result.stderr.decode(errors='replace')[-4000:]}")
    return result.stdout


def compile_model(directory: pathlib.Path, dtype: str, layout=None) -> pathlib.Path:
    """The compiled module of a checkpoint; made once per dtype and KV layout."""
    key = (directory.name, dtype, layout)
    if key not in modules:
        stem = pathlib.Path(scratch.name, "-".join(filter(None, key)).replace(":", "-"))
        mlir, module = stem.with_name(stem.name + ".mlir"), stem.with_name(stem.name + ".pfm")
        run_tool("prefill-translate", "--import-hf", directory, "-o", mlir)
        options = [f"--kv-layout={layout}"] if layout else []
        run_tool("prefill-opt", mlir, "--compile", "--target=cpu", f"--dtype={dtype}", f"--max-seq={MAX_SEQ}",
                 *options, "-o", module)
        modules[key] = module
    return modules[key]


def run_logits(module: pathlib.Path, directory: pathlib.Path, tokens, *options) -> np.ndarray:
    """Logits of the last row, [vocab] float32 (every row with --all-logits, [rows, vocab])."""
    tokens_file = pathlib.Path(scratch.name, "tokens.txt")
    out = pathlib.Path(scratch.name, "out.npy")
    tokens_file.write_text(",".join(map(str, tokens)) + "\n")
    out.unlink(missing_ok=True)
    run_tool("prefill-run", module, "--weights", directory, "--tokens-file", tokens_file,
             "--logits-out", out, "--threads", 2, *options)
    array = np.load(out, allow_pickle=False)
    assert array.dtype == np.float32, f"--logits-out wrote {array.dtype}, not float32"
    return array


class Golden:
    """One checkpoint's files: tokens [513], logits [lengths, vocab] float32."""

    def __init__(self, name: str):
        self.directory = GOLDEN / name
        self.lengths = json.loads((self.directory / "golden.json").read_text())["lengths"]
        self.tokens = json.loads((self.directory / "tokens.json").read_text())
        self.f32 = np.load(self.directory / "logits_f32.npy", allow_pickle=False)

    def allowed(self, dtype: str, row: int) -> float:
        if dtype == "f32":
            return F32_REL
        own = np.load(self.directory / f"logits_{dtype}.npy", allow_pickle=False)
        return HALF_FACTOR * rel_error(own[row], self.f32[row])


class GoldenFiles(unittest.TestCase):
    def test_every_checkpoint_is_tested(self):
        here = sorted(p.parent.name for p in GOLDEN.glob("*/tokens.json"))
        self.assertEqual(here, MODELS)


class GoldenLogits(unittest.TestCase):
    def check(self, name: str, dtype: str, layout=None):
        golden = Golden(name)
        self.assertGreaterEqual(len(golden.lengths), 9)
        self.assertEqual(golden.f32.shape[0], len(golden.lengths))
        module = compile_model(golden.directory, dtype, layout)
        for row, length in enumerate(golden.lengths):
            with self.subTest(length=length):
                logits = run_logits(module, golden.directory, golden.tokens[:length])
                error = rel_error(logits.reshape(-1), golden.f32[row])
                self.assertLess(error, golden.allowed(dtype, row),
                                f"{name} {dtype} {layout or ''} {length} tokens: relative error {error:.2e}")

    def test_all_rows(self):
        golden = Golden("llama-gqa3")
        expected = np.load(golden.directory / "logits_f32_allrows.npy", allow_pickle=False)
        self.assertEqual(expected.shape[0], 65)
        module = compile_model(golden.directory, "f32")
        logits = run_logits(module, golden.directory, golden.tokens[:65], "--all-logits")
        self.assertEqual(logits.shape, expected.shape)
        for row in range(65):  # row by row: one wrong row must not drown in 64 right ones
            self.assertLess(rel_error(logits[row], expected[row]), F32_REL, f"row {row}")


def add_logits_tests():
    def add(name, dtype, layout=None):
        words = [name, dtype] + ([layout] if layout else [])
        method = "test_" + "_".join(words).replace("-", "_").replace(":", "_")
        setattr(GoldenLogits, method, lambda self: self.check(name, dtype, layout))

    for name in MODELS:
        for dtype in DTYPES:
            add(name, dtype)
    for name in LAYOUT_MODELS:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                add(name, dtype, layout)
    # paged_vnni has no pages of f16: select-lowering-strategy-invalid.mlir tests the refusal.
    for layout in [None, *(layout for layout in LAYOUTS if layout != "paged_vnni")]:
        add("llama-f16", "f16", layout)


add_logits_tests()


class TinyContinuation(unittest.TestCase):
    """Greedy text of the trained model in test/models/tiny (a token is a byte)."""

    def continue_text(self, dtype: str, prompt: bytes, count: int) -> bytes:
        """The `count` bytes that the model adds to the prompt; checks that they are also shown as text."""
        module = compile_model(TINY, dtype)
        out = run_tool("prefill-run", module, "--weights", TINY, "--text", prompt.decode("ascii"), "--decode", count)
        line = re.search(rb"^tokens +([0-9,]+)$", out, re.MULTILINE)
        self.assertIsNotNone(line, f"no line 'tokens ...' in {out!r}")
        added = bytes(map(int, line.group(1).split(b",")))
        self.assertTrue(out.startswith(prompt + added), f"{out!r} does not start with {prompt + added!r}")
        return added

    def setUp(self):
        directory = GOLDEN / "tiny"
        self.prompt = (directory / "prompt.txt").read_bytes()
        self.expected = (directory / "continuation.txt").read_bytes()
        self.assertEqual(len(self.expected), 64)

    def check_continuation(self, dtype: str):
        self.assertEqual(self.continue_text(dtype, self.prompt, 64), self.expected)

    def test_f32(self):
        self.check_continuation("f32")

    def test_bf16(self):
        self.check_continuation("bf16")

    def test_prompt_logits(self):
        expected = np.load(GOLDEN / "tiny" / "logits_f32.npy", allow_pickle=False)
        own_bf16 = np.load(GOLDEN / "tiny" / "logits_bf16.npy", allow_pickle=False)
        for dtype, allowed in (("f32", F32_REL), ("bf16", HALF_FACTOR * rel_error(own_bf16, expected))):
            with self.subTest(dtype=dtype):
                logits = run_logits(compile_model(TINY, dtype), TINY, list(self.prompt))
                self.assertLess(rel_error(logits.reshape(-1), expected), allowed)

    def test_split_between_prefill_and_decode(self):
        # The same text whichever part of it was prompt: decode steps read what prefill wrote into the cache.
        for k in (1, 17, 34, 35, 36, 48):
            with self.subTest(prompt_length=len(self.prompt) + k):
                added = self.continue_text("f32", self.prompt + self.expected[:k], 64 - k)
                self.assertEqual(added, self.expected[k:])


if __name__ == "__main__":
    unittest.main()
