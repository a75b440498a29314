// RUN: prefill-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online),prefill-tile)' | FileCheck %s
// RUN: prefill-opt %s --split-input-file --pass-pipeline='builtin.module(prefill-tile)' | FileCheck %s --check-prefix=PLAIN

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>

// Results become a buffer; every workgroup has one loop over all KV blocks, masks in each.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x64xbf16>, %[[CACHE:[^:]*]]: !kv_cache, %[[BATCH:[^:]*]]: !prefill.batch, %[[OUT:[^:]*]]: memref<?x32xbf16>)
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = true, multiplier = 2>
// CHECK: %[[M:.*]] = tensor.dim %[[Q]]
// CHECK: prefill.num_sequences %[[BATCH]]
// CHECK: scf.forall (%[[WG:.*]]) in
// CHECK: %[[SEQ:.*]], %[[BEGIN:.*]], %[[END:.*]], %[[HEAD:.*]], %{{.*}}, %[[KV_LEN:.*]] = prefill.attention_workgroup %[[WG]], %[[BATCH]] {block_q = 64 : i64, num_kv_heads = 2 : i64}
// CHECK-DAG: arith.constant dense<0.000000e+00> : tensor<64x16xf32>
// CHECK-DAG: arith.constant dense<0xFF800000> : tensor<64x2xf32>
// CHECK: %[[STATE:.*]]:3 = scf.for %[[BLOCK:.*]] = %{{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[MAX:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}})
// CHECK-NEXT: prefill.online_attention %[[Q]], %[[CACHE]], %[[BATCH]] tile(%[[SEQ]], %[[BEGIN]], %[[END]], %[[HEAD]], %[[BLOCK]]) carry(%[[ACC]], %[[MAX]], %[[SUM]] : tensor<64x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>) mask = edge
// CHECK: prefill.attention_normalize %[[STATE]]#0, %[[STATE]]#2, %[[BATCH]] tile(%[[SEQ]], %[[BEGIN]], %[[END]], %[[HEAD]]) outs(%[[OUT]] : memref<?x32xbf16>)
// CHECK-NOT: scf.for
// CHECK: return

// PLAIN-LABEL: func.func private @attention(
// PLAIN-SAME: %[[OUT:[^:]*]]: memref<?x32xbf16>, %[[SCORES:.*]]: memref<?x?x?xf32> {prefill.score})
// PLAIN: scf.forall
// PLAIN-NOT: scf.for %
// PLAIN: prefill.materialized_attention {{.*}} scores(%[[SCORES]] : memref<?x?x?xf32>) outs(%[[OUT]] : memref<?x32xbf16>) {base2, causal, scale = 1.000000e+00 : f64}
func.func private @attention(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// -----

// Rows that are selected: the workgroup's rows are narrowed, and stored among the selected ones.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<logits, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
// CHECK-LABEL: func.func private @selected(
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = true, multiplier = 2>
// CHECK: prefill.attention_workgroup {{.*}} {block_q = 64 : i64, num_kv_heads = 2 : i64, selected_rows}
// CHECK: prefill.online_attention
// CHECK-NOT: selected_rows
// CHECK: prefill.attention_normalize {{.*}} {selected_rows}
// PLAIN-LABEL: func.func private @selected(
// PLAIN: prefill.attention_workgroup {{.*}}selected_rows
// PLAIN: prefill.materialized_attention {{.*}}selected_rows
func.func private @selected(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, selected_rows, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}
