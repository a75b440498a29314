// RUN: prefill-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online),prefill-tile)'

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
func.func private @no_config(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  // expected-error @+1 {{'prefill.online_attention' op has no lowering_config (run prefill-select-lowering-strategy)}}
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 0, panel_n = 32, row_buckets = [1, 4, 8]>
func.func private @no_block_kv(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  // expected-error @+1 {{'prefill.online_attention' op has block_m = 64 and block_kv = 0; both must be at least 1}}
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
  return %o : tensor<?x64xbf16>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 64, panel_n = 32, row_buckets = [1, 4, 8]>
func.func private @state_escapes(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x4xf32> attributes {prefill.kernel} {
  // expected-error @+1 {{is tiled only where one prefill.attention_normalize uses it, or with num_splits one prefill.attention_partial}}
  %acc, %max, %sum = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, causal, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return %max : tensor<?x4xf32>
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 48, panel_n = 32, row_buckets = [1, 4, 8]>
func.func private @block_over_a_split(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x128xf32>, tensor<?x8xf32>) attributes {prefill.kernel} {
  // expected-error @+1 {{'prefill.online_attention' op has num_splits = 2 and block_kv = 48, expected a divisor of 128, where splits begin}}
  %o:2 = prefill.attention %q, %cache, %batch {scale = 1.0, causal, num_splits = 2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<?x128xf32>, tensor<?x8xf32>
  return %o#0, %o#1 : tensor<?x128xf32>, tensor<?x8xf32>
}
