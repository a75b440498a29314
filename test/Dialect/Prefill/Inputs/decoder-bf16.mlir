// One layer of a Qwen-like decoder as the importer writes it: GQA 2:1, biases on q, k and v, QK-norm.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 128>
#rope = #prefill.rope<theta = 10000.0, rotary_dim = 32>
module attributes {prefill.model = {model_type = "qwen3", vocab_size = 256, hidden_size = 64, num_layers = 1, num_q_heads = 2, max_position = 128, sliding_window = 0, tied_embeddings = true}} {
  prefill.weight @embed : tensor<256x64xbf16> = #prefill.checkpoint<"embed">
  prefill.weight @layers.0.input_norm : tensor<64xbf16> = #prefill.checkpoint<"input_norm">
  prefill.weight @layers.0.q_proj : tensor<64x64xbf16> = #prefill.checkpoint<"q">
  prefill.weight @layers.0.k_proj : tensor<32x64xbf16> = #prefill.checkpoint<"k">
  prefill.weight @layers.0.v_proj : tensor<32x64xbf16> = #prefill.checkpoint<"v">
  prefill.weight @layers.0.q_proj.bias : tensor<64xbf16> = #prefill.checkpoint<"qb">
  prefill.weight @layers.0.k_proj.bias : tensor<32xbf16> = #prefill.checkpoint<"kb">
  prefill.weight @layers.0.v_proj.bias : tensor<32xbf16> = #prefill.checkpoint<"vb">
  prefill.weight @layers.0.q_norm : tensor<32xbf16> = #prefill.checkpoint<"q_norm">
  prefill.weight @layers.0.k_norm : tensor<32xbf16> = #prefill.checkpoint<"k_norm">
  prefill.weight @layers.0.o_proj : tensor<64x64xbf16> = #prefill.checkpoint<"o">
  prefill.weight @layers.0.post_norm : tensor<64xbf16> = #prefill.checkpoint<"post_norm">
  prefill.weight @layers.0.gate_proj : tensor<96x64xbf16> = #prefill.checkpoint<"gate">
  prefill.weight @layers.0.up_proj : tensor<96x64xbf16> = #prefill.checkpoint<"up">
  prefill.weight @layers.0.down_proj : tensor<64x96xbf16> = #prefill.checkpoint<"down">
  prefill.weight @norm : tensor<64xbf16> = #prefill.checkpoint<"norm">
  func.func @prefill(%batch: !prefill.batch, %cache0: !cache) -> (tensor<?x256xf32>, !cache) {
    %embed = prefill.get_weight @embed : tensor<256x64xbf16>
    %x0 = prefill.embed %batch, %embed {prefill.name = "embed"} : tensor<256x64xbf16> -> tensor<?x64xbf16>
    %input_norm = prefill.get_weight @layers.0.input_norm : tensor<64xbf16>
    %n0 = prefill.rms_norm %x0, %input_norm {eps = 1.0e-5, prefill.layer = 0 : i64} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
    %wq = prefill.get_weight @layers.0.q_proj : tensor<64x64xbf16>
    %bq = prefill.get_weight @layers.0.q_proj.bias : tensor<64xbf16>
    %q = prefill.linear %n0, %wq bias(%bq : tensor<64xbf16>) {prefill.layer = 0 : i64, prefill.name = "q_proj"} : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16>
    %wk = prefill.get_weight @layers.0.k_proj : tensor<32x64xbf16>
    %bk = prefill.get_weight @layers.0.k_proj.bias : tensor<32xbf16>
    %k = prefill.linear %n0, %wk bias(%bk : tensor<32xbf16>) {prefill.layer = 0 : i64, prefill.name = "k_proj"} : tensor<?x64xbf16>, tensor<32x64xbf16> -> tensor<?x32xbf16>
    %wv = prefill.get_weight @layers.0.v_proj : tensor<32x64xbf16>
    %bv = prefill.get_weight @layers.0.v_proj.bias : tensor<32xbf16>
    %v = prefill.linear %n0, %wv bias(%bv : tensor<32xbf16>) {prefill.layer = 0 : i64, prefill.name = "v_proj"} : tensor<?x64xbf16>, tensor<32x64xbf16> -> tensor<?x32xbf16>
    %gq = prefill.get_weight @layers.0.q_norm : tensor<32xbf16>
    %gk = prefill.get_weight @layers.0.k_norm : tensor<32xbf16>
    %qn = prefill.rms_norm %q, %gq {eps = 1.0e-6, head_dim = 32 : i64, prefill.layer = 0 : i64} : tensor<?x64xbf16>, tensor<32xbf16> -> tensor<?x64xbf16>
    %kn = prefill.rms_norm %k, %gk {eps = 1.0e-6, head_dim = 32 : i64, prefill.layer = 0 : i64} : tensor<?x32xbf16>, tensor<32xbf16> -> tensor<?x32xbf16>
    %qr = prefill.rope %qn, %batch {rope = #rope, head_dim = 32, prefill.layer = 0 : i64} : tensor<?x64xbf16> -> tensor<?x64xbf16>
    %kr = prefill.rope %kn, %batch {rope = #rope, head_dim = 32, prefill.layer = 0 : i64} : tensor<?x32xbf16> -> tensor<?x32xbf16>
    %c = prefill.kv_append %kr, %v into %cache0, %batch {prefill.layer = 0 : i64} : tensor<?x32xbf16>, tensor<?x32xbf16> into !cache
    %a = prefill.attention %qr, %c, %batch {scale = 0.17677669529663687, causal, prefill.layer = 0 : i64, prefill.name = "attention"} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
    %wo = prefill.get_weight @layers.0.o_proj : tensor<64x64xbf16>
    %o = prefill.linear %a, %wo {prefill.layer = 0 : i64, prefill.name = "o_proj"} : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16>
    %x1 = prefill.add %x0, %o {prefill.layer = 0 : i64} : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
    %post_norm = prefill.get_weight @layers.0.post_norm : tensor<64xbf16>
    %n1 = prefill.rms_norm %x1, %post_norm {eps = 1.0e-5, prefill.layer = 0 : i64} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
    %wg = prefill.get_weight @layers.0.gate_proj : tensor<96x64xbf16>
    %g = prefill.linear %n1, %wg {prefill.layer = 0 : i64, prefill.name = "gate_proj"} : tensor<?x64xbf16>, tensor<96x64xbf16> -> tensor<?x96xbf16>
    %wu = prefill.get_weight @layers.0.up_proj : tensor<96x64xbf16>
    %u = prefill.linear %n1, %wu {prefill.layer = 0 : i64, prefill.name = "up_proj"} : tensor<?x64xbf16>, tensor<96x64xbf16> -> tensor<?x96xbf16>
    %act = prefill.gated_act silu %g, %u {prefill.layer = 0 : i64} : tensor<?x96xbf16>, tensor<?x96xbf16> -> tensor<?x96xbf16>
    %wd = prefill.get_weight @layers.0.down_proj : tensor<64x96xbf16>
    %d = prefill.linear %act, %wd {prefill.layer = 0 : i64, prefill.name = "down_proj"} : tensor<?x96xbf16>, tensor<64x96xbf16> -> tensor<?x64xbf16>
    %x2 = prefill.add %x1, %d {prefill.layer = 0 : i64} : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
    %last = prefill.select_rows %x2, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    %norm = prefill.get_weight @norm : tensor<64xbf16>
    %f = prefill.rms_norm %last, %norm {eps = 1.0e-5} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xbf16>
    %logits = prefill.lm_head %f, %embed {prefill.name = "lm_head"} : tensor<?x64xbf16>, tensor<256x64xbf16> -> tensor<?x256xf32>
    return %logits, %c : tensor<?x256xf32>, !cache
  }
}
