"""prefill-bench: what its JSON holds, which rows a filter chooses, and its errors. Speed is not judged: machines differ.

Rows of qwen2.5-0.5b with M = 37 are run, which load in a moment.
"""

import json
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
TINY = "^gemm-qwen2.5-0.5b/bf16/37x"


def bench(*arguments, **environment):
    return subprocess.run([BIN / "prefill-bench", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=900, env={**os.environ, **environment})


class Rows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.directory = pathlib.Path(scratch.name)
        cls.modules = cls.directory / "modules"
        cls.result = bench("--filter", TINY, "--rounds=3", "--json", cls.directory / "rows.json", "--modules", cls.modules)
        if cls.result.returncode:
            raise AssertionError(cls.result.stderr)
        cls.rows = json.loads((cls.directory / "rows.json").read_text())

    def test_every_row_that_the_filter_names_is_there_once(self):
        # Q|K|V, o, gate|up and down of qwen2.5-0.5b as M x N x K.
        self.assertEqual([row["name"] for row in self.rows],
                         [f"gemm-qwen2.5-0.5b/bf16/37x{nk}" for nk in ("1152x896", "896x896", "9728x896", "896x4864")])

    def test_fields(self):
        for row in self.rows:
            with self.subTest(row["name"]):
                self.assertEqual(row["rounds"], 3)
                self.assertEqual(len(row["ratios"]), 3)
                self.assertEqual(row["threads"], 1)
                self.assertEqual(row["dtype"], "bf16")
                self.assertGreater(row["ratio"], 0)
                self.assertGreaterEqual(row["spread"], 0)
                self.assertAlmostEqual(row["ratio"], sorted(row["ratios"])[1], places=4)
                m, n, k = map(int, row["name"].rsplit("/", 1)[1].split("x"))
                self.assertEqual(row["flops"], 2 * m * n * k)
                self.assertAlmostEqual(row["gflops"], row["flops"] / row["seconds"] / 1e9, delta=row["gflops"] / 100)

    def test_peer_or_the_reason_why_there_is_none(self):
        for row in self.rows:
            with self.subTest(row["name"]):
                if row["onednn_ratio"] is None:
                    self.assertTrue(row["onednn_missing"])
                else:
                    self.assertGreater(row["onednn_ratio"], 0)
                    self.assertRegex(row["onednn_version"], r"^oneDNN \d")

    def test_table_has_a_line_for_each_row(self):
        lines = self.result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["row"] + [row["name"] for row in self.rows])

    def test_precompiled_modules_need_no_compiler(self):
        result = bench("--filter", TINY + "1152x896", "--rounds=1", "--modules", self.modules, "--bin", self.directory)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_missing_compiler_is_one_line(self):
        with tempfile.TemporaryDirectory() as empty:
            output = pathlib.Path(empty) / "rows.json"
            result = bench("--filter", TINY, "--modules", pathlib.Path(empty) / "none", "--bin", empty, "--json", output)
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, r"\Aerror: no compiler: .*\n\Z")
            self.assertFalse(output.exists())

    def test_failing_compiler_is_named_and_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as scratch:
            tools, modules = pathlib.Path(scratch) / "bin", pathlib.Path(scratch) / "modules"
            tools.mkdir()
            (tools / "prefill-translate").symlink_to(BIN / "prefill-translate")
            (tools / "prefill-opt").write_text("#!/bin/sh\necho 'error: no such thing' >&2; exit 3\n")
            (tools / "prefill-opt").chmod(0o755)
            output = pathlib.Path(scratch) / "rows.json"
            result = bench("--filter", TINY, "--modules", modules, "--bin", tools, "--json", output)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("error: prefill-opt ended with exit code 3: error: no such thing\n", result.stderr)
            self.assertFalse(output.exists())
            self.assertEqual(list(modules.iterdir()), [])

    def test_a_failing_compiler_may_say_nothing_or_write_nothing(self):
        for script, message in (("exit 3", "error: prefill-opt ended with exit code 3 without a message\n"),
                                ("exit 0", r"prefill-opt' ended well, but wrote no '")):
            with self.subTest(script), tempfile.TemporaryDirectory() as scratch:
                tools, modules = pathlib.Path(scratch) / "bin", pathlib.Path(scratch) / "modules"
                tools.mkdir()
                (tools / "prefill-translate").symlink_to(BIN / "prefill-translate")
                (tools / "prefill-opt").write_text(f"#!/bin/sh\n{script}\n")
                (tools / "prefill-opt").chmod(0o755)
                result = bench("--filter", TINY, "--modules", modules, "--bin", tools)
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)
                self.assertEqual(list(modules.iterdir()), [])

    def test_an_interrupted_run_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number), tempfile.TemporaryDirectory() as scratch:
                if signal.getsignal(number) == signal.SIG_IGN:
                    self.skipTest(f"{number.name} is ignored, as under nohup: children inherit that")
                scratch = pathlib.Path(scratch)
                tools, modules, started = scratch / "bin", scratch / "modules", scratch / "started"
                tools.mkdir()
                (tools / "prefill-translate").symlink_to(BIN / "prefill-translate")
                # A compiler that has begun to write and takes for ever.
                (tools / "prefill-opt").write_text(
                    f"#!/bin/sh\nfor output; do :; done\necho half > \"$output\"\n"
                    f"echo $$ > {started}.new; mv {started}.new {started}\nexec sleep 600\n")
                (tools / "prefill-opt").chmod(0o755)
                process = subprocess.Popen([BIN / "prefill-bench", "--filter", TINY, "--modules", modules, "--bin", tools,
                                            "--json", scratch / "rows.json"], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                deadline = time.monotonic() + 120
                while not started.exists():
                    self.assertIsNone(process.poll())
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.02)
                self.assertTrue(any(modules.iterdir()))
                process.send_signal(number)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, -number)
                self.assertEqual(list(modules.iterdir()), [])
                self.assertEqual(sorted(path.name for path in scratch.iterdir()), ["bin", "modules", "started"])
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(started.read_text()), 0)

    @unittest.skipIf((os.cpu_count() or 1) < 2 or len(os.sched_getaffinity(0)) < 2, "needs two processors")
    def test_two_threads(self):
        output = self.directory / "two.json"
        result = bench("--filter", TINY + "1152x896", "--rounds=1", "--threads=2", "--modules", self.modules, "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([row["threads"] for row in json.loads(output.read_text())], [2])

    PROBES = {"avx2": "vfmadd231ps ymm", "avx512": "vfmadd231ps zmm", "avx512_bf16": "vdpbf16ps zmm",
              "amx_bf16": "tdpbf16ps tmm"}
    FLAGS = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16", "amx_bf16": "amx_bf16"}
    ONEDNN = {"avx2": "avx2", "avx512": "avx512_core", "avx512_bf16": "avx512_core_bf16"}

    def test_the_probe_is_that_of_the_instruction_set(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        for row in self.rows:
            with self.subTest(row["name"]):
                self.assertEqual(row["probe"], self.PROBES[row["isa"]])
                # Where something faster than vdpbf16ps runs, rows say what they are to it.
                faster = row["isa"] != "avx512_bf16" and "avx512_bf16" in flags
                self.assertEqual("vdpbf16ps_ratio" in row, faster and row["dtype"] == "bf16")

    def test_a_forced_instruction_set(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        most_capable = [isa for isa in self.PROBES if self.FLAGS[isa] in flags][-1]
        for isa in self.PROBES:
            with self.subTest(isa):
                output = self.directory / f"{isa}.json"
                result = bench("--filter", TINY + "1152x896", "--rounds=1", "--isa", isa, "--modules", self.modules,
                               "--json", output)
                if self.FLAGS[isa] not in flags:
                    self.assertEqual(result.returncode, 1)
                    self.assertRegex(result.stderr, rf"\Aerror: device 'cpu:{isa}': this CPU supports [^\n]+\n\Z")
                    continue
                self.assertEqual(result.returncode, 0, result.stderr)
                [row] = json.loads(output.read_text())
                self.assertEqual((row["isa"], row["probe"]), (isa, self.PROBES[isa]))
                if row["onednn_ratio"] is not None and isa != most_capable:
                    self.assertEqual(row["onednn_isa"], self.ONEDNN[isa])
                if isa == "amx_bf16":
                    self.assertGreater(row["vdpbf16ps_ratio"], row["ratio"])

    INT8_PROBES = {"avx2": "vfmadd231ps ymm", "avx_vnni": "vpdpbusd ymm", "avx512": "vfmadd231ps zmm",
                   "avx512_vnni": "vpdpbusd zmm", "avx512_bf16": "vpdpbusd zmm", "amx_bf16": "vpdpbusd zmm"}
    INT8_FLAGS = {**FLAGS, "avx_vnni": "avx_vnni", "avx512_vnni": "avx512_vnni"}

    def test_int8_rows(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        runnable = [isa for isa in self.INT8_PROBES if self.INT8_FLAGS[isa] in flags]
        output = self.directory / "int8.json"
        for isa in [None, *runnable]:
            with self.subTest(isa):
                result = bench("--filter", "^gemm-qwen2.5-0.5b/int8/37x1152x896", "--rounds=1", "--modules", self.modules,
                               "--json", output, *([f"--isa={isa}"] if isa else []))
                self.assertEqual(result.returncode, 0, result.stderr)
                [row] = json.loads(output.read_text())
                self.assertEqual(row["dtype"], "int8")
                self.assertIn(row["isa"], [isa] if isa else runnable)
                self.assertEqual(row["probe"], self.INT8_PROBES[row["isa"]])
                self.assertEqual(row["flops"], 2 * 37 * 1152 * 896)
                # The launch that makes the integers is not in the row's time.
                self.assertGreater(row["quantize_seconds"], 0)
                beside = self.PROBES.get(row["isa"], {"avx_vnni": "vfmadd231ps ymm", "avx512_vnni": "vfmadd231ps zmm"}.get(row["isa"]))
                ratios = {key for key in row if key.endswith("_ratio")} - {"onednn_ratio"}
                self.assertEqual(ratios, {beside.split()[0] + "_ratio"} if beside != row["probe"] else set())
                if row["onednn_ratio"] is not None and isa in ("avx_vnni", "avx512_vnni") and isa != runnable[-1]:
                    self.assertEqual(row["onednn_isa"], {"avx_vnni": "avx2_vnni", "avx512_vnni": "avx512_core_vnni"}[isa])

    def test_instruction_sets_of_int8_alone(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
        for isa, other in (("avx_vnni", "avx2"), ("avx512_vnni", "avx512")):
            with self.subTest(isa):
                if isa not in flags:
                    self.skipTest(f"this machine does not run {isa}")
                output = self.directory / "other.json"
                result = bench("--filter", TINY + "1152x896", "--rounds=1", f"--isa={isa}", "--modules", self.modules,
                               "--json", output)
                self.assertEqual(result.returncode, 0, result.stderr)
                [row] = json.loads(output.read_text())
                self.assertEqual((row["isa"], row["probe"]), (other, self.PROBES[other]))
                self.assertNotIn("quantize_seconds", row)

    @unittest.skipUnless("amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text(), "this machine does not run amx_bf16")
    def test_tiles_are_for_bf16(self):
        output = self.directory / "f32.json"
        result = bench("--filter", "^gemm-qwen2.5-0.5b/f32/37x1152x896", "--rounds=1", "--isa=amx_bf16", "--modules",
                       self.modules, "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        [row] = json.loads(output.read_text())
        self.assertEqual((row["isa"], row["probe"]), ("avx512_bf16", "vfmadd231ps zmm"))
        self.assertNotIn("vdpbf16ps_ratio", row)

    # 24 layers of 896x1152 + 896x896 + 896x9728 + 4864x896 weights, a head of 896 x 151936, 14 heads of 64.
    # The last layer's attention, o_proj and feed-forward are needed for the last token alone.
    LAYER, PAIR = 896 * 1152 + 896 * 896 + 896 * 9728 + 4864 * 896, 4 * 64 * 14
    FLOPS_OF_128_TOKENS = (23 * (2 * 128 * LAYER + PAIR * 128 * 129 // 2)
                           + 2 * 128 * 896 * 1152 + 2 * (LAYER - 896 * 1152) + PAIR * 128 + 2 * 896 * 151936)

    def test_attention_model_and_decode_rows_say_what_they_count(self):
        output = self.directory / "model.json"
        result = bench("--filter", "^(model|decode|startup)/qwen2.5-0.5b/bf16(/s128)?$", "--rounds=1", "--modules", self.modules,
                       "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        model, decode, startup = json.loads(output.read_text())
        self.assertEqual(model["flops"], self.FLOPS_OF_128_TOKENS)
        self.assertAlmostEqual(model["ttft_ms"], 1e3 * model["seconds"], delta=model["seconds"])
        self.assertAlmostEqual(model["tokens_per_s"], 128 / model["seconds"], delta=0.001 * model["tokens_per_s"])
        self.assertFalse({"ttft_ms", "tokens_per_s"} & (decode.keys() | startup.keys() | self.rows[0].keys()))
        weights = 24 * self.LAYER + 896 * 151936
        self.assertEqual(decode["probe"], "streaming read")
        # bf16, and the keys and values of 129 tokens; biases, gains and one row of the embedding are little.
        self.assertAlmostEqual(decode["bytes"], 2 * weights + 129 * 24 * 2 * 2 * 64 * 2, delta=1e6)
        self.assertEqual(startup["probe"], "first start")
        self.assertAlmostEqual(startup["ratio"], startup["first_seconds"] / startup["seconds"], delta=startup["ratio"] / 100)
        self.assertGreater(startup["compile_seconds"], 0)
        self.assertEqual([path.name for path in self.modules.glob("checkpoint-*")], ["checkpoint-qwen2.5-0.5b-bf16"])

    def test_int8_models_count_the_work_of_bf16_and_fewer_bytes(self):
        output = self.directory / "int8-model.json"
        result = bench("--filter", "^(model|decode)/qwen2.5-0.5b/int8/s128$", "--rounds=1", "--modules", self.modules,
                       "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        model, decode = json.loads(output.read_text())
        self.assertEqual((model["dtype"], model["flops"]), ("int8", self.FLOPS_OF_128_TOKENS))
        self.assertEqual(model["probe"], self.INT8_PROBES[model["isa"]])
        self.assertNotIn("quantize_seconds", model)
        self.assertEqual(decode["probe"], "streaming read")
        # A byte for each weight of the layers and a scale for each output channel; the LM head and the cache stay bf16.
        self.assertAlmostEqual(decode["bytes"], 24 * (self.LAYER + 4 * (1152 + 896 + 9728 + 896)) + 2 * 896 * 151936
                               + 129 * 24 * 2 * 2 * 64 * 2, delta=1.5e6)

    def test_attention_over_several_layouts(self):
        output = self.directory / "attention.json"
        result = bench("--filter", "^attention-qwen2.5-0.5b/bf16/d64/s128", "--rounds=2", "--modules", self.modules,
                       "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(output.read_text())
        name = "attention-qwen2.5-0.5b/bf16/d64/s128"
        self.assertEqual([(row["name"], row["kv_layout"]) for row in rows],
                         [(name, "paged_vnni"), (name + "/contiguous", "contiguous"), (name + "/paged_nhd_16", "paged_nhd:16")])
        self.assertEqual([(row["flops"], len(row["ratios"])) for row in rows], [(2 * 64 * 14 * 128 * 129, 2)] * 3)

    def test_decode_rows_of_two_lengths_take_turns(self):
        output = self.directory / "decode.json"
        result = bench("--filter", "^decode/qwen2.5-0.5b/bf16/s(32|128)$", "--rounds=2", "--modules", self.modules,
                       "--json", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        short, long = json.loads(output.read_text())
        self.assertEqual([len(row["ratios"]) for row in (short, long)], [2, 2])
        # The keys and values of 96 tokens more: 24 layers, 2 heads of 64, bf16.
        self.assertEqual(long["bytes"] - short["bytes"], 96 * 24 * 2 * 2 * 64 * 2)


class Tune(unittest.TestCase):
    """With a stand-in for prefill-opt that looks at --tuning and compiles what the table says."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.modules, self.cache, self.tools = (self.scratch / name for name in ("modules", "cache", "bin"))
        self.tools.mkdir()
        (self.tools / "prefill-translate").symlink_to(BIN / "prefill-translate")

    def tool(self, on_tuning):
        path = self.tools / "prefill-opt"
        path.write_text(f"""#!/usr/bin/python3
import json, os, sys
tuning = [a for a in sys.argv[1:] if a.startswith("--tuning=")]
if tuning:
    sizes = json.load(open(tuning[0][len("--tuning="):]))
    {on_tuning}
os.execv({str(BIN / "prefill-opt")!r}, ["prefill-opt"] + [a for a in sys.argv[1:] if a not in tuning])
""")
        path.chmod(0o755)

    def tune(self, *arguments, candidates="(32|64)x256", shapes="llama-3.2-1b"):
        return bench("--tune", f"--shapes={shapes}", f"--filter=tune/attention/{candidates}$", "--rounds=1", "--bin",
                     self.tools, "--modules", self.modules, "--json", self.scratch / "tune.json", *arguments,
                     XDG_CACHE_HOME=str(self.cache))

    def test_the_best_is_written_when_it_beats_the_table(self):
        self.tool("""if sizes["attention"]["block_q"] == 32: sys.exit("error: 32 is refused")""")
        result = self.tune("--tune-threshold=1", shapes="llama-3.2-1b,llama-3-8b")
        self.assertEqual(result.returncode, 0, result.stderr)
        table, refused, tuned = json.loads((self.scratch / "tune.json").read_text())
        self.assertEqual([row["name"] for row in (table, refused, tuned)],
                         [f"tune/attention/{name}" for name in ("table", "32x256", "64x256")])
        self.assertEqual(table["over_table"], 1)
        self.assertIn("32 is refused", refused["refused"])
        written = list(self.cache.glob("prefill/tuning-*.json"))
        if tuned["over_table"] > 1.01:
            [path] = written
            self.assertEqual(json.loads(path.read_text()), {
                "machine": path.stem.removeprefix("tuning-"), "attention": {"block_q": 64, "block_kv": 256}})
        else:
            self.assertEqual(written, [])
            self.assertIn("nothing beats it by more than 1 %", result.stdout)

    def test_an_older_file_does_not_outlive_the_table(self):
        self.tool("pass")
        listed = bench("--tune", "--list", "--filter=tune/attention/(32|64)x256$").stdout
        self.assertEqual(listed, "tune/attention/table\ntune/attention/32x256\ntune/attention/64x256\n")
        probe = self.tune("--tune-threshold=0")  # to learn the file's name; whoever wins
        self.assertEqual(probe.returncode, 0, probe.stderr)
        found = list(self.cache.glob("prefill/tuning-*.json"))
        if not found:
            self.skipTest("the table won, which does not tell the name of the file")
        [path] = found
        older = json.loads(path.read_text())
        for kept in ({}, {"gemm": {"block_m": 48, "block_n": 64}}):
            with self.subTest(kept=kept):
                path.write_text(json.dumps({**older, **kept}))
                result = self.tune("--tune-threshold=100", candidates="64x256")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("the compiler's table stands", result.stdout)
                if kept:  # a section that was not timed
                    self.assertEqual(json.loads(path.read_text()), {"machine": older["machine"], **kept})
                else:
                    self.assertFalse(path.exists())
                    self.assertIn(f"removed what an earlier run wrote to {path}", result.stdout)

    def test_a_compiler_that_refuses_all_is_an_error(self):
        self.tool("""sys.exit("error: no tuning here")""")
        result = self.tune()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("error: prefill-opt ended with exit code 1: error: no tuning here\n", result.stderr)
        self.assertFalse((self.scratch / "tune.json").exists())
        self.assertEqual(list(self.cache.glob("**/*.json")), [])


class TuneCuda(unittest.TestCase):
    """On the recording driver. Its times are made up: a launch takes 20 us for each of its blocks, so large tiles win."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)

    def tune(self, *arguments, settings="block-us=20"):
        log = self.scratch / "log"
        log.unlink(missing_ok=True)
        result = bench("--tune", "--device=cuda", "--shapes=qwen2.5-0.5b", "--candidates=2", "--rounds=2", "--modules",
                       self.scratch / "modules", *arguments, XDG_CACHE_HOME=str(self.scratch / "cache"),
                       LD_LIBRARY_PATH=str(BIN.parent / "lib" / "cuda-stub"),
                       PREFILL_CUDA_STUB=f"memory={8 << 30};log={log};{settings}")
        if log.exists():
            self.assertEqual(log.read_text().split("-- report\n")[-1], "")
        return result

    def test_what_wins_is_written_and_compiled(self):
        rows = self.scratch / "rows.json"
        result = self.tune("--filter=/512x9728x896/|/s512/|cublaslt/bf16/16x", "--json", rows)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["name"]: row for row in json.loads(rows.read_text())}
        table = rows["tune/gemm/bf16/512x9728x896/table"]
        tuned = {name.rsplit("/", 1)[1]: row for name, row in rows.items() if "512x9728x896" in name and row is not table}
        self.assertEqual(len(tuned), 2)
        self.assertIn("tune/cublaslt/bf16/16x151936x896", rows)
        for tile, row in tuned.items():
            block_m, block_n = map(int, tile.split("x"))
            blocks = -(-512 // block_m) * -(-9728 // block_n)
            self.assertAlmostEqual(row["us"], 1000 + 20 * blocks, delta=1)
            self.assertAlmostEqual(row["over_table"], table["us"] / row["us"], delta=1e-3)
        best = min(tuned, key=lambda tile: tuned[tile]["us"])
        self.assertGreater(tuned[best]["over_table"], 1.02)

        [path] = (self.scratch / "cache" / "prefill").glob("tuning-*.json")
        self.assertIn(f"written to {path}", result.stdout)
        written = json.loads(path.read_text())
        self.assertEqual(written["machine"], path.stem.removeprefix("tuning-"))
        block_m, block_n = map(int, best.split("x"))
        # Entries of one gemm are in ascending order, neighbours with one tile are one; the last is for all that is left.
        entries = [entry for entry in written["cuda"]["sm_80"]["bf16"]["gemm"] if (entry["n"], entry["k"]) == (9728, 896)]
        entry = next(entry for entry in entries if entry.get("rows", 1 << 40) >= 512)
        self.assertEqual((entry["block_m"], entry["block_n"]), (block_m, block_n))
        self.assertNotIn("rows", entries[-1])
        model = self.scratch / "model.mlir"
        for command in (["prefill-translate", "--synthesize", "qwen2.5-0.5b", "--layers=1", "--vocab=1024", "-o", model],
                        ["prefill-opt", model, "--compile-to=config", "--target=cuda:sm_80", f"--tuning={path}", "-o",
                         "/dev/null"]):
            subprocess.run([BIN / command[0], *command[1:]], check=True)

        algorithms = json.loads((self.scratch / "cache" / "prefill" / "cublaslt.json").read_text())["algorithms"]
        [entry] = [entry for key, entry in algorithms.items() if "16x151936x896 bf16 -> f32" in key]
        self.assertTrue(entry["measured"])

    def test_list_names_them(self):
        result = self.tune("--list", "--filter=512x9728x896")
        self.assertEqual(result.returncode, 0, result.stderr)
        names = result.stdout.splitlines()
        self.assertEqual(len(names), 3)
        self.assertEqual(names[0], "tune/gemm/bf16/512x9728x896/table")
        self.assertRegex(names[1], r"^tune/gemm/bf16/512x9728x896/\d+x\d+$")

    def test_errors(self):
        for arguments, settings, message in (
                ([], "devices=0", "no CUDA device"),
                (["--filter=nothing"], "", "--filter matches no name"),
                ([], "chip=75", "expected sm_80 or newer"),
                ([f"--bin={self.scratch}", "--modules", self.scratch / "none"], "", "no compiler")):
            with self.subTest(message):
                result = self.tune(*arguments, settings=settings)
                self.assertNotEqual(result.returncode, 0)
                self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
                self.assertIn(message, result.stderr)


class CommandLine(unittest.TestCase):
    CASES = {
        "unknown option": (["--bogus"], "--bogus", "--filter"),
        "positional": (["rows"], "'rows'", "--filter"),
        "bad regex": (["--filter=["], "--filter", "regular expression"),
        "filter without a match": (["--filter=nosuchrow"], "'nosuchrow'", "--list"),
        "no candidate matches": (["--tune", "--filter=gemm/bf16"], "'gemm/bf16'", "tune/gemm"),
        "threads 0": (["--threads=0"], "--threads is '0'", "from 1 to"),
        "threads beyond the machine": (["--threads=100000"], "'100000'", "processors"),
        "threads not a number": (["--threads=two"], "'two'", "integer"),
        "rounds 0": (["--rounds", "0"], "--rounds is '0'", "from 1 to"),
        "rounds empty": (["--rounds="], "--rounds is ''", "from 1 to"),
        "rounds without a value": (["--rounds"], "--rounds", "value"),
        "json empty": (["--json="], "--json is ''", "file"),
        "json in no directory": (["--json=/nonexistent/rows.json", f"--filter={TINY}"], "'/nonexistent/rows.json'", "directory"),
        "cuda": (["--device=cuda"], "no CUDA device", "cuda"),
        "unknown device": (["--device=abacus"], "'abacus'", "expected cpu"),
        "unknown isa": (["--isa=sse"], "--isa is 'sse'", "expected avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16 or amx_bf16"),
        "isa of a GPU": (["--isa=avx2", "--device=cuda"], "--isa", "--device cuda"),
        "isa of tuning": (["--isa=avx2", "--tune"], "--isa", "--tune"),
        "tune without a device": (["--tune", "--device=cuda"], "no CUDA device", "cuda"),
        "unknown shape": (["--tune", "--device=cuda", "--shapes=llama-3-8b,gpt"], "--shapes is 'llama-3-8b,gpt'", "llama-3.2-1b"),
        "shape of no CPU": (["--tune", "--shapes=llama-3-8b,llama-3-70b"], "--shapes has 'llama-3-70b'", "llama-3.2-1b or llama-3-8b"),
        "shapes of rows": (["--shapes=llama-3-8b"], "--shapes", "--tune"),
        "compile-only of nothing": (["--compile-only"], "--compile-only", "--tune"),
        "threshold": (["--tune", "--tune-threshold=much"], "--tune-threshold is 'much'", "per cent"),
        "two tasks": (["--tune", "--measure-machine"], "--tune", "--measure-machine"),
        "list of no rows": (["--measure-machine", "--list"], "--list", "--measure-machine"),
        "rows of a task": (["--measure-machine", "--filter=gemm"], "--filter", "--measure-machine"),
    }

    def test_errors(self):
        for name, (arguments, *expected) in self.CASES.items():
            with self.subTest(name):
                result = bench(*arguments)
                self.assertNotEqual(result.returncode, 0)
                self.assertEqual(result.stdout, "")
                self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
                for part in expected:
                    self.assertIn(part, result.stderr)

    def test_list_names_the_rows_of_the_contract(self):
        names = {line.split()[0] for line in bench("--list").stdout.splitlines()}
        wanted = {f"{family}/{dtype}/{m}x{nk}"
                  for dtype in ("bf16", "f32")
                  for family, rows in (("gemm", (512, 2048)), ("gemm-small", (37, 130)))
                  for m in rows
                  for nk in ("3072x2048", "2048x2048", "16384x2048", "2048x8192",
                             "6144x4096", "4096x4096", "28672x4096", "4096x14336")}
        wanted |= {f"attention/{dtype}/d{d}/s{s}" for dtype in ("bf16", "f32") for d in (64, 128) for s in (2048, 8192)}
        wanted |= {f"model/llama-3.2-1b/bf16/s{s}" for s in (128, 512, 1024, 2048, 4096, 8192, 16384)}
        wanted |= {"gemm/int8/512x3072x2048", "gemm-small/int8/37x3072x2048", "gemm-small/int8/1x3072x2048",
                   "model/llama-3.2-1b/int8/s512", "model/llama-3.2-1b/int8/s2048/contiguous", "decode/llama-3.2-1b/int8/s512"}
        wanted |= {"decode/llama-3.2-1b/bf16/s512", "gemm-avx2/bf16/512x6144x4096", "gemm-avx512/bf16/512x6144x4096"}
        self.assertEqual(wanted - names, set())

    def test_slow_rows_must_be_named(self):
        lines = bench("--list").stdout.splitlines()
        self.assertEqual(len(lines), len({line.split()[0] for line in lines}))
        left_out = {line.split()[0] for line in lines if line.endswith("   (only when a filter names it)")}
        expected = {f"gemm-small/bf16/{m}x{nk}" for m in (1, 2, 4, 8, 9, 16, 24) for nk in ("3072x2048", "4096x14336")}
        expected |= {f"decode/llama-3.2-1b/bf16/s{s}{layout}" for s in (4096, 8192) for layout in ("", "/contiguous")}
        expected |= {f"model/llama-3.2-1b/{row}" for s in (128, 512, 2048) for row in (f"f32/s{s}", f"f16/s{s}/contiguous")}
        expected |= {f"model/llama-3-8b/{dtype}/s{s}" for dtype in ("bf16", "int8") for s in (512, 2048)}
        expected |= {"gemm/int8/2048x3072x2048", "gemm-small/int8/37x3072x2048", "model/llama-3.2-1b/int8/s128"}
        expected |= {f"attention/{dtype}/d{d}/s{s}/{layout}" for dtype in ("bf16", "f32") for d in (64, 128)
                     for s in (2048, 8192) for layout in ("head_major", "paged_nhd_16")}
        self.assertEqual(expected - left_out, set())

    def test_a_full_disk_is_an_error(self):
        result = bench("--list")
        self.assertEqual(result.returncode, 0)
        with open("/dev/full", "w") as full:
            failed = subprocess.run([BIN / "prefill-bench", "--list"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertNotEqual(failed.returncode, 0)
        self.assertRegex(failed.stderr, r"\Aerror: [^\n]+\n\Z")

    def test_measure_machine(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "machine.json"
            result = bench("--measure-machine", "--json", path)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
            machine = json.loads(path.read_text())
            self.assertEqual(machine["threads"], 1)
            flags = pathlib.Path("/proc/cpuinfo").read_text().split()
            self.assertEqual({(peak["instruction"], peak["isa"]) for peak in machine["peaks"] if peak["dtype"] == "int8"},
                             {(f"vpdpbusd {width}", isa) for width, isa in (("ymm", "avx_vnni"), ("zmm", "avx512_vnni"))
                              if isa in flags})
            for peak in machine["peaks"]:
                self.assertEqual(len(peak["gflops"]), 1)
                self.assertGreater(peak["gflops"][0], 0)
            self.assertGreater(machine["read_gbytes_per_s"]["memory"][0], 0)
            self.assertFalse(stat.S_IMODE(path.stat().st_mode) & 0o111)


if __name__ == "__main__":
    unittest.main()
