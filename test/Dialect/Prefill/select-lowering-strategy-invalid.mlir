// RUN: prefill-opt %s --split-input-file --verify-diagnostics --prefill-select-lowering-strategy

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
func.func @softcap(%q: tensor<?x32xf32>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x32xf32> {
  // expected-error @below {{'prefill.attention' op has softcap = 5.000000e+01; target cpu has no kernel for it}}
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, softcap = 50.0} : tensor<?x32xf32>, !cache -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// -----

!cache = !prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f16, block_size = 32>
func.func @pages_of_f16(%q: tensor<?x32xf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x32xf16> {
  // expected-error @below {{'prefill.attention' op has a cache of dtype f16 in layout paged_vnni; target cpu has such pages of f32 and bf16 (pass --kv-layout=paged_nhd)}}
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal} : tensor<?x32xf16>, !cache -> tensor<?x32xf16>
  return %0 : tensor<?x32xf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 64, head_dim_v = 32, dtype = f32, block_size = 64>
func.func @two_head_sizes(%k: tensor<?x64xf32>, %v: tensor<?x32xf32>, %batch: !prefill.batch, %cache: !cache) -> !cache {
  // expected-error @below {{'prefill.kv_append' op needs head_dim = 32 where other nodes of the epilogue have 64; target cpu tiles columns by one head size}}
  %0 = prefill.kv_append %k, %v into %cache, %batch : tensor<?x64xf32>, tensor<?x32xf32> into !cache
  return %0 : !cache
}

// -----

// Runs of 80 columns fit no tile of whole panels.
func.func @runs(%x: tensor<?x32xf32>, %w: tensor<480x32xf32>) -> tensor<?x240xf32> {
  // expected-error @below {{'prefill.gemm' op has no tile width on target cpu: parts of [480] columns, head_dim = 0, interleaved runs of 120}}
  %0 = prefill.gemm %x, %w : tensor<?x32xf32>, tensor<480x32xf32> -> tensor<?x240xf32> epilogue {
  ^bb0(%acc: tensor<?x480xf32>):
    %1:2 = prefill.deinterleave %acc {granularity = 120} : tensor<?x480xf32> -> tensor<?x240xf32>, tensor<?x240xf32>
    prefill.yield %1#0 : tensor<?x240xf32>
  }
  return %0 : tensor<?x240xf32>
}
