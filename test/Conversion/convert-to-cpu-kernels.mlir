// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx2 | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512 | FileCheck %s --check-prefixes=CHECK,AVX512
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512_bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: not prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=sse2 2>&1 | FileCheck %s --check-prefix=ERR
// ERR: error: unknown isa 'sse2'; valid are avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx_bf16

// Bare pointers and sizes in the order of KernelABI.h, then the workgroup range and the thread's scratch.
// CHECK-LABEL: func private @o_proj(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<1xbf16>, %{{[a-z0-9]+}}: memref<1xbf16>, %[[ROWS:[a-z0-9]+]]: index, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index
// CHECK-SAME: memref<1xi32>, %{{[a-z0-9]+}}: memref<1xi32>, %{{[a-z0-9]+}}: memref<1xi64>, %{{[a-z0-9]+}}: memref<1xi32>, %{{[a-z0-9]+}}: memref<1xi32>, %{{[a-z0-9]+}}: memref<1xi32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: memref<1xi32>
// CHECK-SAME: memref<1xbf16>, %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index, %{{[a-z0-9]+}}: memref<1xi8>
// CHECK-SAME: prefill.grid = #prefill.grid<tokens, block = 64
// The tile of accumulators, a copy of the rows of one microkernel, without vdpbf16ps of all rows in f32, and on AVX-512
// without it of a tile's columns in f32.
// AVX2-SAME: prefill.kernel, prefill.scratch_bytes = 48384 : i64
// AVX512-SAME: prefill.kernel, prefill.scratch_bytes = 64000 : i64
// BF16-SAME: prefill.kernel, prefill.scratch_bytes = 26112 : i64
// CHECK-NOT: prefill.gemm
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]

// Few rows: one microkernel takes them all, from their copy; a tall one asks for the weight ahead of time.
// CHECK: scf.if
// CHECK: vector.store
// CHECK: scf.index_switch
// CHECK: case 1
// AVX512: memref.prefetch
// AVX512: case 2
// BF16: case 6
// BF16-NOT: memref.prefetch
// BF16: case 7
// BF16: memref.prefetch
// AVX2: case 6
// AVX512: case 8
// BF16: case 8
// CHECK: } else {

// The largest microkernel: 6 x 2 vectors of 8 lanes; 8 x 2 of 16. The loop carries them and what it asks for ahead.
// AVX2: memref.prefetch
// AVX2: scf.for {{.*}} -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>, index) {
// AVX2-NOT: vector<16xf32>
// Four steps of two k an iteration.
// AVX2-COUNT-96: vector.fma {{.*}} : vector<8xf32>
// AVX2-NOT: vector.fma
// AVX2: scf.yield
// Below 64 rows a step of two k splits pairs of columns; above, the columns are copied to f32 once for all rows.
// AVX512: %[[FEW:.*]] = arith.cmpi slt, %{{.*}}, %c64
// AVX512-NEXT: scf.if %[[FEW]] {
// AVX512: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// AVX512-COUNT-2: vector.load {{.*}} : memref<{{.*}}xbf16>, vector<32xbf16>
// AVX512-COUNT-128: vector.fma {{.*}} : vector<16xf32>
// AVX512-NOT: vector.fma
// AVX512: scf.yield
// AVX512: } else {
// AVX512: %[[PAIRS:.*]] = vector.load {{.*}} : memref<{{.*}}xbf16>, vector<32xbf16>
// AVX512: arith.shli
// AVX512: arith.andi
// AVX512-COUNT-2: vector.store {{.*}} : memref<4096xf32>, vector<16xf32>
// AVX512: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// AVX512-COUNT-2: vector.load {{.*}} : memref<4096xf32>, vector<16xf32>
// AVX512-COUNT-64: vector.fma {{.*}} : vector<16xf32>
// AVX512-NOT: vector.fma
// AVX512: scf.yield
// BF16: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// BF16-COUNT-16: x86vector.avx512.dot {{.*}} : vector<32xbf16> -> vector<16xf32>
// BF16-NOT: vector.fma
// BF16: scf.yield

// Without the instruction, rounding to bf16 is integer arithmetic: arith.truncf would call a library.
// AVX2-NOT: arith.truncf
// AVX512-NOT: arith.truncf
// BF16: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
// CHECK: return{{$}}
func.func private @o_proj(%x: tensor<?x64xbf16>, %w: tensor<2x32x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xbf16>, tensor<2x32x32x2xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xbf16>
}

// 18 steps of two k are no multiple of four: one an iteration. The 36 k of the copies are.
// CHECK-LABEL: func private @uneven(
// CHECK: case 1
// CHECK: } else {
// AVX2: scf.for {{.*}} -> (vector<8xf32>, {{.*}}) {
// AVX2-COUNT-24: vector.fma {{.*}} : vector<8xf32>
// AVX2-NOT: vector.fma
// AVX2: scf.yield
// AVX512: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// AVX512-COUNT-32: vector.fma {{.*}} : vector<16xf32>
// AVX512-NOT: vector.fma
// AVX512: scf.yield
// AVX512: } else {
// AVX512: scf.for {{.*}} -> (vector<16xf32>, {{.*}}) {
// AVX512-COUNT-64: vector.fma {{.*}} : vector<16xf32>
// AVX512-NOT: vector.fma
// AVX512: scf.yield
func.func private @uneven(%x: tensor<?x36xbf16>, %w: tensor<2x18x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x36xbf16>, tensor<2x18x32x2xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xbf16>
}
