// Weight programs that the verifier refuses. Each case names its rule of docs/spec.md.
// RUN: prefill-opt %s -verify-diagnostics -split-input-file

// WEIGHT-C1
// expected-error @below {{'prefill.weight' op @w is 'tensor<?x4xf32>', expected a static tensor of f64, f32, bf16 or f16}}
prefill.weight @w : tensor<?x4xf32> = #prefill.checkpoint<"w">

// -----

// WEIGHT-C1
// expected-error @below {{'prefill.weight' op @w is 'tensor<4xi32>', expected a static tensor}}
prefill.weight @w : tensor<4xi32> = #prefill.checkpoint<"w">

// -----

// WEIGHT-C1: a checkpoint has no 8-bit integers.
// expected-error @below {{'prefill.weight' op @w is 'tensor<4x8xi8>', expected a static tensor of f64, f32, bf16 or f16}}
prefill.weight @w : tensor<4x8xi8> = #prefill.checkpoint<"w">

// -----

// WEIGHT-C1
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<4x8xi16>', expected a static tensor of f64, f32, bf16, f16 or i8}}
prefill.weight @w : tensor<4x8xi16> = #prefill.quantize<@a>

// -----

// WEIGHT-C6
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @q : tensor<4x8xi8> = #prefill.quantize<@a>
// expected-error @below {{'prefill.weight' op @w is 'tensor<8x8xf32>' but @q is 'tensor<4x8xi8>': weights of i8 are packed and nothing else}}
prefill.weight @w : tensor<8x8xf32> = #prefill.concat<[@a, @q]>

// -----

// WEIGHT-C6: integers are not quantized again.
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @q : tensor<4x8xi8> = #prefill.quantize<@a>
// expected-error @below {{'prefill.weight' op @w is 'tensor<4xf32>' but @q is 'tensor<4x8xi8>': weights of i8 are packed and nothing else}}
prefill.weight @w : tensor<4xf32> = #prefill.quantize_scale<@q>

// -----

// WEIGHT-C5
// expected-error @below {{'prefill.weight' op @w is 'tensor<4611686018427387904x16xf32>', expected at most 281474976710656 elements}}
prefill.weight @w : tensor<4611686018427387904x16xf32> = #prefill.checkpoint<"w">

// -----

// WEIGHT-C2
// expected-error @below {{'prefill.weight' op @w comes from "w.bin", expected checkpoint, concat, interleave, scale_columns, pack, rope_table, quantize or quantize_scale}}
prefill.weight @w : tensor<4xf32> = "w.bin"

// -----

// WEIGHT-C3
// expected-error @below {{'prefill.weight' op @w is made from @v, which is not a prefill.weight of this module}}
prefill.weight @w : tensor<4xf32> = #prefill.concat<[@v]>

// -----

// WEIGHT-C3
func.func private @v()
// expected-error @below {{'prefill.weight' op @w is made from @v, which is not a prefill.weight of this module}}
prefill.weight @w : tensor<4xf32> = #prefill.concat<[@v]>

// -----

// WEIGHT-C4
// expected-error @below {{'prefill.weight' op @a is made from itself}}
prefill.weight @a : tensor<4xf32> = #prefill.concat<[@b]>
prefill.weight @b : tensor<4xf32> = #prefill.concat<[@a]>

// -----

// CONCAT-C2
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @b : tensor<4x6xf32> = #prefill.checkpoint<"b">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8x8xf32>' but @b is 'tensor<4x6xf32>': all extents but the first must agree}}
prefill.weight @w : tensor<8x8xf32> = #prefill.concat<[@a, @b]>

// -----

// CONCAT-C2: a matrix and a vector.
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<4xf32>' but @a is 'tensor<4x8xf32>': all extents but the first must agree}}
prefill.weight @w : tensor<4xf32> = #prefill.concat<[@a]>

// -----

// CONCAT-C3
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @b : tensor<2x8xf32> = #prefill.checkpoint<"b">
// expected-error @below {{'prefill.weight' op @w is 'tensor<7x8xf32>' but its parts have 8 rows together: they must agree}}
prefill.weight @w : tensor<7x8xf32> = #prefill.concat<[@a, @b, @b]>

// -----

// INTERLEAVE-C2
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @b : tensor<2x8xf32> = #prefill.checkpoint<"b">
// expected-error @below {{'prefill.weight' op @w interleaves @a, which is 'tensor<4x8xf32>', and @b, which is 'tensor<2x8xf32>': their shapes must agree}}
prefill.weight @w : tensor<8x8xf32> = #prefill.interleave<@a, @b, granularity = 2>

// -----

// INTERLEAVE-C3: 5 rows are 8 with padding.
prefill.weight @a : tensor<5x8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<10x8xf32>' but @a is 'tensor<5x8xf32>', interleaved in runs of 4: expected 'tensor<16x8xf32>'}}
prefill.weight @w : tensor<10x8xf32> = #prefill.interleave<@a, @a, granularity = 4>

// -----

// SCALE_COLUMNS-C1
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @g : tensor<8xf32> = #prefill.checkpoint<"g">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8x8xf32>' but @a is 'tensor<4x8xf32>': expected two matrices of one shape}}
prefill.weight @w : tensor<8x8xf32> = #prefill.scale_columns<@a, gain = @g>

// -----

// SCALE_COLUMNS-C2
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
prefill.weight @g : tensor<4xf32> = #prefill.checkpoint<"g">
// expected-error @below {{'prefill.weight' op @w is 'tensor<4x8xf32>' but @g is 'tensor<4xf32>': expected one gain for each column}}
prefill.weight @w : tensor<4x8xf32> = #prefill.scale_columns<@a, gain = @g>

// -----

// PACK-C2
prefill.weight @a : tensor<64xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<2x1x32x1xf32>' but @a is 'tensor<64xf32>': expected a matrix to pack}}
prefill.weight @w : tensor<2x1x32x1xf32> = #prefill.pack<@a, panel_n = 32, k_pack = 1, group_n = 64>

// -----

// PACK-C3
prefill.weight @a : tensor<64x6xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is packed in groups of 24 rows but @a is 'tensor<64x6xf32>': group_n must divide N}}
prefill.weight @w : tensor<3x6x24x1xf32> = #prefill.pack<@a, panel_n = 24, k_pack = 1, group_n = 24>

// -----

// PACK-C4: K 5 is 3 pairs; 3 heads of 24 are padded to 32 each.
prefill.weight @a : tensor<72x5xbf16> = #prefill.checkpoint<"a">
// expected-error @below {{expected 'tensor<3x3x32x2xbf16>'}}
prefill.weight @w : tensor<3x2x32x2xbf16> = #prefill.pack<@a, panel_n = 32, k_pack = 2, group_n = 24>

// -----

// PACK-C5
prefill.weight @a : tensor<32x8xbf16> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<1x2x32x4xi8>' but @a is 'tensor<32x8xbf16>': expected both of i8 or neither}}
prefill.weight @w : tensor<1x2x32x4xi8> = #prefill.pack<@a, panel_n = 32, k_pack = 4, group_n = 32>

// -----

// PACK-C5
prefill.weight @a : tensor<32x8xbf16> = #prefill.checkpoint<"a">
prefill.weight @q : tensor<32x8xi8> = #prefill.quantize<@a>
// expected-error @below {{'prefill.weight' op @w is 'tensor<1x2x32x4xbf16>' but @q is 'tensor<32x8xi8>': expected both of i8 or neither}}
prefill.weight @w : tensor<1x2x32x4xbf16> = #prefill.pack<@q, panel_n = 32, k_pack = 4, group_n = 32>

// -----

// QUANTIZE-C1
prefill.weight @a : tensor<8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8xi8>' but @a is 'tensor<8xf32>': expected a matrix to quantize}}
prefill.weight @w : tensor<8xi8> = #prefill.quantize<@a>

// -----

// QUANTIZE-C2
prefill.weight @a : tensor<4x8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8x4xi8>' but @a is 'tensor<4x8xf32>': expected 'tensor<4x8xi8>'}}
prefill.weight @w : tensor<8x4xi8> = #prefill.quantize<@a>

// -----

// QUANTIZE-C2
prefill.weight @a : tensor<4x8xbf16> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<4x8xbf16>' but @a is 'tensor<4x8xbf16>': expected 'tensor<4x8xi8>'}}
prefill.weight @w : tensor<4x8xbf16> = #prefill.quantize<@a>

// -----

// QUANTIZE_SCALE-C1
prefill.weight @a : tensor<8xf32> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8xf32>' but @a is 'tensor<8xf32>': expected a matrix with scales}}
prefill.weight @w : tensor<8xf32> = #prefill.quantize_scale<@a>

// -----

// QUANTIZE_SCALE-C2
prefill.weight @a : tensor<4x8xbf16> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<4xbf16>' but @a is 'tensor<4x8xbf16>': expected 'tensor<4xf32>'}}
prefill.weight @w : tensor<4xbf16> = #prefill.quantize_scale<@a>

// -----

// QUANTIZE_SCALE-C2: one for each output channel.
prefill.weight @a : tensor<4x8xbf16> = #prefill.checkpoint<"a">
// expected-error @below {{'prefill.weight' op @w is 'tensor<8xf32>' but @a is 'tensor<4x8xbf16>': expected 'tensor<4xf32>'}}
prefill.weight @w : tensor<8xf32> = #prefill.quantize_scale<@a>

// -----

// ROPE_TABLE-C2
// expected-error @below {{'prefill.weight' op @t is 'tensor<16x8xbf16>' but its table has type 'tensor<16x8xf32>'}}
prefill.weight @t : tensor<16x8xbf16> = #prefill.rope_table<<theta = 10000.0, rotary_dim = 8>, max_position = 16>

// -----

// ROPE_TABLE-C2
// expected-error @below {{'prefill.weight' op @t is 'tensor<16x4xf32>' but its table has type 'tensor<16x8xf32>'}}
prefill.weight @t : tensor<16x4xf32> = #prefill.rope_table<<theta = 10000.0, rotary_dim = 8>, max_position = 16>

// -----

// GET_WEIGHT-C1
func.func @f() {
  // expected-error @below {{'prefill.get_weight' op names weight @w, which is not a prefill.weight of this module}}
  %w = prefill.get_weight @w : tensor<4xf32>
  return
}

// -----

// GET_WEIGHT-C2
prefill.weight @w : tensor<4xbf16> = #prefill.checkpoint<"w">
func.func @f() {
  // expected-error @below {{'prefill.get_weight' op has type 'tensor<4xf32>', but weight @w has type 'tensor<4xbf16>'}}
  %w = prefill.get_weight @w : tensor<4xf32>
  return
}
