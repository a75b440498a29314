// RUN: prefill-opt %s --pass-pipeline='builtin.module(func.func(prefill-convert-attention-to-online),prefill-tile,func.func(prefill-specialize-causal-blocks),canonicalize,prefill-convert-to-cpu-kernels{isa=avx2},canonicalize,prefill-verify-kernel)' | FileCheck %s --implicit-check-not=x86vector

// What 16 registers and a processor's own prefetcher ask for: see docs/performance.md, "Where the CPU has AVX2 alone".
// CHECK-LABEL: func private @o_proj(
// CHECK: scf.index_switch
// One row reads four panels side by side, two rows two: 16 sums, and no line is asked for ahead.
// CHECK: case 1 {
// CHECK-NOT: memref.prefetch
// CHECK: scf.for %{{.*}} = %c0 to %c8 step %c4 {
// CHECK: %{{.*}}:16 = scf.for
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// CHECK-NOT: memref.prefetch
// CHECK: case 2 {
// CHECK: scf.for %{{.*}} = %c0 to %c8 step %c2 {
// CHECK: %{{.*}}:16 = scf.for
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// CHECK-NOT: memref.prefetch
// More rows take half of a panel, in one loop over both halves that has the code once, and ask for the next panel.
// CHECK: case 3 {
// CHECK: scf.for %{{.*}} = %c0 to %c8 step %c1 {
// CHECK: scf.for %{{.*}} = %c0 to %c32 step %c16 {
// CHECK: %{{.*}}:7 = scf.for
// CHECK-NEXT: memref.prefetch
// CHECK-COUNT-12: vector.fma
// CHECK-NOT: vector.fma
// CHECK: case 4 {
// Many rows: 6 x 2 sums over half of a panel, four steps an iteration, of which two ask for a line.
// CHECK: default {
// CHECK: scf.for %{{.*}} step %c6 {
// CHECK: scf.for %{{.*}} = %c0 to %c32 step %c16 {
// CHECK: %{{.*}}:13 = scf.for %{{.*}} = %c0 to %c32 step %c4
// CHECK-NEXT: memref.prefetch
// CHECK-COUNT-48: vector.fma
// CHECK-NOT: vector.fma
// CHECK: memref.prefetch
// CHECK-NOT: memref.prefetch
// CHECK-COUNT-48: vector.fma
// CHECK-NOT: vector.fma
// CHECK: scf.yield
// CHECK: return{{$}}
func.func private @o_proj(%x: tensor<?x64xbf16>, %w: tensor<8x32x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x256xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 256, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xbf16>, tensor<8x32x32x2xbf16> -> tensor<?x256xbf16> epilogue {
  ^bb0(%acc: tensor<?x256xf32>):
    prefill.yield %acc : tensor<?x256xf32>
  }
  return %0 : tensor<?x256xbf16>
}

// Attention takes 6 rows, then 4, then single ones, and half of a panel's keys at a time in both products.
// CHECK-LABEL: func private @attention(
// CHECK: scf.for %{{.*}} step %c6 {
// CHECK: scf.for %{{.*}} = %c0 to %c32 step %c16 iter_args(
// CHECK: %{{.*}}:12 = scf.for
// CHECK-COUNT-24: vector.fma
// CHECK-NOT: vector.fma
// CHECK: scf.yield
// CHECK: scf.for %{{.*}} = %c0 to %c32 step %c16 {
// CHECK: scf.for %{{.*}} step %c4 {
// CHECK: %{{.*}}:8 = scf.for
// CHECK: scf.for %{{.*}} step %c1 {
// CHECK: return{{$}}
!cache = !prefill.kv_cache<paged_vnni, num_kv_heads = 1, head_dim_qk = 64, head_dim_v = 64, dtype = bf16, block_size = 32>
func.func private @attention(%q: tensor<?x256xbf16>, %cache: !cache, %batch: !prefill.batch) -> tensor<?x256xbf16> attributes {prefill.kernel} {
  %0 = prefill.attention %q, %cache, %batch {base2, causal, scale = 1.0, lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 128, panel_n = 32, row_buckets = [1]>} : tensor<?x256xbf16>, !cache -> tensor<?x256xbf16>
  return %0 : tensor<?x256xbf16>
}
