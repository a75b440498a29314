"""scripts/gpu-check from outside: a machine without a GPU, the making of a kit, and the kit's whole flow on the recording
driver, where the compiled kernels run on the emulator.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python -p test_gpu_check.py
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")).resolve()
STUB = BIN.parent / "lib" / "cuda-stub"
TIMEOUT_S = 300


def execute(*command, **environment):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, **environment})


def on_stub(settings: str) -> dict:
    return {"LD_LIBRARY_PATH": str(STUB), "PREFILL_CUDA_STUB": settings}


class WithoutAGpu(unittest.TestCase):
    def test_says_so_in_one_line(self):
        result = execute(ROOT / "scripts" / "gpu-check", **on_stub("devices=0"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Aerror: no CUDA device: [^\n]+\n\Z")

    def test_names_that_are_none(self):
        for option in ("--models=nobody", "--bench-shapes=nothing"):
            result = execute(ROOT / "scripts" / "gpu-check", option)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected one of", result.stderr)

    def test_a_kit_needs_a_new_directory_and_tools(self):
        with tempfile.TemporaryDirectory() as directory:
            result = execute(ROOT / "scripts" / "gpu-check", "--build-kit", directory + "/kit", "--bin", directory)
            self.assertEqual(result.returncode, 2)
            self.assertIn("prefill-run is not in", result.stderr)
            result = execute(ROOT / "scripts" / "gpu-check", "--build-kit", ROOT / "scripts", "--bin", BIN)
            self.assertEqual(result.returncode, 2)
            self.assertIn("which is not empty", result.stderr)


class Kit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.kit = pathlib.Path(cls.scratch.name) / "kit"
        built = execute(ROOT / "scripts" / "gpu-check", "--build-kit", cls.kit, "--bin", BIN, "--models", "qwen2",
                        "--bench-shapes", "qwen2.5-0.5b", "--emulation")
        if built.returncode != 0:
            raise AssertionError(f"the kit: {built.stdout}{built.stderr}")
        cls.built = built.stdout

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def check(self, settings: str, *arguments):
        """The result of a run, its JSON, and what the recording driver found."""
        report = pathlib.Path(self.scratch.name) / "report.json"
        log = pathlib.Path(self.scratch.name) / "log"
        for path in (report, log):
            path.unlink(missing_ok=True)
        result = execute(self.kit / "gpu-check", "--json", report, *arguments, **on_stub(f"{settings};log={log}"))
        found = log.read_text().split("-- report\n")[-1] if log.exists() else None
        return result, json.loads(report.read_text()) if report.exists() else None, found

    def test_what_is_in_it(self):
        self.assertIn("1 golden modules, 1 to time", self.built)
        for name in ("gpu-check", "bin/prefill-run", "bin/prefill-bench", "lib/libprefill_runtime.so.0", "manifest.json",
                     "golden/qwen2/model.safetensors", "modules/golden/tiny-bf16.pfm"):
            self.assertTrue((self.kit / name).is_file(), name)
        self.assertFalse([path for path in (self.kit / "lib").iterdir() if "LLVM" in path.name or "MLIR" in path.name])

    def test_without_a_device(self):
        result, report, _ = self.check("devices=0")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aerror: [^\n]*no CUDA device[^\n]*\n\Z")
        self.assertIsNone(report)

    def test_kernels_that_compute_the_goldens_pass(self):
        settings = f"memory={8 << 30};emulate={self.kit / 'modules' / 'golden'}"
        result, report, found = self.check(settings, "--lengths=1,65", "--skip-bench", "--minutes=4")
        self.assertEqual(found, "", result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual([entry["what"] for entry in report["results"]],
                         ["qwen2 bf16 contiguous", "tiny, 64 decoded tokens"])
        self.assertTrue(all(entry["ok"] for entry in report["results"]))

    def test_kernels_that_do_nothing_are_found_and_launches_are_timed(self):
        result, report, found = self.check(f"memory={8 << 30}", "--lengths=1", "--rounds=2")
        self.assertEqual(found, "", result.stdout)
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED  qwen2 bf16 contiguous: 1 tokens: relative error", result.stdout)
        names = {row["name"] for row in report["rows"]}
        for wanted in ("gemm/bf16/512x1152x896", "gemm/bf16/512x9728x896", "attention/bf16/d64/s512"):
            self.assertIn(wanted, names)
        for row in report["rows"]:
            self.assertGreater(row["us"], 0)
        self.assertTrue(all("cublaslt_us" in row for row in report["rows"] if row["name"].startswith("gemm/")))


if __name__ == "__main__":
    unittest.main()
