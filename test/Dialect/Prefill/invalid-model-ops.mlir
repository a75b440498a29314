// Ops of level `model` that the verifier refuses. Each case names its rule of docs/spec.md.
// RUN: prefill-opt %s -verify-diagnostics -split-input-file

// TENSOR-C1: rank.
func.func @f(%x: tensor<?x2x8xf32>) {
  // expected-error @below {{'prefill.scale' op input is 'tensor<?x2x8xf32>', expected rank 2: [rows, channels]}}
  %0 = prefill.scale %x {factor = 2.0} : tensor<?x2x8xf32> -> tensor<?x2x8xf32>
  return
}

// -----

// TENSOR-C1: dynamic channels.
func.func @f(%x: tensor<?x?xf32>) {
  // expected-error @below {{'prefill.scale' op input is 'tensor<?x?xf32>', expected a static number of channels}}
  %0 = prefill.scale %x {factor = 2.0} : tensor<?x?xf32> -> tensor<?x?xf32>
  return
}

// -----

// TENSOR-C5: an activation.
func.func @f(%x: tensor<?x281474976710657xf32>) {
  // expected-error @below {{'prefill.scale' op input is 'tensor<?x281474976710657xf32>', expected at most 281474976710656 elements}}
  %0 = prefill.scale %x {factor = 2.0} : tensor<?x281474976710657xf32> -> tensor<?x281474976710657xf32>
  return
}

// -----

// TENSOR-C5: a weight whose number of elements overflows.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<4611686018427387904x8xf32>) {
  // expected-error @below {{'prefill.linear' op weight is 'tensor<4611686018427387904x8xf32>', expected at most 281474976710656 elements}}
  %0 = prefill.linear %x, %w : tensor<?x8xf32>, tensor<4611686018427387904x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// TENSOR-C2: rank.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{'prefill.linear' op weight is 'tensor<8xf32>', expected rank 2}}
  %0 = prefill.linear %x, %w : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  return
}

// -----

// TENSOR-C2: a dynamic weight.
func.func @f(%x: tensor<?x8xf32>, %w: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.linear' op weight is 'tensor<?x8xf32>', expected static extents of at least 1}}
  %0 = prefill.linear %x, %w : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// TENSOR-C3
func.func @f(%x: tensor<?x8xi32>) {
  // expected-error @below {{'prefill.scale' op input is 'tensor<?x8xi32>', expected elements of f64, f32, bf16 or f16}}
  %0 = prefill.scale %x {factor = 2.0} : tensor<?x8xi32> -> tensor<?x8xi32>
  return
}

// -----

// TENSOR-C4
func.func @f(%x: tensor<4x8xf32>, %y: tensor<5x8xf32>) {
  // expected-error @below {{'prefill.add' op rhs is 'tensor<5x8xf32>' but lhs is 'tensor<4x8xf32>': their rows must agree}}
  %0 = prefill.add %x, %y : tensor<4x8xf32>, tensor<5x8xf32> -> tensor<4x8xf32>
  return
}

// -----

// EMBED-C1
func.func @f(%b: !prefill.batch, %t: tensor<100x8xf32>) {
  // expected-error @below {{'prefill.embed' op result is 'tensor<?x16xf32>' but table is 'tensor<100x8xf32>': their channels must agree}}
  %0 = prefill.embed %b, %t : tensor<100x8xf32> -> tensor<?x16xf32>
  return
}

// -----

// RMS_NORM-C1
func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{'prefill.rms_norm' op result is 'tensor<?x4xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x4xf32>
  return
}

// -----

// RMS_NORM-C2
func.func @f(%x: tensor<?x8xf32>, %g: tensor<3xf32>) {
  // expected-error @below {{'prefill.rms_norm' op head_dim is 3 but input has 8 channels: head_dim must divide them}}
  %0 = prefill.rms_norm %x, %g {eps = 1.0e-5, head_dim = 3} : tensor<?x8xf32>, tensor<3xf32> -> tensor<?x8xf32>
  return
}

// -----

// RMS_NORM-C3
func.func @f(%x: tensor<?x8xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{'prefill.rms_norm' op gain is 'tensor<4xf32>' but the channels of input are 8: they must agree}}
  %0 = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xf32>
  return
}

// -----

// RMS_NORM-C3
func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{'prefill.rms_norm' op gain is 'tensor<8xf32>' but head_dim is 4: they must agree}}
  %0 = prefill.rms_norm %x, %g {eps = 1.0e-5, head_dim = 4} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  return
}

// -----

// RMS_NORM-C4
func.func @f(%x: tensor<?x8xf32>, %g: tensor<8xf32>) {
  // expected-error @below {{'prefill.rms_norm' op eps is -1.000000e-05, expected a finite number of at least 0}}
  %0 = prefill.rms_norm %x, %g {eps = -1.0e-5} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  return
}

// -----

// LINEAR-C1
func.func @f(%x: tensor<?x48xbf16>, %w: tensor<64x32xbf16>) {
  // expected-error @below {{'prefill.linear' op weight is 'tensor<64x32xbf16>' but input has 48 channels: K must agree}}
  %0 = prefill.linear %x, %w : tensor<?x48xbf16>, tensor<64x32xbf16> -> tensor<?x64xbf16>
  return
}

// -----

// LINEAR-C2: a transposed weight, as GPT-2's Conv1D stores it.
func.func @f(%x: tensor<?x48xbf16>, %w: tensor<64x48xbf16>) {
  // expected-error @below {{'prefill.linear' op weight is 'tensor<64x48xbf16>' but result has 48 channels: N must agree}}
  %0 = prefill.linear %x, %w : tensor<?x48xbf16>, tensor<64x48xbf16> -> tensor<?x48xbf16>
  return
}

// -----

// LINEAR-C3
func.func @f(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>) {
  // expected-error @below {{'prefill.linear' op bias is 'tensor<8xf32>' but result has 4 channels: N must agree}}
  %0 = prefill.linear %x, %w bias(%b : tensor<8xf32>) : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
  return
}

// -----

// LM_HEAD-C1
func.func @f(%x: tensor<?x8xf32>, %w: tensor<100x4xf32>) {
  // expected-error @below {{'prefill.lm_head' op weight is 'tensor<100x4xf32>' but input has 8 channels: K must agree}}
  %0 = prefill.lm_head %x, %w : tensor<?x8xf32>, tensor<100x4xf32> -> tensor<?x100xf32>
  return
}

// -----

// LM_HEAD-C2
func.func @f(%x: tensor<?x8xf32>, %w: tensor<100x8xf32>) {
  // expected-error @below {{'prefill.lm_head' op weight is 'tensor<100x8xf32>' but result has 99 channels: N must agree}}
  %0 = prefill.lm_head %x, %w : tensor<?x8xf32>, tensor<100x8xf32> -> tensor<?x99xf32>
  return
}

// -----

// LM_HEAD-C3
func.func @f(%x: tensor<?x8xbf16>, %w: tensor<100x8xbf16>) {
  // expected-error @below {{'prefill.lm_head' op result is 'tensor<?x100xbf16>', expected f32 elements: logits are not rounded}}
  %0 = prefill.lm_head %x, %w : tensor<?x8xbf16>, tensor<100x8xbf16> -> tensor<?x100xbf16>
  return
}

// -----

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8>
// ROPE-C1
func.func @f(%x: tensor<?x16xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.rope' op result is 'tensor<?x8xf32>' but input is 'tensor<?x16xf32>': their channels must agree}}
  %0 = prefill.rope %x, %b {rope = #rope, head_dim = 8} : tensor<?x16xf32> -> tensor<?x8xf32>
  return
}

// -----

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8>
// ROPE-C2
func.func @f(%x: tensor<?x16xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.rope' op head_dim is 12 but input has 16 channels: head_dim must divide them}}
  %0 = prefill.rope %x, %b {rope = #rope, head_dim = 12} : tensor<?x16xf32> -> tensor<?x16xf32>
  return
}

// -----

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8>
// ROPE-C3
func.func @f(%x: tensor<?x16xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.rope' op rope has rotary_dim 8 but head_dim is 4: rotary_dim must not be larger}}
  %0 = prefill.rope %x, %b {rope = #rope, head_dim = 4} : tensor<?x16xf32> -> tensor<?x16xf32>
  return
}

// -----

#rope = #prefill.rope<theta = 10000.0, rotary_dim = 8>
// ROPE-C4
func.func @f(%x: tensor<?x16xf32>, %b: !prefill.batch, %t: tensor<32x8xbf16>) {
  // expected-error @below {{'prefill.rope' op table is 'tensor<32x8xbf16>' but rotary_dim is 8: expected f32 [max_position, rotary_dim]}}
  %0 = prefill.rope %x, %b table(%t : tensor<32x8xbf16>) {rope = #rope, head_dim = 8} : tensor<?x16xf32> -> tensor<?x16xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
// KV_APPEND-C1
func.func @f(%k: tensor<?x8xf32>, %v: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.kv_append' op key is 'tensor<?x8xf32>' but the cache has 2 heads with head_dim_qk 8: expected 16 channels}}
  %0 = prefill.kv_append %k, %v into %c, %b : tensor<?x8xf32>, tensor<?x8xf32> into !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
// KV_APPEND-C2
func.func @f(%k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.kv_append' op value is 'tensor<?x16xf32>' but the cache has 2 heads with head_dim_v 4: expected 8 channels}}
  %0 = prefill.kv_append %k, %v into %c, %b : tensor<?x16xf32>, tensor<?x16xf32> into !cache
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
// ATTENTION-C1
func.func @f(%q: tensor<?x36xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op query is 'tensor<?x36xf32>' but the cache has head_dim_qk 8: head_dim_qk must divide the channels}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal} : tensor<?x36xf32>, !cache -> tensor<?x16xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
// ATTENTION-C2
func.func @f(%q: tensor<?x24xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op query is 'tensor<?x24xf32>', which is 3 heads, but the cache has 2: num_kv_heads must divide num_q_heads}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal} : tensor<?x24xf32>, !cache -> tensor<?x12xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 4, dtype = f32, block_size = 16>
// ATTENTION-C3
func.func @f(%q: tensor<?x32xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op result is 'tensor<?x32xf32>' but there are 4 query heads with head_dim_v 4: expected 16 channels}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal} : tensor<?x32xf32>, !cache -> tensor<?x32xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C4
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op scale is INF, expected a finite number}}
  %0 = prefill.attention %q, %c, %b {scale = 0x7FF0000000000000 : f64, causal} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C5
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op sliding_window is 0, expected at least 1, the row's own key}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal, sliding_window = 0} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C6
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has sliding_window 4 but is not causal: a window ends at the row's own position}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, sliding_window = 4} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C7
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op softcap is 0.000000e+00, expected a positive number}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal, softcap = 0.0} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C8
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op num_splits is 1, expected at least 2}}
  %0:2 = prefill.attention %q, %c, %b {scale = 1.0, causal, num_splits = 1} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>, tensor<?x1xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C9
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has num_splits = 2 and selected_rows; the rows are selected behind prefill.combine_splits}}
  %0:2 = prefill.attention %q, %c, %b {scale = 1.0, causal, num_splits = 2, selected_rows} : tensor<?x8xf32>, !cache -> tensor<?x16xf32>, tensor<?x2xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C10: a log-sum-exp of nothing.
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has a second result without num_splits; it is the log-sum-exp of splits}}
  %0:2 = prefill.attention %q, %c, %b {scale = 1.0, causal} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>, tensor<?x1xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C10: splits without one.
func.func @f(%q: tensor<?x8xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has num_splits = 2 and one result, expected outputs and log-sum-exp}}
  %0 = prefill.attention %q, %c, %b {scale = 1.0, causal, num_splits = 2} : tensor<?x8xf32>, !cache -> tensor<?x16xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = bf16, block_size = 16>
// ATTENTION-C10: outputs of splits are not rounded.
func.func @f(%q: tensor<?x16xbf16>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has num_splits = 2 and results 'tensor<?x32xbf16>' and 'tensor<?x4xf32>', expected f32 with 32 and 4 channels}}
  %0:2 = prefill.attention %q, %c, %b {scale = 1.0, causal, num_splits = 2} : tensor<?x16xbf16>, !cache -> tensor<?x32xbf16>, tensor<?x4xf32>
  return
}

// -----

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 8, dtype = f32, block_size = 16>
// ATTENTION-C10: one log-sum-exp for each head of each split.
func.func @f(%q: tensor<?x16xf32>, %c: !cache, %b: !prefill.batch) {
  // expected-error @below {{'prefill.attention' op has num_splits = 2 and results 'tensor<?x32xf32>' and 'tensor<?x2xf32>', expected f32 with 32 and 4 channels}}
  %0:2 = prefill.attention %q, %c, %b {scale = 1.0, causal, num_splits = 2} : tensor<?x16xf32>, !cache -> tensor<?x32xf32>, tensor<?x2xf32>
  return
}

// -----

// GATED_ACT-C1
func.func @f(%g: tensor<?x8xf32>, %u: tensor<?x4xf32>) {
  // expected-error @below {{'prefill.gated_act' op up is 'tensor<?x4xf32>' but gate is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.gated_act silu %g, %u : tensor<?x8xf32>, tensor<?x4xf32> -> tensor<?x8xf32>
  return
}

// -----

// GATED_ACT-C2
func.func @f(%g: tensor<?x8xf32>, %u: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.gated_act' op result is 'tensor<?x4xf32>' but gate is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.gated_act gelu_tanh %g, %u : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x4xf32>
  return
}

// -----

// ADD-C1
func.func @f(%x: tensor<?x8xf32>, %y: tensor<?x4xf32>) {
  // expected-error @below {{'prefill.add' op rhs is 'tensor<?x4xf32>' but lhs is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.add %x, %y : tensor<?x8xf32>, tensor<?x4xf32> -> tensor<?x8xf32>
  return
}

// -----

// ADD-C2
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.add' op result is 'tensor<?x16xf32>' but lhs is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.add %x, %x : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x16xf32>
  return
}

// -----

// SCALE-C1
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op result is 'tensor<?x16xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.scale %x {factor = 2.0} : tensor<?x8xf32> -> tensor<?x16xf32>
  return
}

// -----

// SCALE-C2
func.func @f(%x: tensor<?x8xf32>) {
  // expected-error @below {{'prefill.scale' op factor is nan, expected a finite number}}
  %0 = prefill.scale %x {factor = 0x7FF8000000000000 : f64} : tensor<?x8xf32> -> tensor<?x8xf32>
  return
}

// -----

// SELECT_ROWS-C1
func.func @f(%x: tensor<?x8xf32>, %b: !prefill.batch) {
  // expected-error @below {{'prefill.select_rows' op result is 'tensor<?x4xf32>' but input is 'tensor<?x8xf32>': their channels must agree}}
  %0 = prefill.select_rows %x, %b : tensor<?x8xf32> -> tensor<?x4xf32>
  return
}
