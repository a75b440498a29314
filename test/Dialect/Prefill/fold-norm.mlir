// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fuse-gate-up --prefill-fold-norm | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %s --prefill-fold-norm | FileCheck %s

// One sum serves three projections; the gain goes into each weight, 1/rms before the bias. A GEMM's weight is scaled whole.
// LAYER: prefill.weight @layers.0.q_proj.gain_folded : tensor<64x64xbf16> = #prefill.scale_columns<@layers.0.q_proj, gain = @layers.0.input_norm>
// LAYER: prefill.weight @layers.0.gate_up_proj.gain_folded : tensor<192x64xbf16> = #prefill.scale_columns<@layers.0.gate_up_proj, gain = @layers.0.post_norm>
// LAYER: %[[X:.*]] = prefill.embed
// LAYER-NEXT: %[[S:.*]] = prefill.row_sumsq %[[X]] : tensor<?x64xbf16> -> tensor<?x1xf32>
// LAYER-NOT: prefill.row_sumsq
// LAYER: prefill.gemm %[[X]], {{.*}}prefill.name = "q_proj"
// LAYER-NEXT: ^bb0(%[[ACC:.*]]: tensor<?x64xf32>):
// LAYER-NEXT: %[[R:.*]] = prefill.row_rms_scale %[[ACC]], %[[S]] {channels = 64 : i64, eps = 1.000000e-05 : f64}
// LAYER-NEXT: prefill.bias_add %[[R]]
// LAYER: prefill.gemm %[[X]], {{.*}}prefill.name = "k_proj"
// LAYER: prefill.gemm %[[X]], {{.*}}prefill.name = "v_proj"
// The norms of heads stay for another pass, with nothing to say.
// LAYER: prefill.rms_norm {{.*}} {eps = 9.{{[0-9]+}}E-7 : f64, head_dim = 32 : i64, prefill.layer = 0 : i64}
// LAYER: %[[X1:.*]] = prefill.add
// LAYER-NEXT: %[[S1:.*]] = prefill.row_sumsq %[[X1]] {prefill.layer = 0 : i64}
// LAYER: prefill.gemm %[[X1]], {{.*}}prefill.name = "gate_up_proj"
// LAYER-NEXT: ^bb0
// LAYER-NEXT: %[[R1:.*]] = prefill.row_rms_scale %{{.*}}, %[[S1]]
// LAYER-NEXT: prefill.deinterleave %[[R1]]
// The final norm stays.
// LAYER: prefill.rms_norm {{.*}}prefill.not_folded = "its user is lm_head, whose weight may be the embedding and keeps its values"

prefill.weight @gain : tensor<64xf32> = #prefill.checkpoint<"gain">
prefill.weight @w : tensor<64x64xf32> = #prefill.checkpoint<"w">
prefill.weight @table : tensor<64x64xf32> = #prefill.checkpoint<"table">

// CHECK-LABEL: func @second_user
func.func @second_user(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %g = prefill.get_weight @gain : tensor<64xf32>
  %w = prefill.get_weight @w : tensor<64x64xf32>
  // CHECK: prefill.rms_norm {{.*}}prefill.not_folded = "its user prefill.add is no projection that could scale its rows"
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  // CHECK: prefill.linear
  %y = prefill.linear %n, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %z = prefill.add %n, %y : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// CHECK-LABEL: func @tied
func.func @tied(%batch: !prefill.batch) -> tensor<?x64xf32> {
  %t = prefill.get_weight @table : tensor<64x64xf32>
  %x = prefill.embed %batch, %t : tensor<64x64xf32> -> tensor<?x64xf32>
  %g = prefill.get_weight @gain : tensor<64xf32>
  // CHECK: prefill.rms_norm {{.*}}prefill.not_folded = "weight @table is tied to the embedding and keeps its values"
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.linear %n, %t : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}

// The sum of a block argument stands at the start.
// CHECK-LABEL: func @argument
func.func @argument(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK-NEXT: %[[S:.*]] = prefill.row_sumsq %arg0
  %g = prefill.get_weight @gain : tensor<64xf32>
  %w = prefill.get_weight @w : tensor<64x64xf32>
  // CHECK: prefill.gemm %arg0,
  // CHECK: prefill.row_rms_scale %{{.*}}, %[[S]] {channels = 64 : i64, eps = 2.500000e-01 : f64}
  // CHECK-NOT: prefill.rms_norm
  %n = prefill.rms_norm %x, %g {eps = 0.25} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %y = prefill.linear %n, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
