// RUN: prefill-opt %s --split-input-file --prefill-plan-memory=pad-rows=true | FileCheck %s
// RUN: prefill-opt %s --split-input-file --prefill-plan-memory | FileCheck %s --check-prefix=DENSE

// Rows of a multiple of 4 KiB lie a line of 64 bytes apart, other widths do not. A row's scale is 4 bytes.
// CHECK-LABEL: func @prefill
// CHECK-SAME: prefill.activation_row_bytes = 20672 : i64
// DENSE-LABEL: func @prefill
// DENSE-SAME: prefill.activation_row_bytes = 20480 : i64
prefill.weight @embed : tensor<8x2048xbf16> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x2048xf32> {
  %e = prefill.get_weight @embed : tensor<8x2048xbf16>
  // CHECK: row_bytes = 4160, row_offset
  // CHECK-SAME: row_bytes = 8256, row_offset
  // DENSE: row_bytes = 4096, row_offset
  // DENSE-SAME: row_bytes = 8192, row_offset
  %x, %y = prefill.rowwise : tensor<?x2048xbf16>, tensor<?x2048xf32> body {
    %0 = prefill.embed %batch, %e : tensor<8x2048xbf16> -> tensor<?x2048xbf16>
    %1 = prefill.scale %0 {factor = 2.0} : tensor<?x2048xbf16> -> tensor<?x2048xf32>
    prefill.yield %0, %1 : tensor<?x2048xbf16>, tensor<?x2048xf32>
  }
  %z = prefill.rowwise : tensor<?x2048xf32> body {
    %0 = prefill.add %x, %y : tensor<?x2048xbf16>, tensor<?x2048xf32> -> tensor<?x2048xf32>
    prefill.yield %0 : tensor<?x2048xf32>
  }
  return %z : tensor<?x2048xf32>
}

// -----

// CHECK-LABEL: func @prefill
// DENSE-LABEL: func @prefill
func.func @prefill(%batch: !prefill.batch, %x: tensor<?x4096xf32>, %y: tensor<?x2048xf32>) -> (tensor<?x4096xi8>, tensor<?x1xf32>, tensor<?x2048xi8>, tensor<?x1xf32>) {
  // CHECK: row_bytes = 4160, row_offset
  // CHECK-SAME: row_bytes = 4, row_offset
  // DENSE: row_bytes = 4096, row_offset
  // DENSE-SAME: row_bytes = 4, row_offset
  %q:2 = prefill.rowwise : tensor<?x4096xi8>, tensor<?x1xf32> body {
    %0, %1 = prefill.quantize_rows %x : tensor<?x4096xf32> -> tensor<?x4096xi8>, tensor<?x1xf32>
    prefill.yield %0, %1 : tensor<?x4096xi8>, tensor<?x1xf32>
  }
  // CHECK: row_bytes = 2048, row_offset
  %r:2 = prefill.rowwise : tensor<?x2048xi8>, tensor<?x1xf32> body {
    %0, %1 = prefill.quantize_rows %y : tensor<?x2048xf32> -> tensor<?x2048xi8>, tensor<?x1xf32>
    prefill.yield %0, %1 : tensor<?x2048xi8>, tensor<?x1xf32>
  }
  return %q#0, %q#1, %r#0, %r#1 : tensor<?x4096xi8>, tensor<?x1xf32>, tensor<?x2048xi8>, tensor<?x1xf32>
}
