// RUN: prefill-opt %s --prefill-select-lowering-strategy=target=cuda:sm_80 | FileCheck %s
// RUN: prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 rows=1" | FileCheck %s --check-prefix=FEW
// RUN: prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 plain=true" | FileCheck %s --check-prefix=PLAIN
// RUN: prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 gemm-block-m=32 gemm-block-n=200 attention-block-kv=32" | FileCheck %s --check-prefix=GIVEN
// RUN: prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 gemm-tiles=bf16/1024x1024:64x128,bf16/4x1024x1024:16x128 attention-tiles=bf16/g2/d128:32x64 rows=3" | FileCheck %s --check-prefix=TILES
// RUN: not prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 gemm-block-m=80" 2>&1 | FileCheck %s --check-prefix=HEIGHT
// RUN: not prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 gemm-tiles=bf16/1024:64x128" 2>&1 | FileCheck %s --check-prefix=GEMM
// RUN: not prefill-opt %s --prefill-select-lowering-strategy="target=cuda:sm_80 attention-tiles=bf16/d128:64x128" 2>&1 | FileCheck %s --check-prefix=ATTENTION
// RUN: not prefill-opt %s --prefill-select-lowering-strategy=target=cuda:sm_75 2>&1 | FileCheck %s --check-prefix=CHIP

// HEIGHT: error: 'prefill.gemm' op is given a height of 80, expected one of 128, 64, 32, 16
// GEMM: error: prefill-select-lowering-strategy: gemm-tiles is 'bf16/1024:64x128', expected DTYPE/[ROWSx]NxK:BLOCK_MxBLOCK_N
// ATTENTION: error: prefill-select-lowering-strategy: attention-tiles is 'bf16/d128:64x128', expected DTYPE/gGROUP/dHEAD_DIM[/sROWS]:BLOCK_QxBLOCK_KV
// CHIP: error: unknown target 'cuda:sm_75'; valid are cpu, cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90

!cache = !prefill.kv_cache<paged_nhd, num_kv_heads = 2, head_dim_qk = 128, head_dim_v = 128, dtype = bf16, block_size = 16>

// A row a warp; a sum of squares for each tile of 256 columns.
// CHECK-LABEL: func @embed
// CHECK: prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 4, block_n = 256, block_kv = 0, panel_n = 1, row_buckets = [1]>
// CHECK-SAME: tensor<?x4xf32>
// PLAIN-LABEL: func @embed
// PLAIN: prefill.rowwise {{.*}}<tokens, block_m = 1, block_n = 256,
func.func @embed(%batch: !prefill.batch, %e: tensor<131x1024xbf16>) -> tensor<?x1024xbf16> {
  %0:2 = prefill.rowwise : tensor<?x1024xbf16>, tensor<?x1xf32> body {
    %1 = prefill.embed %batch, %e : tensor<131x1024xbf16> -> tensor<?x1024xbf16>
    %2 = prefill.row_sumsq %1 : tensor<?x1024xbf16> -> tensor<?x1xf32>
    prefill.yield %1, %2 : tensor<?x1024xbf16>, tensor<?x1xf32>
  }
  return %0#0 : tensor<?x1024xbf16>
}

// Weights stay as they are. Tiles cut neither heads nor parts: 256 columns are all of K. Many rows take high tiles, few
// low ones; groups of rows keep a wave's tiles near a square.
// CHECK-LABEL: func @qkv
// CHECK: prefill.gemm %{{.*}}, %{{.*}} {lowering_config = #prefill.lowering_config<tokens, block_m = {{128|64}}, block_n = {{128|256}}, {{.*}}prefill.group_m = {{[0-9]+}}
// CHECK-SAME: tensor<1024x1024xbf16>
// FEW-LABEL: func @qkv
// FEW: prefill.gemm {{.*}}<tokens, block_m = 16,
// GIVEN-LABEL: func @qkv
// GIVEN: prefill.gemm {{.*}}<tokens, block_m = 32, block_n = 128,
// TILES-LABEL: func @qkv
// TILES: prefill.gemm {{.*}}<tokens, block_m = 16, block_n = 128,
// PLAIN-LABEL: func @qkv
// PLAIN: prefill.gemm {{.*}}<tokens, block_m = 16, block_n = 128,
// PLAIN-NOT: prefill.group_m
func.func @qkv(%x: tensor<?x1024xbf16>, %w: tensor<1024x1024xbf16>, %cache: !cache, %batch: !prefill.batch) -> (tensor<?x512xbf16>, !cache) {
  %0, %1 = prefill.gemm %x, %w : tensor<?x1024xbf16>, tensor<1024x1024xbf16> -> tensor<?x512xbf16>, !cache epilogue {
  ^bb0(%acc: tensor<?x1024xf32>):
    %q, %k, %v = prefill.split %acc : tensor<?x1024xf32> -> tensor<?x512xf32>, tensor<?x256xf32>, tensor<?x256xf32>
    %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x256xf32>, tensor<?x256xf32> into !cache
    prefill.yield %q, %c : tensor<?x512xf32>, !cache
  }
  return %0, %1 : tensor<?x512xbf16>, !cache
}

// Logits are asked for a few rows, whatever the prompt's length.
// CHECK-LABEL: func @head
// CHECK: prefill.gemm {{.*}}<logits, block_m = 16,
func.func @head(%x: tensor<?x1024xbf16>, %w: tensor<32003x1024xbf16>, %batch: !prefill.batch) -> tensor<?x32003xf32> {
  %r = prefill.select_rows %x, %batch : tensor<?x1024xbf16> -> tensor<?x1024xbf16>
  %l = prefill.lm_head %r, %w : tensor<?x1024xbf16>, tensor<32003x1024xbf16> -> tensor<?x32003xf32>
  return %l : tensor<?x32003xf32>
}

// Columns of an attention tile are the query heads of a KV head.
// CHECK-LABEL: func @attention
// GIVEN-LABEL: func @attention
// GIVEN: prefill.attention {{.*}}block_n = 256, block_kv = 32, panel_n = 1
// TILES-LABEL: func @attention
// TILES: prefill.attention {{.*}}block_m = 32, block_n = 256, block_kv = 64, panel_n = 1
// CHECK: prefill.attention {{.*}}block_n = 256, block_kv = {{[0-9]+}}, panel_n = 1
func.func @attention(%q: tensor<?x512xbf16>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x512xbf16> {
  %0 = prefill.attention %q, %cache, %batch {scale = 1.0, causal} : tensor<?x512xbf16>, !cache -> tensor<?x512xbf16>
  return %0 : tensor<?x512xbf16>
}
