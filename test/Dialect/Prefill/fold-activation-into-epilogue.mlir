// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fuse-gate-up --prefill-fold-activation-into-epilogue | FileCheck %s --check-prefix=LAYER
// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-fold-activation-into-epilogue | FileCheck %s --check-prefix=UNFUSED
// RUN: prefill-opt %s --prefill-fold-activation-into-epilogue | FileCheck %s

// LAYER: %[[A:.*]] = prefill.gemm {{.*}}prefill.name = "gate_up_proj"} : {{.*}} -> tensor<?x96xbf16>
// LAYER: %[[G:.*]], %[[U:.*]] = prefill.deinterleave
// LAYER-NEXT: %[[P:.*]] = prefill.gated_act silu %[[G]], %[[U]] : tensor<?x96xf32>, tensor<?x96xf32> -> tensor<?x96xf32>
// LAYER-NEXT: prefill.yield %[[P]]
// LAYER: prefill.linear %[[A]]

// UNFUSED: prefill.gated_act silu {{.*}}prefill.not_folded = "gate and up are not results of one GEMM"

// CHECK-LABEL: func @split
func.func @split(%x: tensor<?x64xf32>, %w: tensor<128x64xf32>) -> tensor<?x64xf32> {
  %g, %u = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<128x64xf32> -> tensor<?x64xf32>, tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x128xf32>):
    %0:2 = prefill.split %acc : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x64xf32>
    prefill.yield %0#0, %0#1 : tensor<?x64xf32>, tensor<?x64xf32>
  }
  // CHECK: prefill.gated_act silu {{.*}}prefill.not_folded = "gate and up of one column may lie in different tiles: they are not interleaved"
  %a = prefill.gated_act silu %g, %u : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}
