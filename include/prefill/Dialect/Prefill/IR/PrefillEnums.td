#ifndef PREFILL_ENUMS_TD
#define PREFILL_ENUMS_TD

include "mlir/IR/EnumAttr.td"
include "prefill/Dialect/Prefill/IR/PrefillDialect.td"

class Prefill_Enum<string name, string summary, list<EnumCase> cases> : I32Enum<name, summary, cases> {
  let cppNamespace = "::mlir::prefill";
}
class Prefill_EnumAttr<EnumInfo info, string mnemonic> : EnumAttr<Prefill_Dialect, info, mnemonic>;

def Prefill_KVLayout : Prefill_Enum<"KVLayout", "order of a KV cache in memory", [
  I32EnumCase<"Contiguous", 0, "contiguous">,   // K and V [max_seq, num_kv_heads, head_dim]
  I32EnumCase<"HeadMajor", 1, "head_major">,    // K and V [num_kv_heads, max_seq, head_dim]
  I32EnumCase<"PagedNHD", 2, "paged_nhd">,      // [num_blocks, 2, block_size, num_kv_heads, head_dim]
  I32EnumCase<"PagedVNNI", 3, "paged_vnni">     // pages of 32 tokens in the order that a CPU's microkernel reads
]>;

def Prefill_RopeScaling : Prefill_Enum<"RopeScaling", "how RoPE frequencies are stretched", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"Linear", 1, "linear">,
  I32EnumCase<"Llama3", 2, "llama3">
]>;

def Prefill_GateKind : Prefill_Enum<"GateKind", "activation of the gate", [
  I32EnumCase<"Silu", 0, "silu">,
  I32EnumCase<"GeluTanh", 1, "gelu_tanh">
]>;
def Prefill_GateKindAttr : Prefill_EnumAttr<Prefill_GateKind, "gate_kind"> { let assemblyFormat = "$value"; }

// What a KV block needs: `none` for blocks that every query row of the tile sees whole, `edge` where the causal diagonal,
// the sliding window or the end of the keys cuts through.
def Prefill_BlockMask : Prefill_Enum<"BlockMask", "masking of a KV block", [
  I32EnumCase<"None", 0, "none">,
  I32EnumCase<"Edge", 1, "edge">
]>;
def Prefill_BlockMaskAttr : Prefill_EnumAttr<Prefill_BlockMask, "block_mask"> { let assemblyFormat = "$value"; }

def Prefill_RowDomain : Prefill_Enum<"RowDomain", "which padded row count a size follows", [
  I32EnumCase<"Tokens", 0, "tokens">,           // M: the tokens of the batch
  I32EnumCase<"Logits", 1, "logits">            // R: the rows whose logits are asked for
]>;

def Prefill_BufferClass : Prefill_Enum<"BufferClass", "memory class", [
  I32EnumCase<"Weights", 0, "weights">,
  I32EnumCase<"Activation", 1, "activation">,
  I32EnumCase<"KVCache", 2, "kv_cache">,
  I32EnumCase<"Temporaries", 3, "temporaries">
]>;

#endif
