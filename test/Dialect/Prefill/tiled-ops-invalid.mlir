// RUN: prefill-opt %s --split-input-file --verify-diagnostics

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
func.func @heads(%q: tensor<?x48xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{query has 48 columns, expected a multiple of num_kv_heads * head_dim_qk = 32}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x48xbf16>, !cache -> tensor<?x48xf32>, tensor<?x3xf32>, tensor<?x3xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
func.func @dtype(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{query has element type 'f32', but the cache holds 'bf16'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x64xf32>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
func.func @accumulator(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{accumulator has type 'tensor<?x64xf32>', expected 'tensor<?x32xf32>'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
func.func @window(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{sliding_window is 0, expected at least 1}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, sliding_window = 0 : i64} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
func.func @tile(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{tile has 4 indices, expected 5}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
func.func @carry(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{of a tile carries 0 values, expected accumulator, row_max and row_sum}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

func.func @normalize(%a: tensor<?x64xf32>, %s: tensor<?x5xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{accumulator has type 'tensor<?x64xf32>' and row_sum 'tensor<?x5xf32>', expected [rows, heads * head_dim_v] and [rows, heads]}}
  %o = prefill.attention_normalize %a, %s, %batch : tensor<?x64xf32>, tensor<?x5xf32> -> tensor<?x64xbf16>
  return
}

// -----

func.func @normalize_no_out(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{has to have either a tile and an output buffer or a result}}
  prefill.attention_normalize %a, %s, %batch tile(%i, %i, %i, %i) : tensor<64x64xf32>, tensor<64x4xf32>
  return
}

// -----

func.func @workgroup(%batch: !prefill.batch, %wg: index) {
  // expected-error @+1 {{block_q is 0, expected at least 1}}
  %r:6 = prefill.attention_workgroup %wg, %batch {block_q = 0 : i64, num_kv_heads = 2 : i64}
  return
}
