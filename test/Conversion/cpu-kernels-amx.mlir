// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=amx_bf16 --prefill-verify-kernel | FileCheck %s
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512_bf16 | FileCheck %s --check-prefix=NONE
// NONE-NOT: tdpbf16ps

// A K of whole tiles: all rows by tiles, a few as well, because vdpbf16ps adds up in another order.
// CHECK-LABEL: func private @whole_tiles(
// CHECK-NOT: x86vector.avx512.dot
// Few rows, sixteen of the input or their copy: two tiles of sums.
// CHECK: scf.for {{.*}} -> (!llvm.x86_amx, !llvm.x86_amx) {
// CHECK: llvm.call_intrinsic "llvm.x86.tileloadd64.internal"
// CHECK: llvm.call_intrinsic "llvm.x86.tileloaddt164.internal"
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"
// Thirty-two rows: four.
// CHECK: scf.for {{.*}} -> (!llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx, !llvm.x86_amx) {
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"
// CHECK-NOT: x86vector.avx512.dot
func.func private @whole_tiles(%x: tensor<?x64xbf16>, %w: tensor<2x32x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xbf16>, tensor<2x32x32x2xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xbf16>
}

// CHECK-LABEL: func private @cut_tile(
// CHECK-NOT: tdpbf16ps
// CHECK: x86vector.avx512.dot
// CHECK-NOT: tdpbf16ps
// CHECK: return{{$}}
func.func private @cut_tile(%x: tensor<?x34xbf16>, %w: tensor<2x17x32x2xbf16>, %batch: !prefill.batch) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x34xbf16>, tensor<2x17x32x2xbf16> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xbf16>
}
