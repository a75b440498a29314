// RUN: prefill-opt %s --prefill-split-kv=splits=4 | FileCheck %s
// RUN: prefill-opt %s --prefill-split-kv="target=cuda:sm_80 max-rows=16" | FileCheck %s --check-prefix=FEW --implicit-check-not=tile_given
// RUN: prefill-opt %s --prefill-split-kv="target=cuda:sm_80 max-rows=512" | FileCheck %s --check-prefix=MANY
// RUN: prefill-opt %s --prefill-split-kv="target=cuda:sm_80" | FileCheck %s --check-prefix=MANY
// RUN: not prefill-opt %s --prefill-split-kv=max-rows=16 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not prefill-opt %s --prefill-split-kv="target=cuda:sm_80 max-rows=17" 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not prefill-opt %s --prefill-split-kv=splits=1 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: not prefill-opt %s --prefill-split-kv=splits=4 --prefill-select-lowering-strategy 2>&1 | FileCheck %s --check-prefix=CPU

// TARGET: error: unknown target '' of prefill-split-kv; valid is cuda: with one of sm_80
// ROWS: error: prefill-split-kv: max-rows is 17, expected the limit of a schedule: 16, 128, 512, 2048, 0
// ONE: error: prefill-split-kv: splits is 1, expected at least 2
// CPU: error: 'prefill.attention' op has num_splits = 4; target cpu has no kernel for it

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 16, block_n = 16, block_kv = 64, panel_n = 1, row_buckets = [1]>

// What attention is stays on it; layer and rounding of the result are the combination's.
// CHECK-LABEL: func.func @attention(
// CHECK: %[[PARTIALS:.*]], %[[LSE:.*]] = prefill.attention %{{.*}}, %{{.*}}, %{{.*}} {base2, causal, lowering_config = #prefill.lowering_config<tokens, block_m = 16, {{.*}}>, num_splits = 4 : i64, prefill.layer = 3 : i64, scale = 1.000000e+00 : f64, sliding_window = 100 : i64} : tensor<?x64xbf16>, !kv_cache -> tensor<?x128xf32>, tensor<?x16xf32>
// CHECK-NEXT: %[[OUT:.*]] = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 1, block_n = 32, block_kv = 0, panel_n = 1, row_buckets = [1]>, prefill.layer = 3 : i64, prefill.name = "combine_splits"} : tensor<?x32xbf16> body {
// CHECK-NEXT: %[[COMBINED:.*]] = prefill.combine_splits %[[PARTIALS]], %[[LSE]] : tensor<?x128xf32>, tensor<?x16xf32> -> tensor<?x32xbf16>
// CHECK-NEXT: prefill.yield %[[COMBINED]]
// CHECK: return %[[OUT]]
// A window of 100 keys lies in two splits at the most. Longer calls stay whole.
// FEW: num_splits = 2 : i64
// MANY-NOT: num_splits
func.func @attention(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, sliding_window = 100 : i64, prefill.layer = 3 : i64, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// Rows that are selected stay whole.
// CHECK-LABEL: func.func @selected(
// CHECK-NOT: num_splits
// FEW-LABEL: func.func @selected(
// FEW-NOT: num_splits
func.func @selected(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, selected_rows, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// 108 SMs and two KV heads without a window: as many splits as there may be.
// FEW-LABEL: func.func @long(
// CHECK-LABEL: func.func @long(
// FEW: num_splits = 16 : i64
func.func @long(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// A tile that was demanded stays.
// FEW-LABEL: func.func @given(
// FEW: block_m = 24, block_n = 16, block_kv = 16, {{.*}}num_splits = 16 : i64
func.func @given(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, prefill.tile_given, lowering_config = #prefill.lowering_config<tokens, block_m = 24, block_n = 16, block_kv = 16, panel_n = 1, row_buckets = [1]>} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}
