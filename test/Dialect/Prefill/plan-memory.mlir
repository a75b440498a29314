// RUN: prefill-opt %s --prefill-plan-memory | FileCheck %s
// RUN: prefill-opt %s --prefill-plan-memory=reuse=false | FileCheck %s --check-prefix=PLAIN
// RUN: prefill-opt %s --prefill-plan-memory --remarks-filter-analyse=prefill-memory --remark-policy=all -o %t 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: activation 448 * M_pad + 448 * R_pad bytes, kv_cache 128 * seq bytes (seq is the maximum length), weights 25600 bytes

// Three layers of one op that widens and one that narrows: x0 128 bytes a row and its sums 4, a 256, x1 128 ...
// Inputs and outputs never share; a's place is every layer's, and a third stream takes the place of the first.
// CHECK: func.func @prefill
// CHECK-SAME: prefill.activation_row_bytes = 448 : i64
// CHECK-SAME: prefill.kv_cache_bytes_per_token = 128 : i64
// CHECK-SAME: prefill.logits_row_bytes = 448 : i64
// CHECK-SAME: prefill.weights_bytes = 25600 : i64
// PLAIN: func.func @prefill
// PLAIN-SAME: prefill.activation_row_bytes = 960 : i64
// PLAIN-SAME: prefill.logits_row_bytes = 448 : i64
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 128>
prefill.weight @embed : tensor<72x64xbf16> = #prefill.checkpoint<"embed">
prefill.weight @w : tensor<128x64xbf16> = #prefill.checkpoint<"w">
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x72xf32>, !cache) {
  %e = prefill.get_weight @embed : tensor<72x64xbf16>
  %w = prefill.get_weight @w : tensor<128x64xbf16>
  %w2 = prefill.get_weight @w : tensor<128x64xbf16>
  // CHECK: prefill.rowwise
  // CHECK-SAME: [#prefill.buffer<activation, tokens, row_bytes = 128, row_offset = 256>, #prefill.buffer<activation, tokens, row_bytes = 4, row_offset = 384>]
  // PLAIN: row_bytes = 128, row_offset = 0>, #prefill.buffer<activation, tokens, row_bytes = 4, row_offset = 128>
  %x0, %s0 = prefill.rowwise : tensor<?x64xbf16>, tensor<?x1xf32> body {
    %0 = prefill.embed %batch, %e : tensor<72x64xbf16> -> tensor<?x64xbf16>
    %1 = prefill.row_sumsq %0 : tensor<?x64xbf16> -> tensor<?x1xf32>
    prefill.yield %0, %1 : tensor<?x64xbf16>, tensor<?x1xf32>
  }
  // The cache is written in place.
  // CHECK: prefill.gemm
  // CHECK-SAME: [#prefill.buffer<activation, tokens, row_bytes = 256, row_offset = 0>, unit]
  // PLAIN: row_bytes = 256, row_offset = 192>, unit
  %a0, %c = prefill.gemm %x0, %w : tensor<?x64xbf16>, tensor<128x64xbf16> -> tensor<?x128xbf16>, !cache epilogue {
  ^bb0(%acc: tensor<?x128xf32>):
    %0 = prefill.row_rms_scale %acc, %s0 {eps = 1.0e-5, channels = 64 : i64} : tensor<?x128xf32>, tensor<?x1xf32> -> tensor<?x128xf32>
    %1:3 = prefill.split %0 : tensor<?x128xf32> -> tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x64xf32>
    %2 = prefill.kv_append %1#0, %1#1 into %cache, %batch : tensor<?x32xf32>, tensor<?x32xf32> into !cache
    prefill.yield %0, %2 : tensor<?x128xf32>, !cache
  }
  // CHECK: prefill.rowwise
  // CHECK-SAME: row_bytes = 128, row_offset = 256>
  // PLAIN: row_bytes = 128, row_offset = 448>
  %x1 = prefill.rowwise : tensor<?x64xbf16> body {
    %0:2 = prefill.split %a0 : tensor<?x128xbf16> -> tensor<?x64xbf16>, tensor<?x64xbf16>
    %1 = prefill.add %0#0, %0#1 : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
    prefill.yield %1 : tensor<?x64xbf16>
  }
  // CHECK: prefill.gemm
  // CHECK-SAME: row_bytes = 256, row_offset = 0>
  %a1 = prefill.gemm %x1, %w2 : tensor<?x64xbf16>, tensor<128x64xbf16> -> tensor<?x128xbf16> epilogue {
  ^bb0(%acc: tensor<?x128xf32>):
    prefill.yield %acc : tensor<?x128xf32>
  }
  // CHECK: prefill.rowwise
  // CHECK-SAME: row_bytes = 128, row_offset = 256>
  %x2 = prefill.rowwise : tensor<?x64xbf16> body {
    %0:2 = prefill.split %a1 : tensor<?x128xbf16> -> tensor<?x64xbf16>, tensor<?x64xbf16>
    %1 = prefill.add %0#0, %0#1 : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
    prefill.yield %1 : tensor<?x64xbf16>
  }
  // The rows of the logits have a part of the arena of their own. 72 channels are 288 bytes: the next multiple of 64 is 320.
  // CHECK: prefill.rowwise
  // CHECK-SAME: [#prefill.buffer<activation, logits, row_bytes = 128, row_offset = 320>]
  %f = prefill.rowwise : tensor<?x64xbf16> body {
    %0 = prefill.select_rows %x2, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    prefill.yield %0 : tensor<?x64xbf16>
  }
  // CHECK: prefill.gemm
  // CHECK-SAME: [#prefill.buffer<activation, logits, row_bytes = 288, row_offset = 0>]
  %l = prefill.gemm %f, %e : tensor<?x64xbf16>, tensor<72x64xbf16> -> tensor<?x72xf32> epilogue {
  ^bb0(%acc: tensor<?x72xf32>):
    prefill.yield %acc : tensor<?x72xf32>
  }
  return %l, %c : tensor<?x72xf32>, !cache
}
