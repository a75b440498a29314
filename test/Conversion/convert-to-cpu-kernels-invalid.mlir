// RUN: prefill-opt %s --split-input-file --verify-diagnostics --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512

// expected-error @below {{kernel no_batch has rows but no !prefill.batch argument that tells how many}}
func.func private @no_batch(%x: tensor<?x64xf32>, %w: tensor<1x64x32x1xf32>) -> tensor<?x32xf32> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<1x64x32x1xf32> -> tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    prefill.yield %acc : tensor<?x32xf32>
  }
  return %0 : tensor<?x32xf32>
}

// -----

func.func private @unpacked(%x: tensor<?x64xf32>, %w: tensor<32x64xf32>, %batch: !prefill.batch) -> tensor<?x32xf32> attributes {prefill.kernel} {
  // expected-error @below {{'prefill.gemm' op has a weight of type 'tensor<32x64xf32>'; expected a packed one (run prefill-pack-weights)}}
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<32x64xf32> -> tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    prefill.yield %acc : tensor<?x32xf32>
  }
  return %0 : tensor<?x32xf32>
}

// -----

func.func private @wrong_panels(%x: tensor<?x64xf32>, %w: tensor<2x64x32x1xf32>, %batch: !prefill.batch) -> tensor<?x32xf32> attributes {prefill.kernel} {
  // expected-error @below {{'prefill.gemm' op has a weight of type 'tensor<2x64x32x1xf32>'; expected shape [1, 64, 32, 1] of 'f32' for N = 32 in groups of 32}}
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<2x64x32x1xf32> -> tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    prefill.yield %acc : tensor<?x32xf32>
  }
  return %0 : tensor<?x32xf32>
}

// -----

// A norm over the row cannot be in a gemm whose tile is a part of the row.
func.func private @norm(%x: tensor<?x64xf32>, %w: tensor<2x64x32x1xf32>, %g: tensor<64xf32>, %batch: !prefill.batch) -> tensor<?x64xf32> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<2x64x32x1xf32> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    // expected-error @below {{'prefill.rms_norm' op over whole rows cannot be in a gemm's epilogue; a tile holds only a part of the row}}
    %1 = prefill.rms_norm %acc, %g {eps = 1.0e-5} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
    prefill.yield %1 : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xf32>
}
