// RUN: prefill-opt %s --prefill-plan-memory=pad-rows=true | FileCheck %s
// RUN: prefill-opt %s --prefill-plan-memory | FileCheck %s --check-prefix=DENSE

// bf16 rows of a multiple of 4 KiB lie a line of 64 bytes apart; other widths and f32 do not.
// CHECK: prefill.activation_row_bytes = 20544 : i64
// DENSE: prefill.activation_row_bytes = 20480 : i64
prefill.weight @embed : tensor<8x2048xbf16> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x2048xf32> {
  %e = prefill.get_weight @embed : tensor<8x2048xbf16>
  // CHECK: row_bytes = 4160, row_offset
  // CHECK-SAME: row_bytes = 8192, row_offset
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
