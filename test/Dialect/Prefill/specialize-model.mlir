// RUN: prefill-opt %s --prefill-specialize-model="dtype=f32 kv-layout=paged_nhd block-size=16" | FileCheck %s
// RUN: prefill-opt %s --prefill-specialize-model="kv-layout=paged_vnni block-size=16" | FileCheck %s --check-prefix=PAGES
// RUN: prefill-opt %s --prefill-specialize-model="max-seq=128" | FileCheck %s --check-prefix=LENGTH
// RUN: not prefill-opt %s --prefill-specialize-model="max-seq=513" 2>&1 | FileCheck %s --check-prefix=TOOLONG
// RUN: not prefill-opt %s --prefill-specialize-model="kv-layout=diagonal" 2>&1 | FileCheck %s --check-prefix=LAYOUT
// RUN: not prefill-opt %s --prefill-specialize-model="dtype=f8" 2>&1 | FileCheck %s --check-prefix=DTYPE

// Weights, activations and caches change; the logits stay f32 whatever the dtype.

// CHECK: module attributes {{.*}}prefill.max_seq = 512
// CHECK: prefill.weight @embed : tensor<131x64xf32>
// CHECK: func.func @prefill(
// CHECK-SAME: -> (tensor<?x131xf32>,
// CHECK: prefill.lm_head {{.*}} tensor<?x64xf32>, tensor<131x64xf32> -> tensor<?x131xf32>

// PAGES: !prefill.kv_cache<paged_vnni, {{.*}}, block_size = 32>

// LENGTH: prefill.max_seq = 128
// LENGTH: prefill.weight @embed : tensor<131x64xbf16>
// LENGTH: prefill.lm_head {{.*}} -> tensor<?x131xf32>

// TOOLONG: maximum length is 513, expected at most 512, the model's max_position_embeddings
// LAYOUT: unknown KV layout 'diagonal', expected contiguous, head_major, paged_nhd or paged_vnni
// DTYPE: unknown dtype 'f8', expected f32, bf16 or f16

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 512>
module attributes {prefill.model = {max_position = 512 : i64}} {
  prefill.weight @embed : tensor<131x64xbf16> = #prefill.checkpoint<"model.embed_tokens.weight">
  func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x131xf32>, !cache) {
    %e = prefill.get_weight @embed : tensor<131x64xbf16>
    %x = prefill.embed %batch, %e : tensor<131x64xbf16> -> tensor<?x64xbf16>
    %r = prefill.select_rows %x, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    %l = prefill.lm_head %r, %e : tensor<?x64xbf16>, tensor<131x64xbf16> -> tensor<?x131xf32>
    return %l, %cache : tensor<?x131xf32>, !cache
  }
}
