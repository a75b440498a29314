"""Modules with CUDA plans, through the command line: compile, describe, emulate.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python

The trained model in test/models/tiny. Needs the tools, numpy, and for some
tests ptxas.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")).resolve()
TINY = ROOT / "test" / "models" / "tiny"
PROMPT = "This program is"
TIMEOUT_S = 300
PTXAS = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
LINE = re.compile(r"^kernel=(\w+) chip=(sm_\d+) registers=(\S+) spill_bytes=(\S+) shared_bytes=(\d+) occupancy=(\S+)$",
                  re.MULTILINE)

scratch = None


def setUpModule():
    missing = [t for t in ("prefill-translate", "prefill-opt", "prefill-run") if not os.access(BIN / t, os.X_OK)]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not found in {BIN}: build the tools, or set PREFILL_BIN to their directory")
    global scratch
    scratch = tempfile.TemporaryDirectory()
    tool("prefill-translate", "--import-hf", TINY, "-o", place("tiny.mlir"))
    tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cpu", "--target=cuda-emu:sm_80", "--target=cuda:sm_80",
         "--ptxas=none", "--dtype=bf16", "--deterministic", "-o", place("both.pfm"))
    tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cuda-emu:sm_80", "--dtype=bf16", "-o", place("split.pfm"))
    tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cuda:sm_90", "--ptxas=none", "--dtype=bf16",
         "-o", place("ptx.pfm"))


def tearDownModule():
    if scratch is not None:
        scratch.cleanup()


def place(name: str) -> pathlib.Path:
    return pathlib.Path(scratch.name, name)


def call(name: str, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run([str(BIN / name), *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S)


def tool(name: str, *arguments) -> str:
    """Standard output of the tool; fails the test with the tool's own words."""
    result = call(name, *arguments)
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode}: {name} {arguments}\n{result.stderr[-4000:]}")
    return result.stdout


def error_of(name: str, *arguments) -> str:
    result = call(name, *arguments)
    assert result.returncode != 0, f"{name} {arguments} succeeded"
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    return lines[0]


def run(*options) -> str:
    return tool("prefill-run", place("both.pfm"), "--weights", TINY, "--weights-cache=off", "--text", PROMPT, *options)


class Describe(unittest.TestCase):
    def test_without_an_assembler_numbers_are_unknown(self):
        text = tool("prefill-run", place("ptx.pfm"), "--describe")
        lines = LINE.findall(text)
        self.assertGreaterEqual(len(lines), 8)
        self.assertIn("attention", [line[0] for line in lines])
        for _, chip, registers, spills, _, occupancy in lines:
            self.assertEqual((chip, registers, spills, occupancy), ("sm_90", "?", "?", "?"))
        self.assertIn("cuda:sm_90 ptx", text)
        self.assertNotIn("cubin", text)

    def test_a_module_with_two_plans(self):
        text = tool("prefill-run", place("both.pfm"), "--describe", "--device=cuda-emu:sm_80")
        for part in ("target     cpu\n", "target     cuda:sm_80\n", "code       cpu:avx2,", "code       cuda:sm_80 ptx,"):
            self.assertIn(part, text)
        self.assertRegex(text, r"code       cuda-emu:sm_80, [^\n]*, chosen here")

    @unittest.skipUnless(PTXAS, "no ptxas")
    def test_the_assembler_is_read_back(self):
        tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cuda:sm_86", "--dtype=f16", "-o", place("cubin.pfm"))
        text = tool("prefill-run", place("cubin.pfm"), "--describe")
        self.assertIn("cuda:sm_86 cubin", text)
        # How the tiles of a long prompt fill an RTX 3090.
        waves = dict((name, (int(tiles), float(count), int(places), int(idle))) for name, tiles, count, places, idle in
                     re.findall(r"^  (\w+): (\d+) tiles, ([\d.]+) waves of (\d+), (\d+) SMs idle in the last$", text, re.MULTILINE))
        tiles, count, places, idle = waves["gate_up_proj"]
        self.assertAlmostEqual(count, tiles / places, places=2)
        self.assertEqual(places % 82, 0)
        self.assertEqual(idle, max(0, 82 - tiles % places) if tiles % places else 0)
        self.assertIn("8192 tokens, a row of logits, 82 SMs", text)
        lines = LINE.findall(text)
        self.assertGreaterEqual(len(lines), 8)
        for name, chip, registers, spills, shared, occupancy in lines:
            self.assertEqual(chip, "sm_86")
            self.assertTrue(0 < int(registers) <= 255, name)
            self.assertGreaterEqual(int(spills), 0)
            self.assertLessEqual(int(shared), 99 * 1024)
            self.assertTrue(0 < float(occupancy) <= 1, name)

    def test_a_device_that_was_named_must_have_code(self):
        self.assertIn("no code for this CPU: it has 'cuda:sm_90 (ptx)'",
                      error_of("prefill-run", place("ptx.pfm"), "--describe", "--device=cpu"))
        self.assertIn("no code for cuda-emu:sm_90, it has 'cuda:sm_90 (ptx)'",
                      error_of("prefill-run", place("ptx.pfm"), "--describe", "--device=cuda-emu:sm_90"))


class Emulate(unittest.TestCase):
    def test_logits_and_text_are_the_cpus(self):
        logits = {}
        for device in ("cpu", "cuda-emu:sm_80"):
            run("--device", device, "--logits-out", place("out.npy"))
            logits[device] = np.load(place("out.npy"), allow_pickle=False).reshape(-1)
        difference = np.linalg.norm(logits["cpu"] - logits["cuda-emu:sm_80"]) / np.linalg.norm(logits["cpu"])
        self.assertLess(difference, 0.05)  # two roundings to bf16
        self.assertGreater(difference, 0, "both ran on one device")
        lines = [run("--device", device, "--decode", 12).split("tokens ")[1].splitlines()[0]
                 for device in ("cpu", "cuda-emu:sm_80")]
        self.assertEqual(*lines)

    def test_seed_chunks_and_poison_give_the_same_bits(self):
        whole = None
        for options in ((), ("--emulation-seed=3",), ("--emulation-seed=4", "--poison"), ("--chunk=4",), ("--threads=1",)):
            run("--device=cuda-emu:sm_80", "--logits-out", place("out.npy"), *options)
            bits = place("out.npy").read_bytes()
            whole = whole or bits
            self.assertEqual(bits, whole, options)

    def test_packed_weights_are_kept_apart_from_the_cpus(self):
        def stats(device):
            return json.loads(tool("prefill-run", place("both.pfm"), "--weights", TINY, "--text", PROMPT, "--stats=json",
                                   "--device", device, "--logits-out", place(device.partition(":")[0] + ".npy")))
        for start in range(2):
            for device, name in (("cpu", "both.pfm.weights"), ("cuda-emu:sm_80", "both.pfm.cuda.weights")):
                used = stats(device)["weights_cache"]
                self.assertEqual(used, str(place(name).resolve()) if start else "", device)
        mapped = place("cuda-emu.npy").read_bytes()
        run("--device=cuda-emu:sm_80", "--logits-out", place("out.npy"))
        self.assertEqual(place("out.npy").read_bytes(), mapped)
        self.assertIn("name the same file",
                      error_of("prefill-run", place("both.pfm"), "--weights", TINY, "--text", PROMPT,
                               "--device=cuda-emu:sm_80", "--logits-out", place("both.pfm.cuda.weights")))

    def test_counters_as_json(self):
        stats = json.loads(run("--device=cuda-emu:sm_80", "--counters", "--stats=json", "--chunk=8"))
        self.assertEqual(stats["variant"], "sm_80")
        self.assertEqual(stats["kernels_per_layer"], 5)
        counters = stats["counters"]
        self.assertEqual([(c["name"], c["layer"]) for c in counters], [(l["name"], l["layer"]) for l in stats["launches"]])
        self.assertEqual({c["call"] for c in counters}, {"prefill 0..8", "prefill 8..15"})
        attention = next(c for c in counters if c["name"] == "attention")
        self.assertGreater(attention["matrix_instructions"], 0)
        self.assertIn("attention.load_k", [site["name"] for site in attention["sites"]])
        self.assertNotIn("counters", json.loads(run("--device=cuda-emu:sm_80", "--stats=json")))

    def test_count_only_counts_the_same(self):
        def counters(*options):
            text = tool("prefill-run", place("both.pfm"), "--random-weights=1", "--text", PROMPT, "--stats=json",
                        "--device=cuda-emu:sm_80", *options)
            return json.loads(text)["counters"]
        self.assertEqual(counters("--count-only"), counters("--counters"))

    def test_counters_for_people(self):
        text = run("--device=cuda-emu:sm_80", "--counters")
        self.assertRegex(text, r"(?m)^attention\w* +\d+ +\d+")
        self.assertRegex(text, r"(?m)^  attention\.load_k ")

    def test_devices_without_counters_refuse_the_options(self):
        for option in ("--counters", "--count-only", "--emulation-seed=1"):
            self.assertIn("is for emulated devices, but --device is 'cpu'",
                          error_of("prefill-run", place("both.pfm"), "--random-weights=1", "--text", PROMPT, option))


class Split(unittest.TestCase):
    """Attention of short calls over splits of the keys: what is compiled where nobody asks for --deterministic."""

    def logits(self, module, *options):
        tool("prefill-run", place(module), "--weights", TINY, "--text", PROMPT * 12, "--device=cuda-emu:sm_80",
             "--logits-out", place("out.npy"), *options)
        return np.load(place("out.npy"), allow_pickle=False).reshape(-1)

    def test_describe_says_whether_bits_depend_on_the_call(self):
        for module, word in (("both.pfm", "yes"), ("split.pfm", "no"), ("ptx.pfm", "no")):
            self.assertIn(f"\ndeterministic {word}\n", tool("prefill-run", place(module), "--describe"))
        tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cuda-emu:sm_80", "--dtype=bf16",
             "--disable-pass=prefill-split-kv", "-o", place("whole.pfm"))
        # A library may still compute the logits.
        self.assertIn("\ndeterministic no\n", tool("prefill-run", place("whole.pfm"), "--describe"))
        np.testing.assert_array_equal(self.logits("whole.pfm"), self.logits("both.pfm"))

    def test_chunks_agree_within_rounding(self):
        whole = self.logits("both.pfm")
        np.testing.assert_array_equal(self.logits("both.pfm", "--chunk=100"), whole)
        for chunk in (1, 50):
            chunked = self.logits("split.pfm", f"--chunk={chunk}")
            self.assertLess(np.linalg.norm(chunked - whole) / np.linalg.norm(whole), 0.03, chunk)

    def test_unfused_attention_is_whole(self):
        tool("prefill-opt", place("tiny.mlir"), "--compile", "--target=cuda-emu:sm_80", "--dtype=bf16",
             "--disable-pass=prefill-convert-attention-to-online", "-o", place("plain.pfm"))
        self.assertNotIn("combine_splits", tool("prefill-run", place("plain.pfm"), "--describe"))

    def test_stats_are_those_of_the_schedule_that_ran(self):
        for options, kernels in (((), 6), (("--count-only",), 6)):
            stats = json.loads(tool("prefill-run", place("split.pfm"), "--random-weights=1", "--text", PROMPT, "--stats=json",
                                    "--device=cuda-emu:sm_80", *options))
            self.assertEqual(stats["kernels_per_layer"], kernels)
            self.assertIn("combine_splits", [launch["name"] for launch in stats["launches"]])


if __name__ == "__main__":
    unittest.main()
