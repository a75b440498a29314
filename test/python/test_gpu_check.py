"""scripts/gpu-check from outside: a machine without a GPU, the making of a kit, and the kit's whole flow on the recording
driver, where the compiled kernels run on the emulator. Times of that driver are made up: what is looked at is that they come.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python -p test_gpu_check.py
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")).resolve()
STUB = BIN.parent / "lib" / "cuda-stub"
TIMEOUT_S = 1800

sys.path.insert(0, str(ROOT / "python"))
from gpu_check import Failure, check, contents  # noqa: E402


def execute(*command, **environment):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, **environment})


def on_stub(settings: str) -> dict:
    return {"LD_LIBRARY_PATH": str(STUB), "PREFILL_CUDA_STUB": settings}


def build(kit, *arguments):
    return execute(ROOT / "scripts" / "gpu-check", "--build-kit", kit, "--bin", BIN, *arguments)


class WithoutAGpu(unittest.TestCase):
    def test_says_so_in_one_line(self):
        result = execute(ROOT / "scripts" / "gpu-check", **on_stub("devices=0"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Aerror: no CUDA device: [^\n]+\n\Z")

    def test_wrong_command_lines_are_one_line(self):
        for argument, expected in (("--models=nobody", "'nobody' given, expected one or more of llama-bias"),
                                   ("--models=", "'' given, expected one or more of"),
                                   ("--bench-shapes=nothing", "expected one or more of llama-3-8b"),
                                   ("--parts=nothing", "expected one or more of goldens"),
                                   ("--minutes=0", "expected minutes, more than 0"),
                                   ("--rounds=0", "expected a whole number from 1"),
                                   ("--lengths=1,7", "'7' given, expected some of 1, 64"),
                                   ("--bogus", "--bogus"),
                                   ("--build-kit=/dev/null", "which is no directory"),
                                   ("--build-kit=/dev/null/kit", "expected a directory that can be made"),
                                   (f"--build-kit={ROOT / 'scripts'}", "which is not empty")):
            with self.subTest(argument):
                result = execute(ROOT / "scripts" / "gpu-check", argument, "--bin", BIN)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
                self.assertIn(expected, result.stderr)

    def test_a_kit_that_cannot_be_made_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            tools = pathlib.Path(directory, "bin")
            tools.mkdir()
            result = execute(ROOT / "scripts" / "gpu-check", "--build-kit", directory + "/kit", "--bin", tools)
            self.assertEqual(result.returncode, 2)
            self.assertIn("prefill-translate is not in", result.stderr)
            for name in ("prefill-translate", "prefill-run", "prefill-bench"):
                (tools / name).symlink_to(BIN / name)
            (tools / "prefill-opt").write_text("#!/bin/sh\necho 'error: no such thing' >&2; exit 3\n")
            (tools / "prefill-opt").chmod(0o755)
            result = execute(ROOT / "scripts" / "gpu-check", "--build-kit", directory + "/kit", "--bin", tools, "--models=qwen2",
                             "--bench-shapes=qwen2.5-0.5b")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"\Aerror: [^\n]*no such thing\n\Z")
            self.assertEqual([path.name for path in pathlib.Path(directory).iterdir()], ["bin"])

    def test_a_damaged_kit_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            kit = pathlib.Path(directory)
            for text in ("", "[]", "{}", '{"checks": 3}'):
                (kit / "manifest.json").write_text(text)
                with self.assertRaisesRegex(Failure, "manifest.json is damaged"):
                    check.read_manifest(kit)
            manifest = {"checks": [], "refused": [], "tune": [], "counters": {}, "continuation": False, "lengths": []}
            (kit / "manifest.json").write_text(json.dumps(manifest))
            run_of = check.Check(kit, argparse.Namespace())
            self.addCleanup(run_of.scratch.cleanup)
            packed = gzip.compress(bytes(range(256)) * 64)
            for damaged in (packed[:-9], packed[:20] + b"\xff\xff" + packed[22:], b"no archive"):
                (kit / "module.pfm.gz").write_bytes(damaged)
                with self.assertRaisesRegex(Failure, "module.pfm.gz is damaged"):
                    run_of.unpack("module.pfm")

    def test_a_long_prompt_is_also_run_in_chunks(self):
        """A program that answers with the goldens, but for a part in chunks, and notes how it was called."""
        golden = ROOT / "test/golden/qwen2"
        with tempfile.TemporaryDirectory() as directory:
            kit = pathlib.Path(directory)
            (kit / "golden").mkdir()
            shutil.copytree(golden, kit / "golden/qwen2")
            (kit / "module.pfm.gz").write_bytes(gzip.compress(b"module"))
            (kit / "bin").mkdir()
            program = kit / "bin/prefill-run"
            program.write_text(f"""#!/usr/bin/env python3
import array, json, os, pathlib, sys
sys.path.insert(0, {str(ROOT / "python")!r})
from gpu_check.logits import read_npy
arguments = sys.argv[1:]
out, tokens = (arguments[arguments.index(name) + 1] for name in ("--logits-out", "--tokens"))
length = len(tokens.split(","))
chunk = [argument for argument in arguments if argument.startswith("--chunk")]
print(length, *chunk, file=open({str(kit / "calls")!r}, "a"))
(_, vocab), reference = read_npy(pathlib.Path({str(golden / "logits_f32.npy")!r}))
row = json.load(open({str(golden / "golden.json")!r}))["lengths"].index(length)
factor = float(os.environ["CHUNKS_TIMES"]) if chunk else 1
values = array.array("f", [factor * value for value in reference[row * vocab:(row + 1) * vocab]])
header = repr({{"descr": "<f4", "fortran_order": False, "shape": (1, vocab)}}).encode()
header += b" " * (-(10 + len(header) + 1) % 64) + b"\\n"
open(out, "wb").write(b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header + values.tobytes())
""")
            program.chmod(0o755)
            entry = {"model": "qwen2", "dtype": "bf16", "layout": "contiguous", "module": "module.pfm"}
            manifest = {"checks": [entry], "refused": [], "tune": [], "counters": {}, "continuation": False, "lengths": [1, 513]}
            (kit / "manifest.json").write_text(json.dumps(manifest))
            whole, chunked = "qwen2 bf16 contiguous", "qwen2 bf16 contiguous, chunks of 100"
            calls = "1\n513\n513 --chunk=100\n"
            for factor, lengths, expected, calls in (("1", None, [(whole, True), (chunked, True)], calls),
                                                     ("2", None, [(whole, True), (chunked, False)], calls),
                                                     ("1", [1], [(whole, True)], "1\n")):
                run_of = check.Check(kit, argparse.Namespace(device="cuda", lengths=lengths, models=["qwen2"], json=None,
                                                             minutes=20))
                self.addCleanup(run_of.scratch.cleanup)
                run_of.env["CHUNKS_TIMES"] = factor
                with contextlib.redirect_stdout(io.StringIO()):
                    run_of.run_parts([("goldens", 1, run_of.goldens)])
                self.assertEqual([(entry["what"], entry["ok"]) for entry in run_of.report["results"]], expected)
                self.assertEqual((kit / "calls").read_text(), calls)
                (kit / "calls").unlink()


if os.environ.get("PREFILL_FULL_KIT"):
    class FullKit(unittest.TestCase):
        """What is taken to a machine with a GPU. Its modules take nine minutes of a processor: PREFILL_FULL_KIT=1 asks for it."""

        def test_it_is_whole_and_small_enough(self):
            with tempfile.TemporaryDirectory() as scratch:
                kit = pathlib.Path(scratch, "kit")
                built = build(kit)
                self.assertEqual((built.returncode, built.stderr), (0, ""))
                self.assertNotIn("refused", built.stdout)
                size = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
                self.assertLessEqual(size, 60 << 20)
                manifest = json.loads((kit / "manifest.json").read_text())
                self.assertEqual({check["model"] for check in manifest["checks"]}, set(contents.MODELS))
                self.assertEqual(manifest["tune"], sorted(contents.DEFAULT_BENCH))
                self.assertEqual(set(manifest["counters"]), set(contents.CHIPS))
                self.assertEqual(manifest["real"]["shape"], "llama-3-8b")
                self.assertGreater(manifest["real"]["error"], 1e-4)
                # The CPU's own bf16 is as near as bf16 can be.
                self.assertLess(manifest["real"]["error"], 0.05)
                count = {name: len(list((kit / "modules" / name).glob("*.pfm.gz"))) for name in ("golden", "bench", "tune")}
                self.assertEqual(count, {"golden": len(list(contents.golden_variants(contents.MODELS))) + 1, "bench": 4,
                                         "tune": 3 * (1 + contents.TUNE_CANDIDATES)})


class Kit(unittest.TestCase):
    """A small one, and what it does."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.kit = cls.scratch / "kit"
        built = build(cls.kit, "--models=qwen2", "--bench-shapes=qwen2.5-0.5b", "--emulation=qwen2,tiny")
        if built.returncode != 0:
            raise AssertionError(f"the kit: {built.stdout}{built.stderr}")
        cls.built = built.stdout
        cls.emulated = cls.scratch / "emulated"
        cls.emulated.mkdir()
        for path in (cls.kit / "modules/golden").glob("*.gz"):
            (cls.emulated / path.stem).write_bytes(gzip.decompress(path.read_bytes()))

    def check(self, settings: str, *arguments, kit=None, **environment):
        """The result of a run, its JSON, and what the recording driver found."""
        report, log = self.scratch / "report.json", self.scratch / "log"
        for path in (report, log):
            path.unlink(missing_ok=True)
        result = execute((kit or self.kit) / "gpu-check", "--json", report, *arguments,
                         **on_stub(f"memory={8 << 30};log={log};{settings}"), **environment)
        found = log.read_text().split("-- report\n")[-1] if log.exists() else None
        return result, json.loads(report.read_text()) if report.exists() else None, found

    def test_what_is_in_it(self):
        self.assertIn(f"2 golden modules, 1 to time, {1 + contents.TUNE_CANDIDATES} of tiles", self.built)
        for name in ("gpu-check", "bin/prefill-run", "bin/prefill-bench", "lib/libprefill_runtime.so.0", "manifest.json",
                     "golden/qwen2/model.safetensors", "modules/golden/tiny-bf16.pfm.gz", "python/gpu_check/check.py"):
            self.assertTrue((self.kit / name).is_file(), name)
        self.assertFalse([path for path in (self.kit / "lib").iterdir() if "LLVM" in path.name or "MLIR" in path.name])
        self.assertFalse(list(self.kit.rglob("__pycache__")))

    def test_the_full_one_has_room(self):
        """Its size from this one's: golden modules and modules to time as large as those here, the tiles of three shapes, and
        all checkpoints. Compiling them all takes nine minutes of a processor (FullKit)."""
        def size(*paths):
            return sum(path.stat().st_size for path in paths if path.is_file())

        sizes = {name: [size(path) for path in (self.kit / "modules" / name).glob("*.gz")] for name in ("golden", "bench", "tune")}
        golden = len(list(contents.golden_variants(contents.MODELS))) + 1
        modules = golden * max(sizes["golden"]) + 4 * max(sizes["bench"]) + 3 * sum(sizes["tune"])
        checkpoints = size(*(path for model in contents.MODELS for path in (ROOT / "test/golden" / model).rglob("*")))
        others = size(*(path for path in self.kit.rglob("*") if path.suffix != ".gz"))
        self.assertLessEqual(modules + checkpoints + others, contents.MAX_KIT_BYTES)

    def test_without_a_device(self):
        result, report, _ = self.check("devices=0")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aerror: [^\n]*no CUDA device[^\n]*\n\Z")
        self.assertIsNone(report)

    def test_kernels_that_compute_the_goldens_pass(self):
        result, report, found = self.check(f"emulate={self.emulated}", "--lengths=1,65,513", "--parts=goldens", "--minutes=20")
        self.assertEqual(found, "", result.stdout)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual([entry["what"] for entry in report["results"]],
                         ["qwen2 bf16 contiguous", "tiny, 64 decoded tokens", "qwen2 bf16 contiguous, chunks of 100"])
        self.assertTrue(all(entry["ok"] for entry in report["results"]))
        self.assertEqual(report["cut"], [])

    def test_kernels_that_do_nothing_are_found_and_launches_are_timed(self):
        result, report, found = self.check("block-us=20", "--lengths=1", "--rounds=2", "--minutes=20", PATH=os.environ["PATH"],
                                           PYTHONPATH=str(self.fake_torch()))
        self.assertEqual(found, "", result.stdout)
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAILED  qwen2 bf16 contiguous: 1 tokens: relative error", result.stdout)
        self.assertIn("FAILED  qwen2.5-0.5b bf16, 2 layers: 600 tokens: relative error", result.stdout)
        rows = {row["name"]: row for row in report["rows"]}
        for wanted in ("gemm/bf16/512x1152x896", "gemm/bf16/512x9728x896", "attention/bf16/d64/s512"):
            self.assertGreater(rows[wanted]["us"], 0)
        self.assertTrue(all("cublaslt_us" in row for row in report["rows"] if row["name"].startswith("gemm/")))
        tiles = [row["name"] for row in report["tiles"]]
        self.assertEqual(len([name for name in tiles if "/512x9728x896/" in name]), 1 + contents.TUNE_CANDIDATES)
        self.assertIn("tune/cublaslt/bf16/16x151936x896", tiles)
        self.assertRegex(result.stdout, r"tile    gemm/bf16/512x9728x896: table [\d.]+ us, best \w+ [\d.]+ us, cuBLASLt")
        self.assertEqual(report["hardware_missing"], "no ncu")
        self.assertEqual(report["cut"], [])
        self.assertEqual([(row["name"], row["q_heads"], row["kv_heads"], "us" in row) for row in report["torch"]],
                         [("attention/bf16/d64/s512", 14, 2, True), ("attention/bf16/d64/s512", 14, 2, False)])

    def copy_of_kit(self, name):
        kit = self.scratch / name
        shutil.copytree(self.kit, kit, symlinks=True)
        return kit

    def replace(self, path, text):
        path.unlink(missing_ok=True)
        path.write_text("#!/usr/bin/env python3\n" + text)
        path.chmod(0o755)

    def test_logits_of_real_size_are_those_of_the_cpu(self):
        kit = self.copy_of_kit("real")
        # A GPU that answers what the CPU did in f32, all values off by a part.
        self.replace(kit / "bin/prefill-run", f"""
import array, json, os, sys
sys.path.insert(0, {str(ROOT / "python")!r})
from gpu_check import contents
arguments = sys.argv[1:]
out, tokens = (arguments[arguments.index(name) + 1] for name in ("--logits-out", "--tokens-file"))
count = len(open(tokens).read().split(","))
expected = array.array("f")
expected.frombytes(open({str(kit / "golden/real.f32")!r}, "rb").read())
vocab = contents.BENCH_VOCAB
values = array.array("f", [0.0]) * (count * vocab)
for i, row in enumerate(contents.REAL_ROWS):
    if row < count:
        values[row * vocab:(row + 1) * vocab] = expected[i * vocab:(i + 1) * vocab]
values = array.array("f", [value * (1 + float(os.environ["OFF_BY"])) for value in values])
header = repr({{"descr": "<f4", "fortran_order": False, "shape": (count, vocab)}}).encode()
header += b" " * (-(10 + len(header) + 1) % 64) + b"\\n"
open(out, "wb").write(b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header + values.tobytes())
""")
        allowed = 2 * json.loads((kit / "manifest.json").read_text())["real"]["error"]
        for part, code in ((0.9, 0), (1.1, 1)):
            result, report, _ = self.check("", "--parts=real-size", kit=kit, OFF_BY=str(part * allowed))
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertEqual([entry["ok"] for entry in report["results"]], [code == 0])

    def test_a_part_that_takes_too_long_keeps_what_is_done(self):
        kit = self.copy_of_kit("slow")
        row = "gemm/bf16/512x1152x896  qkv_proj  12.5  1.0 %  100.0  50.0 %  14.0  1.12"
        tile = "tune/gemm/bf16/512x1152x896/table  12.5  0.5%  1.000x"
        self.replace(kit / "bin/prefill-bench", f"""
import sys, time
if "/nonexistent" in sys.argv:
    sys.exit("error: --modules is '/nonexistent'")
print({tile!r} if "--tune" in sys.argv else {row!r}, flush=True)
time.sleep(600)
""")
        result, report, _ = self.check("", "--parts=launches,tiles,torch,hardware", "--minutes=0.4", kit=kit)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(report["rows"], [{"name": "gemm/bf16/512x1152x896", "launch": "qkv_proj", "us": 12.5, "spread": 0.01,
                                           "ratio": 0.5, "cublaslt_us": 14.0}])
        self.assertEqual(report["tiles"], [{"name": "tune/gemm/bf16/512x1152x896/table", "us": 12.5, "spread": 0.005,
                                            "over_table": 1.0}])
        self.assertRegex(report["cut"][0], r"^launches \(the rest: prefill-bench was ended after \d+ s\)$")
        self.assertRegex(report["cut"][1], r"^tiles \(the rest")
        # Far from the sleep of a program that nobody ended, and far above what a busy machine takes.
        self.assertLess(report["seconds"], 300)
        # Goldens that were not looked at are no good ones.
        result, report, _ = self.check("", "--parts=goldens", "--minutes=0.05", kit=kit)
        self.assertEqual(report["cut"], ["goldens"])
        self.assertEqual(result.returncode, 1)

    def test_what_the_profiler_counts_is_compared(self):
        manifest = json.loads((self.kit / "manifest.json").read_text())
        directory = self.scratch / "ncu"
        directory.mkdir()
        self.replace(directory / "ncu", f"""
import json
counters = json.load(open({str(self.kit / "manifest.json")!r}))["counters"]["sm_80"]
print("==PROF== Connected")
print('"ID","Kernel Name","l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum","sm__inst_executed_pipe_tensor.sum"')
print('"","","sector","inst"')
for i, (kernel, sums) in enumerate(counters.items()):
    for half in (0, 1):
        print(f'"{{2 * i + half}}","{{kernel}}(unsigned long)","{{sums["store_sectors"] // 2:,}}","{{sums["matrix_instructions"]:,}}"')
print('"99","cutlass_gemm","1","1"')
""")
        result, report, _ = self.check("", "--parts=hardware", PATH=f"{directory}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        compared = {(row["kernel"], row["counter"]): row for row in report["hardware"]}
        # Kernels of a schedule have its limit in their names.
        kernel, counters = next(item for item in manifest["counters"]["sm_80"].items() if item[0].startswith("qkv_proj"))
        gemm = compared[kernel, "matrix_instructions"]
        self.assertEqual(gemm["emulator"], counters["matrix_instructions"])
        self.assertEqual(gemm["ratio"], 2)
        self.assertAlmostEqual(compared[kernel, "store_sectors"]["ratio"], 1, places=2)
        self.assertNotIn((kernel, "load_sectors"), compared)
        self.replace(directory / "ncu", """
print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
raise SystemExit(1)
""")
        result, report, _ = self.check("", "--parts=hardware", PATH=f"{directory}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 0)
        self.assertIn("ERR_NVGPUCTRPERM", report["hardware_missing"])

    def fake_torch(self):
        """A torch on whose GPU cuDNN fails, at length."""
        directory = self.scratch / "torch-path"
        (directory / "torch" / "nn").mkdir(parents=True, exist_ok=True)
        (directory / "torch" / "__init__.py").write_text("""
bfloat16, float16 = "bf16", "f16"
class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
    class Event:
        def __init__(self, enable_timing): pass
        def record(self): pass
        def elapsed_time(self, end): return 0.25
def randn(*shape, device, dtype): return shape
""")
        (directory / "torch" / "nn" / "__init__.py").write_text("")
        (directory / "torch" / "nn" / "functional.py").write_text("""
def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa):
    assert is_causal and enable_gqa and k == v and q[2:] == k[2:]
    from torch.nn import attention
    if attention.chosen == ["cudnn"]:
        raise RuntimeError("No available kernel.\\nAborting execution.")
""")
        (directory / "torch" / "nn" / "attention.py").write_text("""
import contextlib
chosen = None
class SDPBackend:
    FLASH_ATTENTION, CUDNN_ATTENTION = "flash", "cudnn"
@contextlib.contextmanager
def sdpa_kernel(backends):
    global chosen
    chosen = backends
    yield
""")
        return directory

    def test_pytorchs_attention_has_the_same_shape(self):
        script = self.kit / "python/gpu_check/torch_attention.py"
        result = execute(sys.executable, script, "3", "attention/bf16/d128/s2048:32:8", PYTHONPATH=str(self.fake_torch()))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        shape = {"name": "attention/bf16/d128/s2048", "q_heads": 32, "kv_heads": 8}
        self.assertEqual([json.loads(line) for line in result.stdout.splitlines()],
                         [{**shape, "backend": "FlashAttention", "us": 250.0},
                          {**shape, "backend": "cuDNN", "error": "RuntimeError: No available kernel."}])
        result = execute(sys.executable, script, "3", "attention/bf16/d128/s2048:32:8",
                         PYTHONPATH=str(self.scratch / "nowhere"))
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")

    def test_lines_of_the_tables_are_read(self):
        self.assertEqual(check.launches_in("name  launch\nattention/bf16/d64/s512   attention  8.0  0.5 %  10.0  20.0 %\nx\n"),
                         [{"name": "attention/bf16/d64/s512", "launch": "attention", "us": 8.0, "spread": 0.005, "ratio": 0.2}])
        self.assertEqual(check.tiles_in("candidate us\ntune/cublaslt/bf16/16x8x8    4.5\n"),
                         [{"name": "tune/cublaslt/bf16/16x8x8", "us": 4.5}])


if __name__ == "__main__":
    unittest.main()
