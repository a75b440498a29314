// RUN: prefill-opt %s --split-input-file --prefill-pack-weights | FileCheck %s
// RUN: not prefill-opt %S/Inputs/pack-weights-invalid.mlir --prefill-pack-weights 2>&1 | FileCheck %s --check-prefix=ERR
// ERR: error: 'prefill.gemm' op has a weight that is no prefill.get_weight; only weights can be packed

// Pairs of k for bf16; rows of a group padded to whole panels. A weight that another op reads too stays as it is.
// CHECK: prefill.weight @w : tensor<131x64xbf16> = #prefill.checkpoint<"w">
// CHECK-NEXT: prefill.weight @w.packed : tensor<5x32x32x2xbf16> = #prefill.pack<@w, panel_n = 32, k_pack = 2, group_n = 131>
// CHECK: prefill.weight @qkv.packed : tensor<6x64x32x1xf32> = #prefill.pack<@qkv, panel_n = 32, k_pack = 1, group_n = 40>
// CHECK-LABEL: func @f
// CHECK: %[[W:.*]] = prefill.get_weight @w : tensor<131x64xbf16>
// CHECK: prefill.embed %{{.*}}, %[[W]]
// CHECK: %[[P:.*]] = prefill.get_weight @w.packed
// CHECK: prefill.gemm %{{.*}}, %[[P]]
// CHECK-NOT: prefill.get_weight @qkv :
// CHECK: %[[Q:.*]] = prefill.get_weight @qkv.packed
// CHECK: prefill.gemm %{{.*}}, %[[Q]] {prefill.group_n = 40 : i64}
prefill.weight @w : tensor<131x64xbf16> = #prefill.checkpoint<"w">
prefill.weight @qkv : tensor<120x64xf32> = #prefill.checkpoint<"qkv">
func.func @f(%batch: !prefill.batch, %y: tensor<?x64xf32>) -> (tensor<?x131xf32>, tensor<?x120xf32>) {
  %w = prefill.get_weight @w : tensor<131x64xbf16>
  %x = prefill.embed %batch, %w : tensor<131x64xbf16> -> tensor<?x64xbf16>
  %0 = prefill.gemm %x, %w : tensor<?x64xbf16>, tensor<131x64xbf16> -> tensor<?x131xf32> epilogue {
  ^bb0(%acc: tensor<?x131xf32>):
    prefill.yield %acc : tensor<?x131xf32>
  }
  %qkv = prefill.get_weight @qkv : tensor<120x64xf32>
  %1 = prefill.gemm %y, %qkv {prefill.group_n = 40 : i64} : tensor<?x64xf32>, tensor<120x64xf32> -> tensor<?x120xf32> epilogue {
  ^bb0(%acc: tensor<?x120xf32>):
    prefill.yield %acc : tensor<?x120xf32>
  }
  return %0, %1 : tensor<?x131xf32>, tensor<?x120xf32>
}

// -----

// Fours of k for 8-bit integers.
// CHECK: prefill.weight @w.int8.packed : tensor<2x17x32x4xi8> = #prefill.pack<@w.int8, panel_n = 32, k_pack = 4, group_n = 40>
prefill.weight @w : tensor<40x66xbf16> = #prefill.checkpoint<"w">
prefill.weight @w.int8 : tensor<40x66xi8> = #prefill.quantize<@w>
// CHECK-LABEL: func @integers
func.func @integers(%x: tensor<?x66xi8>) -> tensor<?x40xf32> {
  %w = prefill.get_weight @w.int8 : tensor<40x66xi8>
  // CHECK: prefill.gemm %arg0, %w.int8.packed : tensor<?x66xi8>, tensor<2x17x32x4xi8>
  %0 = prefill.gemm %x, %w : tensor<?x66xi8>, tensor<40x66xi8> -> tensor<?x40xf32> epilogue {
  ^bb0(%acc: tensor<?x40xf32>):
    prefill.yield %acc : tensor<?x40xf32>
  }
  return %0 : tensor<?x40xf32>
}
