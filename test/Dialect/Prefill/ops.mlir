// Every type, attribute and op of the levels model and fused prints as it was written, through text, the generic form and
// bytecode.
// RUN: prefill-opt %s | prefill-opt --mlir-print-local-scope | FileCheck %s
// RUN: prefill-opt %s --mlir-print-op-generic | prefill-opt --mlir-print-local-scope | FileCheck %s
// RUN: prefill-opt %s --emit-bytecode | prefill-opt --mlir-print-local-scope | FileCheck %s

!contiguous = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = bf16, block_size = 128>
!head_major = !prefill.kv_cache<head_major, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f16, block_size = 128>
!paged = !prefill.kv_cache<paged_nhd, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>

// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !prefill.batch
// CHECK-SAME: !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = bf16, block_size = 128>
// CHECK-SAME: !prefill.kv_cache<head_major, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f16, block_size = 128>
// CHECK-SAME: !prefill.kv_cache<paged_nhd, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
func.func private @types(!prefill.batch, !contiguous, !head_major, !paged)

// CHECK-LABEL: func.func private @attributes()
// CHECK-SAME: buffer = #prefill.buffer<activation, logits, row_bytes = 128, row_offset = 256>
// CHECK-SAME: config = #prefill.lowering_config<logits, block_m = 8, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1, 4, 8]>
// CHECK-SAME: linear = #prefill.rope<theta = 1.000000e+04, rotary_dim = 8, interleaved, scaling = linear(factor = 4.000000e+00)>
// CHECK-SAME: llama3 = #prefill.rope<theta = 5.000000e+05, rotary_dim = 64, scaling = llama3(factor = 8.000000e+00, low_freq_factor = 1.000000e+00, high_freq_factor = 4.000000e+00, original_max_position = 8192)>
// CHECK-SAME: plain = #prefill.rope<theta = 1.000000e+04, rotary_dim = 2>
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = true, multiplier = 4>
// CHECK-SAME: prefill.scratch_bytes = 64 : i64
func.func private @attributes() attributes {
  buffer = #prefill.buffer<activation, logits, row_bytes = 128, row_offset = 256>,
  config = #prefill.lowering_config<logits, block_m = 8, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1, 4, 8]>,
  linear = #prefill.rope<theta = 10000.0, rotary_dim = 8, interleaved, scaling = linear(factor = 4.0)>,
  llama3 = #prefill.rope<theta = 500000.0, rotary_dim = 64, scaling = llama3(factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position = 8192)>,
  plain = #prefill.rope<theta = 10000.0, rotary_dim = 2, scaling = none>,
  prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = true, multiplier = 4>,
  prefill.scratch_bytes = 64 : i64}

// CHECK: prefill.weight @a : tensor<24x16xbf16> = #prefill.checkpoint<"model.a.weight">
prefill.weight @a : tensor<24x16xbf16> = #prefill.checkpoint<"model.a.weight">
// CHECK: prefill.weight @b : tensor<24x16xbf16> = #prefill.checkpoint<"b">
prefill.weight @b : tensor<24x16xbf16> = #prefill.checkpoint<"b">
prefill.weight @gain : tensor<16xf32> = #prefill.checkpoint<"gain">
// CHECK: prefill.weight @q_proj.int8 : tensor<24x16xi8> = #prefill.quantize<@a>
prefill.weight @q_proj.int8 : tensor<24x16xi8> = #prefill.quantize<@a>
// CHECK: prefill.weight @q_proj.scale : tensor<24xf32> = #prefill.quantize_scale<@a>
prefill.weight @q_proj.scale : tensor<24xf32> = #prefill.quantize_scale<@a>
// CHECK: prefill.weight @q_proj.int8.packed : tensor<1x4x32x4xi8> = #prefill.pack<@q_proj.int8, panel_n = 32, k_pack = 4, group_n = 24>
prefill.weight @q_proj.int8.packed : tensor<1x4x32x4xi8> = #prefill.pack<@q_proj.int8, panel_n = 32, k_pack = 4, group_n = 24>
// CHECK: prefill.weight @concat : tensor<72x16xbf16> = #prefill.concat<[@a, @b, @a]>
prefill.weight @concat : tensor<72x16xbf16> = #prefill.concat<[@a, @b, @a]>
// CHECK: prefill.weight @interleave : tensor<64x16xbf16> = #prefill.interleave<@a, @b, granularity = 16>
prefill.weight @interleave : tensor<64x16xbf16> = #prefill.interleave<@a, @b, granularity = 16>
// CHECK: prefill.weight @scaled : tensor<24x16xbf16> = #prefill.scale_columns<@a, gain = @gain>
prefill.weight @scaled : tensor<24x16xbf16> = #prefill.scale_columns<@a, gain = @gain>
// CHECK: prefill.weight @packed : tensor<3x8x16x2xbf16> = #prefill.pack<@a, panel_n = 16, k_pack = 2, group_n = 8>
prefill.weight @packed : tensor<3x8x16x2xbf16> = #prefill.pack<@a, panel_n = 16, k_pack = 2, group_n = 8>
// CHECK: prefill.weight @table : tensor<128x8xf32> = #prefill.rope_table<<theta = 1.000000e+04, rotary_dim = 8>, max_position = 128>
prefill.weight @table : tensor<128x8xf32> = #prefill.rope_table<<theta = 10000.0, rotary_dim = 8>, max_position = 128>

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8>
// CHECK-LABEL: func.func @model(
func.func @model(%batch: !prefill.batch, %cache: !contiguous, %table: tensor<128x8xf32>, %bias: tensor<24xbf16>, %gain: tensor<16xbf16>, %head_gain: tensor<8xbf16>) -> (tensor<?x24xf32>, !contiguous) {
  // CHECK: prefill.get_weight @a : tensor<24x16xbf16>
  %w = prefill.get_weight @a : tensor<24x16xbf16>
  // CHECK: prefill.embed %{{.*}}, %{{.*}} {prefill.name = "embed"} : tensor<24x16xbf16> -> tensor<?x16xbf16>
  %x = prefill.embed %batch, %w {prefill.name = "embed"} : tensor<24x16xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.rms_norm %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, prefill.layer = 0 : i64} : tensor<?x16xbf16>, tensor<16xbf16> -> tensor<?x16xbf16>
  %n = prefill.rms_norm %x, %gain {eps = 1.0e-5, prefill.layer = 0 : i64} : tensor<?x16xbf16>, tensor<16xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.linear %{{.*}}, %{{.*}} : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xbf16>
  %l = prefill.linear %n, %w : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xbf16>
  // CHECK: prefill.linear %{{.*}}, %{{.*}} bias(%{{.*}} : tensor<24xbf16>) : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xbf16>
  %lb = prefill.linear %n, %w bias(%bias : tensor<24xbf16>) : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xbf16>
  // CHECK: prefill.split %{{.*}} : tensor<?x24xbf16> -> tensor<?x16xbf16>, tensor<?x8xbf16>
  %k, %v = prefill.split %l : tensor<?x24xbf16> -> tensor<?x16xbf16>, tensor<?x8xbf16>
  // CHECK: prefill.rms_norm %{{.*}}, %{{.*}} {eps = 0.000000e+00 : f64, head_dim = 8 : i64}
  %kn = prefill.rms_norm %k, %head_gain {eps = 0.0, head_dim = 8} : tensor<?x16xbf16>, tensor<8xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.rope %{{.*}}, %{{.*}} {head_dim = 8 : i64, rope = #prefill.rope<theta = 1.000000e+04, rotary_dim = 8>} : tensor<?x16xbf16> -> tensor<?x16xbf16>
  %r = prefill.rope %kn, %batch {rope = #rope, head_dim = 8} : tensor<?x16xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.rope %{{.*}}, %{{.*}} table(%{{.*}} : tensor<128x8xf32>) {
  %rt = prefill.rope %r, %batch table(%table : tensor<128x8xf32>) {rope = #rope, head_dim = 8} : tensor<?x16xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.kv_append %{{.*}}, %{{.*}} into %{{.*}}, %{{.*}} : tensor<?x16xbf16>, tensor<?x8xbf16> into {{.*}}<contiguous,
  %c = prefill.kv_append %rt, %v into %cache, %batch : tensor<?x16xbf16>, tensor<?x8xbf16> into !contiguous
  // Four query heads on two KV heads; values are half as wide as keys.
  %q = prefill.linear %n, %w : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xbf16>
  %q0, %q1 = prefill.split %q : tensor<?x24xbf16> -> tensor<?x16xbf16>, tensor<?x8xbf16>
  // CHECK: prefill.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, scale = 1.250000e-01 : f64} : tensor<?x16xbf16>, {{.*}}<{{.*}}> -> tensor<?x8xbf16>
  %o = prefill.attention %q0, %c, %batch {scale = 0.125, causal} : tensor<?x16xbf16>, !contiguous -> tensor<?x8xbf16>
  // CHECK: prefill.attention %{{.*}}, %{{.*}}, %{{.*}} {base2, causal, scale = 1.000000e+00 : f64, sliding_window = 32 : i64, softcap = 5.000000e+01 : f64}
  %o2 = prefill.attention %q0, %c, %batch {scale = 1.0, causal, base2, sliding_window = 32, softcap = 50.0} : tensor<?x16xbf16>, !contiguous -> tensor<?x8xbf16>
  // CHECK: %[[PARTIALS:.*]], %[[LSE:.*]] = prefill.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, num_splits = 3 : i64, scale = 1.000000e+00 : f64} : tensor<?x16xbf16>, {{.*}}<{{.*}}> -> tensor<?x24xf32>, tensor<?x6xf32>
  %partials, %lse = prefill.attention %q0, %c, %batch {scale = 1.0, causal, num_splits = 3} : tensor<?x16xbf16>, !contiguous -> tensor<?x24xf32>, tensor<?x6xf32>
  // CHECK: prefill.combine_splits %[[PARTIALS]], %[[LSE]] : tensor<?x24xf32>, tensor<?x6xf32> -> tensor<?x8xbf16>
  %combined = prefill.combine_splits %partials, %lse : tensor<?x24xf32>, tensor<?x6xf32> -> tensor<?x8xbf16>
  // CHECK: prefill.gated_act silu %{{.*}}, %{{.*}} : tensor<?x8xbf16>, tensor<?x8xbf16> -> tensor<?x8xbf16>
  %g = prefill.gated_act silu %o, %o2 : tensor<?x8xbf16>, tensor<?x8xbf16> -> tensor<?x8xbf16>
  // CHECK: prefill.gated_act gelu_tanh
  %gg = prefill.gated_act gelu_tanh %o, %o2 : tensor<?x8xbf16>, tensor<?x8xbf16> -> tensor<?x8xbf16>
  // The element types of an add may differ.
  // CHECK: prefill.add %{{.*}}, %{{.*}} : tensor<?x8xbf16>, tensor<?x8xbf16> -> tensor<?x8xf32>
  %a = prefill.add %g, %gg : tensor<?x8xbf16>, tensor<?x8xbf16> -> tensor<?x8xf32>
  // CHECK: prefill.scale %{{.*}} {factor = -2.500000e+00 : f64} : tensor<?x8xf32> -> tensor<?x8xbf16>
  %s = prefill.scale %a {factor = -2.5} : tensor<?x8xf32> -> tensor<?x8xbf16>
  // CHECK: prefill.select_rows %{{.*}}, %{{.*}} : tensor<?x16xbf16> -> tensor<?x16xbf16>
  %rows = prefill.select_rows %x, %batch : tensor<?x16xbf16> -> tensor<?x16xbf16>
  // CHECK: prefill.lm_head %{{.*}}, %{{.*}} : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xf32>
  %logits = prefill.lm_head %rows, %w : tensor<?x16xbf16>, tensor<24x16xbf16> -> tensor<?x24xf32>
  return %logits, %c : tensor<?x24xf32>, !contiguous
}

// CHECK-LABEL: func.func private @qkv_proj(
// CHECK-SAME: attributes {prefill.kernel}
func.func private @qkv_proj(%x: tensor<?x16xbf16>, %w: tensor<3x8x16x2xbf16>, %bias: tensor<24xbf16>, %sumsq: tensor<?x2xf32>, %batch: !prefill.batch, %cache: !contiguous) -> (tensor<?x24xbf16>, tensor<?x3xf32>, !contiguous) attributes {prefill.kernel} {
  // CHECK: prefill.gemm %{{.*}}, %{{.*}} {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 16, row_buckets = [1]>} : tensor<?x16xbf16>, tensor<3x8x16x2xbf16> -> tensor<?x24xbf16>, tensor<?x3xf32>, !prefill.kv_cache<{{.*}}> epilogue {
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<?x24xf32>):
  %0:3 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 8, block_kv = 0, panel_n = 16, row_buckets = [1]>} : tensor<?x16xbf16>, tensor<3x8x16x2xbf16> -> tensor<?x24xbf16>, tensor<?x3xf32>, !contiguous epilogue {
  ^bb0(%acc: tensor<?x24xf32>):
    // CHECK: prefill.row_rms_scale %{{.*}}, %{{.*}} {channels = 16 : i64, eps = 1.000000e-05 : f64} : tensor<?x24xf32>, tensor<?x2xf32> -> tensor<?x24xf32>
    %n = prefill.row_rms_scale %acc, %sumsq {eps = 1.0e-5, channels = 16} : tensor<?x24xf32>, tensor<?x2xf32> -> tensor<?x24xf32>
    // CHECK: prefill.bias_add %{{.*}}, %{{.*}} : tensor<?x24xf32>, tensor<24xbf16> -> tensor<?x24xbf16>
    %b = prefill.bias_add %n, %bias : tensor<?x24xf32>, tensor<24xbf16> -> tensor<?x24xbf16>
    %k, %v = prefill.split %b : tensor<?x24xbf16> -> tensor<?x16xbf16>, tensor<?x8xbf16>
    %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x16xbf16>, tensor<?x8xbf16> into !contiguous
    // CHECK: prefill.row_sumsq %{{.*}} : tensor<?x24xbf16> -> tensor<?x3xf32>
    %s = prefill.row_sumsq %b : tensor<?x24xbf16> -> tensor<?x3xf32>
    // CHECK: prefill.yield %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x24xbf16>, tensor<?x3xf32>, !prefill.kv_cache
    prefill.yield %b, %s, %c : tensor<?x24xbf16>, tensor<?x3xf32>, !contiguous
  }
  return %0#0, %0#1, %0#2 : tensor<?x24xbf16>, tensor<?x3xf32>, !contiguous
}

// CHECK-LABEL: func.func @launches(
func.func @launches(%x: tensor<?x16xbf16>, %w: tensor<3x8x16x2xbf16>, %bias: tensor<24xbf16>, %sumsq: tensor<?x2xf32>, %batch: !prefill.batch, %cache: !contiguous) {
  // CHECK: prefill.launch @qkv_proj({{.*}}) {buffers = [#prefill.buffer<activation, tokens, row_bytes = 48, row_offset = 0>, #prefill.buffer<activation, tokens, row_bytes = 12, row_offset = 48>, unit], prefill.layer = 3 : i64} : (tensor<?x16xbf16>,
  %0:3 = prefill.launch @qkv_proj(%x, %w, %bias, %sumsq, %batch, %cache) {buffers = [#prefill.buffer<activation, tokens, row_bytes = 48, row_offset = 0>, #prefill.buffer<activation, tokens, row_bytes = 12, row_offset = 48>, unit], prefill.layer = 3 : i64} : (tensor<?x16xbf16>, tensor<3x8x16x2xbf16>, tensor<24xbf16>, tensor<?x2xf32>, !prefill.batch, !contiguous) -> (tensor<?x24xbf16>, tensor<?x3xf32>, !contiguous)
  return
}

// CHECK-LABEL: func.func private @ffn(
func.func private @ffn(%x: tensor<?x16xf32>, %i: index, %out: memref<?x10xf32>, %pair: tensor<?x24xf32>) attributes {prefill.kernel} {
  // CHECK: prefill.rowwise tile(%{{.*}}) outs(%{{.*}} : memref<?x10xf32>) body {
  prefill.rowwise tile(%i) outs(%out : memref<?x10xf32>) body {
    // CHECK: prefill.deinterleave %{{.*}} {granularity = 4 : i64} : tensor<?x24xf32> -> tensor<?x10xf32>, tensor<?x10xf32>
    %g, %u = prefill.deinterleave %pair {granularity = 4} : tensor<?x24xf32> -> tensor<?x10xf32>, tensor<?x10xf32>
    %a = prefill.gated_act silu %g, %u : tensor<?x10xf32>, tensor<?x10xf32> -> tensor<?x10xf32>
    prefill.yield %a : tensor<?x10xf32>
  }
  return
}

// CHECK-LABEL: func.func @rowwise(
func.func @rowwise(%batch: !prefill.batch, %e: tensor<24x16xbf16>) -> (tensor<?x16xbf16>, tensor<?x1xf32>) {
  // CHECK: prefill.rowwise : tensor<?x16xbf16>, tensor<?x1xf32> body {
  %0:2 = prefill.rowwise : tensor<?x16xbf16>, tensor<?x1xf32> body {
    %x = prefill.embed %batch, %e : tensor<24x16xbf16> -> tensor<?x16xf32>
    %s = prefill.row_sumsq %x : tensor<?x16xf32> -> tensor<?x1xf32>
    prefill.yield %x, %s : tensor<?x16xf32>, tensor<?x1xf32>
  }
  return %0#0, %0#1 : tensor<?x16xbf16>, tensor<?x1xf32>
}

// CHECK-LABEL: func.func @integers(
func.func @integers(%x: tensor<?x16xbf16>) -> tensor<?x24xbf16> {
  // CHECK: prefill.rowwise : tensor<?x16xi8>, tensor<?x1xf32> body {
  %q:2 = prefill.rowwise : tensor<?x16xi8>, tensor<?x1xf32> body {
    // CHECK-NEXT: %{{.*}}, %{{.*}} = prefill.quantize_rows %{{.*}} : tensor<?x16xbf16> -> tensor<?x16xi8>, tensor<?x1xf32>
    %i, %s = prefill.quantize_rows %x : tensor<?x16xbf16> -> tensor<?x16xi8>, tensor<?x1xf32>
    prefill.yield %i, %s : tensor<?x16xi8>, tensor<?x1xf32>
  }
  %w = prefill.get_weight @q_proj.int8.packed : tensor<1x4x32x4xi8>
  %s = prefill.get_weight @q_proj.scale : tensor<24xf32>
  // CHECK: prefill.gemm %{{.*}}, %{{.*}} : tensor<?x16xi8>, tensor<1x4x32x4xi8> -> tensor<?x24xbf16> epilogue {
  %y = prefill.gemm %q#0, %w : tensor<?x16xi8>, tensor<1x4x32x4xi8> -> tensor<?x24xbf16> epilogue {
  ^bb0(%acc: tensor<?x24xf32>):
    // CHECK: prefill.dequantize %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x24xf32>, tensor<?x1xf32>, tensor<24xf32> -> tensor<?x24xf32>
    %d = prefill.dequantize %acc, %q#1, %s : tensor<?x24xf32>, tensor<?x1xf32>, tensor<24xf32> -> tensor<?x24xf32>
    prefill.yield %d : tensor<?x24xf32>
  }
  return %y : tensor<?x24xbf16>
}

// CHECK-LABEL: func.func @tile(
func.func @tile(%x: tensor<?x16xf32>, %w: tensor<24x16xf32>, %i: index, %j: index, %out: memref<?x24xf32>) {
  // CHECK: prefill.gemm %{{.*}}, %{{.*}} tile(%{{.*}}, %{{.*}}) outs(%{{.*}} : memref<?x24xf32>) : tensor<?x16xf32>, tensor<24x16xf32> epilogue {
  prefill.gemm %x, %w tile(%i, %j) outs(%out : memref<?x24xf32>) : tensor<?x16xf32>, tensor<24x16xf32> epilogue {
  ^bb0(%acc: tensor<?x24xf32>):
    prefill.yield %acc : tensor<?x24xf32>
  }
  return
}
