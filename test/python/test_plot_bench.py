"""scripts/plot-bench: its tables, and what it says about files that prefill-bench did not write. Nothing is installed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GEMM = {"name": "gemm/bf16/512x6144x4096", "ratio": 0.9, "spread": 0.01, "rounds": 9, "threads": 1, "onednn_ratio": 1.02}
MODEL = {"name": "model/llama-3.2-1b/bf16/s512", "ratio": 0.91, "spread": 0.02, "rounds": 9, "threads": 1, "seconds": 4.7,
         "gflops": 215.0, "probe_gflops": 236.0}


class PlotBench(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_on(self, content, *arguments):
        path = self.directory / "rows.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        # What it would install goes here.
        return subprocess.run([sys.executable, ROOT / "scripts" / "plot-bench", path, *arguments], capture_output=True,
                              text=True, env={**os.environ, "XDG_CACHE_HOME": str(self.directory / "cache")})

    def test_tables(self):
        result = self.run_on([GEMM, MODEL])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("| 6144x4096 | llama-3-8b qkv | 0.900 (1.02x) |", result.stdout)
        self.assertIn("| `model/llama-3.2-1b/bf16/s512` | 1 | 0.910 | 2.0% | 215.0 GFLOP/s | 4700.0 | 9 |", result.stdout)

    def test_two_threads_beside_one(self):
        startup = {**MODEL, "name": "startup/llama-3.2-1b/bf16", "first_seconds": 2.0, "compile_seconds": 2.0}
        alone = {**MODEL, "name": "model/llama-3.2-1b/bf16/s128", "threads": 2}
        result = self.run_on([GEMM, MODEL, startup, alone, {**startup, "threads": 2},
                              {**MODEL, "threads": 2, "ratio": 0.819, "spread": 0.03, "rounds": 5},
                              {**GEMM, "threads": 2, "ratio": 0.855}])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        [table] = [part for part in result.stdout.split("\n\n") if "relative to one thread |" in part]
        self.assertEqual(table.splitlines(), [
            "| row | threads | ratio | ratio of one thread | relative to one thread | spread | rounds |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| `model/llama-3.2-1b/bf16/s512` | 2 | 0.819 | 0.910 | 0.900 | 3.0% | 5 |",
            "| `gemm/bf16/512x6144x4096` | 2 | 0.855 | 0.900 | 0.950 | 1.0% | 9 |"])
        for rows in ([GEMM, MODEL], [alone]):
            self.assertNotIn("relative to one thread", self.run_on(rows).stdout)

    def test_rows_beside_vdpbf16ps(self):
        result = self.run_on([{**GEMM, "vdpbf16ps_ratio": 1.8}, {**GEMM, "name": "gemm/f32/512x6144x4096"},
                              {**GEMM, "name": "gemm/bf16/512x4096x4096", "vdpbf16ps_ratio": 1.6, "onednn_ratio": None},
                              {**MODEL, "vdpbf16ps_ratio": 1.7},
                              {**MODEL, "name": "model/x/f32/s512"}])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("(after the dot: to the vdpbf16ps probe; in brackets: over oneDNN's plain matmul in the same run)", result.stdout)
        self.assertIn("| 6144x4096 | llama-3-8b qkv | 0.900 · 1.80 (1.02x) | 0.900 (1.02x) |", result.stdout)
        self.assertIn("| 4096x4096 | llama-3-8b o | 0.900 · 1.60 |  |", result.stdout)
        self.assertIn("| row | threads | ratio | to vdpbf16ps | spread |", result.stdout)
        self.assertIn("| `model/llama-3.2-1b/bf16/s512` | 1 | 0.910 | 1.70x | 2.0% |", result.stdout)
        self.assertIn("| `model/x/f32/s512` | 1 | 0.910 |  | 2.0% |", result.stdout)

    def test_rows_of_int8(self):
        gemm = {**GEMM, "name": "gemm/int8/512x6144x4096", "vfmadd231ps_ratio": 3.2, "seconds": 0.02, "quantize_seconds": 0.0005}
        model = {**MODEL, "name": "model/llama-3.2-1b/int8/s512", "vfmadd231ps_ratio": 2.9}
        result = self.run_on([gemm, model])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("(after the dot: to the vfmadd231ps probe; in brackets: over", result.stdout)
        self.assertIn("| 6144x4096 | llama-3-8b qkv | 0.900 · 3.20 (1.02x) |", result.stdout)
        self.assertIn("| row | threads | µs | of the gemm's time |\n| --- | ---: | ---: | ---: |\n"
                      "| `gemm/int8/512x6144x4096` | 1 | 500 | 2.5% |\n", result.stdout)
        result = self.run_on([gemm, model, {**GEMM, "vdpbf16ps_ratio": 1.8}, {**MODEL, "vdpbf16ps_ratio": 1.7}])
        self.assertIn("(after the dot: to the vdpbf16ps probe (bf16); after the dot: to the vfmadd231ps probe (int8); in brackets:",
                      result.stdout)
        self.assertIn("| row | threads | ratio | to vdpbf16ps | to vfmadd231ps | spread |", result.stdout)
        self.assertIn("| `model/llama-3.2-1b/int8/s512` | 1 | 0.910 |  | 2.90x | 2.0% |", result.stdout)
        result = self.run_on([{**gemm, "quantize_seconds": "1"}])
        self.assertIn('row 0 has quantize_seconds "1", expected a number', result.stderr)

    def test_a_section_of_the_page(self):
        page = self.directory / "page.md"
        text = ("one\n<!-- prefill-bench: begin -->\nA\n<!-- prefill-bench: end -->\n"
                "two\n<!-- prefill-bench fma: begin -->\nB\n<!-- prefill-bench fma: end -->\nthree\n")
        page.write_text(text)
        result = self.run_on([MODEL], "--update-docs", "--section", "fma", "--page", page)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        new = page.read_text()
        self.assertTrue(new.startswith(text[:text.index("B\n")]) and new.endswith(text[text.index("B\n") + 2:]), new)
        self.assertIn("| `model/llama-3.2-1b/bf16/s512` | 1 | 0.910 |", new)
        self.assertFalse((self.directory / "cache").exists())  # no plot
        for arguments, expected in ((("--update-docs", "--section", "amx", "--page", page), "expected one line '<!-- prefill-bench amx: begin -->'"),
                                    (("--section", "fma"), "--section or --page without --update-docs"),
                                    (("--page", page), "--section or --page without --update-docs"),
                                    (("--update-docs", "--section", "", "--page", page), "--section has value '', expected a word"),
                                    (("--update-docs", "--page", self.directory), "cannot update")):
            with self.subTest(expected):
                result = self.run_on([MODEL], *arguments)
                self.assertEqual((result.returncode, result.stdout), (1, ""))
                self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
                self.assertIn(expected, result.stderr)
                self.assertEqual(page.read_text(), new)
        self.assertEqual(sorted(p.name for p in self.directory.iterdir()), ["page.md", "rows.json"])

    def test_rows_of_another_shape(self):
        for content, expected in (
                ("no JSON", "cannot read"), ("[" * 100000, "cannot read"), ({}, "is not a list of rows"),
                ([7], "row 0 is 7, expected an object"), ([GEMM, {}], "row 1 has no name, expected name, ratio"),
                ([{**GEMM, "name": 7}], "row 0 has name 7, expected a text"),
                ([{**GEMM, "ratio": "fast"}], 'row 0 has ratio "fast", expected a number'),
                ([{**GEMM, "ratio": None}], "row 0 has ratio null, expected a number"),
                ([{**GEMM, "threads": []}], "row 0 has threads [], expected a whole number of at least 1"),
                ([{**GEMM, "rounds": True}], "row 0 has rounds true, expected a whole number"),
                ([{**GEMM, "onednn_ratio": "1"}], 'row 0 has onednn_ratio "1", expected a number'),
                ([{**MODEL, "seconds": {}}], "row 0 has seconds {}, expected a number"),
                ([{k: v for k, v in MODEL.items() if k != "gflops"}], "row 0 has no gflops"),
                ([{**GEMM, "name": "startup/x/bf16"}], "row 0 has no seconds")):
            with self.subTest(expected):
                result = self.run_on(content)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stdout, "")
                self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
                self.assertIn(expected, result.stderr)

    def test_nothing_to_plot_installs_nothing(self):
        result = self.run_on([GEMM], "--svg", self.directory / "plot.svg")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: no model/ rows in the input", result.stderr)
        self.assertFalse((self.directory / "cache").exists())
        self.assertFalse((self.directory / "plot.svg").exists())


if __name__ == "__main__":
    unittest.main()
