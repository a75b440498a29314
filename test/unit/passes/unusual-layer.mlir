// What importers do not write yet and the graph passes must still get right: a bias on V alone, values of another width
// than keys, a softcap, a branch that is computed before its residual, a norm with a second user, a GEMM's result that two
// ops read, one weight read by two linears, and projections in the order v, k, q.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 8, head_dim_v = 16, dtype = f32, block_size = 64>
!small = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 8, head_dim_v = 12, dtype = f32, block_size = 64>
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 4, interleaved>
prefill.weight @embed : tensor<61x24xf32> = #prefill.checkpoint<"embed">
prefill.weight @norm0 : tensor<24xf32> = #prefill.checkpoint<"norm0">
prefill.weight @q : tensor<32x24xf32> = #prefill.checkpoint<"q">
prefill.weight @k : tensor<16x24xf32> = #prefill.checkpoint<"k">
prefill.weight @v : tensor<32x24xf32> = #prefill.checkpoint<"v">
prefill.weight @v.bias : tensor<32xf32> = #prefill.checkpoint<"v.bias">
prefill.weight @k_norm : tensor<8xf32> = #prefill.checkpoint<"k_norm">
prefill.weight @o : tensor<24x64xf32> = #prefill.checkpoint<"o">
prefill.weight @norm1 : tensor<24xf32> = #prefill.checkpoint<"norm1">
prefill.weight @square : tensor<24x24xf32> = #prefill.checkpoint<"square">
prefill.weight @q1 : tensor<16x24xf32> = #prefill.checkpoint<"q1">
prefill.weight @k1 : tensor<8x24xf32> = #prefill.checkpoint<"k1">
prefill.weight @v1 : tensor<12x24xf32> = #prefill.checkpoint<"v1">
prefill.weight @down : tensor<24x24xf32> = #prefill.checkpoint<"down">
func.func @prefill(%batch: !prefill.batch, %cache0: !cache, %cache1: !small) -> (tensor<?x61xf32>, !cache, !small) {
  %embed = prefill.get_weight @embed : tensor<61x24xf32>
  %x = prefill.embed %batch, %embed : tensor<61x24xf32> -> tensor<?x24xf32>
  %norm0 = prefill.get_weight @norm0 : tensor<24xf32>
  %n = prefill.rms_norm %x, %norm0 {eps = 1.0e-5} : tensor<?x24xf32>, tensor<24xf32> -> tensor<?x24xf32>
  %wv = prefill.get_weight @v : tensor<32x24xf32>
  %bv = prefill.get_weight @v.bias : tensor<32xf32>
  %v = prefill.linear %n, %wv bias(%bv : tensor<32xf32>) : tensor<?x24xf32>, tensor<32x24xf32> -> tensor<?x32xf32>
  %wk = prefill.get_weight @k : tensor<16x24xf32>
  %k = prefill.linear %n, %wk : tensor<?x24xf32>, tensor<16x24xf32> -> tensor<?x16xf32>
  %gk = prefill.get_weight @k_norm : tensor<8xf32>
  %kn = prefill.rms_norm %k, %gk {eps = 1.0e-6, head_dim = 8 : i64} : tensor<?x16xf32>, tensor<8xf32> -> tensor<?x16xf32>
  %kr = prefill.rope %kn, %batch {rope = #rope, head_dim = 8} : tensor<?x16xf32> -> tensor<?x16xf32>
  %wq = prefill.get_weight @q : tensor<32x24xf32>
  %q = prefill.linear %n, %wq : tensor<?x24xf32>, tensor<32x24xf32> -> tensor<?x32xf32>
  %qr = prefill.rope %q, %batch {rope = #rope, head_dim = 8} : tensor<?x32xf32> -> tensor<?x32xf32>
  %c0 = prefill.kv_append %kr, %v into %cache0, %batch : tensor<?x16xf32>, tensor<?x32xf32> into !cache
  %a = prefill.attention %qr, %c0, %batch {scale = 0.35, causal} : tensor<?x32xf32>, !cache -> tensor<?x64xf32>
  %wo = prefill.get_weight @o : tensor<24x64xf32>
  %o = prefill.linear %a, %wo : tensor<?x64xf32>, tensor<24x64xf32> -> tensor<?x24xf32>
  // The residual comes after the branch.
  %residual = prefill.scale %x {factor = 0.5} : tensor<?x24xf32> -> tensor<?x24xf32>
  %x1 = prefill.add %residual, %o : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  %norm1 = prefill.get_weight @norm1 : tensor<24xf32>
  %n1 = prefill.rms_norm %x1, %norm1 {eps = 1.0e-5} : tensor<?x24xf32>, tensor<24xf32> -> tensor<?x24xf32>
  %w = prefill.get_weight @square : tensor<24x24xf32>
  %p = prefill.linear %n1, %w : tensor<?x24xf32>, tensor<24x24xf32> -> tensor<?x24xf32>
  // Two readers of %p, and %n1 is read by an add.
  %x2 = prefill.add %n1, %p : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  %act = prefill.gated_act silu %p, %x2 : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  // A weight that another linear has read without a norm before it.
  %n2 = prefill.rms_norm %act, %norm1 {eps = 1.0e-3} : tensor<?x24xf32>, tensor<24xf32> -> tensor<?x24xf32>
  %y = prefill.linear %n2, %w : tensor<?x24xf32>, tensor<24x24xf32> -> tensor<?x24xf32>
  %x3 = prefill.add %y, %act : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  // Heads of 8 and values of 12 columns: tiles of whole heads would straddle V.
  %n3 = prefill.rms_norm %x3, %norm0 {eps = 1.0e-5} : tensor<?x24xf32>, tensor<24xf32> -> tensor<?x24xf32>
  %wq1 = prefill.get_weight @q1 : tensor<16x24xf32>
  %wk1 = prefill.get_weight @k1 : tensor<8x24xf32>
  %wv1 = prefill.get_weight @v1 : tensor<12x24xf32>
  %q1 = prefill.linear %n3, %wq1 : tensor<?x24xf32>, tensor<16x24xf32> -> tensor<?x16xf32>
  %k1 = prefill.linear %n3, %wk1 : tensor<?x24xf32>, tensor<8x24xf32> -> tensor<?x8xf32>
  %v1 = prefill.linear %n3, %wv1 : tensor<?x24xf32>, tensor<12x24xf32> -> tensor<?x12xf32>
  %q1r = prefill.rope %q1, %batch {rope = #rope, head_dim = 8} : tensor<?x16xf32> -> tensor<?x16xf32>
  %c1 = prefill.kv_append %k1, %v1 into %cache1, %batch : tensor<?x8xf32>, tensor<?x12xf32> into !small
  %a1 = prefill.attention %q1r, %c1, %batch {scale = 0.5, causal, softcap = 2.0, sliding_window = 5 : i64} : tensor<?x16xf32>, !small -> tensor<?x24xf32>
  %x4 = prefill.add %a1, %x3 : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  %wd = prefill.get_weight @down : tensor<24x24xf32>
  %d = prefill.linear %x4, %wd : tensor<?x24xf32>, tensor<24x24xf32> -> tensor<?x24xf32>
  %x5 = prefill.add %d, %d : tensor<?x24xf32>, tensor<?x24xf32> -> tensor<?x24xf32>
  %last = prefill.select_rows %x5, %batch : tensor<?x24xf32> -> tensor<?x24xf32>
  %f = prefill.rms_norm %last, %norm1 {eps = 1.0e-5} : tensor<?x24xf32>, tensor<24xf32> -> tensor<?x24xf32>
  %logits = prefill.lm_head %f, %embed : tensor<?x24xf32>, tensor<61x24xf32> -> tensor<?x61xf32>
  return %logits, %c0, %c1 : tensor<?x61xf32>, !cache, !small
}
