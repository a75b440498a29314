// RUN: prefill-opt %s --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online))' | FileCheck %s


!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>

// Four query heads with values of 8 channels: the accumulator has 32 columns, a statistic 4.
// CHECK-LABEL: func.func private @attention(
// CHECK-SAME: %[[Q:.*]]: tensor<?x64xbf16>, %[[CACHE:.*]]: !kv_cache, %[[BATCH:.*]]: !prefill.batch
// CHECK-NEXT: %[[ACC:.*]], %{{.*}}, %[[SUM:.*]] = prefill.online_attention %[[Q]], %[[CACHE]], %[[BATCH]] mask = edge
// CHECK-SAME: {base2, causal, lowering_config = {{.*}}block_kv = 128{{.*}}, prefill.layer = 3 : i64, prefill.name = "attention", scale = 1.000000e+00 : f64, sliding_window = 100 : i64}
// CHECK-SAME: -> tensor<?x32xf32>, tensor<?x4xf32>, tensor<?x4xf32>
// CHECK-NEXT: %[[OUT:.*]] = prefill.attention_normalize %[[ACC]], %[[SUM]], %[[BATCH]] {prefill.layer = 3 : i64}
// CHECK-SAME: tensor<?x32xf32>, tensor<?x4xf32> -> tensor<?x32xbf16>
// CHECK-NEXT: return %[[OUT]]
func.func private @attention(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x32xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, sliding_window = 100 : i64, prefill.layer = 3 : i64, prefill.name = "attention", lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x32xbf16>
  return %o : tensor<?x32xbf16>
}

// With splits each has a state, and an output and a log-sum-exp of its own.
// CHECK-LABEL: func.func private @splits(
// CHECK-NEXT: %[[ACC:.*]], %[[MAX:.*]], %[[SUM:.*]] = prefill.online_attention {{.*}} mask = edge {{.*}}num_splits = 2 : i64
// CHECK-SAME: -> tensor<?x64xf32>, tensor<?x8xf32>, tensor<?x8xf32>
// CHECK-NEXT: %[[OUT:.*]]:2 = prefill.attention_partial %[[ACC]], %[[MAX]], %[[SUM]], %{{.*}} {num_splits = 2 : i64}
// CHECK-SAME: tensor<?x64xf32>, tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x64xf32>, tensor<?x8xf32>
// CHECK-NEXT: return %[[OUT]]#0, %[[OUT]]#1
func.func private @splits(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x64xf32>, tensor<?x8xf32>) attributes {prefill.kernel} {
  %o:2 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, num_splits = 2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x8xf32>
  return %o#0, %o#1 : tensor<?x64xf32>, tensor<?x8xf32>
}
