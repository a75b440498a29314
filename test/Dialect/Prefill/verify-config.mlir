// RUN: not prefill-opt %s --prefill-verify-config --split-input-file 2>&1 | FileCheck %s

// CHECK: error: the module has no function @prefill
module {
}

// -----

// CHECK: error: prefill.scale is no op of level config
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.scale %x {factor = 2.0} : tensor<?x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise has no lowering_config
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise has tiles of 0 x 8, expected positive sizes
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 0, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise: row buckets hold 4 after 8, expected increasing positive numbers
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [8, 4]>} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise has lowering_config for rows of tokens, but its rows are logits
func.func @prefill(%x: tensor<?x8xf32>, %batch: !prefill.batch) -> tensor<?x8xf32> {
  %y = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>} : tensor<?x8xf32> body {
    %0 = prefill.select_rows %x, %batch : tensor<?x8xf32> -> tensor<?x8xf32>
    prefill.yield %0 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.gemm and its producer prefill.rowwise pad rows differently
func.func @prefill(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 0>], lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  %z = prefill.gemm %y, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1, 8]>} : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  return %z : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise has 0 buffers, expected one for each of 1 results
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.rowwise has buffer {{.*}} for 'tensor<?x8xf32>' in rows of tokens, expected activation, row_bytes = 32 and a row_offset that is a multiple of 64
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 16, row_offset = 0>], lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// An op's result in the place of its operand.
// CHECK: error: prefill.rowwise has buffer {{.*}}, which overlaps {{.*}} of prefill.rowwise that is still in use
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 0>], lowering_config = #config} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  %z = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 0>], lowering_config = #config} : tensor<?x8xf32> body {
    prefill.yield %y : tensor<?x8xf32>
  }
  return %z : tensor<?x8xf32>
}

// -----

// CHECK-NOT: error
// The place is free once its tensor was used for the last time.
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 0>], lowering_config = #config} : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  %z = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 64>], lowering_config = #config} : tensor<?x8xf32> body {
    prefill.yield %y : tensor<?x8xf32>
  }
  %u = prefill.rowwise {prefill.buffers = [#prefill.buffer<activation, tokens, row_bytes = 32, row_offset = 0>], lowering_config = #config} : tensor<?x8xf32> body {
    prefill.yield %z : tensor<?x8xf32>
  }
  return %u : tensor<?x8xf32>
}
