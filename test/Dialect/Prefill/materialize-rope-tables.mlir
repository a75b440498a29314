// RUN: prefill-opt %s --split-input-file --prefill-materialize-rope-tables --verify-diagnostics | FileCheck %s

// Equal ropes share a table, in a region or not; another rotary_dim is another table.
// CHECK-DAG: prefill.weight @[[A:rope_table.*]] : tensor<256x32xf32> = #prefill.rope_table<#{{.*}}, max_position = 256>
// CHECK-DAG: prefill.weight @[[B:rope_table.*]] : tensor<256x16xf32> = #prefill.rope_table<#{{.*}}, max_position = 256>
// CHECK-LABEL: func @f
// CHECK-DAG: %[[TA:.*]] = prefill.get_weight @{{.*}} : tensor<256x32xf32>
// CHECK-DAG: %[[TB:.*]] = prefill.get_weight @{{.*}} : tensor<256x16xf32>
// CHECK: prefill.gemm
// CHECK: prefill.rope %{{.*}}, %{{.*}} table(%[[TA]] : tensor<256x32xf32>)
// CHECK: prefill.rope %{{.*}}, %{{.*}} table(%[[TA]] : tensor<256x32xf32>)
// CHECK: prefill.rope %{{.*}}, %{{.*}} table(%[[TB]] : tensor<256x16xf32>)
#a = #prefill.rope<theta = 10000.0, rotary_dim = 32>
#b = #prefill.rope<theta = 10000.0, rotary_dim = 16>
module attributes {prefill.max_seq = 256 : i64} {
  prefill.weight @w : tensor<32x64xf32> = #prefill.checkpoint<"w">
  func.func @f(%x: tensor<?x64xf32>, %batch: !prefill.batch) -> (tensor<?x32xf32>, tensor<?x64xf32>, tensor<?x64xf32>) {
    %w = prefill.get_weight @w : tensor<32x64xf32>
    %0 = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<32x64xf32> -> tensor<?x32xf32> epilogue {
    ^bb0(%acc: tensor<?x32xf32>):
      %1 = prefill.rope %acc, %batch {rope = #a, head_dim = 32} : tensor<?x32xf32> -> tensor<?x32xf32>
      prefill.yield %1 : tensor<?x32xf32>
    }
    %2 = prefill.rope %x, %batch {rope = #a, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
    %3 = prefill.rope %x, %batch {rope = #b, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
    return %0, %2, %3 : tensor<?x32xf32>, tensor<?x64xf32>, tensor<?x64xf32>
  }
}

// -----

#a = #prefill.rope<theta = 10000.0, rotary_dim = 32>
// expected-error @below {{has no attribute prefill.max_seq, the number of positions (run prefill-specialize-model)}}
module {
  func.func @f(%x: tensor<?x64xf32>, %batch: !prefill.batch) -> tensor<?x64xf32> {
    %0 = prefill.rope %x, %batch {rope = #a, head_dim = 32} : tensor<?x64xf32> -> tensor<?x64xf32>
    return %0 : tensor<?x64xf32>
  }
}
