// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512_vnni --prefill-verify-kernel | FileCheck %s --check-prefixes=CHECK,DOT,ZMM
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx_vnni --prefill-verify-kernel | FileCheck %s --check-prefixes=CHECK,DOT,YMM
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512 --prefill-verify-kernel | FileCheck %s --check-prefixes=CHECK,SPLIT
// Variants that multiply bf16 with their own instruction multiply integers like avx512_vnni.
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=avx512_bf16 --prefill-verify-kernel | FileCheck %s --check-prefixes=CHECK,DOT,ZMM
// RUN: prefill-opt %s --prefill-tile --prefill-convert-to-cpu-kernels=isa=amx_bf16 --prefill-verify-kernel | FileCheck %s --check-prefixes=CHECK,DOT,ZMM

// CHECK-LABEL: func private @o_proj(
// Few rows: a row more of zeros, 128 as unsigned, whose sums are what the columns' are too large by.
// DOT: arith.constant dense<-128>
// CHECK: scf.index_switch
// CHECK: case 1
// ZMM-COUNT-4: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"({{.*}}) : (vector<16xi32>, vector<64xi8>, vector<64xi8>)
// ZMM-NOT: vpdpbusd
// One row reads two panels side by side with 16 registers, then what is left of the tile.
// YMM-COUNT-16: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.256"({{.*}}) : (vector<8xi32>, vector<32xi8>, vector<32xi8>)
// YMM-NOT: vpdpbusd
// YMM: scf.yield
// YMM-COUNT-8: vpdpbusd.256
// YMM-NOT: vpdpbusd
// CHECK: case 2
// CHECK: } else {
// Many rows: the bias of the columns once for all of them, in four chains; then 8 x 2 sums (6 x 2 of 8 lanes), four steps
// an iteration.
// ZMM: scf.for {{.*}} -> (vector<16xi32>, {{.*}}) {
// ZMM-COUNT-8: vpdpbusd.512
// ZMM-NOT: vpdpbusd
// ZMM: scf.yield
// ZMM: scf.for {{.*}} -> (vector<16xi32>, {{.*}}) {
// ZMM-COUNT-64: vpdpbusd.512
// ZMM-NOT: vpdpbusd
// ZMM: scf.yield
// YMM: scf.for {{.*}} -> (vector<8xi32>, {{.*}}) {
// YMM-COUNT-16: vpdpbusd.256
// YMM-NOT: vpdpbusd
// YMM: scf.yield
// YMM: scf.for {{.*}} -> (vector<8xi32>, {{.*}}) {
// YMM-COUNT-48: vpdpbusd.256
// YMM-NOT: vpdpbusd
// YMM: scf.yield
// Without the instruction rows are copied as 16 bits and columns widened.
// SPLIT: arith.extsi {{.*}} : vector<32xi8> to vector<32xi16>
// SPLIT: scf.for {{.*}} -> (vector<16xi32>, {{.*}}) {
// SPLIT: arith.shli {{.*}} : vector<32xi16>
// SPLIT: arith.shrsi {{.*}} : vector<32xi16>
// SPLIT: llvm.call_intrinsic "llvm.x86.avx512.pmaddw.d.512"
// SPLIT-NOT: vpdpbusd
// The sums are f32 from here on.
// DOT: arith.subi {{.*}} : vector<{{16|8}}xi32>
// CHECK: arith.sitofp {{.*}} to vector<{{16|8}}xf32>
// CHECK: arith.mulf
// CHECK: return{{$}}
func.func private @o_proj(%x: tensor<?x64xi8>, %w: tensor<2x16x32x4xi8>, %batch: !prefill.batch, %r: tensor<?x1xf32>, %c: tensor<64xf32>) -> tensor<?x64xbf16> attributes {prefill.kernel} {
  %0 = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, block_m = 64, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xi8>, tensor<2x16x32x4xi8> -> tensor<?x64xbf16> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    %1 = prefill.dequantize %acc, %r, %c : tensor<?x64xf32>, tensor<?x1xf32>, tensor<64xf32> -> tensor<?x64xf32>
    prefill.yield %1 : tensor<?x64xf32>
  }
  return %0 : tensor<?x64xbf16>
}

// A row twice: for its largest magnitude, and for the integers, which 1.5 * 2^23 rounds (and 128 makes unsigned).
// CHECK-LABEL: func private @quantize(
// CHECK: arith.maxui
// CHECK: vector.reduction <maxui>
// CHECK: memref.store {{.*}} : memref<?x1xf32>
// DOT: arith.constant dense<0x4B400080> : vector<{{16|8}}xf32>
// SPLIT: arith.constant dense<0x4B400000> : vector<16xf32>
// CHECK: arith.addf
// CHECK: arith.trunci {{.*}} to vector<{{16|8}}xi8>
// CHECK: return{{$}}
func.func private @quantize(%x: tensor<?x64xbf16>, %batch: !prefill.batch) -> (tensor<?x64xi8>, tensor<?x1xf32>) attributes {prefill.kernel} {
  %0, %1 = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>} : tensor<?x64xi8>, tensor<?x1xf32> body {
    %q, %s = prefill.quantize_rows %x : tensor<?x64xbf16> -> tensor<?x64xi8>, tensor<?x1xf32>
    prefill.yield %q, %s : tensor<?x64xi8>, tensor<?x1xf32>
  }
  return %0, %1 : tensor<?x64xi8>, tensor<?x1xf32>
}
