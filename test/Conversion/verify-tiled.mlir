// RUN: not prefill-opt %s --prefill-verify-tiled --split-input-file 2>&1 | FileCheck %s

// CHECK: error: the module has no function @prefill
module {
}

// -----

// CHECK: error: prefill.scale in the entry function of level tiled, expected prefill.get_weight and prefill.launch
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = prefill.scale %x {factor = 2.0} : tensor<?x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// A kernel that was not tiled.
// CHECK: error: kernel k has results of type ('tensor<?x8xf32>'), expected none: a kernel stores into its arguments
func.func private @k(%x: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {prefill.kernel} {
  %y = prefill.rowwise : tensor<?x8xf32> body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: kernel k has no prefill.grid, which says how many workgroups run it
func.func private @k(%x: tensor<?x8xf32>, %out: memref<?x8xf32>) attributes {prefill.kernel} {
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: has 0 scf.forall, expected one, over its workgroups
func.func private @k(%x: tensor<?x8xf32>, %i: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
    prefill.yield %x : tensor<?x8xf32>
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: the loop over workgroups stands in func.func with 2 dimensions and 0 results, expected func.func, one dimension from 0 with step 1, and no results
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  scf.forall (%i, %j) in (%n, %n) {
    prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
      prefill.yield %x : tensor<?x8xf32>
    }
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: has 2 ops that store results, expected one
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  scf.forall (%i) in (%n) {
    prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
      prefill.yield %x : tensor<?x8xf32>
    }
    prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
      prefill.yield %x : tensor<?x8xf32>
    }
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: prefill.rowwise stands outside the loop over workgroups
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  prefill.rowwise tile(%n) outs(%out : memref<?x8xf32>) body {
    prefill.yield %x : tensor<?x8xf32>
  }
  scf.forall (%i) in (%n) {
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: prefill.gemm is not in tile form (run prefill-tile)
func.func private @k(%x: tensor<?x8xf32>, %w: tensor<1x8x32x1xf32>, %n: index, %out: memref<?x32xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  scf.forall (%i) in (%n) {
    %0 = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<1x8x32x1xf32> -> tensor<?x32xf32> epilogue {
    ^bb0(%acc: tensor<?x32xf32>):
      prefill.yield %acc : tensor<?x32xf32>
    }
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel k: prefill.attention is not in tile form (run prefill-tile)
func.func private @k(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, base2, causal} : tensor<?x64xf32>, !cache -> tensor<?x64xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel k: prefill.online_attention is not in tile form (run prefill-tile)
func.func private @k(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %acc, %max, %sum = prefill.online_attention %q, %cache, %batch mask = edge {causal, scale = 1.0, base2} : tensor<?x64xf32>, !cache -> tensor<?x64xf32>, tensor<?x2xf32>, tensor<?x2xf32>
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: prefill.scale is no op of level tiled
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %y = prefill.scale %x {factor = 2.0} : tensor<?x8xf32> -> tensor<?x8xf32>
  scf.forall (%i) in (%n) {
    prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
      prefill.yield %y : tensor<?x8xf32>
    }
  }
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: kernel k: memref.alloc is no op of level tiled
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %y = memref.alloc() : memref<8xf32>
  return
}

// -----

#grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: error: launch of kernel k has a result 'tensor<?x8xbf16>', but argument 2 of the kernel is 'memref<?x8xf32>', expected 'memref<?x8xbf16>'
func.func @prefill(%x: tensor<?x8xf32>, %n: index) -> tensor<?x8xbf16> {
  %y = prefill.launch @k(%x, %n) : (tensor<?x8xf32>, index) -> tensor<?x8xbf16>
  return %y : tensor<?x8xbf16>
}
func.func private @k(%x: tensor<?x8xf32>, %n: index, %out: memref<?x8xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  scf.forall (%i) in (%n) {
    prefill.rowwise tile(%i) outs(%out : memref<?x8xf32>) body {
      prefill.yield %x : tensor<?x8xf32>
    }
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: prefill.online_attention with mask edge stands in a KV loop marked "full", expected "edge"
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "full"}
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: prefill.online_attention with mask none stands in a KV loop marked "edge", expected "full"
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "edge"}
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: prefill.online_attention with mask edge stands in a KV loop marked "diagonal", expected "edge"
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "diagonal"}
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// Blocks of a loop that runs over all of them are not known to be free of masks.
// CHECK: error: kernel attention: prefill.online_attention with mask none stands in a KV loop without prefill.kv_blocks, expected "full"
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    }
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: a KV loop without prefill.kv_blocks runs over all blocks, but the kernel has 2 KV loops
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    }
    %e:3 = scf.for %b = %full to %all step %c1 iter_args(%a = %f#0, %m = %f#1, %s = %f#2) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "edge"}
    prefill.attention_normalize %e#0, %e#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: a KV loop without prefill.kv_blocks runs over all blocks, but it does not start at 0
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %full to %all step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    }
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// The blocks in between are lost.
// CHECK: error: kernel attention: a KV loop does not start where the one before it ends
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "full"}
    %e:3 = scf.for %b = %begin to %all step %c1 iter_args(%a = %f#0, %m = %f#1, %s = %f#2) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "edge"}
    prefill.attention_normalize %e#0, %e#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// The first loop's keys are lost.
// CHECK: error: kernel attention: a KV loop does not take over the state of the one before it
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "full"}
    %e:3 = scf.for %b = %full to %all step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "edge"}
    prefill.attention_normalize %e#0, %e#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// CHECK: error: kernel attention: prefill.online_attention stands in no scf.for over its KV blocks
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %c0) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "full"}
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// What prefill-specialize-causal-blocks makes.
// CHECK-NOT: error
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %full step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = none {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "full"}
    %e:3 = scf.for %b = %full to %all step %c1 iter_args(%a = %f#0, %m = %f#1, %s = %f#2) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    } {prefill.kv_blocks = "edge"}
    prefill.attention_normalize %e#0, %e#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}
func.func @prefill(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index) -> tensor<?x64xf32> {
  %0 = prefill.launch @attention(%q, %cache, %batch, %n) : (tensor<?x64xf32>, !cache, !prefill.batch, index) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
#config = #prefill.lowering_config<tokens, block_m = 8, block_n = 0, block_kv = 16, panel_n = 0, row_buckets = [1]>
#grid = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 1>
// What it leaves when it is left out.
// CHECK-NOT: error
func.func private @attention(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %n: index, %out: memref<?x64xf32>) attributes {prefill.kernel, prefill.grid = #grid} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<8x64xf32>
  %none = arith.constant dense<0xFF800000> : tensor<8x2xf32>
  %empty = arith.constant dense<0.0> : tensor<8x2xf32>
  scf.forall (%wg) in (%n) {
    %seq, %begin, %end, %head, %full, %all = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 1 : i64}
    %f:3 = scf.for %b = %c0 to %all step %c1 iter_args(%a = %zero, %m = %none, %s = %empty) -> (tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) {
      %acc, %max, %sum = prefill.online_attention %q, %cache, %batch tile(%seq, %begin, %end, %head, %b) carry(%a, %m, %s : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>) mask = edge {causal, scale = 1.0, base2, lowering_config = #config} : tensor<?x64xf32>, !cache -> tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
      scf.yield %acc, %max, %sum : tensor<8x64xf32>, tensor<8x2xf32>, tensor<8x2xf32>
    }
    prefill.attention_normalize %f#0, %f#2, %batch tile(%seq, %begin, %end, %head) outs(%out : memref<?x64xf32>) : tensor<8x64xf32>, tensor<8x2xf32>
  }
  return
}
func.func @prefill() {
  return
}
