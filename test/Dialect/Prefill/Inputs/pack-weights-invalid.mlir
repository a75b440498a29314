func.func @f(%x: tensor<?x64xf32>, %w: tensor<32x64xf32>) -> tensor<?x32xf32> {
  %0 = prefill.gemm %x, %w : tensor<?x64xf32>, tensor<32x64xf32> -> tensor<?x32xf32> epilogue {
  ^bb0(%acc: tensor<?x32xf32>):
    prefill.yield %acc : tensor<?x32xf32>
  }
  return %0 : tensor<?x32xf32>
}
