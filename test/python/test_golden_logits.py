"""The tools against Hugging Face transformers: import, compile, run, compare.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python

For every checkpoint in test/golden, for f32 and bf16, for every prompt length:
f32 within F32_REL of transformers' float32 logits, bf16 no further from them
than HALF_FACTOR times transformers' own bfloat16 run; with int8 weights rows are
those of a decoder in numpy that quantizes as docs/spec.md says. test/golden/README.md
says where the bounds come from. Needs numpy and the tools, not torch.

Decoding here follows the model's own greedy choice. Prompts split at any place
with given tokens (teacher forcing) need the C API: the runtime's C++ tests.
"""

import json
import math
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
import numpy_decoder  # noqa: E402
import safetensors_file  # noqa: E402
import train_tiny  # noqa: E402
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
# One for each part of a module that int8 weights change: biases, tied embeddings, weights in several files, norms between
# projection and attention, f16. The other models have the same layers with other angles or masks.
INT8_MODELS = {
    "f32": ["llama-bias", "llama-gqa3", "llama-rope-llama3", "llama-sharded", "qwen3"],
    "bf16": ["llama-gqa3"],
    "f16": ["llama-f16"],
}
INT8_LAYOUTS = ["paged_nhd:16", "paged_vnni"]
# Variants whose vectors are equally wide differ in the instruction that multiplies integers, which is exact.
ISA_WIDTHS = [["avx2", "avx_vnni"], ["avx512", "avx512_vnni", "avx512_bf16", "amx_bf16"]]
F32_REL = 1e-5
HALF_FACTOR = 2.0
INT8_FACTOR = 2.0
INT8_EQUAL = 0.95
INT8_LOSS = 0.01  # nats a byte
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


class ToolFailed(AssertionError):
    pass


def run_tool(tool: str, *arguments) -> bytes:
    """Standard output of the tool; fails the test with the tool's own words."""
    command = [str(BIN / tool), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    if result.returncode != 0:
        raise ToolFailed(f"exit code {result.returncode}: {' '.join(command)}\n"
                         f"{result.stderr.decode(errors='replace')[-4000:]}")
    return result.stdout


def compile_model(directory: pathlib.Path, dtype: str, layout=None, weights=None) -> pathlib.Path:
    """The compiled module of a checkpoint; made once per dtype, KV layout and weights."""
    key = (directory.name, dtype, layout, weights)
    if key not in modules:
        stem = pathlib.Path(scratch.name, "-".join(filter(None, key)).replace(":", "-"))
        mlir, module = stem.with_name(stem.name + ".mlir"), stem.with_name(stem.name + ".pfm")
        run_tool("prefill-translate", "--import-hf", directory, "-o", mlir)
        options = ([f"--kv-layout={layout}"] if layout else []) + ([f"--weights={weights}"] if weights else [])
        # Code for other machines is not run here (test_padded_rows makes all of it).
        run_tool("prefill-opt", mlir, "--compile", "--target=cpu", "--isa=native", f"--dtype={dtype}", f"--max-seq={MAX_SEQ}",
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
        record = json.loads((self.directory / "golden.json").read_text())
        self.lengths, self.int8_rel_error = record["lengths"], record["int8_rel_error"]
        self.tokens = json.loads((self.directory / "tokens.json").read_text())
        self.f32 = np.load(self.directory / "logits_f32.npy", allow_pickle=False)

    def allowed(self, dtype: str, row: int) -> float:
        if dtype == "f32":
            return F32_REL
        own = np.load(self.directory / f"logits_{dtype}.npy", allow_pickle=False)
        return HALF_FACTOR * rel_error(own[row], self.f32[row])

    def allowed_int8(self, dtype: str, row: int) -> float:
        """Two causes of error, independent of each other."""
        own = 0 if dtype == "f32" else self.allowed(dtype, row) / HALF_FACTOR
        return INT8_FACTOR * math.hypot(self.int8_rel_error[row], own)


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


def row_errors(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """`rel_error` of every row, whatever the shape of a row."""
    return np.array([rel_error(a, e) for a, e in zip(actual, expected, strict=True)])


def cross_entropy(logits: np.ndarray, following) -> float:
    """Of the tokens that follow each row, in nats."""
    logits = logits.astype(np.float64)
    chosen = logits[np.arange(len(following)), following]
    return float(np.mean(np.logaddexp.reduce(logits, axis=-1) - chosen))


class Int8Weights(unittest.TestCase):
    """prefill-opt --weights=int8."""

    def run_rows(self, module: pathlib.Path, directory: pathlib.Path, tokens, *options):
        """Logits [rows, vocab] and cache [layers, 2, rows, kv_heads, head_dim] of a prompt."""
        cache = pathlib.Path(scratch.name, "cache.npy")
        rows = run_logits(module, directory, tokens, "--all-logits", "--save-kv", cache, *options)
        return rows, np.load(cache, allow_pickle=False)

    def check_witness(self, directory: pathlib.Path, tokens, rows, cache, what: str, int8=np.float32):
        """A module of f32 rounds to the same integers as the witness, but where an f32 error takes a value across the
        middle between two. The witness reads the module's cache, so that this changes no row but its own."""
        config = json.loads((directory / "config.json").read_text())
        weights = numpy_decoder.load_safetensors(directory)
        stored = []
        expected = numpy_decoder.forward(config, weights, tokens, int8=int8, cache=cache, stored=stored)
        bound = INT8_FACTOR * row_errors(expected, numpy_decoder.forward(config, weights, tokens)).max()
        stored = np.stack(stored)
        pairs = {"logits": (rows, expected)}
        for layer in range(len(cache)):
            for kind, name in enumerate(("keys", "values")):
                pairs[f"{name} of layer {layer}"] = (cache[layer, kind], stored[layer, kind])
        for name, (actual, own) in pairs.items():
            errors = row_errors(actual, own)
            equal = np.mean(errors < F32_REL)
            self.assertGreater(equal, INT8_EQUAL, f"{what}: {equal:.1%} of the rows of {name} are the witness's")
            self.assertLess(errors.max(), bound, f"{what}: row {errors.argmax()} of {name}")

    def check_goldens(self, rows, golden: Golden, dtype: str, what: str):
        # Attention is causal: the last row of a prompt of n tokens is row n - 1 of a longer one.
        for row, length in enumerate(golden.lengths):
            with self.subTest(length=length):
                error = rel_error(rows[length - 1], golden.f32[row])
                self.assertLess(error, golden.allowed_int8(dtype, row), f"{what} {length} tokens: {error:.2e}")

    def check(self, name: str, dtype: str, layout=None, *options):
        golden = Golden(name)
        what = " ".join([name, dtype, layout or "", *options])
        tokens = golden.tokens[:max(golden.lengths)]
        module = compile_model(golden.directory, dtype, layout, "int8")
        rows, cache = self.run_rows(module, golden.directory, tokens, *options)
        self.check_goldens(rows, golden, dtype, what)
        if dtype == "f32":
            self.check_witness(golden.directory, tokens, rows, cache, what)
        return rows

    def test_short_prompts_are_rows_of_the_longest(self):
        golden = Golden("llama-gqa3")
        module = compile_model(golden.directory, "f32", None, "int8")
        rows, _ = self.run_rows(module, golden.directory, golden.tokens[:max(golden.lengths)])
        for length in golden.lengths:
            with self.subTest(length=length):
                logits = run_logits(module, golden.directory, golden.tokens[:length])
                self.assertTrue(np.array_equal(logits.reshape(-1), rows[length - 1]))

    def test_the_documented_error_is_the_witnesses(self):
        for name in MODELS:
            with self.subTest(name):
                golden = Golden(name)
                config = json.loads((golden.directory / "config.json").read_text())
                rows = numpy_decoder.forward(config, numpy_decoder.load_safetensors(golden.directory),
                                             golden.tokens[:max(golden.lengths)], int8=np.float32)
                errors = [rel_error(rows[length - 1], golden.f32[row]) for row, length in enumerate(golden.lengths)]
                np.testing.assert_allclose(errors, golden.int8_rel_error, rtol=0.01)

    def test_ties_broken_otherwise_are_noticed(self):
        # Half of a row's largest weight lies in the middle between 63 and 64: f64 rounds some of them elsewhere.
        golden = Golden("llama-gqa3")
        tokens = golden.tokens[:129]
        rows, cache = self.run_rows(compile_model(golden.directory, "f32", None, "int8"), golden.directory, tokens)
        with self.assertRaisesRegex(AssertionError, "of the rows of logits are the witness's"):
            self.check_witness(golden.directory, tokens, rows, cache, "", int8=np.float64)

    def on_every_isa(self, dtype: str, check):
        """`check(isa)` gives rows; of a module of f32 to the bit the same where vectors are equally wide."""
        for variants in ISA_WIDTHS:
            first = None
            for isa in variants:
                with self.subTest(dtype=dtype, isa=isa):
                    if dtype == "f32" and isa == "amx_bf16":
                        self.skipTest("amx_bf16 is for modules of bf16")
                    try:
                        rows = check(isa)
                    except ToolFailed as error:
                        self.assertIn("this CPU supports", str(error))
                        self.skipTest(f"this CPU has no {isa}")
                    if dtype == "f32":
                        first = rows if first is None else first
                        self.assertTrue(np.array_equal(rows, first), "bits differ from those of " + variants[0])

    def test_every_instruction_set(self):
        for dtype in DTYPES:
            self.on_every_isa(dtype, lambda isa: self.check("llama-gqa3", dtype, None, "--isa", isa))

    def test_largest_integers(self):
        # Every weight and every input of the first product is -127 or 127: no step on the way to 32 bits may saturate.
        golden = Golden("llama-gqa3")
        directory = pathlib.Path(scratch.name, "largest")
        directory.mkdir()
        (directory / "config.json").write_text((golden.directory / "config.json").read_text())
        tensors = {}
        for name, (dtype, bits) in safetensors_file.read(golden.directory / "model.safetensors").items():
            bits = np.full_like(bits, 0x3F80) if bits.ndim == 1 else bits & 0x8000 | 0x3E00  # gains of 1, else +-0.125
            if bits.ndim == 2:
                bits[0] &= 0x7FFF  # an output channel, or a token, whose products are all of one sign
            tensors[name] = (dtype, bits)
        safetensors_file.write(directory / "model.safetensors", tensors)
        module = compile_model(golden.directory, "f32", None, "int8")
        tokens = [0] + golden.tokens[:32]

        def check(isa):
            rows, cache = self.run_rows(module, directory, tokens, "--isa", isa)
            self.check_witness(directory, tokens, rows, cache, isa)
            return rows

        self.on_every_isa("f32", check)

    def test_trained_model(self):
        # 2048 bytes of a text that it was trained on, in four prompts.
        text = list(train_tiny.load_text(ROOT, ["LICENSE"])[:2049])
        config = json.loads((TINY / "config.json").read_text())
        weights = numpy_decoder.load_safetensors(TINY)
        loss = {dtype: [] for dtype in ["witness", *DTYPES]}
        for begin in range(0, len(text) - 1, 512):
            tokens, following = text[begin:begin + 512], text[begin + 1:begin + 513]
            loss["witness"].append(cross_entropy(numpy_decoder.forward(config, weights, tokens), following))
            for dtype in DTYPES:
                rows, cache = self.run_rows(compile_model(TINY, dtype, None, "int8"), TINY, tokens)
                loss[dtype].append(cross_entropy(rows, following))
                if dtype == "f32" and begin == 0:
                    self.check_witness(TINY, tokens, rows, cache, "tiny")
        loss = {key: np.mean(values) for key, values in loss.items()}
        for dtype in DTYPES:
            self.assertLess(loss[dtype], loss["witness"] + INT8_LOSS, loss)


def add_int8_tests():
    def add(name, dtype, layout=None):
        words = [name, dtype] + ([layout] if layout else [])
        method = "test_" + "_".join(words).replace("-", "_").replace(":", "_")
        setattr(Int8Weights, method, lambda self: self.check(name, dtype, layout))

    for dtype, names in INT8_MODELS.items():
        for name in names:
            add(name, dtype)
    for layout in INT8_LAYOUTS:
        add("llama-gqa3", "f32", layout)


add_int8_tests()


class TinyContinuation(unittest.TestCase):
    """Greedy text of the trained model in test/models/tiny (a token is a byte)."""

    def continue_text(self, dtype: str, prompt: bytes, count: int, weights=None) -> bytes:
        """The `count` bytes that the model adds to the prompt; checks that they are also shown as text."""
        module = compile_model(TINY, dtype, None, weights)
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

    def check_continuation(self, dtype: str, weights=None):
        self.assertEqual(self.continue_text(dtype, self.prompt, 64, weights), self.expected)

    def test_f32(self):
        self.check_continuation("f32")

    def test_bf16(self):
        self.check_continuation("bf16")

    def test_int8_weights(self):
        # Every token wins by 1.6 or more (smallest_margin in golden.json); int8 moves a logit by 0.12 (root mean square).
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                self.check_continuation(dtype, "int8")

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
