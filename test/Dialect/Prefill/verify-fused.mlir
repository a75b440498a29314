// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-scale --prefill-fuse-qkv-projection --prefill-fuse-gate-up --prefill-fold-norm --prefill-fold-kv-append-into-epilogue --prefill-fold-residual-into-epilogue --prefill-fold-activation-into-epilogue --prefill-verify-fused -o %t
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-norm --prefill-verify-fused -o %t
// RUN: not prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-residual-into-epilogue --prefill-fold-norm --prefill-verify-fused 2>&1 | FileCheck %s --check-prefix=UNFOLDED
// RUN: not prefill-opt %s --prefill-verify-fused --split-input-file 2>&1 | FileCheck %s

// A pass that was left out owes no reasons; in the wrong order passes leave ops that none has looked at.
// UNFOLDED: error: prefill.row_sumsq stands alone after prefill-fold-residual-into-epilogue without a reason in prefill.not_folded

// CHECK: error: prefill.add stands alone after prefill-fold-residual-into-epilogue without a reason in prefill.not_folded
module attributes {prefill.graph_passes = ["prefill-fold-kv-append-into-epilogue", "prefill-fold-residual-into-epilogue"]} {
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.scale %x {factor = 2.0, prefill.not_folded = "for the test"} : tensor<?x8xf32> -> tensor<?x8xf32>
  %z = prefill.add %x, %y : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}
}

// -----

// CHECK: error: 'prefill.gemm' op has 'prefill.linear' in its region, which is not a node of an epilogue
func.func @prefill(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %0 = prefill.linear %acc, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
    prefill.yield %0 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.split is no op of level fused
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x4xf32> {
  %y:2 = prefill.split %x : tensor<?x8xf32> -> tensor<?x4xf32>, tensor<?x4xf32>
  return %y#0 : tensor<?x4xf32>
}

// -----

// CHECK: error: prefill.linear multiplies 'f32' after prefill-quantize-weights without a reason in prefill.not_folded
module attributes {prefill.graph_passes = ["prefill-quantize-weights"]} {
func.func @prefill(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.linear %x, %w {prefill.not_folded = "for the test"} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %z = prefill.linear %y, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}
}
