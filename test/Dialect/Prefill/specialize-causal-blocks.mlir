// RUN: prefill-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online),prefill-tile,canonicalize,func.func(prefill-specialize-causal-blocks),canonicalize,cse)' | FileCheck %s


!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>

// The loops end at the last row's diagonal, not at the end of the keys; the full one masks nothing.
// CHECK-LABEL: func.func private @causal(
// CHECK: %{{.*}}, %[[BEGIN:.*]], %[[END:.*]], %{{.*}}, %[[Q_LEN:.*]], %[[KV_LEN:.*]] = prefill.attention_workgroup
// CHECK: %[[PAST:.*]] = arith.subi %[[KV_LEN]], %[[Q_LEN]] : index
// CHECK: %[[FULL:.*]]:3 = scf.for %[[B0:.*]] = %c0 to %[[FULL_END:.*]] step %c1 iter_args
// CHECK-NEXT: prefill.online_attention {{.*}}, %[[B0]]) carry{{.*}} mask = none
// CHECK: } {prefill.kv_blocks = "full"}
// CHECK: %[[EDGE:.*]]:3 = scf.for %[[B1:.*]] = %[[FULL_END]] to %{{.*}} step %c1 iter_args(%{{.*}} = %[[FULL]]#0, %{{.*}} = %[[FULL]]#1, %{{.*}} = %[[FULL]]#2)
// CHECK-NEXT: prefill.online_attention {{.*}}, %[[B1]]) carry{{.*}} mask = edge
// CHECK: } {prefill.kv_blocks = "edge"}
// CHECK-NOT: scf.for
// CHECK: prefill.attention_normalize %[[EDGE]]#0, %[[EDGE]]#2
func.func private @causal(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>

// A sliding window skips blocks before it and has an edge loop where it cuts in.
// CHECK-LABEL: func.func private @window(
// CHECK: scf.for %{{.*}} = %[[FIRST:.*]] to %[[FULL_BEGIN:.*]] step
// CHECK-NEXT: mask = edge
// CHECK: {prefill.kv_blocks = "edge"}
// CHECK: scf.for %{{.*}} = %[[FULL_BEGIN]] to %[[FULL_END:.*]] step
// CHECK-NEXT: mask = none
// CHECK: {prefill.kv_blocks = "full"}
// CHECK: scf.for %{{.*}} = %[[FULL_END]] to
// CHECK-NEXT: mask = edge
// CHECK: {prefill.kv_blocks = "edge"}
// CHECK-NOT: scf.for
// CHECK: return
func.func private @window(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, sliding_window = 1000 : i64, base2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>

// Without causality every block before the last, ragged one is full.
// CHECK-LABEL: func.func private @bidirectional(
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[KV_LEN:.*]] = prefill.attention_workgroup
// CHECK-DAG: %[[UP:.*]] = arith.addi %[[KV_LEN]], %c127
// CHECK-DAG: %[[END:.*]] = arith.divui %[[UP]], %c128
// CHECK-DAG: arith.divui %[[KV_LEN]], %c128
// CHECK: scf.for {{.*}} = %c0 to %[[FULL_END:.*]] step
// CHECK-NEXT: mask = none
// CHECK: scf.for {{.*}} = %[[FULL_END]] to %[[END]] step
// CHECK-NEXT: mask = edge
func.func private @bidirectional(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, base2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 64, panel_n = 32, row_buckets = [1, 4, 8]>

// A split's loops are cut to its keys: begin, end of the full blocks and end alike.
// CHECK-LABEL: func.func private @splits(
// CHECK: %[[KEYS:.*]] = arith.muli %{{.*}}, %c128
// CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %[[KEYS]]
// CHECK: %[[BEHIND:.*]] = arith.addi %[[FIRST]], %[[KEYS]]
// CHECK: %[[LOW:.*]] = arith.divui %[[FIRST]], %c64
// CHECK: %[[HIGH:.*]] = arith.divui %[[BEHIND]], %c64
// CHECK-COUNT-3: arith.minsi %{{.*}}, %[[HIGH]]
// CHECK: scf.for {{.*}} to %[[FULL_END:.*]] step
// CHECK-NEXT: mask = none
// CHECK: scf.for {{.*}} = %[[FULL_END]] to
// CHECK-NEXT: mask = edge
// CHECK: prefill.attention_partial
func.func private @splits(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x128xf32>, tensor<?x8xf32>) attributes {prefill.kernel} {
  %o:2 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, base2, num_splits = 2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x128xf32>, tensor<?x8xf32>
  return %o#0, %o#1 : tensor<?x128xf32>, tensor<?x8xf32>
}
