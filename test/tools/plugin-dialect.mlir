// The plugin gives a stock mlir-opt the dialect: it parses, verifies and prints prefill ops.
// RUN: mlir-opt --load-dialect-plugin=%plugin %s | FileCheck %s
// Without it the same program knows none of them.
// RUN: not mlir-opt %s 2>&1 | FileCheck %s --check-prefix=WITHOUT

// WITHOUT: error: {{.*}}prefill

// CHECK: prefill.weight @gain : tensor<64xbf16> = #prefill.checkpoint<"model.norm.weight">
prefill.weight @gain : tensor<64xbf16> = #prefill.checkpoint<"model.norm.weight">

// CHECK-LABEL: func.func @norm
func.func @norm(%x: tensor<?x64xbf16>) -> tensor<?x64xbf16> {
  // CHECK: %[[GAIN:.*]] = prefill.get_weight @gain : tensor<64xbf16>
  %gain = prefill.get_weight @gain : tensor<64xbf16>
  // CHECK: prefill.rms_norm %{{.*}}, %[[GAIN]] {eps = {{.*}}} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
  %y = prefill.rms_norm %x, %gain {eps = 1.0e-5 : f64} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}
