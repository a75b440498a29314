// RUN: prefill-opt %s --split-input-file --prefill-tile --verify-diagnostics | FileCheck %s
// RUN: prefill-opt %s --split-input-file --prefill-tile=plain=true --verify-diagnostics | FileCheck %s --check-prefix=PLAIN

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 64>
// Tensor results become buffers, a cache is written in place. Row chunks run innermost.
// CHECK-LABEL: func private @qkv(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x64xf32>, %[[W:[a-z0-9]+]]: tensor<3x64x32x1xf32>, %{{.*}}: !prefill.batch, %{{.*}}: !{{[a-z_]*}}, %[[OUT:[a-z0-9]+]]: memref<?x32xf32>)
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64, plus_sequences = false, multiplier = 3>
// CHECK: %[[ROWS:.*]] = tensor.dim %[[X]]
// CHECK: %[[CHUNKS:.*]] = arith.divui
// CHECK: scf.forall (%[[WG:.*]]) in (%{{.*}}) {
// CHECK: %[[R:.*]] = arith.remui %[[WG]], %[[CHUNKS]]
// CHECK: %[[D:.*]] = arith.divui %[[WG]], %[[CHUNKS]]
// CHECK: %[[I:.*]] = arith.muli %[[R]], %c64
// CHECK: %[[J:.*]] = arith.muli %[[D]], %c32
// CHECK: prefill.gemm %[[X]], %[[W]] tile(%[[I]], %[[J]]) outs(%[[OUT]] : memref<?x32xf32>) {lowering_config
// CHECK: prefill.kv_append
// CHECK: return{{$}}
// PLAIN-LABEL: func private @qkv(
// PLAIN-SAME: multiplier = 1>
// As many workgroups as the grid says: one, if there are rows.
// PLAIN: %[[ONE:.*]] = arith.divui %{{.*}}, %c2147483647
// PLAIN: scf.forall (%{{.*}}) in (%[[ONE]])
// PLAIN: scf.for
// PLAIN: prefill.gemm
func.func private @qkv(%x: tensor<?x64xf32>, %w: tensor<3x64x32x1xf32>, %batch: !prefill.batch, %cache: !cache) -> (tensor<?x32xf32>, !cache) attributes {prefill.kernel} {
  %0, %1 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<3x64x32x1xf32> -> tensor<?x32xf32>, !cache epilogue {
  ^bb0(%acc: tensor<?x96xf32>):
    %q, %k, %v = prefill.split %acc : tensor<?x96xf32> -> tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>
    %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x32xf32>, tensor<?x32xf32> into !cache
    prefill.yield %q, %c : tensor<?x32xf32>, !cache
  }
  return %0, %1 : tensor<?x32xf32>, !cache
}

// -----

// Groups of two chunks take all three tiles of columns before the next group: the last group may be smaller.
// CHECK-LABEL: func private @grouped(
// CHECK: %[[CHUNKS:.*]] = arith.divui
// CHECK: scf.forall (%[[WG:.*]]) in (%{{.*}}) {
// CHECK: %[[GROUP:.*]] = arith.divui %[[WG]], %c6
// CHECK: %[[FIRST:.*]] = arith.muli %[[GROUP]], %c2
// CHECK: %[[LEFT:.*]] = arith.subi %[[CHUNKS]], %[[FIRST]]
// CHECK: %[[COUNT:.*]] = arith.minsi %[[LEFT]], %c2
// CHECK: %[[BEFORE:.*]] = arith.muli %[[FIRST]], %c3
// CHECK: %[[REST:.*]] = arith.subi %[[WG]], %[[BEFORE]]
// CHECK: %[[R:.*]] = arith.remui %[[REST]], %[[COUNT]]
// CHECK: %[[CHUNK:.*]] = arith.addi %[[FIRST]], %[[R]]
// CHECK: %[[COLUMN:.*]] = arith.divui %[[REST]], %[[COUNT]]
// CHECK: %[[I:.*]] = arith.muli %[[CHUNK]], %c64
// CHECK: %[[J:.*]] = arith.muli %[[COLUMN]], %c32
// CHECK: prefill.gemm {{.*}} tile(%[[I]], %[[J]])
func.func private @grouped(%x: tensor<?x64xf32>, %w: tensor<3x64x32x1xf32>, %batch: !prefill.batch) -> tensor<?x96xf32> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {prefill.group_m = 128 : i64, lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<3x64x32x1xf32> -> tensor<?x96xf32> epilogue {
  ^bb0(%acc: tensor<?x96xf32>):
    prefill.yield %acc : tensor<?x96xf32>
  }
  return %0 : tensor<?x96xf32>
}

// -----

func.func private @group_of_part_of_a_chunk(%x: tensor<?x64xf32>, %w: tensor<3x64x32x1xf32>, %batch: !prefill.batch) -> tensor<?x96xf32> attributes {prefill.kernel} {
  // expected-error @below {{has prefill.group_m = 96; expected a positive multiple of block_m = 64}}
  %0 = prefill.gemm %x, %w {prefill.group_m = 96 : i64, lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 32, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32>, tensor<3x64x32x1xf32> -> tensor<?x96xf32> epilogue {
  ^bb0(%acc: tensor<?x96xf32>):
    prefill.yield %acc : tensor<?x96xf32>
  }
  return %0 : tensor<?x96xf32>
}

// -----

// CHECK-LABEL: func private @embed(
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: memref<?x64xf32>)
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 8, plus_sequences = false, multiplier = 1>
// CHECK: memref.dim %[[OUT]]
// CHECK: scf.forall
// CHECK: prefill.rowwise tile(%{{.*}}) outs(%[[OUT]] : memref<?x64xf32>)
func.func private @embed(%batch: !prefill.batch, %table: tensor<10x64xf32>) -> tensor<?x64xf32> attributes {prefill.kernel} {
  %0 = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xf32> body {
    %1 = prefill.embed %batch, %table : tensor<10x64xf32> -> tensor<?x64xf32>
    prefill.yield %1 : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xf32>
}

// -----

func.func private @no_config(%x: tensor<?x64xf32>, %w: tensor<1x64x32x1xf32>, %batch: !prefill.batch) -> tensor<?x32xf32> attributes {prefill.kernel} {
  // expected-error @below {{'prefill.gemm' op has no lowering_config (run prefill-select-lowering-strategy)}}
  %0 = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<1x64x32x1xf32> -> tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    prefill.yield %acc : tensor<?x32xf32>
  }
  return %0 : tensor<?x32xf32>
}

// -----

// expected-error @below {{kernel empty holds no compute op that can be tiled}}
func.func private @empty(%batch: !prefill.batch) attributes {prefill.kernel} {
  return
}
