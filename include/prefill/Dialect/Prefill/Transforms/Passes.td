// Graph passes, prefill to prefill. Order and stages are in lib/Pipelines/Pipelines.cpp.
#ifndef PREFILL_TRANSFORMS_PASSES_TD
#define PREFILL_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

//===-- What a module is compiled for, and the plan -------------------------------------------------------------===//

def SpecializeModelPass : Pass<"prefill-specialize-model", "::mlir::ModuleOp"> {
  let summary = "sets the dtype, the KV layout and the maximum length that the module is compiled for";
  let description = [{
    Rewrites the element type of weights and activations (not of the logits, which stay f32) and every kv_cache type, and
    sets the module attribute `prefill.max_seq`.

    ```mlir
    // before: imported as bf16, contiguous
    !prefill.kv_cache<contiguous, num_kv_heads = 2, head_dim_qk = 32, head_dim_v = 32, dtype = bf16, block_size = 4096>
    // after --prefill-specialize-model="dtype=f32 kv-layout=paged_nhd block-size=16"
    !prefill.kv_cache<paged_nhd, num_kv_heads = 2, head_dim_qk = 32, head_dim_v = 32, dtype = f32, block_size = 16>
    ```
  }];
  let options = [
    Option<"dtype", "dtype", "std::string", "\"\"", "f32, bf16 or f16; empty keeps the model's">,
    Option<"kvLayout", "kv-layout", "std::string", "\"contiguous\"", "contiguous, head_major, paged_nhd or paged_vnni">,
    Option<"blockSize", "block-size", "int64_t", "16", "tokens a block of paged_nhd">,
    Option<"maxSeq", "max-seq", "int64_t", "0", "maximum sequence length; 0: the lesser of 4096 and the model's maximum">
  ];
  let statistics = [Statistic<"numCaches", "caches", "KV caches whose type was set">];
}

def OutlineKernelsPass : Pass<"prefill-outline-kernels", "::mlir::ModuleOp"> {
  let summary = "moves every compute op of the entry function into a kernel function; equal kernels are one";
  let description = [{
    ```mlir
    // before
    %0 = prefill.attention %q, %cache, %batch {...}
    // after
    %0 = prefill.launch @attention(%q, %cache, %batch) : ...
    func.func private @attention(%query: ..., %cache: ..., %batch: ...) -> ... attributes {prefill.kernel}
    ```
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let statistics = [
    Statistic<"numLaunches", "launches", "launches in the plan">,
    Statistic<"numKernels", "kernels", "different kernels">
  ];
}

//===-- Model to fused, in pipeline order; what a pass leaves alone gets prefill.not_folded = "reason" ----------===//

class Prefill_FoldPass<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
}

def FoldScalePass : Prefill_FoldPass<"prefill-fold-scale"> {
  let summary = "move attention's scale times log2(e) into the query, so that the softmax uses exp2";
  let description = [{
    ```mlir
    %o = prefill.attention %q, %c, %batch {scale = 0.125, causal} : ...
    ```
    becomes
    ```mlir
    %s = prefill.scale %q {factor = 0.18033688011112042} : ...
    %o = prefill.attention %s, %c, %batch {scale = 1.0, causal, base2} : ...
    ```
    Attention with a softcap stays as it is: tanh needs the logits before the factor.
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of attention ops whose scale moved into the query">,
    Statistic<"numNotFolded", "num-not-folded", "Number of attention ops that keep their scale">
  ];
}

def HoistRowSelectionPass : Prefill_FoldPass<"prefill-hoist-row-selection"> {
  let summary = "compute only the rows whose logits are asked for, from the last attention on";
  let description = [{
    Moves select_rows in front of ops that compute a row from that row alone, as long as nobody reads their other rows. In a
    decoder that is all of the last layer behind its keys and values:
    ```mlir
    %a = prefill.attention %q, %c, %batch {...} : ...
    %o = prefill.linear %a, %wo : ...
    %x1 = prefill.add %x0, %o : ...
    ... // norm, gate and up projection, activation, down projection, add
    %r = prefill.select_rows %x2, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    ```
    becomes
    ```mlir
    %r0 = prefill.select_rows %x0, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    %a = prefill.attention %q, %c, %batch {selected_rows, ...} : ...
    %o = prefill.linear %a, %wo : ...
    %x1 = prefill.add %r0, %o : ...
    ...
    ```
    so that o_proj and the feed-forward of the last layer have the logits' rows, and attention skips the others. %r0 goes
    into the epilogue of the add (fold-residual-into-epilogue).
  }];
  let statistics = [
    Statistic<"numMoved", "num-moved", "Number of ops that compute selected rows only">,
    Statistic<"numSelections", "num-selections", "Number of select_rows in front of them">
  ];
}

def FuseQKVProjectionPass : Prefill_FoldPass<"prefill-fuse-qkv-projection"> {
  let summary = "compute query, key and value of a layer in one GEMM on concatenated weights";
  let description = [{
    Three linears on one input that feed one attention and its kv_append, for any number of KV heads:
    ```mlir
    %q = prefill.linear %x, %wq : tensor<?x64xbf16>, tensor<64x64xbf16> -> tensor<?x64xbf16>
    %k = prefill.linear %x, %wk : tensor<?x64xbf16>, tensor<32x64xbf16> -> tensor<?x32xbf16>
    %v = prefill.linear %x, %wv : tensor<?x64xbf16>, tensor<32x64xbf16> -> tensor<?x32xbf16>
    ```
    become
    ```mlir
    prefill.weight @qkv_proj : tensor<128x64xbf16> = #prefill.concat<[@q_proj, @k_proj, @v_proj]>
    %q, %k, %v = prefill.gemm %x, %w {prefill.name = "qkv_proj"} : ... epilogue {
    ^bb0(%acc: tensor<?x128xf32>):
      %0:3 = prefill.split %acc : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
      prefill.yield %0#0, %0#1, %0#2 : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
    }
    ```
    Biases are concatenated and added before the split; if only some projections have one, it is added to their part.
  }];
  let statistics = [
    Statistic<"numFused", "num-fused", "Number of QKV projections fused">,
    Statistic<"numNotFused", "num-not-fused", "Number of attention ops whose projections stay apart">
  ];
}

def FuseGateUpPass : Prefill_FoldPass<"prefill-fuse-gate-up"> {
  let summary = "compute gate and up projection in one GEMM with interleaved columns";
  let description = [{
    ```mlir
    %g = prefill.linear %x, %wg : tensor<?x64xbf16>, tensor<192x64xbf16> -> tensor<?x192xbf16>
    %u = prefill.linear %x, %wu : tensor<?x64xbf16>, tensor<192x64xbf16> -> tensor<?x192xbf16>
    ```
    become
    ```mlir
    prefill.weight @gate_up_proj : tensor<384x64xbf16> = #prefill.interleave<@gate_proj, @up_proj, granularity = 32>
    %g, %u = prefill.gemm %x, %w {prefill.name = "gate_up_proj"} : ... epilogue {
    ^bb0(%acc: tensor<?x384xf32>):
      %0:2 = prefill.deinterleave %acc {granularity = 32} : tensor<?x384xf32> -> tensor<?x192xf32>, tensor<?x192xf32>
      prefill.yield %0#0, %0#1 : tensor<?x192xf32>, tensor<?x192xf32>
    }
    ```
    so that gate and up of one column lie in one tile.
  }];
  let options = [
    Option<"granularity", "granularity", "int64_t", "32", "Columns of a run; a tile is a multiple of two runs">
  ];
  let statistics = [
    Statistic<"numFused", "num-fused", "Number of gate-up projections fused">,
    Statistic<"numNotFused", "num-not-fused", "Number of gated activations whose projections stay apart">
  ];
}

def FoldNormPass : Prefill_FoldPass<"prefill-fold-norm"> {
  let summary = "fold an RMSNorm's gain into the weights that follow and its 1/rms into their epilogues";
  let description = [{
    ```mlir
    %n = prefill.rms_norm %x, %gain {eps = 1.0e-5} : ...
    %y = prefill.linear %n, %w : ...
    ```
    becomes
    ```mlir
    prefill.weight @w.gain_folded : tensor<64x64xbf16> = #prefill.scale_columns<@w, gain = @gain>
    %s = prefill.row_sumsq %x : tensor<?x64xbf16> -> tensor<?x1xf32>
    %y = prefill.gemm %x, %w.gain_folded : ... epilogue {
    ^bb0(%acc: tensor<?x64xf32>):
      %0 = prefill.row_rms_scale %acc, %s {eps = 1.0e-5, channels = 64} : ...
      prefill.yield %0 : tensor<?x64xf32>
    }
    ```
    The sum stands by the producer of %x. Norms of heads are left to fold-kv-append-into-epilogue; the norm before lm_head,
    before a weight that is tied to the embedding, and norms with other users stay.
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of norms folded">,
    Statistic<"numNotFolded", "num-not-folded", "Number of norms over full rows that stay">
  ];
}

def FoldKVAppendIntoEpiloguePass : Prefill_FoldPass<"prefill-fold-kv-append-into-epilogue"> {
  let summary = "move QK-norm, RoPE, the query's scale and kv_append into the epilogue of the GEMM before them";
  let description = [{
    ```mlir
    %q, %k, %v = prefill.gemm %x, %w : ... epilogue { ... prefill.yield %q0, %k0, %v0 : ... }
    %qr = prefill.rope %q, %batch {...} : ...
    %kr = prefill.rope %k, %batch {...} : ...
    %c1 = prefill.kv_append %kr, %v into %c0, %batch : ...
    ```
    becomes
    ```mlir
    %qr, %c1 = prefill.gemm %x, %w : ... epilogue {
      ...
      %1 = prefill.rope %q0, %batch {...} : tensor<?x64xf32> -> tensor<?x64xf32>
      %2 = prefill.rope %k0, %batch {...} : tensor<?x32xf32> -> tensor<?x32xf32>
      %3 = prefill.kv_append %2, %v0 into %c0, %batch : ...
      prefill.yield %1, %3 : ...
    }
    ```
    in f32, rounded where stored. Refused when a tile of whole heads would straddle the parts of the accumulator.
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of ops moved into an epilogue">,
    Statistic<"numNotFolded", "num-not-folded", "Number of ops that stay">
  ];
}

def FoldResidualIntoEpiloguePass : Prefill_FoldPass<"prefill-fold-residual-into-epilogue"> {
  let summary = "move the residual add and the next norm's row sums into the GEMM that makes the branch";
  let description = [{
    ```mlir
    %y = prefill.linear %a, %w : ...
    %x1 = prefill.add %x0, %y : tensor<?x64xbf16>, tensor<?x64xbf16> -> tensor<?x64xbf16>
    %s = prefill.row_sumsq %x1 : tensor<?x64xbf16> -> tensor<?x1xf32>
    ```
    becomes
    ```mlir
    %x1, %s = prefill.gemm %a, %w : ... epilogue {
    ^bb0(%acc: tensor<?x64xf32>):
      %0 = prefill.add %x0, %acc : tensor<?x64xbf16>, tensor<?x64xf32> -> tensor<?x64xbf16>
      %1 = prefill.row_sumsq %0 : tensor<?x64xbf16> -> tensor<?x1xf32>
      prefill.yield %0, %1 : tensor<?x64xbf16>, tensor<?x1xf32>
    }
    ```
    The sum is taken from the value as stored. The embedding becomes `prefill.rowwise {embed; row_sumsq}` likewise. A
    select_rows of %x0 moves into the region too.
  }];
  let statistics = [
    Statistic<"numAddsFolded", "num-adds-folded", "Number of residual adds moved into an epilogue">,
    Statistic<"numSelectionsFolded", "num-selections-folded", "Number of select_rows moved into an epilogue">,
    Statistic<"numSumsFolded", "num-sums-folded", "Number of row sums moved to the producer of the row">,
    Statistic<"numNotFolded", "num-not-folded", "Number of adds and row sums that stay">
  ];
}

def FoldActivationIntoEpiloguePass : Prefill_FoldPass<"prefill-fold-activation-into-epilogue"> {
  let summary = "move the gated activation into the epilogue of the gate-up GEMM";
  let description = [{
    ```mlir
    %g, %u = prefill.gemm %x, %w : ... epilogue { ... prefill.yield %0#0, %0#1 : ... }
    %a = prefill.gated_act silu %g, %u : ...
    ```
    becomes
    ```mlir
    %a = prefill.gemm %x, %w : ... epilogue {
      ...
      %1 = prefill.gated_act silu %0#0, %0#1 : tensor<?x192xf32>, tensor<?x192xf32> -> tensor<?x192xf32>
      prefill.yield %1 : tensor<?x192xf32>
    }
    ```
    Only where gate and up are interleaved: then both lie in one tile.
  }];
  let statistics = [
    Statistic<"numFolded", "num-folded", "Number of activations moved into an epilogue">,
    Statistic<"numNotFolded", "num-not-folded", "Number of activations that stay">
  ];
}

def QuantizeWeightsPass : Prefill_FoldPass<"prefill-quantize-weights"> {
  let summary = "make the projections of the decoder layers products of 8-bit integers";
  let description = [{
    A projection's weight becomes 8-bit integers with a scale for each output channel, made once at load time; its input is
    quantized row by row by a kernel of its own, `quantize_rows`, which takes in a norm that only such projections read.
    Projections that share an input share its integers. The scales are applied to the sums, first of all in the epilogue.
    The LM head keeps its weight.

    ```mlir
    %h = prefill.rms_norm %x, %gain {eps = 1.0e-05 : f64} : ...
    %y = prefill.gemm %h, %w {prefill.name = "qkv_proj"} : tensor<?x64xbf16>, tensor<128x64xbf16> -> ... epilogue {
    ^bb0(%acc: tensor<?x128xf32>):
      ...
    ```
    becomes
    ```mlir
    prefill.weight @qkv_proj.int8 : tensor<128x64xi8> = #prefill.quantize<@qkv_proj>
    prefill.weight @qkv_proj.scale : tensor<128xf32> = #prefill.quantize_scale<@qkv_proj>
    %q, %s = prefill.rowwise {prefill.name = "quantize_qkv_proj"} : tensor<?x64xi8>, tensor<?x1xf32> body {
      %h = prefill.rms_norm %x, %gain {eps = 1.0e-05 : f64} : tensor<?x64xbf16>, tensor<64xbf16> -> tensor<?x64xf32>
      %0, %1 = prefill.quantize_rows %h : tensor<?x64xf32> -> tensor<?x64xi8>, tensor<?x1xf32>
      prefill.yield %0, %1 : tensor<?x64xi8>, tensor<?x1xf32>
    }
    %y = prefill.gemm %q, %w {prefill.name = "qkv_proj"} : tensor<?x64xi8>, tensor<128x64xi8> -> ... epilogue {
    ^bb0(%acc: tensor<?x128xf32>):
      %2 = prefill.dequantize %acc, %s, %scale : tensor<?x128xf32>, tensor<?x1xf32>, tensor<128xf32> -> tensor<?x128xf32>
      ...
    ```
  }];
  let statistics = [
    Statistic<"numQuantized", "num-quantized", "Number of projections quantized">,
    Statistic<"numNorms", "num-norms", "Number of norms taken into the kernel that quantizes">
  ];
}

def EraseUnusedWeightsPass : Prefill_FoldPass<"prefill-erase-unused-weights"> {
  let summary = "erase weights that no kernel reads, and steps that lead only to them";
  let description = [{
    ```mlir
    prefill.weight @used : tensor<64x64xbf16> = #prefill.checkpoint<"a">
    prefill.weight @unused : tensor<64x64xbf16> = #prefill.checkpoint<"b">
    func.func @f() -> tensor<64x64xbf16> {
      %0 = prefill.get_weight @used : tensor<64x64xbf16>
      return %0 : tensor<64x64xbf16>
    }
    ```
    loses @unused. A weight lives when a get_weight reads it or it is an input of a step that lives.
  }];
  let statistics = [Statistic<"numErased", "num-erased", "Number of weights erased">];
}

//===-- Attention ------------------------------------------------------------------------------------------------===//

def ConvertAttentionToOnlinePass : Pass<"prefill-convert-attention-to-online", "::mlir::func::FuncOp"> {
  let summary = "rewrites attention into the form that carries an online softmax";
  let description = [{
    `prefill.attention` becomes `prefill.online_attention`, which can be tiled along the keys, and
    `prefill.attention_normalize`. The score matrix then never reaches memory. Without this pass prefill-tile gives
    attention its plain lowering, with the score matrix in memory.

    ```mlir
    %o = prefill.attention %q, %cache, %batch {causal, scale = 1.0, base2} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
    // becomes
    %acc, %max, %sum = prefill.online_attention %q, %cache, %batch mask = edge {base2, causal, scale = 1.0}
        : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x2xf32>, tensor<?x2xf32>
    %o = prefill.attention_normalize %acc, %sum, %batch : tensor<?x64xf32>, tensor<?x2xf32> -> tensor<?x64xbf16>
    ```
  }];
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
  let statistics = [Statistic<"numConverted", "attentions-converted", "attention ops rewritten into the online form">];
}

def SpecializeCausalBlocksPass : Pass<"prefill-specialize-causal-blocks", "::mlir::func::FuncOp"> {
  let summary = "splits attention's KV loop by what its blocks need: skipped, without a mask, with a mask";
  let description = [{
    The loop that prefill-tile makes runs over all KV blocks of a sequence and masks each. Afterwards blocks above the
    causal diagonal and blocks outside the sliding window are not in the loop bounds (Analysis/AttentionBlockRange), one
    loop with `mask = none` runs over the blocks that every row sees whole, and one with `mask = edge` over the blocks at
    the diagonal and at the end of the keys. A sliding window has a second edge loop before them.

    ```mlir
    %r = scf.for %b = %c0 to %blocks step %c1 { prefill.online_attention … mask = edge }
    // becomes
    %f = scf.for %b = %c0 to %full_end step %c1 { prefill.online_attention … mask = none } {prefill.kv_blocks = "full"}
    %r = scf.for %b = %full_end to %end step %c1 { prefill.online_attention … mask = edge } {prefill.kv_blocks = "edge"}
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::prefill::PrefillDialect"];
  let statistics = [Statistic<"numSpecialized", "kv-loops-specialized", "KV loops split by mask">,
                    Statistic<"numLoops", "kv-loops-made", "KV loops that replace them">];
}

//===-- Rows and memory of the plan -----------------------------------------------------------------------------===//

def PadMPass : Prefill_FoldPass<"prefill-pad-m"> {
  let summary = "set the row counts that kernels run with";
  let description = [{
    ```mlir
    %y = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, ..., row_buckets = [1]>} : ...
    ```
    becomes
    ```mlir
    %y = prefill.gemm %x, %w {lowering_config = #prefill.lowering_config<tokens, ..., row_buckets = [1, 4, 8]>} : ...
    ```
    on every gemm, rowwise and attention: M rows run as the smallest bucket that holds them, above the last as a multiple
    of it. Producers and consumers share buffers, so an op that has other buckets already is an error. A remark states
    the worst padding fraction of each bucket.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "target whose row counts are used without buckets: cpu, or cuda: and a chip">,
    ListOption<"buckets", "buckets", "int64_t", "Row counts, increasing; without any the target's: 1 on cpu, whose microkernels have every height; the heights of tiles on cuda">
  ];
  let statistics = [
    Statistic<"numPadded", "num-padded", "Number of compute ops whose buckets were set">,
    Statistic<"maxPaddingPercent", "max-padding-percent", "Largest padding fraction of a bucket, in percent">
  ];
}

def PlanMemoryPass : Prefill_FoldPass<"prefill-plan-memory"> {
  let summary = "give every activation a place in an arena that all layers share";
  let description = [{
    ```mlir
    %x1, %s = prefill.gemm %a, %w {...} : ... -> tensor<?x64xbf16>, tensor<?x1xf32> epilogue {...}
    ```
    becomes
    ```mlir
    %x1, %s = prefill.gemm %a, %w {prefill.buffers = [
      #prefill.buffer<activation, tokens, row_bytes = 128, row_offset = 0>,
      #prefill.buffer<activation, tokens, row_bytes = 4, row_offset = 128>], ...} : ...
    ```
    Caches, which are written in place, have `unit`. A tensor lives from its op to its last use; two that live in one op
    never overlap, so that inputs and outputs never share. Offsets are multiples of 64 bytes a row, found by first fit.
    The entry function gets `prefill.activation_row_bytes` and `prefill.logits_row_bytes` (bytes a padded
    row of each domain), `prefill.weights_bytes` and `prefill.kv_cache_bytes_per_token`; a remark states the prediction.
  }];
  let options = [
    Option<"reuse", "reuse", "bool", "true", "Let tensors whose lives do not meet share memory">,
    Option<"padRows", "pad-rows", "bool", "false", "Keep rows of a multiple of 4 KiB a line apart, and say so by `prefill.pad_rows`">
  ];
  let statistics = [
    Statistic<"numBuffers", "num-buffers", "Number of tensors placed">,
    Statistic<"activationRowBytes", "activation-row-bytes", "Bytes for each padded token row">,
    Statistic<"logitsRowBytes", "logits-row-bytes", "Bytes for each padded logits row">,
    Statistic<"peakRowBytes", "peak-row-bytes", "Lower bound of both: bytes of tensors that live at once">
  ];
}

//===-- Contracts of the levels ---------------------------------------------------------------------------------===//

def VerifyModelPass : Pass<"prefill-verify-model", "::mlir::ModuleOp"> {
  let summary = "check the contract of level model";
  let description = [{
    Holds after import: the module has a function @prefill of a batch and one cache a layer, returning f32 logits and the
    caches; its ops are model ops with value semantics; the only dynamic sizes are row counts; `prefill.model` says what the
    ops say; every layer appends to its own cache once and attends to the result (docs/spec.md, "The module").

    ```mlir
    func.func @prefill(%batch: !prefill.batch) -> tensor<?x?xf32>   // error: dynamic channels
    ```
  }];
  let statistics = [Statistic<"numOps", "num-ops", "Number of ops checked">];
}

def VerifyFusedPass : Pass<"prefill-verify-fused", "::mlir::ModuleOp"> {
  let summary = "check the contract of level fused";
  let description = [{
    No standalone kv_append, rope, gated_act, add, scale, row_sumsq or rms_norm, unless it carries the reason in
    `prefill.not_folded` or the pass that folds it was left out (it is not in the module's `prefill.graph_passes`); regions
    hold epilogue nodes only.

    ```mlir
    %y = prefill.add %x, %b : ...   // error: neither folded nor prefill.not_folded
    ```
  }];
  let statistics = [
    Statistic<"numStandalone", "num-standalone", "Number of ops that were not folded">
  ];
}

def VerifyConfigPass : Pass<"prefill-verify-config", "::mlir::ModuleOp"> {
  let summary = "check the contract of level config";
  let description = [{
    The entry function holds get_weight, gemm, rowwise and attention only. Each compute op has tiles and row buckets, which
    producers and consumers share, and its config's domain is that of its rows. Every tensor has a buffer of its size in
    its domain, and tensors that live at once do not overlap.

    ```mlir
    %y = prefill.gemm %x, %w : ...   // error: no lowering_config
    ```
  }];
  let statistics = [Statistic<"numBuffers", "num-buffers", "Number of buffers checked">];
}

//===-- Decisions about execution --------------------------------------------------------------------------------===//

def SelectLoweringStrategyPass : Pass<"prefill-select-lowering-strategy", "::mlir::ModuleOp"> {
  let summary = "makes every op of the entry function a gemm, rowwise or attention and gives each its tile sizes";
  let description = [{
    ```mlir
    %r = prefill.select_rows %x, %batch : tensor<?x64xbf16> -> tensor<?x64xbf16>
    %n = prefill.rms_norm %r, %gain {eps = 1.0e-5} : ...
    %l = prefill.lm_head %n, %w : tensor<?x64xbf16>, tensor<256x64xbf16> -> tensor<?x256xf32>
    ```
    becomes
    ```mlir
    %n = prefill.rowwise {prefill.name = "final_norm", lowering_config = #prefill.lowering_config<logits, block_m = 8, ...>} ... body {
      %0 = prefill.select_rows %x, %batch : ...
      %1 = prefill.rms_norm %0, %gain {eps = 1.0e-5} : ...
      prefill.yield %1 : tensor<?x64xbf16>
    }
    %l = prefill.gemm %n, %w {prefill.name = "lm_head", lowering_config = #prefill.lowering_config<logits, block_m = 64,
      block_n = 128, block_kv = 0, panel_n = 32, row_buckets = [1]>} : ...
    ```
    Tile sizes come from Codegen/CPU/TileTable, which computes them from the sizes of the caches, or from
    Codegen/CUDA/GemmTileTable, by the chip and the schedule (calls of up to max-rows tokens): tiles straddle neither heads nor the parts of a split. A row_sumsq gets a
    partial for each tile. A tile that an option gives and that does not fit is an error. What the target cannot do is an error that names op, attribute and target.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"cpu\"", "target whose tile sizes are used: cpu, or cuda: and a chip">,
    Option<"maxRows", "max-rows", "int64_t", "0", "the limit of the schedule that a CUDA chip's tiles are chosen for, as Codegen/CUDA/ScheduleTable has it; 0: calls of any length">,
    ListOption<"rows", "rows", "int64_t", "row counts that a CUDA chip's tiles are chosen for, whatever the table of schedules says">,
    Option<"plain", "plain", "bool", "false", "smallest tiles, one kernel for every op: the baseline">,
    Option<"l1", "l1", "int64_t", "32768", "bytes of a core's first-level data cache">,
    Option<"l2", "l2", "int64_t", "1048576", "bytes of a core's second-level cache">,
    Option<"l3", "l3", "int64_t", "33554432", "bytes of the third-level cache">,
    Option<"gemmBlockM", "gemm-block-m", "int64_t", "0", "overrules the table: rows of a gemm's workgroup">,
    Option<"gemmBlockN", "gemm-block-n", "int64_t", "0", "overrules the table: widest tile of a gemm">,
    Option<"attentionBlockQ", "attention-block-q", "int64_t", "0", "overrules the table: query rows of a workgroup">,
    Option<"attentionBlockKv", "attention-block-kv", "int64_t", "0", "overrules the table: keys of a step">,
    ListOption<"gemmTiles", "gemm-tiles", "std::string", "tiles of a CUDA chip's gemms by dtype, rows, N and K, before those options: bf16/6144x4096:128x128 is block_m x block_n for any rows, bf16/512x6144x4096:64x128 for calls of up to 512">,
    ListOption<"attentionTiles", "attention-tiles", "std::string", "the same for attention by dtype, query heads a KV head and head_dim: bf16/g4/d128:32x64 is block_q x block_kv, bf16/g4/d128/s512:16x64 for calls of up to 512 rows">
  ];
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
  let statistics = [
    Statistic<"numGemms", "num-gemms", "Number of linears and lm_heads that became a gemm">,
    Statistic<"numRowwise", "num-rowwise", "Number of rowwise ops made of what is not in an epilogue">,
    Statistic<"numConfigured", "num-configured", "Number of ops with a lowering_config">
  ];
}

def SplitKVPass : Pass<"prefill-split-kv", "::mlir::ModuleOp"> {
  let summary = "cuts the keys of attention into splits, each a workgroup's, where a chip has more room than tiles (Flash-Decoding)";
  let description = [{
    ```mlir
    %o = prefill.attention %q, %cache, %batch {...} : tensor<?x64xbf16>, !cache -> tensor<?x64xbf16>
    ```
    becomes
    ```mlir
    %partials, %lse = prefill.attention %q, %cache, %batch {num_splits = 4, ...} : tensor<?x64xbf16>, !cache
        -> tensor<?x256xf32>, tensor<?x8xf32>
    %o = prefill.rowwise {prefill.name = "combine_splits", ...} : tensor<?x64xbf16> body {
      %0 = prefill.combine_splits %partials, %lse : tensor<?x256xf32>, tensor<?x8xf32> -> tensor<?x64xbf16>
      prefill.yield %0 : tensor<?x64xbf16>
    }
    ```
    A token that continues a long text has as many tiles as KV heads. The number of splits is a power of two, at most 16,
    and with the tile it is the one that takes the least time in calls of the schedule (Codegen/CUDA/AttentionTileTable).
    A tile that was demanded (`prefill.tile_given`) stays; where its KV blocks would lie in two splits, nothing is split.
  }];
  let options = [
    Option<"target", "target", "std::string", """", "cuda: and a chip, whose tiles tell the number of splits">,
    Option<"maxRows", "max-rows", "int64_t", "0", "the limit of the schedule that the number is chosen for; calls of more than 128 tokens are not split">,
    Option<"splits", "splits", "int64_t", "0", "overrules the table: number of splits, of tiles whose block_kv divides 128">
  ];
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
  let statistics = [
    Statistic<"numSplit", "num-split", "Number of attention ops whose keys are split">,
    Statistic<"numNotSplit", "num-not-split", "Number of attention ops that stay whole">
  ];
}

def PackWeightsPass : Pass<"prefill-pack-weights", "::mlir::ModuleOp"> {
  let summary = "adds the load-time step that brings a gemm's weight into the order the microkernel reads";
  let description = [{
    ```mlir
    %w = prefill.get_weight @o_proj : tensor<64x64xbf16>
    %y = prefill.gemm %x, %w : ...
    ```
    becomes
    ```mlir
    prefill.weight @o_proj.packed : tensor<2x32x32x2xbf16> = #prefill.pack<@o_proj, panel_n = 32, k_pack = 2, group_n = 64>
    %w = prefill.get_weight @o_proj.packed : tensor<2x32x32x2xbf16>
    %y = prefill.gemm %x, %w : ...
    ```
  }];
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
  let statistics = [Statistic<"numPacked", "num-packed", "Number of gemms whose weight is packed">];
}

def MaterializeRopeTablesPass : Pass<"prefill-materialize-rope-tables", "::mlir::ModuleOp"> {
  let summary = "gives every rope a table of cosines and sines, computed once at load time";
  let description = [{
    One row for each position below the module's `prefill.max_seq`:
    ```mlir
    %r = prefill.rope %q, %batch {rope = #rope, head_dim = 32} : ...
    ```
    becomes
    ```mlir
    prefill.weight @rope_table : tensor<4096x32xf32> = #prefill.rope_table<#rope, max_position = 4096>
    %t = prefill.get_weight @rope_table : tensor<4096x32xf32>
    %r = prefill.rope %q, %batch table(%t : tensor<4096x32xf32>) {rope = #rope, head_dim = 32} : ...
    ```
  }];
  let dependentDialects = ["::mlir::prefill::PrefillDialect"];
  let statistics = [
    Statistic<"numTables", "num-tables", "Number of tables">,
    Statistic<"numRopes", "num-ropes", "Number of ropes that read one">
  ];
}

#endif
