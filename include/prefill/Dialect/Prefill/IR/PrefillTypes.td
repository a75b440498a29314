#ifndef PREFILL_TYPES_TD
#define PREFILL_TYPES_TD

include "mlir/IR/AttrTypeBase.td"
include "prefill/Dialect/Prefill/IR/PrefillDialect.td"
include "prefill/Dialect/Prefill/IR/PrefillEnums.td"

class Prefill_Type<string name, string typeMnemonic> : TypeDef<Prefill_Dialect, name> { let mnemonic = typeMnemonic; }

def Prefill_BatchType : Prefill_Type<"Batch", "batch"> {
  let summary = "the ragged batch in flight";
  let description = [{
    Integers that describe M tokens of S sequences: `tokens[M]`, `positions[M]`, `slot_mapping[M]` (i64, -1: do not
    write), `cu_seqlens[S + 1]`, `kv_lens[S]` (after the append), `block_table[S, blocks]`, `logits_indices[R]`.
  }];
}

def Prefill_KVCacheType : Prefill_Type<"KVCache", "kv_cache"> {
  let summary = "keys and values of one layer";
  let description = [{
    `block_size` is the number of tokens a block; the layouts `contiguous` and `head_major` have one block for each
    sequence, of the module's maximum length. A block of `paged_vnni` is a page of 32 tokens for each head.
  }];
  let parameters = (ins EnumParameter<Prefill_KVLayout>:$layout, "int64_t":$numKvHeads, "int64_t":$headDimQk,
                        "int64_t":$headDimV, "::mlir::Type":$dtype, "int64_t":$blockSize);
  let assemblyFormat = [{
    `<` $layout `,` `num_kv_heads` `=` $numKvHeads `,` `head_dim_qk` `=` $headDimQk `,` `head_dim_v` `=` $headDimV `,`
    `dtype` `=` $dtype `,` `block_size` `=` $blockSize `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Tokens of a page of `paged_vnni`, and columns of its panels.
    static constexpr int64_t kVNNIPageTokens = 32;

    /// Whether blocks have a size of their own; the other layouts have one block for each sequence.
    bool isPaged() const {
      return getLayout() == KVLayout::PagedNHD || getLayout() == KVLayout::PagedVNNI;
    }
  }];
}

#endif
