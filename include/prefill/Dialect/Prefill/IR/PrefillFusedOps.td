// Levels `fused` to `tiled`: GEMMs with an epilogue, the nodes that only occur in one, and the kernels cut out of the graph.
#ifndef PREFILL_FUSED_OPS_TD
#define PREFILL_FUSED_OPS_TD

include "mlir/Interfaces/ControlFlowInterfaces.td"
include "prefill/Dialect/Prefill/IR/PrefillModelOps.td"

def Prefill_GemmOp : Prefill_Op<"gemm", [AttrSizedOperandSegments, SingleBlock, RecursiveMemoryEffects,
                                      DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "x * transpose(w) with an epilogue on the f32 accumulator";
  let description = [{
    The region's argument is the accumulator, f32 [M, N]. Its nodes are model ops on f32 or rounded values; what it yields
    is rounded to the result's element type. It may use values from outside: those are the epilogue's loads.

    `weight` is [N, K], or after packing the rank-4 result of #prefill.pack.

    Tile form (level `tiled`): `tile(%i, %j) outs(...)` computes rows [i, i + block_m) and columns [j, j + block_n) and
    stores what the region yields for them into the buffers; then it has no results.
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, Variadic<Index>:$tile, Variadic<AnyMemRef>:$outs,
                       OptionalAttr<Prefill_LoweringConfigAttr>:$lowering_config);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$epilogue);
  let hasRegionVerifier = 1;
  let assemblyFormat = [{
    $input `,` $weight (`tile` `(` $tile^ `)`)? (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict `:` type($input) `,`
    type($weight) (`->` type($results)^)? `epilogue` $epilogue
  }];
}

def Prefill_RowwiseOp : Prefill_Op<"rowwise", [AttrSizedOperandSegments, SingleBlock, RecursiveMemoryEffects,
                                            DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "a kernel without a GEMM: nodes of an epilogue applied to rows that they load themselves";
  let description = [{
    The region has no argument; its leaves are values from outside (or `embed`, `select_rows`, `combine_splits`). This is the plain lowering
    of every op that is not folded into a GEMM. Tile form: `tile(%i)`, rows [i, i + block_m).
  }];
  let arguments = (ins Variadic<Index>:$tile, Variadic<AnyMemRef>:$outs,
                       OptionalAttr<Prefill_LoweringConfigAttr>:$lowering_config);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasRegionVerifier = 1;
  let assemblyFormat = [{
    (`tile` `(` $tile^ `)`)? (`outs` `(` $outs^ `:` type($outs) `)`)? attr-dict (`:` type($results)^)? `body` $body
  }];
}

def Prefill_YieldOp : Prefill_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["GemmOp", "RowwiseOp"]>]> {
  let summary = "what an epilogue stores";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
  let hasVerifier = 0;
}

def Prefill_SplitOp : Prefill_Op<"split", [Pure]> {
  let summary = "neighbouring groups of columns: Q | K | V";
  let description = [{ The widths are the results' own; they need not be equal (GQA). }];
  let arguments = (ins AnyRankedTensor:$input);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($results)";
}

def Prefill_DeinterleaveOp : Prefill_Op<"deinterleave", [Pure]> {
  let summary = "undoes #prefill.interleave on columns: runs of `granularity` columns go to first and second in turn";
  let description = [{ Padding columns of the last run are dropped: the results' width says how many are real. }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$granularity);
  let results = (outs AnyRankedTensor:$first, AnyRankedTensor:$second);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($first) `,` type($second)";
}

def Prefill_BiasAddOp : Prefill_Op<"bias_add", [Pure]> {
  let summary = "adds a vector to every row";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$bias);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $bias attr-dict `:` type($input) `,` type($bias) `->` type($result)";
}

def Prefill_CombineSplitsOp : Prefill_Op<"combine_splits", [Pure]> {
  let summary = "one softmax out of the outputs of splits of the keys, weighed by their log-sum-exps";
  let description = [{
    What `prefill.attention` with num_splits returns becomes what it returns without: of each head the sum over the splits,
    in ascending order, of exp(lse - largest lse) * output, over the sum of the weights. A split of weight 0 is not looked
    at: its output may be NaN. Without any weight the result is 0.
  }];
  let arguments = (ins AnyRankedTensor:$partials, AnyRankedTensor:$lse);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$partials `,` $lse attr-dict `:` type($partials) `,` type($lse) `->` type($result)";
  let extraClassDeclaration = [{
    int64_t getNumSplits();
  }];
}

def Prefill_RowSumsqOp : Prefill_Op<"row_sumsq", [Pure]> {
  let summary = "partial sums of squares of each row: f32 [M, P]";
  let description = [{
    Partial p covers columns [p * N / P, (p + 1) * N / P). Taken from the value as stored (the operand's element type), so
    that the consumer normalises what it reads. P is 1 until select-lowering-strategy sets it to N / block_n.
  }];
  let arguments = (ins AnyRankedTensor:$input);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Prefill_RowRMSScaleOp : Prefill_Op<"row_rms_scale", [Pure]> {
  let summary = "x * 1/sqrt(sum(partials) / channels + eps), the partials added in index order";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$sumsq, F64Attr:$eps, I64Attr:$channels);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `,` $sumsq attr-dict `:` type($input) `,` type($sumsq) `->` type($result)";
}

def Prefill_QuantizeRowsOp : Prefill_Op<"quantize_rows", [Pure]> {
  let summary = "rows as 8-bit integers and a scale for each row (dynamic quantization per token)";
  let description = [{
    scale[m] = max_k |x[m, k]| / 127, f32 [M, 1]; quantized[m, k] = x[m, k] / scale[m] to the nearest integer, i8 [M, K]. A
    leaf of a rowwise: it needs whole rows.
  }];
  let arguments = (ins AnyRankedTensor:$input);
  let results = (outs AnyRankedTensor:$quantized, AnyRankedTensor:$scale);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($quantized) `,` type($scale)";
}

def Prefill_DequantizeOp : Prefill_Op<"dequantize", [Pure]> {
  let summary = "x[m, n] * row_scale[m] * column_scale[n]: what a gemm of 8-bit integers stands for";
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$row_scale, AnyRankedTensor:$column_scale);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $row_scale `,` $column_scale attr-dict `:` type($input) `,` type($row_scale) `,` type($column_scale) `->`
    type($result)
  }];
}

def Prefill_LaunchOp : Prefill_Op<"launch", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "runs a kernel (a func.func with `prefill.kernel`) as one step of the plan";
  let description = [{
    Operands are the kernel's arguments. After plan-memory `buffers` holds a #prefill.buffer for each tensor result (unit
    for a cache, which is written in place).
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyType>:$operands, OptionalAttr<ArrayAttr>:$buffers);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = "$kernel `(` $operands `)` attr-dict `:` functional-type($operands, $results)";
}

#endif
