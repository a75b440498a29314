"""scripts/traffic-report: kernels read from IR, the formulas on small numbers, and one layer counted and compared."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build/release/bin"))
sys.path.insert(0, str(ROOT / "python"))
from traffic_report import formulas, report  # noqa: E402
from traffic_report.kernels import Cache, PlanError, Tensor, parse_kernels  # noqa: E402

CONFIG = ("lowering_config = #prefill.lowering_config<tokens, block_m = {}, block_n = {}, block_kv = {}, panel_n = 1, "
          "row_buckets = [16]>")
PLAN = f"""!kv_cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 64>
module {{
  func.func private @qkv(%arg0: tensor<?x64xbf16>, %arg1: tensor<128x64xbf16>, %arg2: tensor<?x4xf32>, %arg3: !prefill.batch, %arg4: tensor<64x16xf32>, %arg5: !kv_cache) -> (tensor<?x64xbf16>, !kv_cache) attributes {{prefill.kernel}} {{
    %0:2 = prefill.gemm %arg0, %arg1 {{{CONFIG.format(16, 32, 0)}}} : tensor<?x64xbf16>, tensor<128x64xbf16> -> tensor<?x64xbf16>, !kv_cache epilogue {{
    ^bb0(%arg6: tensor<?x128xf32>):
      %1 = prefill.row_rms_scale %arg6, %arg2 {{channels = 64 : i64}} : tensor<?x128xf32>, tensor<?x4xf32> -> tensor<?x128xf32>
      %2:3 = prefill.split %1 : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
      %3 = prefill.rope %2#0, %arg3 table(%arg4 : tensor<64x16xf32>) {{head_dim = 16 : i64}} : tensor<?x64xf32> -> tensor<?x64xf32>
      %4 = prefill.kv_append %2#1, %2#2 into %arg5, %arg3 : tensor<?x32xf32>, tensor<?x32xf32> into !kv_cache
      prefill.yield %3, %4 : tensor<?x64xf32>, !kv_cache
    }}
    return %0#0, %0#1 : tensor<?x64xbf16>, !kv_cache
  }}
  func.func private @norm(%arg0: tensor<?x64xbf16>, %arg1: tensor<64xbf16>, %arg2: !prefill.batch) -> tensor<?x64xbf16> attributes {{prefill.kernel}} {{
    %0 = prefill.rowwise {{{CONFIG.format(4, 64, 0)}}} : tensor<?x64xbf16> body {{
      %1 = prefill.rms_norm %arg0, %arg1 {{eps = 1.000000e-05 : f64}} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
      prefill.yield %1 : tensor<?x64xbf16>
    }}
    return %0 : tensor<?x64xbf16>
  }}
  func.func private @attention(%arg0: tensor<?x64xbf16>, %arg1: !kv_cache, %arg2: !prefill.batch) -> tensor<?x64xbf16> attributes {{prefill.kernel}} {{
    %0 = prefill.attention %arg0, %arg1, %arg2 {{causal, {CONFIG.format(8, 32, 16)}, scale = 1.000000e+00 : f64}} : tensor<?x64xbf16>, !kv_cache -> tensor<?x64xbf16>
    return %0 : tensor<?x64xbf16>
  }}
}}
"""
CALL = formulas.Call(tokens=40, logit_rows=1)


class Kernels(unittest.TestCase):
    def test_parse(self):
        kernels = parse_kernels(PLAN)
        qkv = kernels["qkv"]
        self.assertEqual((qkv.kind, qkv.block_m, qkv.block_n, qkv.domain), ("gemm", 16, 32, "tokens"))
        self.assertEqual(qkv.arguments["%arg1"], Tensor((128, 64), "bf16"))
        self.assertEqual(qkv.results, [Tensor((None, 64), "bf16"), Cache(2, 16, "bf16")])
        self.assertEqual([node.op for node in qkv.nodes], ["row_rms_scale", "split", "rope", "kv_append", "yield"])
        self.assertEqual(kernels["attention"].block_kv, 16)

    def test_what_is_not_known_is_an_error(self):
        for text, what in (("module {}", "no kernel"),
                           (PLAN.replace("tensor<?x4xf32>", "memref<4xf32>"), "type 'memref<4xf32>'"),
                           (PLAN.replace("head_dim_v = 16", "head_dim_v = 32"), "head sizes 16 and 32"),
                           (PLAN.replace("prefill.rowwise", "prefill.launch"), "kernel 'norm' begins with 'launch'")):
            with self.assertRaisesRegex(PlanError, what):
                parse_kernels(text)


class Formulas(unittest.TestCase):
    def test_compulsory(self):
        kernels = parse_kernels(PLAN)
        # Input, weight, partial sums, 40 rows of angles, positions and slots; query, keys and values.
        self.assertEqual(formulas.compulsory(kernels["qkv"], CALL),
                         (40 * 128 + 128 * 128 + 40 * 16 + 40 * 64 + 40 * 4 + 40 * 8, 40 * 128 + 2 * 40 * 64))
        self.assertEqual(formulas.compulsory(kernels["norm"], CALL), (40 * 128 + 128, 40 * 128))
        self.assertEqual(formulas.compulsory(kernels["attention"], CALL), (40 * 128 + 2 * 40 * 64, 40 * 128))

    def test_tiles(self):
        kernels = parse_kernels(PLAN)
        # 3 rows of tiles by 4 columns.
        self.assertEqual(formulas.tile_traffic(kernels["qkv"], CALL), {
            "gemm.load_a": 4 * 40 * 128, "gemm.load_b": 3 * 128 * 128, "epilogue.store": 40 * 128,
            "epilogue.load_angle": 40 * 2 * 2 * 64,  # two tiles of queries
            "kv_append.store_k": 40 * 64, "kv_append.store_v": 40 * 64})
        self.assertEqual(formulas.tile_traffic(kernels["norm"], CALL),
                         {"epilogue.load": 3 * 40 * 128, "epilogue.store": 40 * 128})
        # Tiles end at rows 8, 16, 24, 32, 40; blocks of 16 keys, the last one as far as it is seen.
        keys = 8 + 16 + 24 + 32 + 40
        self.assertEqual(formulas.tile_traffic(kernels["attention"], CALL), {
            "attention.load_q": 40 * 128, "attention.load_k": keys * 64, "attention.load_v": keys * 64,
            "attention.store": 40 * 128})

    def test_every_difference_is_an_error(self):
        kernel = parse_kernels(PLAN)["norm"]
        load = {"name": "epilogue.load", "kind": "load", "global_bytes": 15360, "sectors": 480, "distinct_sectors": 164}
        store = {"name": "epilogue.store", "kind": "store", "global_bytes": 5120, "sectors": 160, "distinct_sectors": 160}
        launch = {"name": "norm", "distinct_load_sectors": 164, "distinct_store_sectors": 160, "matrix_instructions": 0,
                  "bank_conflicts": 0, "sites": [load, store]}
        self.assertEqual(report.row_of(launch, kernel, CALL).errors, [])
        for site, key, value, what in ((load, "sectors", 481, "bytes in sectors at epilogue.load is 15392, expected 15360"),
                                       (store, "global_bytes", 5104, "bytes at epilogue.store (whole sectors) is 5104, expected 5120"),
                                       (launch, "distinct_load_sectors", 250, "distinct bytes, expected at most 1.15 times")):
            before, site[key] = site[key], value
            errors = report.row_of(launch, kernel, CALL).errors
            site[key] = before
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(what, errors[0])
        extra = {"name": "epilogue.load_x", "kind": "load", "global_bytes": 64, "sectors": 40, "distinct_sectors": 2}
        launch["sites"].append(extra)
        self.assertIn("without a formula", report.row_of(launch, kernel, CALL).errors[0])


class Layer(unittest.TestCase):
    def test_counted_traffic_is_that_of_the_formulas(self):
        with tempfile.TemporaryDirectory() as scratch:
            saved = pathlib.Path(scratch) / "counters.json"
            command = [ROOT / "scripts/traffic-report", "--shape", "llama-3.2-1b", "--tokens", "128", "--bin", BIN]
            result = subprocess.run([*command, "--save", saved], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("| **5 launches** |", result.stdout)
            self.assertIn("| **16 launches** |", result.stdout)
            # Other tokens than those counted: every launch differs.
            result = subprocess.run([*command[:-4], "--tokens", "127", "--load", saved], capture_output=True, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertIn("error: launch 'qkv_proj': bytes in sectors at gemm.load_a is ", result.stderr)


if __name__ == "__main__":
    unittest.main()
