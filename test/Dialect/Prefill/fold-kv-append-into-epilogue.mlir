// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fold-kv-append-into-epilogue | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-kv-append-into-epilogue | FileCheck %s --check-prefix=UNFUSED
// RUN: prefill-opt %s --prefill-fold-kv-append-into-epilogue | FileCheck %s

// Everything between the projection and attention moves, in f32; the result is the query and the cache.
// LAYER: %[[G:.*]]:2 = prefill.gemm {{.*}}-> tensor<?x64xbf16>, !{{.*}}kv_cache
// LAYER: %[[S:.*]]:3 = prefill.split
// LAYER-DAG: %[[QN:.*]] = prefill.rms_norm %[[S]]#0, {{.*}} -> tensor<?x64xf32>
// LAYER-DAG: %[[KN:.*]] = prefill.rms_norm %[[S]]#1, {{.*}} -> tensor<?x32xf32>
// LAYER-DAG: %[[QR:.*]] = prefill.rope %[[QN]], {{.*}} : tensor<?x64xf32> -> tensor<?x64xf32>
// LAYER-DAG: %[[KR:.*]] = prefill.rope %[[KN]], {{.*}} : tensor<?x32xf32> -> tensor<?x32xf32>
// LAYER-DAG: %[[C:.*]] = prefill.kv_append %[[KR]], %[[S]]#2 into
// LAYER-DAG: %[[QS:.*]] = prefill.scale %[[QR]]
// LAYER: prefill.yield %[[QS]], %[[C]]
// LAYER: prefill.attention %[[G]]#0, %[[G]]#1

// Without the fused projection each branch takes its own nodes, and the append stays.
// UNFUSED: %[[Q:.*]] = prefill.gemm {{.*}}prefill.name = "q_proj"
// UNFUSED: prefill.rope
// UNFUSED: %[[K:.*]] = prefill.gemm {{.*}}prefill.name = "k_proj"
// UNFUSED: prefill.rope
// UNFUSED: %[[V:.*]] = prefill.linear {{.*}}prefill.name = "v_proj"
// UNFUSED: %[[C:.*]] = prefill.kv_append %[[K]], %[[V]] {{.*}}prefill.not_folded = "key and value come from different GEMMs"
// UNFUSED: prefill.attention %[[Q]], %[[C]]

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 32>

// CHECK-LABEL: func @straddle
func.func @straddle(%x: tensor<?x64xf32>, %w: tensor<144x64xf32>, %batch: !prefill.batch) -> (tensor<?x64xf32>, tensor<?x48xf32>, tensor<?x32xf32>) {
  %q, %k, %v = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<144x64xf32> -> tensor<?x64xf32>, tensor<?x48xf32>, tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x144xf32>):
    %0:3 = prefill.split %acc : tensor<?x144xf32> -> tensor<?x64xf32>, tensor<?x48xf32>, tensor<?x32xf32>
    prefill.yield %0#0, %0#1, %0#2 : tensor<?x64xf32>, tensor<?x48xf32>, tensor<?x32xf32>
  }
  // CHECK: prefill.rope {{.*}}prefill.not_folded = "tiles of whole heads of 32 columns would straddle a part of 48 columns"
  %r = prefill.rope %q, %batch {rope = #rope, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
  return %r, %k, %v : tensor<?x64xf32>, tensor<?x48xf32>, tensor<?x32xf32>
}

// CHECK-LABEL: func @other_user
func.func @other_user(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %batch: !prefill.batch) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %q = prefill.linear %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.rope {{.*}}prefill.not_folded = "its operand has another user, func.return"
  %r = prefill.rope %q, %batch {rope = #rope, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
  return %r, %q : tensor<?x64xf32>, tensor<?x64xf32>
}

// CHECK-LABEL: func @no_projection
func.func @no_projection(%x: tensor<?x64xf32>, %batch: !prefill.batch) -> tensor<?x64xf32> {
  // CHECK: prefill.rope {{.*}}prefill.not_folded = "its operand is no projection's result"
  %r = prefill.rope %x, %batch {rope = #rope, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
