// RUN: prefill-opt %s --split-input-file --verify-diagnostics --prefill-convert-to-cuda-kernels

#config = #prefill.lowering_config<tokens, block_m = 4, block_n = 64, block_kv = 0, panel_n = 1, row_buckets = [1]>
!cache = !prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 64, head_dim_v = 64, dtype = bf16, block_size = 32>
// expected-error @below {{argument 1 of kernel pages has type '!prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 64, head_dim_v = 64, dtype = bf16, block_size = 32>'; target cuda has no kernel for layout paged_vnni}}
func.func private @pages(%k: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 4, plus_sequences = false, multiplier = 1>} {
  return
}

// -----

// expected-error @below {{kernel rows has rows but no !prefill.batch argument that tells how many}}
func.func private @rows(%x: tensor<?x64xbf16>) attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 4, plus_sequences = false, multiplier = 1>} {
  return
}

// -----

// expected-error @below {{argument 0 of kernel ragged has type 'tensor<?x?xbf16>'; target cuda takes vectors and matrices of which only the first size may be dynamic}}
func.func private @ragged(%x: tensor<?x?xbf16>, %batch: !prefill.batch) attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 4, plus_sequences = false, multiplier = 1>} {
  return
}

// -----

// expected-error @below {{kernel nothing holds no compute op that target cuda can emit; expected gemm, rowwise or attention}}
func.func private @nothing(%batch: !prefill.batch) attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 4, plus_sequences = false, multiplier = 1>} {
  return
}

// -----

// A head of 24 columns is cut by a tile of 64.
#config = #prefill.lowering_config<tokens, block_m = 4, block_n = 64, block_kv = 0, panel_n = 1, row_buckets = [1]>
func.func private @rope(%x: tensor<?x72xbf16>, %batch: !prefill.batch, %t: tensor<64x24xf32>, %out: memref<?x72xbf16>) attributes {prefill.kernel, prefill.grid = #prefill.grid<tokens, block = 4, plus_sequences = false, multiplier = 1>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%wg) in (%c1) {
    prefill.rowwise tile(%c0) outs(%out : memref<?x72xbf16>) {lowering_config = #config} body {
      // expected-error @below {{'prefill.rope' op has head_dim = 24 in a tile of block_n = 64 columns; block_n must be a multiple of it on target cuda}}
      %r = prefill.rope %x, %batch table(%t : tensor<64x24xf32>) {rope = #prefill.rope<theta = 1.0e4, rotary_dim = 24>, head_dim = 24} : tensor<?x72xbf16> -> tensor<?x72xbf16>
      prefill.yield %r : tensor<?x72xbf16>
    }
  }
  return
}
