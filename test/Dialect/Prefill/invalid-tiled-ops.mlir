// Ops of level `tiled` that the verifier refuses. Each case names its rule of docs/spec.md.
// RUN: prefill-opt %s --split-input-file --verify-diagnostics

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C1
func.func @heads(%q: tensor<?x48xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{query has 48 columns, expected a multiple of num_kv_heads * head_dim_qk = 32}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x48xbf16>, !cache -> tensor<?x48xf32>, tensor<?x3xf32>, tensor<?x3xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C2
func.func @dtype(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{query has element type 'f32', but the cache holds 'bf16'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x64xf32>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C8
func.func @accumulator(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{accumulator has type 'tensor<?x64xf32>', expected 'tensor<?x32xf32>'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C3
func.func @window(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{sliding_window is 0, expected at least 1}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, sliding_window = 0 : i64} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
// ONLINE_ATTENTION-C4
func.func @tile(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{tile has 4 indices, expected 5}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
// ONLINE_ATTENTION-C6
func.func @carry(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{of a tile carries 0 values, expected accumulator, row_max and row_sum}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

// ATTENTION_NORMALIZE-C1
func.func @normalize(%a: tensor<?x64xf32>, %s: tensor<?x5xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{accumulator has type 'tensor<?x64xf32>' and row_sum 'tensor<?x5xf32>', expected [rows, heads * head_dim_v] and [rows, heads]}}
  %o = prefill.attention_normalize %a, %s, %batch : tensor<?x64xf32>, tensor<?x5xf32> -> tensor<?x64xbf16>
  return
}

// -----

// ATTENTION_NORMALIZE-C2
func.func @normalize_no_out(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index) {
  // expected-error @+1 {{has to have either a tile and an output buffer or a result}}
  prefill.attention_normalize %a, %s, %batch tile(%i, %i, %i, %i) : tensor<64x64xf32>, tensor<64x4xf32>
  return
}

// -----

// ATTENTION_WORKGROUP-C1
func.func @workgroup(%batch: !prefill.batch, %wg: index) {
  // expected-error @+1 {{block_q is 0, expected at least 1}}
  %r:6 = prefill.attention_workgroup %wg, %batch {block_q = 0 : i64, num_kv_heads = 2 : i64}
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C1
func.func @rank(%q: tensor<?x4x16xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{query has type 'tensor<?x4x16xbf16>', expected rank 2 with static columns}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x4x16xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C3
func.func @scale(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{scale is}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 0x7FF0000000000000 : f64} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C3
func.func @window_not_causal(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{sliding_window is 4 without causal, expected causal attention}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, sliding_window = 4 : i64} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C3
func.func @softcap(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{softcap is -1.000000e+00, expected a positive number}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, softcap = -1.0 : f64} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C5
func.func @no_config(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %x: tensor<64x32xf32>, %y: tensor<64x2xf32>, %z: tensor<64x2xf32>) {
  // expected-error @+1 {{of a tile has lowering_config}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) carry(%x, %y, %z : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>) mask = edge {scale = 1.0} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 0, panel_n = 32, row_buckets = [1]>
// ONLINE_ATTENTION-C5
func.func @no_block(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %x: tensor<64x32xf32>, %y: tensor<64x2xf32>, %z: tensor<64x2xf32>) {
  // expected-error @+1 {{expected one with block_m and block_kv of at least 1}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) carry(%x, %y, %z : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1]>
// ONLINE_ATTENTION-C6
func.func @carry_type(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %x: tensor<64x32xf32>, %y: tensor<64x2xf32>, %z: tensor<32x2xf32>) {
  // expected-error @+1 {{carries 'tensor<32x2xf32>', but returns 'tensor<64x2xf32>'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) carry(%x, %y, %z : tensor<64x32xf32>, tensor<64x2xf32>, tensor<32x2xf32>) mask = edge {scale = 1.0, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C7
func.func @whole_carry(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %x: tensor<?x64xf32>) {
  // expected-error @+1 {{of all keys carries 1 values, expected none}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch carry(%x : tensor<?x64xf32>) mask = edge {scale = 1.0} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C8
func.func @row_max(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{row_max has type 'tensor<?x2xf32>', expected 'tensor<?x4xf32>'}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0} : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x2xf32>, tensor<?x4xf32>
  return
}

// -----

// ATTENTION_NORMALIZE-C3
func.func @normalize_tile(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{tile has 3 indices, expected 4}}
  prefill.attention_normalize %a, %s, %batch tile(%i, %i, %i) outs(%o : memref<?x64xbf16>) : tensor<64x64xf32>, tensor<64x4xf32>
  return
}

// -----

// ATTENTION_NORMALIZE-C4
func.func @normalize_result(%a: tensor<?x64xf32>, %s: tensor<?x4xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{result has type 'tensor<?x32xbf16>', but the accumulator 'tensor<?x64xf32>'}}
  %o = prefill.attention_normalize %a, %s, %batch : tensor<?x64xf32>, tensor<?x4xf32> -> tensor<?x32xbf16>
  return
}

// -----

// ATTENTION_NORMALIZE-C4: with selected rows.
func.func @normalize_selected(%a: tensor<8x64xf32>, %s: tensor<8x4xf32>, %batch: !prefill.batch) {
  %rows = prefill.attention_normalize %a, %s, %batch {selected_rows} : tensor<8x64xf32>, tensor<8x4xf32> -> tensor<3x64xbf16>
  // expected-error @+1 {{result has type 'tensor<3x32xbf16>', but the accumulator 'tensor<8x64xf32>'}}
  %o = prefill.attention_normalize %a, %s, %batch {selected_rows} : tensor<8x64xf32>, tensor<8x4xf32> -> tensor<3x32xbf16>
  return
}

// -----

// ATTENTION_WORKGROUP-C2
func.func @workgroup_heads(%batch: !prefill.batch, %wg: index) {
  // expected-error @+1 {{num_kv_heads is 0, expected at least 1}}
  %r:6 = prefill.attention_workgroup %wg, %batch {block_q = 8 : i64, num_kv_heads = 0 : i64}
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C1
func.func @scores_query(%q: tensor<?x48xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?x?xf32>, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{query has 48 columns, expected a multiple of num_kv_heads * head_dim_qk = 32}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i) scores(%s : memref<4x?x?xf32>) outs(%o : memref<?x64xbf16>) {scale = 1.0} : tensor<?x48xbf16>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C2
func.func @scores_dtype(%q: tensor<?x64xf32>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?x?xf32>, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{query has element type 'f32', but the cache holds 'bf16'}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i) scores(%s : memref<4x?x?xf32>) outs(%o : memref<?x64xbf16>) {scale = 1.0} : tensor<?x64xf32>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C3
func.func @scores_window(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?x?xf32>, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{sliding_window is 0, expected at least 1}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i) scores(%s : memref<4x?x?xf32>) outs(%o : memref<?x64xbf16>) {scale = 1.0, causal, sliding_window = 0 : i64} : tensor<?x64xbf16>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C4
func.func @scores_tile(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?x?xf32>, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{tile has 5 indices, expected 4}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) scores(%s : memref<4x?x?xf32>) outs(%o : memref<?x64xbf16>) {scale = 1.0} : tensor<?x64xbf16>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C5
func.func @scores_type(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?xf32>, %o: memref<?x64xbf16>) {
  // expected-error @+1 {{scores have type 'memref<4x?xf32>', expected f32 [num_q_heads, M_pad, max_kv]}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i) scores(%s : memref<4x?xf32>) outs(%o : memref<?x64xbf16>) {scale = 1.0} : tensor<?x64xbf16>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
// MATERIALIZED_ATTENTION-C6
func.func @scores_out(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %s: memref<4x?x?xf32>, %o: memref<?x32xbf16>) {
  // expected-error @+1 {{output has type 'memref<?x32xbf16>', expected rank 2 with 64 columns}}
  prefill.materialized_attention %q, %cache, %batch tile(%i, %i, %i, %i) scores(%s : memref<4x?x?xf32>) outs(%o : memref<?x32xbf16>) {scale = 1.0} : tensor<?x64xbf16>, !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 8, dtype = bf16, block_size = 512>
// ONLINE_ATTENTION-C9
func.func @one_split(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch) {
  // expected-error @+1 {{num_splits is 1, expected at least 2, and none in a tile, whose block tells its split}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch mask = edge {scale = 1.0, num_splits = 1} : tensor<?x64xbf16>, !cache -> tensor<?x32xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 16, head_dim_v = 16, dtype = bf16, block_size = 512>
#config = #prefill.lowering_config<tokens, block_m = 64, block_n = 0, block_kv = 128, panel_n = 32, row_buckets = [1, 4, 8]>
// ONLINE_ATTENTION-C9: a tile's block tells its split.
func.func @splits_of_a_tile(%q: tensor<?x64xbf16>, %cache: !cache, %batch: !prefill.batch, %i: index, %x: tensor<64x32xf32>, %y: tensor<64x2xf32>) {
  // expected-error @+1 {{num_splits is 2 in a tile, expected at least 2, and none in a tile, whose block tells its split}}
  %a, %m, %s = prefill.online_attention %q, %cache, %batch tile(%i, %i, %i, %i, %i) carry(%x, %y, %y : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>) mask = edge {scale = 1.0, num_splits = 2, lowering_config = #config} : tensor<?x64xbf16>, !cache -> tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C1
func.func @partial(%a: tensor<?x64xf32>, %m: tensor<?x4xf32>, %s: tensor<?x8xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{accumulator has type 'tensor<?x64xf32>', row_max 'tensor<?x4xf32>' and row_sum 'tensor<?x8xf32>', expected [rows, heads * head_dim_v] and twice [rows, heads]}}
  %o:2 = prefill.attention_partial %a, %m, %s, %batch {num_splits = 2} : tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x8xf32> -> tensor<?x64xf32>, tensor<?x8xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C2
func.func @partial_one(%a: tensor<?x64xf32>, %s: tensor<?x4xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{num_splits is 1, expected at least 2}}
  %o:2 = prefill.attention_partial %a, %s, %s, %batch {num_splits = 1} : tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32> -> tensor<?x64xf32>, tensor<?x4xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C3
func.func @partial_no_lse(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index, %o: memref<?x128xf32>) {
  // expected-error @+1 {{has to have either a tile and two buffers or two results: output and log-sum-exp}}
  prefill.attention_partial %a, %s, %s, %batch tile(%i, %i, %i, %i, %i) outs(%o : memref<?x128xf32>) {num_splits = 2} : tensor<64x64xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C4
func.func @partial_tile(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index, %o: memref<?x128xf32>, %lse: memref<?x8xf32>) {
  // expected-error @+1 {{tile has 4 indices, expected 5}}
  prefill.attention_partial %a, %s, %s, %batch tile(%i, %i, %i, %i) outs(%o, %lse : memref<?x128xf32>, memref<?x8xf32>) {num_splits = 2} : tensor<64x64xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C5
func.func @partial_result(%a: tensor<?x64xf32>, %s: tensor<?x4xf32>, %batch: !prefill.batch) {
  // expected-error @+1 {{results have types ('tensor<?x64xbf16>', 'tensor<?x4xf32>'), expected those of accumulator and row_sum, ('tensor<?x64xf32>', 'tensor<?x4xf32>')}}
  %o:2 = prefill.attention_partial %a, %s, %s, %batch {num_splits = 2} : tensor<?x64xf32>, tensor<?x4xf32>, tensor<?x4xf32> -> tensor<?x64xbf16>, tensor<?x4xf32>
  return
}

// -----

// ATTENTION_PARTIAL-C6
func.func @partial_buffer(%a: tensor<64x64xf32>, %s: tensor<64x4xf32>, %batch: !prefill.batch, %i: index, %o: memref<?x64xf32>, %lse: memref<?x8xf32>) {
  // expected-error @+1 {{buffer has type 'memref<?x64xf32>', expected f32 of rank 2 with a multiple of 128 columns}}
  prefill.attention_partial %a, %s, %s, %batch tile(%i, %i, %i, %i, %i) outs(%o, %lse : memref<?x64xf32>, memref<?x8xf32>) {num_splits = 2} : tensor<64x64xf32>, tensor<64x4xf32>, tensor<64x4xf32>
  return
}
