// gemm, rowwise, their nodes and launches that the verifier refuses. Each case names its rule of docs/spec.md.
// RUN: prefill-opt %s -verify-diagnostics -split-input-file

// GEMM-C1
func.func @f(%x: tensor<?x48xbf16>, %w: tensor<64x32xbf16>) {
  // expected-error @below {{'prefill.gemm' op weight is 'tensor<64x32xbf16>' but input has 48 channels: K must agree}}
  %0 = prefill.gemm %x, %w : tensor<?x48xbf16>, tensor<64x32xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return
}

// -----

// GEMM-C1: packed.
func.func @f(%x: tensor<?x48xbf16>, %w: tensor<2x32x32x2xbf16>) {
  // expected-error @below {{'prefill.gemm' op weight is 'tensor<2x32x32x2xbf16>', packed with k_pack 2, but input has 48 channels: expected 24 groups of K}}
  %0 = prefill.gemm %x, %w : tensor<?x48xbf16>, tensor<2x32x32x2xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return
}

// -----

// GEMM-C2
func.func @f(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) {
  // expected-error @below {{'prefill.gemm' op region must have one argument, the accumulator: f32 [M, N]}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32> epilogue {
  ^bb0(%acc: tensor<?x4xbf16>):
    prefill.yield %acc : tensor<?x4xbf16>
  }
  return
}

// -----

// GEMM-C2
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  // expected-error @below {{'prefill.gemm' op region must have one argument, the accumulator: f32 [M, N]}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// GEMM-C3
func.func @f(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) {
  // expected-error @below {{'prefill.gemm' op accumulator is 'tensor<?x8xf32>' but weight is 'tensor<4x8xf32>': N must agree}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// GEMM-C3: packed.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<2x8x32x1xf32>) {
  // expected-error @below {{'prefill.gemm' op accumulator is 'tensor<?x65xf32>' but weight is 'tensor<2x8x32x1xf32>', which has 64 columns with padding: N must fit}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<2x8x32x1xf32> -> tensor<?x65xf32> epilogue {
  ^bb0(%acc: tensor<?x65xf32>):
    prefill.yield %acc : tensor<?x65xf32>
  }
  return
}

// -----

// GEMM-C4
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.gemm' op selects rows of a value of its own region, expected one from outside}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %1 = prefill.select_rows %acc, %b : tensor<?x8xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  return
}

// -----

// GEMM-C5
func.func @f(%x: tensor<?x8xbf16>, %w: tensor<8x8xi8>) {
  // expected-error @below {{'prefill.gemm' op input is 'tensor<?x8xbf16>' but weight is 'tensor<8x8xi8>': expected both of i8 or neither}}
  %0 = prefill.gemm %x, %w : tensor<?x8xbf16>, tensor<8x8xi8> -> tensor<?x8xbf16> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// GEMM-C5: packed.
func.func @f(%x: tensor<?x8xi8>, %w: tensor<1x4x32x2xbf16>) {
  // expected-error @below {{'prefill.gemm' op input is 'tensor<?x8xi8>' but weight is 'tensor<1x4x32x2xbf16>': expected both of i8 or neither}}
  %0 = prefill.gemm %x, %w : tensor<?x8xi8>, tensor<1x4x32x2xbf16> -> tensor<?x8xbf16> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// GEMM-C6
func.func @f(%x: tensor<?x65537xi8>, %w: tensor<8x65537xi8>) {
  // expected-error @below {{'prefill.gemm' op input is 'tensor<?x65537xi8>', expected at most 65536 channels of i8, whose sums fit i32}}
  %0 = prefill.gemm %x, %w : tensor<?x65537xi8>, tensor<8x65537xi8> -> tensor<?x8xbf16> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// TENSOR-C3: other ops know no integers.
func.func @f(%x: tensor<?x8xi8>) {
  // expected-error @below {{'prefill.add' op lhs is 'tensor<?x8xi8>', expected elements of f64, f32, bf16 or f16}}
  %0 = prefill.add %x, %x : tensor<?x8xi8>, tensor<?x8xi8> -> tensor<?x8xf32>
  return
}

// -----

// TENSOR-C3: and no op knows wider ones.
func.func @f(%x: tensor<?x8xi32>, %w: tensor<8x8xi8>) {
  // expected-error @below {{'prefill.gemm' op input is 'tensor<?x8xi32>', expected elements of f64, f32, bf16, f16 or i8}}
  %0 = prefill.gemm %x, %w : tensor<?x8xi32>, tensor<8x8xi8> -> tensor<?x8xbf16> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C1
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  // expected-error @below {{'prefill.gemm' op has 'prefill.linear' in its region, which is not a node of an epilogue}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %1 = prefill.linear %acc, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op region ends with 'llvm.unreachable', expected 'prefill.yield'}}
  %0 = prefill.rowwise : tensor<?x8xf32> body {
    llvm.unreachable
  }
  return
}

// -----

// EPILOGUE-C1: a rowwise has no sums of integers.
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'prefill.rowwise' op has 'prefill.dequantize' in its region, which is not a node of an epilogue}}
  %0 = prefill.rowwise : tensor<?x8xf32> body {
    %1 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<8xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C2
func.func @f(%x: tensor<?x8xf32>, %i: index) {
  // expected-error @below {{'prefill.rowwise' op yields 'index', expected a tensor or a cache}}
  %0 = prefill.rowwise : index body {
    prefill.yield %i : index
  }
  return
}

// -----

// EPILOGUE-C3
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  // expected-error @below {{'prefill.gemm' op yields 1 values but has 2 results: there must be one for each}}
  %0:2 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>, tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C4
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  // expected-error @below {{'prefill.gemm' op result 0 is 'tensor<?x4xbf16>' but the region yields 'tensor<?x8xf32>': only the element type may differ}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x4xbf16> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C4: a float is not stored as an integer, nor an integer as a float.
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op result 0 is 'tensor<?x8xi8>' but the region yields 'tensor<?x8xf32>': only the element type may differ, and of floats alone}}
  %0 = prefill.rowwise : tensor<?x8xi8> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// EPILOGUE-C4
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op result 0 is 'tensor<?x8xf32>' but the region yields 'tensor<?x8xi8>': only the element type may differ, and of floats alone}}
  %0:2 = prefill.rowwise : tensor<?x8xf32>, tensor<?x1xf32> body {
    %q, %s = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32>
    prefill.yield %q, %s : tensor<?x8xi8>, tensor<?x1xf32>
  }
  return
}

// -----

// EPILOGUE-C4: caches.
!a = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
!b = !prefill.kv_cache<paged_nhd, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
func.func @f(%x: tensor<?x8xf32>, %c: !a) {
  // expected-error @below {{only the element type may differ}}
  %0 = prefill.rowwise : !b body {
    prefill.yield %c : !a
  }
  return
}

// -----

// TILE-C1
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %i: index, %o: memref<?x8xf32>) {
  // expected-error @below {{'prefill.gemm' op tile has 1 indices, expected 2}}
  prefill.gemm %x, %w tile(%i) outs(%o : memref<?x8xf32>) : tensor<?x8xf32>, tensor<8x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C1
func.func @f(%x: tensor<?x8xf32>, %o: memref<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op tile has 0 indices, expected 1}}
  prefill.rowwise outs(%o : memref<?x8xf32>) body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C2
func.func @f(%x: tensor<?x8xf32>, %i: index, %o: memref<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op has a tile and 1 results, expected none: a tile is stored into buffers}}
  %0 = prefill.rowwise tile(%i) outs(%o : memref<?x8xf32>) : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C3
func.func @f(%x: tensor<?x8xf32>, %i: index, %o: memref<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op yields 2 tensors but has 1 buffers: there must be one for each}}
  prefill.rowwise tile(%i) outs(%o : memref<?x8xf32>) body {
    prefill.yield %x, %x : tensor<?x8xf32>, tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C3
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op yields 1 tensors but has 0 buffers: there must be one for each}}
  prefill.rowwise body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C4
func.func @f(%x: tensor<?x8xf32>, %i: index, %o: memref<?x16xf32>) {
  // expected-error @below {{'prefill.rowwise' op buffer 0 is 'memref<?x16xf32>' but the region yields 'tensor<?x8xf32>': their channels must agree}}
  prefill.rowwise tile(%i) outs(%o : memref<?x16xf32>) body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

// TILE-C4
func.func @f(%x: tensor<?x8xf32>, %i: index, %o: memref<?x8xf32>, %p: memref<?x1xf32>) {
  // expected-error @below {{'prefill.rowwise' op buffer 0 is 'memref<?x8xf32>' but the region yields 'tensor<?x8xi8>': expected both of i8 or neither}}
  prefill.rowwise tile(%i) outs(%o, %p : memref<?x8xf32>, memref<?x1xf32>) body {
    %q, %s = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32>
    prefill.yield %q, %s : tensor<?x8xi8>, tensor<?x1xf32>
  }
  return
}

// -----

// ROWWISE-C1
func.func @f() {
  // expected-error @below {{'prefill.rowwise' op region has 1 arguments, expected none: its nodes load what they need}}
  %0 = prefill.rowwise : tensor<?x8xf32> body {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return
}

// -----

// ROWWISE-C2: embed is a leaf of rowwise, not of an epilogue.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.gemm' op has 'prefill.embed' in its region, which is not a node of an epilogue}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %1 = prefill.embed %b, %w : tensor<8x8xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  return
}

// -----

// ROWWISE-C2: and so is combine_splits.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %p: tensor<?x16xf32>, %lse: tensor<?x2xf32>) {
  // expected-error @below {{'prefill.gemm' op has 'prefill.combine_splits' in its region, which is not a node of an epilogue}}
  %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %1 = prefill.combine_splits %p, %lse : tensor<?x16xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  return
}

// -----

// ROWWISE-C2: and quantize_rows needs whole rows.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  // expected-error @below {{'prefill.gemm' op has 'prefill.quantize_rows' in its region, which is not a node of an epilogue}}
  %0:2 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %q, %s = prefill.quantize_rows %acc : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32>
    prefill.yield %q, %s : tensor<?x8xi8>, tensor<?x1xf32>
  }
  return
}

// -----

// ROWWISE-C3
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op has 'prefill.scale' in its region that reads a result of quantize_rows, which is only yielded}}
  %0:2 = prefill.rowwise : tensor<?x8xi8>, tensor<?x1xf32> body {
    %q, %s = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32>
    %half = prefill.scale %s {factor = 0.5} : tensor<?x1xf32> -> tensor<?x1xf32>
    prefill.yield %q, %half : tensor<?x8xi8>, tensor<?x1xf32>
  }
  return
}

// -----

// EPILOGUE-C5
func.func @f(%x: tensor<?x8xi8>) {
  // expected-error @below {{'prefill.rowwise' op yields 'tensor<?x8xi8>', expected integers of quantize_rows alone}}
  %0 = prefill.rowwise : tensor<?x8xi8> body {
    prefill.yield %x : tensor<?x8xi8>
  }
  return
}

// -----

// EPILOGUE-C6
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op stores a result of prefill.quantize_rows as 'tensor<?x1xbf16>', expected f32}}
  %0:2 = prefill.rowwise : tensor<?x8xi8>, tensor<?x1xbf16> body {
    %q, %s = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xf32>
    prefill.yield %q, %s : tensor<?x8xi8>, tensor<?x1xf32>
  }
  return
}

// -----

// EPILOGUE-C6
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.rowwise' op stores a result of prefill.row_sumsq as 'tensor<?x1xbf16>', expected f32}}
  %0 = prefill.rowwise : tensor<?x1xbf16> body {
    %s = prefill.row_sumsq %x : tensor<?x8xf32> -> tensor<?x1xf32>
    prefill.yield %s : tensor<?x1xf32>
  }
  return
}

// -----

// Eight bits with a sign of their own are no i8.
func.func @f(%x: tensor<?x8xsi8>, %w: tensor<4x8xsi8>) {
  // expected-error @below {{'prefill.gemm' op input is 'tensor<?x8xsi8>', expected elements of}}
  %0 = prefill.gemm %x, %w : tensor<?x8xsi8>, tensor<4x8xsi8> -> tensor<?x4xf32> epilogue {
  ^bb0(%acc: tensor<?x4xf32>):
    prefill.yield %acc : tensor<?x4xf32>
  }
  return
}

// -----

// QUANTIZE_ROWS-C1
func.func @f(%x: tensor<?x8xi8>) {
  // expected-error @below {{'prefill.quantize_rows' op input is 'tensor<?x8xi8>', expected elements of f64, f32, bf16 or f16}}
  %0, %1 = prefill.quantize_rows %x : tensor<?x8xi8> -> tensor<?x8xi8>, tensor<?x1xf32>
  return
}

// -----

// QUANTIZE_ROWS-C2
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.quantize_rows' op quantized is 'tensor<?x8xbf16>', expected elements of i8}}
  %0, %1 = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xbf16>, tensor<?x1xf32>
  return
}

// -----

// QUANTIZE_ROWS-C2
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.quantize_rows' op quantized is 'tensor<?x4xi8>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0, %1 = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x4xi8>, tensor<?x1xf32>
  return
}

// -----

// QUANTIZE_ROWS-C3
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.quantize_rows' op scale is 'tensor<?x1xbf16>', expected f32 [M, 1]}}
  %0, %1 = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x1xbf16>
  return
}

// -----

// QUANTIZE_ROWS-C3: one for the whole row.
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.quantize_rows' op scale is 'tensor<?x2xf32>', expected f32 [M, 1]}}
  %0, %1 = prefill.quantize_rows %x : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?x2xf32>
  return
}

// -----

// DEQUANTIZE-C1
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'prefill.dequantize' op result is 'tensor<?x4xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<8xf32> -> tensor<?x4xf32>
  return
}

// -----

// DEQUANTIZE-C1
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'prefill.dequantize' op input is 'tensor<?x8xf32>' and result 'tensor<?x8xbf16>', expected f32 elements}}
  %0 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<8xf32> -> tensor<?x8xbf16>
  return
}

// -----

// DEQUANTIZE-C2
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x8xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'prefill.dequantize' op row_scale is 'tensor<?x8xf32>', expected f32 [M, 1]}}
  %0 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  return
}

// -----

// DEQUANTIZE-C2
func.func @f(%x: tensor<3x8xf32>, %s: tensor<2x1xf32>, %c: tensor<8xf32>) {
  // expected-error @below {{'prefill.dequantize' op row_scale is 'tensor<2x1xf32>' but input is 'tensor<3x8xf32>': their rows must agree}}
  %0 = prefill.dequantize %x, %s, %c : tensor<3x8xf32>, tensor<2x1xf32>, tensor<8xf32> -> tensor<3x8xf32>
  return
}

// -----

// DEQUANTIZE-C3
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>, %c: tensor<4xf32>) {
  // expected-error @below {{'prefill.dequantize' op column_scale is 'tensor<4xf32>' but input has 8 channels: expected as many f32 elements}}
  %0 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<4xf32> -> tensor<?x8xf32>
  return
}

// -----

// DEQUANTIZE-C3
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>, %c: tensor<8xbf16>) {
  // expected-error @below {{'prefill.dequantize' op column_scale is 'tensor<8xbf16>' but input has 8 channels: expected as many f32 elements}}
  %0 = prefill.dequantize %x, %s, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<8xbf16> -> tensor<?x8xf32>
  return
}

// -----

// COMBINE_SPLITS-C1
func.func @f(%p: tensor<?x20xf32>, %lse: tensor<?x2xf32>) {
  // expected-error @below {{'prefill.combine_splits' op partials are 'tensor<?x20xf32>' but the result has 8 channels: expected f32 with two or more times as many}}
  %0 = prefill.combine_splits %p, %lse : tensor<?x20xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  return
}

// -----

// COMBINE_SPLITS-C1: one split is none.
func.func @f(%p: tensor<?x8xf32>, %lse: tensor<?x2xf32>) {
  // expected-error @below {{'prefill.combine_splits' op partials are 'tensor<?x8xf32>' but the result has 8 channels: expected f32 with two or more times as many}}
  %0 = prefill.combine_splits %p, %lse : tensor<?x8xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  return
}

// -----

// COMBINE_SPLITS-C2: heads of one split for two.
func.func @f(%p: tensor<?x16xf32>, %lse: tensor<?x3xf32>) {
  // expected-error @below {{'prefill.combine_splits' op lse is 'tensor<?x3xf32>' for 2 splits of 8 channels: expected f32 with the same heads in each split}}
  %0 = prefill.combine_splits %p, %lse : tensor<?x16xf32>, tensor<?x3xf32> -> tensor<?x8xf32>
  return
}

// -----

// COMBINE_SPLITS-C2: fewer numbers than splits.
func.func @f(%p: tensor<?x24xf32>, %lse: tensor<?x2xf32>) {
  // expected-error @below {{'prefill.combine_splits' op lse is 'tensor<?x2xf32>' for 3 splits of 8 channels: expected f32 with the same heads in each split}}
  %0 = prefill.combine_splits %p, %lse : tensor<?x24xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  return
}

// -----

// SPLIT-C1: thirds of a fused QKV under GQA.
func.func @f(%x: tensor<?x96xf32>) {
  // expected-error @below {{'prefill.split' op input is 'tensor<?x96xf32>' but the results have 128 channels together: they must agree}}
  %0:3 = prefill.split %x : tensor<?x96xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
  return
}

// -----

// DEINTERLEAVE-C1
func.func @f(%x: tensor<?x16xf32>) {
  // expected-error @below {{'prefill.deinterleave' op granularity is 0, expected at least 1}}
  %0, %1 = prefill.deinterleave %x {granularity = 0} : tensor<?x16xf32> -> tensor<?x8xf32>, tensor<?x8xf32>
  return
}

// -----

// DEINTERLEAVE-C2
func.func @f(%x: tensor<?x16xf32>) {
  // expected-error @below {{'prefill.deinterleave' op second is 'tensor<?x4xf32>' but first is 'tensor<?x8xf32>': their channels must agree}}
  %0, %1 = prefill.deinterleave %x {granularity = 4} : tensor<?x16xf32> -> tensor<?x8xf32>, tensor<?x4xf32>
  return
}

// -----

// DEINTERLEAVE-C3
func.func @f(%x: tensor<?x20xf32>) {
  // expected-error @below {{'prefill.deinterleave' op input is 'tensor<?x20xf32>' but the results are 'tensor<?x10xf32>' in runs of 4: expected 24 channels}}
  %0, %1 = prefill.deinterleave %x {granularity = 4} : tensor<?x20xf32> -> tensor<?x10xf32>, tensor<?x10xf32>
  return
}

// -----

// BIAS_ADD-C1
func.func @f(%x: tensor<?x8xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{'prefill.bias_add' op result is 'tensor<?x4xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.bias_add %x, %b : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x4xf32>
  return
}

// -----

// BIAS_ADD-C2
func.func @f(%x: tensor<?x8xf32>, %b: tensor<4xf32>) {
  // expected-error @below {{'prefill.bias_add' op bias is 'tensor<4xf32>' but input has 8 channels: they must agree}}
  %0 = prefill.bias_add %x, %b : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xf32>
  return
}

// -----

// ROW_SUMSQ-C1
func.func @f(%x: tensor<?x8xbf16>) {
  // expected-error @below {{'prefill.row_sumsq' op result is 'tensor<?x1xbf16>', expected f32 elements}}
  %0 = prefill.row_sumsq %x : tensor<?x8xbf16> -> tensor<?x1xbf16>
  return
}

// -----

// ROW_SUMSQ-C2
func.func @f(%x: tensor<?x8xbf16>) {
  // expected-error @below {{'prefill.row_sumsq' op result is 'tensor<?x9xf32>' but input is 'tensor<?x8xbf16>': there must not be more partial sums than channels}}
  %0 = prefill.row_sumsq %x : tensor<?x8xbf16> -> tensor<?x9xf32>
  return
}

// -----

// ROW_RMS_SCALE-C1
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>) {
  // expected-error @below {{'prefill.row_rms_scale' op result is 'tensor<?x4xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.row_rms_scale %x, %s {eps = 1.0e-5, channels = 8} : tensor<?x8xf32>, tensor<?x1xf32> -> tensor<?x4xf32>
  return
}

// -----

// ROW_RMS_SCALE-C2
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xbf16>) {
  // expected-error @below {{'prefill.row_rms_scale' op sumsq is 'tensor<?x1xbf16>', expected f32 elements}}
  %0 = prefill.row_rms_scale %x, %s {eps = 1.0e-5, channels = 8} : tensor<?x8xf32>, tensor<?x1xbf16> -> tensor<?x8xf32>
  return
}

// -----

// ROW_RMS_SCALE-C3
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>) {
  // expected-error @below {{'prefill.row_rms_scale' op channels is 0, expected at least 1}}
  %0 = prefill.row_rms_scale %x, %s {eps = 1.0e-5, channels = 0} : tensor<?x8xf32>, tensor<?x1xf32> -> tensor<?x8xf32>
  return
}

// -----

// ROW_RMS_SCALE-C4
func.func @f(%x: tensor<?x8xf32>, %s: tensor<?x1xf32>) {
  // expected-error @below {{'prefill.row_rms_scale' op eps is INF, expected a finite number of at least 0}}
  %0 = prefill.row_rms_scale %x, %s {eps = 0x7FF0000000000000 : f64, channels = 8} : tensor<?x8xf32>, tensor<?x1xf32> -> tensor<?x8xf32>
  return
}

// -----

// LAUNCH-C1
func.func private @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32>
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.launch' op names kernel @k, which is not a func.func with prefill.kernel}}
  %0 = prefill.launch @k(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// LAUNCH-C2
func.func private @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {prefill.kernel}
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.launch' op has 2 operands but kernel @k has 1 arguments}}
  %0 = prefill.launch @k(%x, %x) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// LAUNCH-C2: the layout of a cache is part of its type.
!a = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
!b = !prefill.kv_cache<head_major, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
func.func private @k(%c: !a) -> !a attributes {prefill.kernel}
func.func @f(%c: !b) {
  // expected-error @below {{'prefill.launch' op operand 0 is '!prefill.kv_cache<head_major,}}
  %0 = prefill.launch @k(%c) : (!b) -> !a
  return
}

// -----

// LAUNCH-C3
func.func private @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {prefill.kernel}
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.launch' op results are ('tensor<?x4xf32>') but those of kernel @k are ('tensor<?x8xf32>')}}
  %0 = prefill.launch @k(%x) : (tensor<?x8xf32>) -> tensor<?x4xf32>
  return
}

// -----

// LAUNCH-C3: a tiled kernel stores into buffers.
func.func private @k(%x: tensor<?x8xf32>, %o: memref<?x8xf32>) attributes {prefill.kernel}
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.launch' op has 2 tensor results but kernel @k has 1 buffers}}
  %0:2 = prefill.launch @k(%x) : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
  return
}

// -----

// LAUNCH-C4
func.func private @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {prefill.kernel}
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.launch' op buffers has 2 elements but there are 1 results: there must be one for each}}
  %0 = prefill.launch @k(%x) {buffers = [unit, unit]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}
