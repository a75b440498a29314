// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fuse-qkv-projection | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %s --prefill-fuse-qkv-projection | FileCheck %s

// Widths follow the heads (64, 32, 32), biases are concatenated and added before the split.
// LAYER: prefill.weight @layers.0.qkv_proj : tensor<128x64xbf16> = #prefill.concat<[@layers.0.q_proj, @layers.0.k_proj, @layers.0.v_proj]>
// LAYER: prefill.weight @layers.0.qkv_proj.bias : tensor<128xbf16> = #prefill.concat<[@layers.0.q_proj.bias, @layers.0.k_proj.bias, @layers.0.v_proj.bias]>
// LAYER: %[[N:.*]] = prefill.rms_norm
// LAYER-DAG: %[[B:.*]] = prefill.get_weight @layers.0.qkv_proj.bias
// LAYER-DAG: %[[W:.*]] = prefill.get_weight @layers.0.qkv_proj :
// LAYER: %[[G:.*]]:3 = prefill.gemm %[[N]], %[[W]] {prefill.layer = 0 : i64, prefill.name = "qkv_proj"}
// LAYER-NEXT: ^bb0(%[[ACC:.*]]: tensor<?x128xf32>):
// LAYER-NEXT: %[[BIASED:.*]] = prefill.bias_add %[[ACC]], %[[B]]
// LAYER-NEXT: %[[S:.*]]:3 = prefill.split %[[BIASED]] : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
// LAYER-NEXT: prefill.yield %[[S]]#0, %[[S]]#1, %[[S]]#2
// LAYER-NOT: prefill.get_weight @layers.0.q_proj
// LAYER: prefill.rms_norm %[[G]]#0
// LAYER: prefill.rms_norm %[[G]]#1
// LAYER: prefill.kv_append %{{.*}}, %[[G]]#2

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 128>
prefill.weight @q : tensor<192x64xf32> = #prefill.checkpoint<"q">
prefill.weight @k : tensor<64x64xf32> = #prefill.checkpoint<"k">
prefill.weight @v : tensor<64x64xf32> = #prefill.checkpoint<"v">
prefill.weight @vb : tensor<64xf32> = #prefill.checkpoint<"vb">

// A bias that only one of the three has is added to its part. The weights are read before the GEMM, even where they were
// read later.
// CHECK-LABEL: func @one_bias
func.func @one_bias(%x: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x192xf32>, !cache) {
  %wk = prefill.get_weight @k : tensor<64x64xf32>
  // CHECK: %[[B:.*]] = prefill.get_weight @vb
  // CHECK: prefill.gemm %arg0, %{{.*}} {prefill.name = "qkv_proj"}
  // CHECK: %[[S:.*]]:3 = prefill.split %{{.*}} : tensor<?x320xf32> -> tensor<?x192xf32>, tensor<?x64xf32>, tensor<?x64xf32>
  // CHECK-NEXT: %[[V:.*]] = prefill.bias_add %[[S]]#2, %[[B]]
  // CHECK-NEXT: prefill.yield %[[S]]#0, %[[S]]#1, %[[V]]
  %k = prefill.linear %x, %wk : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %wq = prefill.get_weight @q : tensor<192x64xf32>
  %q = prefill.linear %x, %wq : tensor<?x64xf32>, tensor<192x64xf32> -> tensor<?x192xf32>
  %wv = prefill.get_weight @v : tensor<64x64xf32>
  %bv = prefill.get_weight @vb : tensor<64xf32>
  %v = prefill.linear %x, %wv bias(%bv : tensor<64xf32>) : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x64xf32>, tensor<?x64xf32> into !cache
  %o = prefill.attention %q, %c, %batch {scale = 1.0, causal} : tensor<?x192xf32>, !cache -> tensor<?x192xf32>
  return %o, %c : tensor<?x192xf32>, !cache
}

// CHECK-LABEL: func @two_inputs
func.func @two_inputs(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x192xf32>, !cache) {
  %wq = prefill.get_weight @q : tensor<192x64xf32>
  %wk = prefill.get_weight @k : tensor<64x64xf32>
  %wv = prefill.get_weight @v : tensor<64x64xf32>
  // CHECK-NOT: prefill.gemm
  // CHECK: prefill.attention {{.*}}prefill.not_folded = "the projections read different inputs"
  %q = prefill.linear %y, %wq : tensor<?x64xf32>, tensor<192x64xf32> -> tensor<?x192xf32>
  %k = prefill.linear %x, %wk : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %v = prefill.linear %x, %wv : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x64xf32>, tensor<?x64xf32> into !cache
  %o = prefill.attention %q, %c, %batch {scale = 1.0, causal} : tensor<?x192xf32>, !cache -> tensor<?x192xf32>
  return %o, %c : tensor<?x192xf32>, !cache
}

// Keys that are the values (one linear for both) cannot be two parts.
// CHECK-LABEL: func @shared_key_value
func.func @shared_key_value(%x: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x192xf32>, !cache) {
  %wq = prefill.get_weight @q : tensor<192x64xf32>
  %wk = prefill.get_weight @k : tensor<64x64xf32>
  // CHECK: prefill.attention {{.*}}prefill.not_folded = "query, key and value are not three linears"
  %q = prefill.linear %x, %wq : tensor<?x64xf32>, tensor<192x64xf32> -> tensor<?x192xf32>
  %k = prefill.linear %x, %wk : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %c = prefill.kv_append %k, %k into %cache, %batch : tensor<?x64xf32>, tensor<?x64xf32> into !cache
  %o = prefill.attention %q, %c, %batch {scale = 1.0, causal} : tensor<?x192xf32>, !cache -> tensor<?x192xf32>
  return %o, %c : tensor<?x192xf32>, !cache
}
