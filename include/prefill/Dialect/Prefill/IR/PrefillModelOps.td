// Level `model`: what a decoder computes. The same ops are the nodes of an epilogue (PrefillFusedOps.td).
#ifndef PREFILL_MODEL_OPS_TD
#define PREFILL_MODEL_OPS_TD

include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "prefill/Dialect/Prefill/IR/PrefillAttrs.td"
include "prefill/Dialect/Prefill/IR/PrefillTypes.td"

class Prefill_Op<string mnemonic, list<Trait> traits = []>
    : Op<Prefill_Dialect, mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>])> {
  let hasVerifier = 1;
  // What results are called when printed; one rule for all ops.
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { ::mlir::prefill::nameResults(*this, setName); }
  }];
}

def Prefill_WeightOp : Prefill_Op<"weight", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "a named constant tensor and the step of the load-time program that makes it";
  let description = [{
    ```mlir
    prefill.weight @l0.q : tensor<64x64xbf16> = #prefill.checkpoint<"model.layers.0.self_attn.q_proj.weight">
    prefill.weight @l0.qkv : tensor<96x64xbf16> = #prefill.concat<[@l0.q, @l0.k, @l0.v]>
    ```
    Steps are evaluated in f32 and rounded once, to the element type of the weight that a kernel reads.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<AnyRankedTensor>:$type, AnyAttr:$source);
  let assemblyFormat = "$sym_name `:` $type `=` $source attr-dict";
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::llvm::cast<::mlir::RankedTensorType>(getType()); }
  }];
}

def Prefill_GetWeightOp : Prefill_Op<"get_weight", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value of a named weight";
  let arguments = (ins FlatSymbolRefAttr:$name);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$name `:` type($result) attr-dict";
  let hasVerifier = 0;
}

def Prefill_EmbedOp : Prefill_Op<"embed", [Pure]> {
  let summary = "rows of the embedding table for the batch's tokens";
  let arguments = (ins Prefill_BatchType:$batch, AnyRankedTensor:$table);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$batch `,` $table attr-dict `:` type($table) `->` type($result)";
}

def Prefill_RMSNormOp : Prefill_Op<"rms_norm", [Pure]> {
  let summary = "x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019)";
  let description = [{
    The mean runs over all channels, or with `head_dim` over each group of head_dim channels (QK-norm); `gain` has as
    many elements as the group.
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$gain, F64Attr:$eps, OptionalAttr<I64Attr>:$head_dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $gain attr-dict `:` type($input) `,` type($gain) `->` type($result)";
}

def Prefill_LinearOp : Prefill_Op<"linear", [Pure]> {
  let summary = "x * transpose(w) + bias; w is [N, K] as checkpoints store it";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, Optional<AnyRankedTensor>:$bias);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`bias` `(` $bias^ `:` type($bias) `)`)? attr-dict `:` type($input) `,` type($weight) `->` type($result)
  }];
}

def Prefill_RopeOp : Prefill_Op<"rope", [Pure]> {
  let summary = "rotates each head by the position of its row";
  let description = [{ `table` is the materialised #prefill.rope_table; without it the angles follow from `rope`. }];
  let arguments = (ins AnyRankedTensor:$input, Prefill_BatchType:$batch, Optional<AnyRankedTensor>:$table,
                       Prefill_RopeAttr:$rope, I64Attr:$head_dim);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $batch (`table` `(` $table^ `:` type($table) `)`)? attr-dict `:` type($input) `->` type($result)
  }];
}

def Prefill_KVAppendOp : Prefill_Op<"kv_append", [Pure, AllTypesMatch<["cache", "result"]>]> {
  let summary = "the cache with the batch's keys and values written to their slots";
  let description = [{ Row i goes to slot_mapping[i]; -1 writes nothing. Slot = block * block_size + offset. }];
  let arguments = (ins AnyRankedTensor:$key, AnyRankedTensor:$value, Prefill_KVCacheType:$cache, Prefill_BatchType:$batch);
  let results = (outs Prefill_KVCacheType:$result);
  let assemblyFormat = "$key `,` $value `into` $cache `,` $batch attr-dict `:` type($key) `,` type($value) `into` type($cache)";
}

def Prefill_AttentionOp : Prefill_Op<"attention", [Pure]> {
  let summary = "softmax(scale * q k^T + mask) v for every sequence of the batch";
  let description = [{
    Query row i of a sequence with q_len queries and kv_len keys stands at position kv_len - q_len + i and sees keys up
    to it (`causal`), the last `sliding_window` of them when given (its own included). Query head h reads KV head
    h / (num_q_heads / num_kv_heads). A row that sees no key is 0. `softcap` c: c * tanh(s / c) before the mask.
    `base2`: exp2 in place of exp (fold-scale moved log2 e into the query). `selected_rows`: the result has only the rows
    of the batch's logits_indices, in their order, as if select_rows followed (hoist-row-selection).

    `num_splits` S: the keys of a sequence are cut into S ranges, and each has an output of its own, in f32, with the
    log-sum-exp of its scores: split s is the s-th of S groups of columns (split-kv).

    ```mlir
    %partials, %lse = prefill.attention %q, %cache, %batch {num_splits = 4, causal, scale = 1.0, base2}
        : tensor<?x64xbf16>, !cache -> tensor<?x256xf32>, tensor<?x8xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, Prefill_KVCacheType:$cache, Prefill_BatchType:$batch, F64Attr:$scale,
                       UnitAttr:$causal, OptionalAttr<I64Attr>:$sliding_window, OptionalAttr<F64Attr>:$softcap,
                       UnitAttr:$base2, UnitAttr:$selected_rows, OptionalAttr<I64Attr>:$num_splits);
  let results = (outs AnyRankedTensor:$result, Optional<AnyRankedTensor>:$lse);
  let assemblyFormat = [{
    $query `,` $cache `,` $batch attr-dict `:` type($query) `,` type($cache) `->` type($result) (`,` type($lse)^)?
  }];
}

def Prefill_GatedActOp : Prefill_Op<"gated_act", [Pure]> {
  let summary = "activation(gate) * up (GLU variants, Shazeer 2020)";
  let arguments = (ins AnyRankedTensor:$gate, AnyRankedTensor:$up, Prefill_GateKindAttr:$kind);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$kind $gate `,` $up attr-dict `:` type($gate) `,` type($up) `->` type($result)";
}

def Prefill_AddOp : Prefill_Op<"add", [Pure]> {
  let summary = "sum in f32, rounded once to the result's element type";
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$rhs);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)";
}

def Prefill_ScaleOp : Prefill_Op<"scale", [Pure]> {
  let summary = "x * factor";
  let arguments = (ins AnyRankedTensor:$input, F64Attr:$factor);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Prefill_SelectRowsOp : Prefill_Op<"select_rows", [Pure]> {
  let summary = "the rows whose logits are asked for: [M, h] to [R, h] by the batch's logits_indices";
  let arguments = (ins AnyRankedTensor:$input, Prefill_BatchType:$batch);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $batch attr-dict `:` type($input) `->` type($result)";
}

def Prefill_LMHeadOp : Prefill_Op<"lm_head", [Pure]> {
  let summary = "f32 logits of the selected rows";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $weight attr-dict `:` type($input) `,` type($weight) `->` type($result)";
}

#endif
