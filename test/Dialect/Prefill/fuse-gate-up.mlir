// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fuse-gate-up | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %s --prefill-fuse-gate-up | FileCheck %s
// RUN: prefill-opt %s --prefill-fuse-gate-up=granularity=16 | FileCheck %s --check-prefix=RUN16
// RUN: not prefill-opt %s --prefill-fuse-gate-up=granularity=0 2>&1 | FileCheck %s --check-prefix=ZERO

// ZERO: error: prefill-fuse-gate-up: granularity is 0, expected a positive number of columns

// LAYER: prefill.weight @layers.0.gate_up_proj : tensor<192x64xbf16> = #prefill.interleave<@layers.0.gate_proj, @layers.0.up_proj, granularity = 32>
// LAYER: %[[G:.*]]:2 = prefill.gemm %{{.*}}, %{{.*}} {prefill.layer = 0 : i64, prefill.name = "gate_up_proj"}
// LAYER: prefill.deinterleave %{{.*}} {granularity = 32 : i64} : tensor<?x192xf32> -> tensor<?x96xf32>, tensor<?x96xf32>
// LAYER: prefill.gated_act silu %[[G]]#0, %[[G]]#1

prefill.weight @gate : tensor<40x64xf32> = #prefill.checkpoint<"gate">
prefill.weight @up : tensor<40x64xf32> = #prefill.checkpoint<"up">
prefill.weight @up.bias : tensor<40xf32> = #prefill.checkpoint<"upb">

// 40 columns are padded to two runs of 32, or three of 16; the bias is added to its part.
// CHECK: prefill.weight @gate.gate_up_proj : tensor<128x64xf32>
// RUN16: prefill.weight @gate.gate_up_proj : tensor<96x64xf32>
// CHECK-LABEL: func @padded
func.func @padded(%x: tensor<?x64xf32>) -> tensor<?x40xf32> {
  %wu = prefill.get_weight @up : tensor<40x64xf32>
  // CHECK: %[[B:.*]] = prefill.get_weight @up.bias
  // CHECK: %[[GEMM:.*]]:2 = prefill.gemm
  // CHECK: %[[G:.*]], %[[U:.*]] = prefill.deinterleave %{{.*}} : tensor<?x128xf32> -> tensor<?x40xf32>, tensor<?x40xf32>
  // CHECK: %[[UB:.*]] = prefill.bias_add %[[U]], %[[B]]
  // CHECK: prefill.yield %[[G]], %[[UB]]
  // RUN16: prefill.deinterleave %{{.*}} {granularity = 16 : i64} : tensor<?x96xf32> -> tensor<?x40xf32>, tensor<?x40xf32>
  %bu = prefill.get_weight @up.bias : tensor<40xf32>
  %u = prefill.linear %x, %wu bias(%bu : tensor<40xf32>) : tensor<?x64xf32>, tensor<40x64xf32> -> tensor<?x40xf32>
  %wg = prefill.get_weight @gate : tensor<40x64xf32>
  %g = prefill.linear %x, %wg : tensor<?x64xf32>, tensor<40x64xf32> -> tensor<?x40xf32>
  // CHECK: prefill.gated_act gelu_tanh %[[GEMM]]#0, %[[GEMM]]#1
  %a = prefill.gated_act gelu_tanh %g, %u : tensor<?x40xf32>, tensor<?x40xf32> -> tensor<?x40xf32>
  return %a : tensor<?x40xf32>
}

// CHECK-LABEL: func @one_linear
func.func @one_linear(%x: tensor<?x64xf32>) -> tensor<?x40xf32> {
  %wg = prefill.get_weight @gate : tensor<40x64xf32>
  %g = prefill.linear %x, %wg : tensor<?x64xf32>, tensor<40x64xf32> -> tensor<?x40xf32>
  // CHECK: prefill.gated_act silu {{.*}}prefill.not_folded = "gate and up are one linear"
  %a = prefill.gated_act silu %g, %g : tensor<?x40xf32>, tensor<?x40xf32> -> tensor<?x40xf32>
  return %a : tensor<?x40xf32>
}
