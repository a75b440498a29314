// Level `tiled`: attention as blocks of an online softmax (FlashAttention-2, Dao 2023; online softmax, Milakov and Gimelshein 2018).
#ifndef PREFILL_TILED_OPS_TD
#define PREFILL_TILED_OPS_TD

include "prefill/Dialect/Prefill/IR/PrefillFusedOps.td"

def Prefill_OnlineAttentionOp : Prefill_Op<"online_attention", [Pure, AttrSizedOperandSegments]> {
  let summary = "attention that carries the state of an online softmax";
  let description = [{
    The state of a query row and head: `accumulator`, the sum of p * v with p = exp2(s - row_max); `row_max`, the largest
    score s so far (base 2, -inf before the first key); `row_sum`, the sum of p. A new maximum rescales the other two.
    `prefill.attention_normalize` ends it. As IREE's `LinalgExt.online_attention`, it can be tiled along the keys.

    Whole form: all keys of every sequence, state f32 [M, num_q_heads * head_dim_v] and [M, num_q_heads]; with `num_splits`
    a state for each split of the keys, one behind the other.

    ```mlir
    %acc, %max, %sum = prefill.online_attention %q, %cache, %batch mask = edge {causal, scale = 1.0, base2}
        : tensor<?x64xbf16>, !cache -> tensor<?x64xf32>, tensor<?x2xf32>, tensor<?x2xf32>
    ```

    Tile form: one KV block, keys [block * block_kv, (block + 1) * block_kv), for the rows [row_begin, row_end) of a
    sequence and the query heads of one KV head. `carry` is the state before the block, of shape [block_m, group *
    head_dim_v] and [block_m, group].

    `mask` says what the block needs: `none` where every row sees every key, `edge` where the causal diagonal, the sliding
    window or the end of the keys cuts through.
  }];
  let arguments = (ins AnyRankedTensor:$query, Prefill_KVCacheType:$cache, Prefill_BatchType:$batch, Variadic<Index>:$tile,
                       Variadic<AnyRankedTensor>:$carry, Prefill_BlockMaskAttr:$mask, F64Attr:$scale, UnitAttr:$causal,
                       OptionalAttr<I64Attr>:$sliding_window, OptionalAttr<F64Attr>:$softcap, UnitAttr:$base2,
                       OptionalAttr<I64Attr>:$num_splits, OptionalAttr<Prefill_LoweringConfigAttr>:$lowering_config);
  let results = (outs AnyRankedTensor:$accumulator, AnyRankedTensor:$row_max, AnyRankedTensor:$row_sum);
  let assemblyFormat = [{
    $query `,` $cache `,` $batch (`tile` `(` $tile^ `)`)? (`carry` `(` $carry^ `:` type($carry) `)`)? `mask` `=` `` $mask
    attr-dict `:` type($query) `,` type($cache) `->` type($accumulator) `,` type($row_max) `,` type($row_sum)
  }];
}

def Prefill_AttentionNormalizeOp : Prefill_Op<"attention_normalize", [AttrSizedOperandSegments]> {
  let summary = "accumulator / row_sum, 0 where a row saw no key";
  let description = [{
    Tile form: stores the rows [row_begin, row_end) of a sequence for the query heads of one KV head into the output
    buffer; it has no result.

    `selected_rows`: the result has, and the tile stores, only the rows of the batch's logits_indices, in their order.
  }];
  let arguments = (ins AnyRankedTensor:$accumulator, AnyRankedTensor:$row_sum, Prefill_BatchType:$batch,
                       Variadic<Index>:$tile, Optional<AnyMemRef>:$out, UnitAttr:$selected_rows);
  let results = (outs Optional<AnyRankedTensor>:$result);
  let assemblyFormat = [{
    $accumulator `,` $row_sum `,` $batch (`tile` `(` $tile^ `)`)? (`outs` `(` $out^ `:` type($out) `)`)? attr-dict `:`
    type($accumulator) `,` type($row_sum) (`->` type($result)^)?
  }];
}

def Prefill_AttentionPartialOp : Prefill_Op<"attention_partial", [AttrSizedOperandSegments]> {
  let summary = "a split's own output and log-sum-exp: accumulator / row_sum and ln(2) * row_max + ln(row_sum)";
  let description = [{
    Ends attention with num_splits, as `attention_normalize` ends it without. Tile form: the rows [row_begin, row_end) of a
    sequence, the query heads of one KV head and one split. Where no row of the tile sees a key of the split, the output's
    buffer stays as it is: lse, -inf there, says so.
  }];
  let arguments = (ins AnyRankedTensor:$accumulator, AnyRankedTensor:$row_max, AnyRankedTensor:$row_sum,
                       Prefill_BatchType:$batch, I64Attr:$num_splits, Variadic<Index>:$tile, Variadic<AnyMemRef>:$outs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $accumulator `,` $row_max `,` $row_sum `,` $batch (`tile` `(` $tile^ `)`)? (`outs` `(` $outs^ `:` type($outs) `)`)?
    attr-dict `:` type($accumulator) `,` type($row_max) `,` type($row_sum) (`->` type($results)^)?
  }];
}

def Prefill_NumSequencesOp : Prefill_Op<"num_sequences", [Pure]> {
  let summary = "number of sequences of the batch";
  let arguments = (ins Prefill_BatchType:$batch);
  let results = (outs Index:$result);
  let assemblyFormat = "$batch attr-dict";
  let hasVerifier = 0;
}

def Prefill_AttentionWorkgroupOp : Prefill_Op<"attention_workgroup", [Pure]> {
  let summary = "which rows and which KV head a workgroup of attention computes";
  let description = [{
    Workgroups run through the sequences; within a sequence from the last tile of `block_q` rows to the first, since the
    last ones see the most keys; within a tile through the KV heads. `row_begin` and `row_end` count from the sequence's
    first row. A workgroup beyond the last tile gets an empty sequence: all results are 0. `selected_rows`: the rows run
    from the first to the last one of the tile that the batch's logits_indices name; without one the tile is empty.
  }];
  let arguments = (ins Index:$workgroup, Prefill_BatchType:$batch, I64Attr:$block_q, I64Attr:$num_kv_heads,
                       UnitAttr:$selected_rows);
  let results = (outs Index:$sequence, Index:$row_begin, Index:$row_end, Index:$kv_head, Index:$seqlen_q,
                      Index:$seqlen_kv);
  let assemblyFormat = "$workgroup `,` $batch attr-dict";
}

def Prefill_MaterializedAttentionOp : Prefill_Op<"materialized_attention"> {
  let summary = "unfused attention: the score matrix goes through memory";
  let description = [{
    The plain lowering of `prefill.attention`, the baseline that the online form is measured against: for every row of
    the tile the scores of all keys are written to `scores`, f32 [num_q_heads, M_pad, max_kv], then masked, normalised
    and multiplied with the values. No key is skipped. `selected_rows` as for attention_normalize.
  }];
  let arguments = (ins AnyRankedTensor:$query, Prefill_KVCacheType:$cache, Prefill_BatchType:$batch, Variadic<Index>:$tile,
                       AnyMemRef:$scores, AnyMemRef:$out, F64Attr:$scale, UnitAttr:$causal,
                       OptionalAttr<I64Attr>:$sliding_window, OptionalAttr<F64Attr>:$softcap, UnitAttr:$base2,
                       UnitAttr:$selected_rows);
  let assemblyFormat = [{
    $query `,` $cache `,` $batch `tile` `(` $tile `)` `scores` `(` $scores `:` type($scores) `)` `outs` `(` $out `:`
    type($out) `)` attr-dict `:` type($query) `,` type($cache)
  }];
}

#endif
