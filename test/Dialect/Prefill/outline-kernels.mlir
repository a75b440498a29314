// RUN: prefill-opt %s --prefill-outline-kernels | FileCheck %s

// Two layers share one kernel: only weights and inputs differ. What an epilogue uses from outside becomes an argument.

// CHECK-LABEL: func.func @prefill(
// CHECK: %[[X1:[a-z0-9_]+]] = prefill.launch @o_proj(%[[X0:[a-z0-9]+]], %{{[a-z0-9]+}}, %[[BATCH:[a-z0-9]+]]) {prefill.layer = 0 : i64, prefill.name = "o_proj"}
// CHECK: %[[X2:[a-z0-9_]+]] = prefill.launch @o_proj(%[[X1]], %{{[a-z0-9]+}}, %[[BATCH]]) {prefill.layer = 1 : i64, prefill.name = "o_proj"}
// CHECK: return %[[X2]]
// CHECK: func.func private @o_proj(%[[IN:.*]]: tensor<?x32xbf16>, %[[W:.*]]: tensor<32x32xbf16>, %{{.*}}: !prefill.batch) -> tensor<?x32xbf16> attributes {prefill.kernel}
// CHECK: prefill.gemm %[[IN]], %[[W]]
// CHECK: prefill.add %{{.*}}, %[[IN]]
// CHECK-NOT: func.func private

prefill.weight @w0 : tensor<32x32xbf16> = #prefill.checkpoint<"w0">
prefill.weight @w1 : tensor<32x32xbf16> = #prefill.checkpoint<"w1">
func.func @prefill(%batch: !prefill.batch, %x0: tensor<?x32xbf16>) -> tensor<?x32xbf16> {
  %w0 = prefill.get_weight @w0 : tensor<32x32xbf16>
  %x1 = prefill.gemm %x0, %w0 {prefill.layer = 0 : i64, prefill.name = "o_proj"} : tensor<?x32xbf16>, tensor<32x32xbf16> -> tensor<?x32xbf16> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    %y = prefill.add %acc, %x0 {prefill.layer = 0 : i64} : tensor<?x32xf32>, tensor<?x32xbf16> -> tensor<?x32xbf16>
    prefill.yield %y : tensor<?x32xbf16>
  }
  %w1 = prefill.get_weight @w1 : tensor<32x32xbf16>
  %x2 = prefill.gemm %x1, %w1 {prefill.layer = 1 : i64, prefill.name = "o_proj"} : tensor<?x32xbf16>, tensor<32x32xbf16> -> tensor<?x32xbf16> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    %y = prefill.add %acc, %x1 {prefill.layer = 1 : i64} : tensor<?x32xf32>, tensor<?x32xbf16> -> tensor<?x32xbf16>
    prefill.yield %y : tensor<?x32xbf16>
  }
  return %x2 : tensor<?x32xbf16>
}
