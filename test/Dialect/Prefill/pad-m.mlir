// RUN: prefill-opt %s --prefill-pad-m --split-input-file | FileCheck %s
// RUN: prefill-opt %s --prefill-pad-m=buckets=16,32 --split-input-file | FileCheck %s --check-prefix=GIVEN
// RUN: prefill-opt %s --prefill-pad-m=target=cuda:sm_80 --split-input-file | FileCheck %s --check-prefix=CUDA
// RUN: not prefill-opt %s --prefill-pad-m=buckets=8,4 --split-input-file 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: prefill-opt %s --prefill-pad-m --split-input-file --remarks-filter-analyse=prefill-padding --remark-policy=all -o %t 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: prefill-opt %s --prefill-pad-m=buckets=1,4,8 --split-input-file --remarks-filter-analyse=prefill-padding --remark-policy=all -o %t 2>&1 | FileCheck %s --check-prefix=REMARKS

// ORDER: error: prefill-pad-m: row buckets hold 4 after 8, expected increasing positive numbers

// REMARK: 1 to 1 rows are padded to 1: at most 0.00% of the rows are padding
// REMARK: 2 to 2 rows are padded to 2: at most 0.00% of the rows are padding
// REMARKS: 1 to 1 rows are padded to 1: at most 0.00% of the rows are padding
// REMARKS: 2 to 4 rows are padded to 4: at most 50.00% of the rows are padding
// REMARKS: 5 to 8 rows are padded to 8: at most 37.50% of the rows are padding
// REMARKS: 9 to 16 rows are padded to 16: at most 43.75% of the rows are padding

!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 128>
#config = #prefill.lowering_config<tokens, block_m = 32, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>
#attention = #prefill.lowering_config<tokens, block_m = 32, block_n = 32, block_kv = 64, panel_n = 0, row_buckets = [1]>


func.func @prefill(%batch: !prefill.batch, %cache: !cache, %x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> tensor<?x64xf32> {
  // CHECK: prefill.gemm {{.*}}row_buckets = [1]
  // GIVEN: prefill.gemm {{.*}}row_buckets = [16, 32]
  // CUDA: prefill.gemm {{.*}}row_buckets = [16, 32, 64, 128]
  %q = prefill.gemm %x, %w {lowering_config = #config} : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32> epilogue {
  ^bb0(%acc: tensor<?x64xf32>):
    prefill.yield %acc : tensor<?x64xf32>
  }
  // CHECK: prefill.attention {{.*}}block_kv = 64, panel_n = 0, row_buckets = [1]
  %o = prefill.attention %q, %cache, %batch {scale = 1.0, causal, lowering_config = #attention} : tensor<?x64xf32>, !cache -> tensor<?x64xf32>
  // CHECK: prefill.rowwise {{.*}}row_buckets = [1]
  %y = prefill.rowwise {lowering_config = #config} : tensor<?x64xf32> body {
    %0 = prefill.add %x, %o : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<?x64xf32>
    prefill.yield %0 : tensor<?x64xf32>
  }
  return %y : tensor<?x64xf32>
}
