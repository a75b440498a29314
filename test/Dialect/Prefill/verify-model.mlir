// RUN: prefill-opt %S/Inputs/decoder-bf16.mlir --prefill-verify-model -o %t
// RUN: not prefill-opt %s --prefill-verify-model --split-input-file 2>&1 | FileCheck %s

// CHECK: error: the module has no function @prefill
module {
}

// -----

// CHECK: error: function @prefill has type '(tensor<?x8xf32>) -> tensor<?x8xf32>', expected a !prefill.batch as first argument
func.func @prefill(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// -----

// CHECK: error: function @prefill has type {{.*}}, expected a !prefill.kv_cache for each layer after the batch
func.func @prefill(%batch: !prefill.batch, %x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// -----

// CHECK: error: function @prefill has type {{.*}}, expected f32 logits as first result
func.func @prefill(%batch: !prefill.batch) {
  return
}

// -----

// CHECK: error: function @prefill has type {{.*}}, expected the caches as further results
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 128>
prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> tensor<?x8xf32> {
  %e = prefill.get_weight @embed : tensor<16x8xf32>
  %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

// CHECK: error: the module has no prefill.model
prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x8xf32> {
  %e = prefill.get_weight @embed : tensor<16x8xf32>
  %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

// CHECK: error: prefill.gemm is no op of level model
module attributes {prefill.model = {model_type = "llama", vocab_size = 16, hidden_size = 8, num_layers = 0, num_q_heads = 1, max_position = 8, sliding_window = 0, tied_embeddings = true}} {
  prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
  func.func @prefill(%batch: !prefill.batch) -> tensor<?x16xf32> {
    %e = prefill.get_weight @embed : tensor<16x8xf32>
    %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<?x8xf32>
    %y = prefill.gemm %x, %e : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32> epilogue {
    ^bb0(%acc: tensor<?x16xf32>):
      prefill.yield %acc : tensor<?x16xf32>
    }
    return %y : tensor<?x16xf32>
  }
}

// -----

// CHECK: error: prefill.scale has a result of type 'tensor<?x8xf64>', expected f32, bf16 or f16 with no dynamic size but the row count
module attributes {prefill.model = {model_type = "llama", vocab_size = 16, hidden_size = 8, num_layers = 0, num_q_heads = 1, max_position = 8, sliding_window = 0, tied_embeddings = true}} {
  prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
  func.func @prefill(%batch: !prefill.batch) -> tensor<?x8xf32> {
    %e = prefill.get_weight @embed : tensor<16x8xf32>
    %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<?x8xf32>
    %y = prefill.scale %x {factor = 2.0} : tensor<?x8xf32> -> tensor<?x8xf64>
    return %x : tensor<?x8xf32>
  }
}

// -----

// No row count is fixed before a call.
// CHECK: error: prefill.embed has a result of type 'tensor<4x8xf32>', expected f32, bf16 or f16 with no dynamic size but the row count
prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x8xf32> {
  %e = prefill.get_weight @embed : tensor<16x8xf32>
  %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<4x8xf32>
  %y = prefill.select_rows %x, %batch : tensor<4x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// CHECK: error: function @prefill has branches, expected one block
prefill.weight @embed : tensor<16x8xf32> = #prefill.checkpoint<"embed">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x8xf32> {
  %e = prefill.get_weight @embed : tensor<16x8xf32>
  cf.br ^next
^next:
  %x = prefill.embed %batch, %e : tensor<16x8xf32> -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}
