// RUN: prefill-opt %s --split-input-file --prefill-select-lowering-strategy | FileCheck %s
// RUN: prefill-opt %s --split-input-file --prefill-select-lowering-strategy=plain=true | FileCheck %s --check-prefix=PLAIN

// The tail is one rowwise; a tied lm_head reads all of the embedding; rows of the logits have a domain of their own.
module {
  prefill.weight @embed : tensor<131x64xbf16> = #prefill.checkpoint<"embed">
  prefill.weight @w : tensor<192x64xbf16> = #prefill.checkpoint<"w">
  prefill.weight @b : tensor<192xbf16> = #prefill.checkpoint<"b">
  prefill.weight @norm : tensor<192xbf16> = #prefill.checkpoint<"norm">
  prefill.weight @head : tensor<131x192xbf16> = #prefill.checkpoint<"head">
  // CHECK-LABEL: func @tail
  func.func @tail(%batch: !prefill.batch) -> tensor<?x131xf32> {
    %e = prefill.get_weight @embed : tensor<131x64xbf16>
    // CHECK: prefill.rowwise {lowering_config = #prefill.lowering_config<tokens, block_m = 8, block_n = 64, block_kv = 0, panel_n = 32, row_buckets = [1]>, prefill.name = "embed"}
    // CHECK-NEXT: prefill.embed
    %x = prefill.embed %batch, %e : tensor<131x64xbf16> -> tensor<?x64xbf16>
    %w = prefill.get_weight @w : tensor<192x64xbf16>
    %b = prefill.get_weight @b : tensor<192xbf16>
    // 128 doesn't divide 192.
    // CHECK: prefill.gemm {{.*}}<tokens, block_m = 256, block_n = 96, {{.*}}prefill.name = "o_proj"
    // CHECK: prefill.bias_add
    // PLAIN: prefill.gemm {{.*}}<tokens, block_m = 8, block_n = 32,
    %y = prefill.linear %x, %w bias(%b : tensor<192xbf16>) {prefill.name = "o_proj"} : tensor<?x64xbf16>, tensor<192x64xbf16> -> tensor<?x192xbf16>
    // CHECK: %[[N:.*]] = prefill.rowwise {lowering_config = #prefill.lowering_config<logits, {{.*}}prefill.name = "final_norm"
    // CHECK-NEXT: prefill.select_rows
    // CHECK-NEXT: prefill.rms_norm
    // PLAIN: prefill.name = "select_rows"
    // PLAIN: prefill.name = "rms_norm"
    %r = prefill.select_rows %y, %batch : tensor<?x192xbf16> -> tensor<?x192xbf16>
    %g = prefill.get_weight @norm : tensor<192xbf16>
    %n = prefill.rms_norm %r, %g {eps = 1.0e-5} : tensor<?x192xbf16>, tensor<192xbf16> -> tensor<?x192xbf16>
    %h = prefill.get_weight @head : tensor<131x192xbf16>
    // 131 columns are padded to 160, which only 32 divides.
    // CHECK: prefill.gemm %[[N]], {{.*}}<logits, block_m = 256, block_n = 32, {{.*}}prefill.name = "lm_head"
    // CHECK-SAME: -> tensor<?x131xf32>
    %l = prefill.lm_head %n, %h : tensor<?x192xbf16>, tensor<131x192xbf16> -> tensor<?x131xf32>
    return %l : tensor<?x131xf32>
  }
}

// -----

// A row_sumsq has a partial for each tile, whoever produces it: 160 columns are five tiles of 32.
module {
  // CHECK-LABEL: func @partials
  // CHECK: prefill.gemm {{.*}}block_n = 32, {{.*}} -> tensor<?x160xf32>, tensor<?x5xf32>
  // CHECK: prefill.row_sumsq {{.*}} -> tensor<?x5xf32>
  // CHECK: prefill.rowwise {{.*}}block_n = 32, {{.*}} : tensor<?x5xf32>
  // CHECK: return %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x160xf32>, tensor<?x5xf32>, tensor<?x5xf32>
  func.func @partials(%x: tensor<?x32xf32>, %w: tensor<160x32xf32>) -> (tensor<?x160xf32>, tensor<?x5xf32>, tensor<?x5xf32>) {
    %y:2 = prefill.gemm %x, %w : tensor<?x32xf32>, tensor<160x32xf32> -> tensor<?x160xf32>, tensor<?x5xf32> epilogue {
    ^bb0(%acc: tensor<?x160xf32>):
      %s = prefill.row_sumsq %acc : tensor<?x160xf32> -> tensor<?x5xf32>
      prefill.yield %acc, %s : tensor<?x160xf32>, tensor<?x5xf32>
    }
    %s = prefill.row_sumsq %y#0 : tensor<?x160xf32> -> tensor<?x5xf32>
    return %y#0, %y#1, %s : tensor<?x160xf32>, tensor<?x5xf32>, tensor<?x5xf32>
  }
}

// -----

// Tiles hold whole heads of one part. Three query and one KV head of 40 columns: tiles of one head, padded to 64.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 40, head_dim_v = 40, dtype = f32, block_size = 64>
module {
  // CHECK-LABEL: func @heads
  // CHECK: prefill.gemm {{.*}}block_n = 40, {{.*}}prefill.group_n = 40
  // CHECK: prefill.attention {{.*}}lowering_config = #prefill.lowering_config<tokens, block_m = {{[0-9]+}}, block_n = 120, block_kv = {{[0-9]+}},
  func.func @heads(%x: tensor<?x32xf32>, %w: tensor<200x32xf32>, %batch: !prefill.batch, %cache: !cache) -> tensor<?x120xf32> {
    %q, %c = prefill.gemm %x, %w : tensor<?x32xf32>, tensor<200x32xf32> -> tensor<?x120xf32>, !cache epilogue {
    ^bb0(%acc: tensor<?x200xf32>):
      %0:3 = prefill.split %acc : tensor<?x200xf32> -> tensor<?x120xf32>, tensor<?x40xf32>, tensor<?x40xf32>
      %1 = prefill.kv_append %0#1, %0#2 into %cache, %batch : tensor<?x40xf32>, tensor<?x40xf32> into !cache
      prefill.yield %0#0, %1 : tensor<?x120xf32>, !cache
    }
    %o = prefill.attention %q, %c, %batch {scale = 1.0, causal} : tensor<?x120xf32>, !cache -> tensor<?x120xf32>
    return %o : tensor<?x120xf32>
  }
}

// -----

// Two heads of 64 fill a tile; runs of interleaved columns come in pairs.
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 64, head_dim_v = 64, dtype = f32, block_size = 64>
module {
  // CHECK-LABEL: func @wide
  // CHECK: prefill.gemm {{.*}}block_n = 128,
  // CHECK-NOT: prefill.group_n
  // CHECK: prefill.gemm {{.*}}block_n = 64, {{.*}}-> tensor<?x96xf32>
  func.func @wide(%x: tensor<?x32xf32>, %w: tensor<512x32xf32>, %g: tensor<192x32xf32>, %batch: !prefill.batch, %cache: !cache) -> (tensor<?x256xf32>, tensor<?x96xf32>) {
    %q, %c = prefill.gemm %x, %w : tensor<?x32xf32>, tensor<512x32xf32> -> tensor<?x256xf32>, !cache epilogue {
    ^bb0(%acc: tensor<?x512xf32>):
      %0:3 = prefill.split %acc : tensor<?x512xf32> -> tensor<?x256xf32>, tensor<?x128xf32>, tensor<?x128xf32>
      %1 = prefill.kv_append %0#1, %0#2 into %cache, %batch : tensor<?x128xf32>, tensor<?x128xf32> into !cache
      prefill.yield %0#0, %1 : tensor<?x256xf32>, !cache
    }
    %a = prefill.gemm %x, %g : tensor<?x32xf32>, tensor<192x32xf32> -> tensor<?x96xf32> epilogue {
    ^bb0(%acc: tensor<?x192xf32>):
      %0:2 = prefill.deinterleave %acc {granularity = 32} : tensor<?x192xf32> -> tensor<?x96xf32>, tensor<?x96xf32>
      %1 = prefill.gated_act silu %0#0, %0#1 : tensor<?x96xf32>, tensor<?x96xf32> -> tensor<?x96xf32>
      prefill.yield %1 : tensor<?x96xf32>
    }
    return %q, %a : tensor<?x256xf32>, tensor<?x96xf32>
  }
}
