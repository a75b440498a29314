// RUN: prefill-opt %s --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online),prefill-tile,canonicalize)' | FileCheck %s
// RUN: not prefill-opt %s --prefill-tile 2>&1 | FileCheck %s --check-prefix=PLAIN

// Splits of a tile are neighbouring workgroups, each with a loop over the blocks of its own keys.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>
// CHECK-LABEL: func.func private @splits(
// CHECK-SAME: %[[OUT:[^:]*]]: memref<?x128xf32>, %[[LSE:[^:]*]]: memref<?x16xf32>)
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = true, multiplier = 8>
// CHECK: scf.forall (%[[WG:.*]]) in
// CHECK: %[[SPLIT:.*]] = arith.remui %[[WG]], %c4
// CHECK: %[[TILE:.*]] = arith.divui %[[WG]], %c4
// CHECK: %[[SEQ:.*]], %[[BEGIN:.*]], %[[END:.*]], %[[HEAD:.*]], %{{.*}}, %[[KV_LEN:.*]] = prefill.attention_workgroup %[[TILE]], %{{.*}} {block_q = 64 : i64, num_kv_heads = 2 : i64}
// CHECK: arith.muli %[[SPLIT]]
// CHECK: %[[STATE:.*]]:3 = scf.for %{{.*}} iter_args
// CHECK-NEXT: prefill.online_attention
// CHECK-NOT: num_splits
// CHECK: prefill.attention_partial %[[STATE]]#0, %[[STATE]]#1, %[[STATE]]#2, %{{.*}} tile(%[[SEQ]], %[[BEGIN]], %[[END]], %[[HEAD]], %[[SPLIT]]) outs(%[[OUT]], %[[LSE]] : memref<?x128xf32>, memref<?x16xf32>) {num_splits = 4 : i64}
// PLAIN: 'prefill.attention' op has num_splits = 4, which the unfused form does not have (run prefill-convert-attention-to-online)
func.func private @splits(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x128xf32>, tensor<?x16xf32>) attributes {prefill.kernel} {
  %o:2 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, num_splits = 4, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x128xf32>, tensor<?x16xf32>
  return %o#0, %o#1 : tensor<?x128xf32>, tensor<?x16xf32>
}
