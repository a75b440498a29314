// The dialect itself. docs/spec.md gives every op's meaning and numbered constraints.
#ifndef PREFILL_DIALECT_TD
#define PREFILL_DIALECT_TD

include "mlir/IR/OpBase.td"

def Prefill_Dialect : Dialect {
  let name = "prefill";
  let cppNamespace = "::mlir::prefill";
  let summary = "Dataflow of a decoder-only transformer's prefill pass";
  let description = [{
    Hidden states are rank-2 tensors `[M, channels]`, M the number of tokens of a ragged batch. Heads are groups of
    `head_dim` neighbouring channels, so that head split and merge are no operations. The only dynamic sizes are the
    token count, the number of sequences and their lengths.

    Ops that belong to a decoder layer carry the discardable attribute `prefill.layer` (i64).
  }];
  let extraClassDeclaration = [{
    void registerTypes();
    void registerAttrs();
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
  let hasOperationAttrVerify = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

#endif
