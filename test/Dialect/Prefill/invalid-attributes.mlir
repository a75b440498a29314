// Types, attributes and discardable attributes that the verifier refuses. Each case names its rule of docs/spec.md.
// RUN: prefill-opt %s -verify-diagnostics -split-input-file

// KV_CACHE-C1
// expected-error @below {{kv_cache num_kv_heads is 0, expected at least 1}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 0, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 4>)

// -----

// KV_CACHE-C2
// expected-error @below {{kv_cache head_dim_qk is 0, expected at least 1}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 0, head_dim_v = 8, dtype = f32, block_size = 4>)

// -----

// KV_CACHE-C2
// expected-error @below {{kv_cache head_dim_v is -8, expected at least 1}}
func.func private @f(!prefill.kv_cache<head_major, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = -8, dtype = f32, block_size = 4>)

// -----

// KV_CACHE-C3
// expected-error @below {{kv_cache dtype is 'i8', expected f64, f32, bf16 or f16}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = i8, block_size = 4>)

// -----

// KV_CACHE-C4
// expected-error @below {{kv_cache block_size is 0, expected at least 1}}
func.func private @f(!prefill.kv_cache<paged_nhd, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 0>)

// -----

// KV_CACHE-C7
// expected-error @below {{kv_cache block_size is 16, expected 32 for paged_vnni}}
func.func private @f(!prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>)

// -----

// KV_CACHE-C5
// expected-error @below {{kv_cache block_size is 9223372036854775807, expected at most 2147483647}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 9223372036854775807>)

// -----

// KV_CACHE-C5
// expected-error @below {{kv_cache head_dim_v is 2147483648, expected at most 2147483647}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 2147483648, dtype = f32, block_size = 16>)

// -----

// KV_CACHE-C6
// expected-error @below {{kv_cache has blocks of 2147483647 tokens, 2147483647 heads and head dimensions 1 and 2147483647, expected at most 281474976710656 elements in a block}}
func.func private @f(!prefill.kv_cache<contiguous, num_kv_heads = 2147483647, head_dim_qk = 1, head_dim_v = 2147483647, dtype = f32, block_size = 2147483647>)

// -----

// ROPE_ATTR-C1
// expected-error @below {{rope theta is 0.000000e+00, expected a positive number}}
#rope = #prefill.rope<theta = 0.0, rotary_dim = 8>

// -----

// ROPE_ATTR-C2
// expected-error @below {{rope rotary_dim is 7, expected an even number of at least 2}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 7>

// -----

// ROPE_ATTR-C2
// expected-error @below {{rope rotary_dim is 0, expected an even number of at least 2}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 0>

// -----

// ROPE_ATTR-C3
// expected-error @below {{rope scaling factor is -4.000000e+00, expected a positive number}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8, scaling = linear(factor = -4.0)>

// -----

// ROPE_ATTR-C4
// expected-error @below {{rope low_freq_factor is 4.000000e+00 and high_freq_factor 1.000000e+00, expected 0 < low_freq_factor < high_freq_factor}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8, scaling = llama3(factor = 8.0, low_freq_factor = 4.0, high_freq_factor = 1.0, original_max_position = 64)>

// -----

// ROPE_ATTR-C5
// expected-error @below {{rope original_max_position is 0, expected at least 1}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8, scaling = llama3(factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position = 0)>

// -----

// An unknown kind of scaling is no constraint but a syntax error that lists the known ones.
// expected-error @below {{unknown rope scaling 'yarn', expected none, linear or llama3}}
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8, scaling = yarn(factor = 8.0)>

// -----

// CHECKPOINT-C1
// expected-error @below {{checkpoint has an empty tensor name}}
prefill.weight @w : tensor<4xf32> = #prefill.checkpoint<"">

// -----

// CONCAT-C1: what the parser says to an empty list.
// expected-error @below {{expected attribute value}}
// expected-error @below {{failed to parse Prefill_ConcatAttr parameter 'inputs'}}
prefill.weight @w : tensor<4xf32> = #prefill.concat<[]>

// -----

// INTERLEAVE-C1
// expected-error @below {{interleave granularity is 0, expected at least 1}}
#i = #prefill.interleave<@a, @b, granularity = 0>

// -----

// PACK-C1
// expected-error @below {{pack panel_n is 0, expected at least 1}}
#p = #prefill.pack<@a, panel_n = 0, k_pack = 2, group_n = 32>

// -----

// PACK-C1
// expected-error @below {{pack k_pack is -2, expected at least 1}}
#p = #prefill.pack<@a, panel_n = 32, k_pack = -2, group_n = 32>

// -----

// PACK-C1
// expected-error @below {{pack group_n is 0, expected at least 1}}
#p = #prefill.pack<@a, panel_n = 32, k_pack = 2, group_n = 0>

// -----

// ROPE_TABLE-C1
// expected-error @below {{rope_table max_position is 0, expected at least 1}}
#t = #prefill.rope_table<<theta = 10000.0, rotary_dim = 8>, max_position = 0>

// -----

// LOWERING_CONFIG-C1
// expected-error @below {{lowering_config block_m is -8, expected at least 0}}
#c = #prefill.lowering_config<tokens, block_m = -8, block_n = 8, block_kv = 0, panel_n = 0, row_buckets = [1]>

// -----

// LOWERING_CONFIG-C1
// expected-error @below {{lowering_config panel_n is -1, expected at least 0}}
#c = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = -1, row_buckets = [1]>

// -----

// LOWERING_CONFIG-C2
// expected-error @below {{lowering_config row bucket is 0, expected at least 1}}
#c = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 8, row_buckets = [1, 0]>

// -----

// BUFFER-C1
// expected-error @below {{buffer row_bytes is 0, expected at least 1}}
#b = #prefill.buffer<activation, tokens, row_bytes = 0, row_offset = 0>

// -----

// BUFFER-C1
// expected-error @below {{buffer row_offset is -64, expected at least 0}}
#b = #prefill.buffer<activation, tokens, row_bytes = 64, row_offset = -64>

// -----

// GRID-C1
// expected-error @below {{grid block is 0, expected at least 1}}
#g = #prefill.grid<tokens, block = 0, plus_sequences = false, multiplier = 1>

// -----

// GRID-C1
// expected-error @below {{grid multiplier is 0, expected at least 1}}
#g = #prefill.grid<tokens, block = 8, plus_sequences = true, multiplier = 0>

// -----

// LAYER-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op attribute 'prefill.layer' is -1 : i64, expected an i64 of at least 0}}
  %0 = prefill.scale %x {factor = 2.0, prefill.layer = -1 : i64} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// LAYER-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op attribute 'prefill.layer' is 1 : i32, expected an i64 of at least 0}}
  %0 = prefill.scale %x {factor = 2.0, prefill.layer = 1 : i32} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// NAME-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op attribute 'prefill.name' is "", expected a string that is not empty}}
  %0 = prefill.scale %x {factor = 2.0, prefill.name = ""} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// PAD_ROWS-C1
// expected-error @below {{'builtin.module' op attribute 'prefill.pad_rows' is 1 : i64, expected unit}}
module attributes {prefill.pad_rows = 1 : i64} {}

// -----

// KERNEL-C1
// expected-error @below {{'func.func' op attribute 'prefill.kernel' is true, expected unit}}
func.func private @k() attributes {prefill.kernel = true}

// -----

// KERNEL-C2
// expected-error @below {{'func.func' op attribute 'prefill.grid' is 4 : i64, expected a #prefill.grid}}
func.func private @k() attributes {prefill.kernel, prefill.grid = 4 : i64}

// -----

// SCRATCH_BYTES-C1
// expected-error @below {{'func.func' op attribute 'prefill.scratch_bytes' is -1 : i64, expected an i64 of at least 0}}
func.func private @k() attributes {prefill.kernel, prefill.scratch_bytes = -1 : i64}

// -----

// BUFFERS-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op prefill.buffers has 0 elements but there are 1 results: there must be one for each}}
  %0 = prefill.scale %x {factor = 2.0, prefill.buffers = []} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// BUFFERS-C2
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op prefill.buffers element 0 is unit for a result of 'tensor<?x8xf32>', expected a #prefill.buffer}}
  %0 = prefill.scale %x {factor = 2.0, prefill.buffers = [unit]} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// BUFFERS-C2
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 4>
func.func @f(%x: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{expected unit}}
  %0 = prefill.kv_append %x, %x into %c, %b {prefill.buffers = [#prefill.buffer<kv_cache, tokens, row_bytes = 8, row_offset = 0>]} : tensor<?x8xf32>, tensor<?x8xf32> into !cache
  return
}
