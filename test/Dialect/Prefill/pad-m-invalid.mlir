// RUN: prefill-opt %s --prefill-pad-m --split-input-file --verify-diagnostics

func.func @no_config(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> tensor<?x64xf32> {
  // expected-error@+1 {{prefill.gemm has no lowering_config (run prefill-select-lowering-strategy first)}}
  %y = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  return %y : tensor<?x64xf32>
}

// -----

func.func @disagree(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  // expected-error@+1 {{prefill.rowwise has row_buckets [1, 16], but its producers and consumers get [1]}}
  %y = prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 32, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1, 16]>} : tensor<?x64xf32> body {
    %0 = prefill.scale %x {factor = 2.0} : tensor<?x64xf32> -> tensor<?x64xf32>
    prefill.yield %0 : tensor<?x64xf32>
  }
  return %y : tensor<?x64xf32>
}
