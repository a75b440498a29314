// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-norm --prefill-fold-residual-into-epilogue | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %s --prefill-fold-residual-into-epilogue | FileCheck %s

// LAYER: %[[X0:.*]]:2 = prefill.rowwise {prefill.name = "embed"} : tensor<?x64xbf16>, tensor<?x1xf32>
// LAYER-NEXT: %[[E:.*]] = prefill.embed
// LAYER-NEXT: %[[ES:.*]] = prefill.row_sumsq %[[E]]
// LAYER-NEXT: prefill.yield %[[E]], %[[ES]]
// The sum is rounded to bf16 once, and the row's sum of squares is that of the rounded value.
// LAYER: %[[X1:.*]]:2 = prefill.gemm {{.*}}prefill.name = "o_proj"} : {{.*}} -> tensor<?x64xbf16>, tensor<?x1xf32>
// LAYER-NEXT: ^bb0(%[[ACC:.*]]: tensor<?x64xf32>):
// LAYER-NEXT: %[[A:.*]] = prefill.add %[[X0]]#0, %[[ACC]] : tensor<?x64xbf16>, tensor<?x64xf32> -> tensor<?x64xbf16>
// LAYER-NEXT: %[[S:.*]] = prefill.row_sumsq %[[A]] : tensor<?x64xbf16>
// LAYER-NEXT: prefill.yield %[[A]], %[[S]]
// The last layer's stream goes to the final norm, which computes its own sum.
// LAYER: %[[X2:.*]] = prefill.gemm {{.*}}prefill.name = "down_proj"} : {{.*}} -> tensor<?x64xbf16> epilogue
// LAYER: prefill.add %[[X1]]#0,
// LAYER: prefill.select_rows %[[X2]]
// LAYER-NOT: prefill.not_folded = "neither

// CHECK-LABEL: func @no_projection
func.func @no_projection(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK: prefill.add {{.*}}prefill.not_folded = "neither operand is a projection's result"
  %z = prefill.add %x, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// CHECK-LABEL: func @other_user
func.func @other_user(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %y = prefill.linear %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.add {{.*}}prefill.not_folded = "the projection's result has other users"
  %z = prefill.add %x, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z, %y : tensor<?x64xf32>, tensor<?x64xf32>
}

// A residual that is computed after the branch: the GEMM moves down to it.
// CHECK-LABEL: func @later_residual
func.func @later_residual(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>, %g: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = prefill.linear %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  // CHECK: %[[R:.*]] = prefill.gated_act
  // CHECK: prefill.gemm
  // CHECK: prefill.add %[[R]], %
  %r = prefill.gated_act silu %g, %x : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  %z = prefill.add %r, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// Two branches: the later one takes the sum.
// CHECK-LABEL: func @two_branches
func.func @two_branches(%x: tensor<?x64xbf16>, %w: tensor<64x64xbf16>) -> tensor<?x64xbf16> {
  // CHECK: %[[Y:.*]] = prefill.linear
  // CHECK: prefill.gemm
  // CHECK: prefill.add %[[Y]], %{{.*}} : tensor<?x64xbf16>, tensor<?x64xf32> -> tensor<?x64xbf16>
  %y = prefill.linear %x, %w : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16>
  %v = prefill.linear %x, %w : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16>
  %z = prefill.add %y, %v : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
  return %z : tensor<?x64xbf16>
}

// Sums of a value that is rounded only when stored would not be those of the stored value.
// CHECK-LABEL: func @unrounded
func.func @unrounded(%x: tensor<?x64xbf16>, %w: tensor<64x64xbf16>) -> (tensor<?x64xbf16>, tensor<?x1xf32>) {
  %y = prefill.gemm %x, %w : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  // CHECK: prefill.row_sumsq {{.*}}prefill.not_folded = "its operand is rounded only when stored, and the sums must be of the stored value"
  %s = prefill.row_sumsq %y : tensor<?x64xbf16> -> tensor<?x1xf32>
  return %y, %s : tensor<?x64xbf16>, tensor<?x1xf32>
}

// The GEMM cannot move down to its residual: another GEMM reads its sums before.
// CHECK-LABEL: func @needed_earlier
func.func @needed_earlier(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> (tensor<?x64xf32>, tensor<?x64xf32>) {
  %y, %s = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>, tensor<?x1xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    %0 = prefill.row_sumsq %acc : tensor<?x64xf32> -> tensor<?x1xf32>
    prefill.yield %acc, %0 : tensor<?x64xf32>, tensor<?x1xf32>
  }
  %u = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    %0 = prefill.row_rms_scale %acc, %s {eps = 1.0e-5, channels = 64 : i64} : tensor<?x64xf32>, tensor<?x1xf32> -> tensor<?x64xf32>
    prefill.yield %0 : tensor<?x64xf32>
  }
  %r = prefill.gated_act silu %u, %x : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.add {{.*}}prefill.not_folded = "one of its operands is defined after the producer, which prefill.gemm needs earlier"
  %z = prefill.add %r, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z, %u : tensor<?x64xf32>, tensor<?x64xf32>
}
