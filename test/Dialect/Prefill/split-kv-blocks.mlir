// KV blocks that would lie in two splits: a tile that was demanded stays whole, a demanded number of splits is an error.
// RUN: prefill-opt %s --prefill-split-kv="target=cuda:sm_80 max-rows=16" | FileCheck %s
// RUN: not prefill-opt %s --prefill-split-kv=splits=4 2>&1 | FileCheck %s --check-prefix=SPLITS

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>

// The table has other tiles.
// CHECK-LABEL: func.func @blocks(
// CHECK: block_kv = {{16|32|64|128}}, {{.*}}num_splits = 16 : i64
// SPLITS: error: 'prefill.attention' op has no splits: block_kv is 48, expected a divisor of 128
func.func @blocks(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #prefill.lowering_config<tokens, block_m = 16, block_n = 16, block_kv = 48, panel_n = 1, row_buckets = [1]>} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// CHECK-LABEL: func.func @given_blocks(
// CHECK-NOT: num_splits
func.func @given_blocks(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, prefill.tile_given, lowering_config = #prefill.lowering_config<tokens, block_m = 16, block_n = 16, block_kv = 48, panel_n = 1, row_buckets = [1]>} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}
