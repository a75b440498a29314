// The interpreter on a model that can be followed by hand: hidden size 2, three
// tokens, attention with scale 0, so that a row is the mean of what it sees.
// RUN: prefill-translate --interpret %s --random-weights 1 --tokens 0,1,2 --all-logits --logits-out %t.all.npy
// RUN: prefill-translate --interpret %s --random-weights 1 --tokens 0,1,2 --all-logits --chunk 1 --logits-out %t.chunked.npy
// RUN: cmp %t.all.npy %t.chunked.npy
// RUN: echo "[0, 1, 2]" > %t.tokens
// RUN: prefill-translate --interpret %s --random-weights 1 --tokens-file %t.tokens --logits-out %t.last.npy
// RUN: %python %S/Inputs/check_last_row.py %t.all.npy %t.last.npy
// RUN: prefill-translate --interpret %s --random-weights 1 --tokens 0,1,2 --trace 2>&1 | FileCheck %s
// RUN: prefill-translate --interpret %s --random-weights 1 --tokens 0,1,2 --rounding model --logits-out %t.rounded.npy
// RUN: not cmp %t.last.npy %t.rounded.npy

// CHECK: prefill.embed shape=3x2 norm=
// CHECK-NEXT: prefill.attention layer=0 shape=3x2 norm=
// CHECK-NEXT: prefill.select_rows shape=1x2 norm=
// CHECK-NEXT: prefill.lm_head shape=1x3 norm=
// CHECK: token {{[0-2]}} logit
// CHECK-COUNT-2: token {{[0-2]}} logit
// CHECK-NOT: token

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 2, head_dim_v = 2, dtype = bf16, block_size = 2>
prefill.weight @e : tensor<3x2xbf16> = #prefill.checkpoint<"e">
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x3xf32>, !cache) {
  %e = prefill.get_weight @e : tensor<3x2xbf16>
  %x = prefill.embed %batch, %e : tensor<3x2xbf16> -> tensor<?x2xbf16>
  %c = prefill.kv_append %x, %x into %cache, %batch : tensor<?x2xbf16>, tensor<?x2xbf16> into !cache
  %o = prefill.attention %x, %c, %batch {scale = 0.0, causal, prefill.layer = 0 : i64} : tensor<?x2xbf16>, !cache -> tensor<?x2xbf16>
  %r = prefill.select_rows %o, %batch : tensor<?x2xbf16> -> tensor<?x2xbf16>
  %l = prefill.lm_head %r, %e : tensor<?x2xbf16>, tensor<3x2xbf16> -> tensor<?x3xf32>
  return %l, %c : tensor<?x3xf32>, !cache
}
