// RUN: prefill-opt %s --split-input-file --verify-diagnostics --prefill-select-lowering-strategy=target=cuda:sm_80

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 64>
func.func @softcap(%q: tensor<?x32xbf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x32xbf16> {
  // expected-error @below {{'prefill.attention' op has softcap = 5.000000e+01; target cuda has no kernel for it}}
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, softcap = 50.0} : tensor<?x32xbf16>, !cache -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// -----

!cache = !prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 32>
func.func @pages(%q: tensor<?x32xbf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x32xbf16> {
  // expected-error @below {{'prefill.attention' op has a cache of layout paged_vnni; target cuda has kernels for contiguous, head_major and paged_nhd (pass --kv-layout=paged_nhd)}}
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal} : tensor<?x32xbf16>, !cache -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 20, head_dim_v = 20, dtype = bf16, block_size = 64>
func.func @head_dim(%k: tensor<?x20xbf16>, %batch: !prefill.batch, %cache: !cache) -> !cache {
  // expected-error @below {{'prefill.kv_append' op has a cache of head_dim = 20; target cuda has kernels for multiples of 8 up to 256}}
  %0 = prefill.kv_append %k, %k into %cache, %batch : tensor<?x20xbf16>, tensor<?x20xbf16> into !cache
  return %0 : !cache
}

// -----

// Every op that the target cannot do is named, whatever the reason.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 64>
func.func @two_reasons(%q: tensor<?x8192xbf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x8192xbf16> {
  // expected-error @below {{'prefill.attention' op has softcap = 5.000000e+01; target cuda has no kernel for it}}
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, softcap = 50.0} : tensor<?x8192xbf16>, !cache -> tensor<?x8192xbf16>
  // expected-error @below {{'prefill.attention' op has no tile: attention has 512 query heads a KV head; target cuda has tiles of at most 256}}
  %1 = prefill.attention %0, %cache, %batch {scale = 1.0, causal} : tensor<?x8192xbf16>, !cache -> tensor<?x8192xbf16>
  return %1 : tensor<?x8192xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 264, head_dim_v = 264, dtype = bf16, block_size = 64>
func.func @large_head_dim(%k: tensor<?x264xbf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x264xbf16> {
  // expected-error @below {{'prefill.kv_append' op has a cache of head_dim = 264; target cuda has kernels for multiples of 8 up to 256}}
  %0 = prefill.kv_append %k, %k into %cache, %batch : tensor<?x264xbf16>, tensor<?x264xbf16> into !cache
  // expected-error @below {{'prefill.attention' op has a cache of head_dim = 264; target cuda has kernels for multiples of 8 up to 256}}
  %1 = prefill.attention %k, %0, %batch {scale = 1.0, causal} : tensor<?x264xbf16>, !cache -> tensor<?x264xbf16>
  return %1 : tensor<?x264xbf16>
}

// -----

func.func @f32(%x: tensor<?x32xf32>, %w: tensor<64x32xf32>) -> tensor<?x64xf32> {
  // expected-error @below {{'prefill.linear' op has element type 'f32'; target cuda has kernels for bf16 and f16 (pass --dtype=bf16)}}
  %0 = prefill.linear %x, %w : tensor<?x32xf32>, tensor<64x32xf32> -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// -----

func.func @odd_k(%x: tensor<?x36xbf16>, %w: tensor<64x36xbf16>) -> tensor<?x64xbf16> {
  // expected-error @below {{'prefill.linear' op has K = 36; target cuda needs a multiple of 8}}
  %0 = prefill.linear %x, %w : tensor<?x36xbf16>, tensor<64x36xbf16> -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// A pair of such runs is wider than the widest tile.
func.func @runs(%x: tensor<?x32xbf16>, %w: tensor<640x32xbf16>) -> tensor<?x320xbf16> {
  // expected-error @below {{'prefill.gemm' op has no tile width on target cuda: parts of [640] columns, head_dim = 0, interleaved runs of 160}}
  %0 = prefill.gemm %x, %w : tensor<?x32xbf16>, tensor<640x32xbf16> -> tensor<?x320xbf16> epilogue {
  ^bb0(%acc: tensor<?x640xf32>):
    %1:2 = prefill.deinterleave %acc {granularity = 160} : tensor<?x640xf32> -> tensor<?x320xf32>, tensor<?x320xf32>
    prefill.yield %1#0 : tensor<?x320xf32>
  }
  return %0 : tensor<?x320xbf16>
}

// -----

func.func @integers(%x: tensor<?x64xi8>, %w: tensor<64x64xi8>) -> tensor<?x64xf32> {
  // expected-error @below {{'prefill.gemm' op has an i8 weight; target cuda has no kernel for it (leave out --weights=int8)}}
  %0 = prefill.gemm %x, %w : tensor<?x64xi8>, tensor<64x64xi8> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xf32>
}
