#ifndef PREFILL_ATTRS_TD
#define PREFILL_ATTRS_TD

include "mlir/IR/AttrTypeBase.td"
include "prefill/Dialect/Prefill/IR/PrefillDialect.td"
include "prefill/Dialect/Prefill/IR/PrefillEnums.td"

class Prefill_Attr<string name, string attrMnemonic> : AttrDef<Prefill_Dialect, name> { let mnemonic = attrMnemonic; }

def Prefill_RopeAttr : Prefill_Attr<"Rope", "rope"> {
  let summary = "rotary position embedding (RoFormer, Su et al. 2021)";
  let description = [{
    The first `rotary_dim` channels of each head are rotated. Pairs are (i, i + rotary_dim/2), or (2i, 2i + 1) when
    `interleaved`. inv_freq[i] = theta^(-2i/rotary_dim) in f32, stretched by `scaling`: `linear` divides it by factor;
    `llama3` divides low frequencies by factor and blends between (Llama 3.1). The angle is f32(position) * inv_freq[i]
    rounded to f32.

    Syntax: `#prefill.rope<theta = 10000.0, rotary_dim = 64>`, then optionally `, interleaved`, and
    `, scaling = linear(factor = 4.0)` or `, scaling = llama3(factor = 8.0, low_freq_factor = 1.0,
    high_freq_factor = 4.0, original_max_position = 8192)`.
  }];
  let parameters = (ins APFloatParameter<"f64">:$thetaValue, "int64_t":$rotaryDim, "bool":$interleaved,
                        EnumParameter<Prefill_RopeScaling>:$scaling, APFloatParameter<"f64">:$factorValue,
                        APFloatParameter<"f64">:$lowFreqFactorValue, APFloatParameter<"f64">:$highFreqFactorValue,
                        "int64_t":$originalMaxPosition);
  let builders = [AttrBuilder<(ins "double":$theta, "int64_t":$rotaryDim, CArg<"bool", "false">:$interleaved,
                                   CArg<"RopeScaling", "RopeScaling::None">:$scaling, CArg<"double", "1.0">:$factor,
                                   CArg<"double", "1.0">:$lowFreqFactor, CArg<"double", "1.0">:$highFreqFactor,
                                   CArg<"int64_t", "0">:$originalMaxPosition), [{
    using ::llvm::APFloat;
    return $_get($_ctxt, APFloat(theta), rotaryDim, interleaved, scaling, APFloat(factor), APFloat(lowFreqFactor),
                 APFloat(highFreqFactor), originalMaxPosition);
  }]>];
  let extraClassDeclaration = [{
    double getTheta() const { return getThetaValue().convertToDouble(); }
    double getFactor() const { return getFactorValue().convertToDouble(); }
    double getLowFreqFactor() const { return getLowFreqFactorValue().convertToDouble(); }
    double getHighFreqFactor() const { return getHighFreqFactorValue().convertToDouble(); }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

// ---- Where a weight's value comes from: the load-time transform program, one attribute a step.

def Prefill_CheckpointAttr : Prefill_Attr<"Checkpoint", "checkpoint"> {
  let summary = "a tensor of the checkpoint by name";
  let parameters = (ins StringRefParameter<>:$name);
  let assemblyFormat = "`<` $name `>`";
  let genVerifyDecl = 1;
}
def Prefill_ConcatAttr : Prefill_Attr<"Concat", "concat"> {
  let summary = "weights concatenated along dimension 0";
  let parameters = (ins ArrayRefParameter<"::mlir::FlatSymbolRefAttr">:$inputs);
  let assemblyFormat = "`<` `[` $inputs `]` `>`";
  let genVerifyDecl = 1;
}
def Prefill_InterleaveAttr : Prefill_Attr<"Interleave", "interleave"> {
  let summary = "rows of two weights in alternating runs";
  let description = [{
    Runs of `granularity` rows alternate, the first weight's first; each input is padded with zero rows to a multiple of it.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$first, "::mlir::FlatSymbolRefAttr":$second, "int64_t":$granularity);
  let assemblyFormat = "`<` $first `,` $second `,` `granularity` `=` $granularity `>`";
  let genVerifyDecl = 1;
}
def Prefill_ScaleColumnsAttr : Prefill_Attr<"ScaleColumns", "scale_columns"> {
  let summary = "w[n, k] * gain[k]";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$input, "::mlir::FlatSymbolRefAttr":$gain);
  let assemblyFormat = "`<` $input `,` `gain` `=` $gain `>`";
}
def Prefill_PackAttr : Prefill_Attr<"Pack", "pack"> {
  let summary = "a weight in the order that the microkernel reads";
  let description = [{
    `[N, K]` becomes `[panels, ceil(K / k_pack), panel_n, k_pack]`: N is cut into groups of `group_n` rows (a head, or all
    of N), each padded with zero rows to a multiple of `panel_n`; K is padded with zeros to a multiple of `k_pack`.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$input, "int64_t":$panelN, "int64_t":$kPack, "int64_t":$groupN);
  let assemblyFormat = "`<` $input `,` `panel_n` `=` $panelN `,` `k_pack` `=` $kPack `,` `group_n` `=` $groupN `>`";
  let genVerifyDecl = 1;
}
def Prefill_QuantizeAttr : Prefill_Attr<"Quantize", "quantize"> {
  let summary = "a matrix as 8-bit integers: w[n, k] / scale[n] to the nearest integer";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$input);
  let assemblyFormat = "`<` $input `>`";
}
def Prefill_QuantizeScaleAttr : Prefill_Attr<"QuantizeScale", "quantize_scale"> {
  let summary = "the scales of #prefill.quantize: max_k |w[n, k]| / 127, f32 [N]";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$input);
  let assemblyFormat = "`<` $input `>`";
}
def Prefill_RopeTableAttr : Prefill_Attr<"RopeTable", "rope_table"> {
  let summary = "f32 [max_position, rotary_dim]: rotary_dim/2 cosines, then the sines";
  let parameters = (ins "::mlir::prefill::RopeAttr":$rope, "int64_t":$maxPosition);
  let assemblyFormat = "`<` $rope `,` `max_position` `=` $maxPosition `>`";
  let genVerifyDecl = 1;
}

// ---- Decisions about execution.

def Prefill_LoweringConfigAttr : Prefill_Attr<"LoweringConfig", "lowering_config"> {
  let summary = "tile sizes of a compute op";
  let description = [{
    `block_m` rows and `block_n` columns are a workgroup's tile; `block_kv` keys are a step of attention's KV loop (0
    elsewhere). `panel_n` columns are a panel of the packed weight. `row_buckets`: rows are padded to the smallest that
    holds them, above the last to a multiple of it. `domain` says which row count the op's rows are.
  }];
  let parameters = (ins EnumParameter<Prefill_RowDomain>:$domain, "int64_t":$blockM, "int64_t":$blockN, "int64_t":$blockKv, "int64_t":$panelN,
                        ArrayRefParameter<"int64_t">:$rowBuckets);
  let assemblyFormat = [{
    `<` $domain `,` `block_m` `=` $blockM `,` `block_n` `=` $blockN `,` `block_kv` `=` $blockKv `,` `panel_n` `=` $panelN `,`
    `row_buckets` `=` `[` $rowBuckets `]` `>`
  }];
  let genVerifyDecl = 1;
}

def Prefill_BufferAttr : Prefill_Attr<"Buffer", "buffer"> {
  let summary = "where a tensor lives";
  let description = [{
    Byte offset in its arena is `row_offset * rows_pad(domain)`, its size `row_bytes * rows_pad(domain)`; the part of the
    `logits` domain follows the part of `tokens`.
  }];
  let parameters = (ins EnumParameter<Prefill_BufferClass>:$bufferClass, EnumParameter<Prefill_RowDomain>:$domain,
                        "int64_t":$rowBytes, "int64_t":$rowOffset);
  let assemblyFormat = [{
    `<` $bufferClass `,` $domain `,` `row_bytes` `=` $rowBytes `,` `row_offset` `=` $rowOffset `>`
  }];
  let genVerifyDecl = 1;
}

def Prefill_GridAttr : Prefill_Attr<"Grid", "grid"> {
  let summary = "number of workgroups of a kernel";
  let description = [{
    (ceildiv(rows_pad(domain), block) + (plus_sequences ? num_seqs : 0)) * multiplier.
  }];
  let parameters = (ins EnumParameter<Prefill_RowDomain>:$domain, "int64_t":$block, "bool":$plusSequences,
                        "int64_t":$multiplier);
  let assemblyFormat = [{
    `<` $domain `,` `block` `=` $block `,` `plus_sequences` `=` $plusSequences `,` `multiplier` `=` $multiplier `>`
  }];
  let genVerifyDecl = 1;
}

#endif
