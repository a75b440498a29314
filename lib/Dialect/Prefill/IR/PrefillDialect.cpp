//===- PrefillDialect.cpp - the dialect's registration
//---------------------===//
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

#include "prefill/Dialect/Prefill/IR/PrefillDialect.cpp.inc"
#include "prefill/Dialect/Prefill/IR/PrefillEnums.cpp.inc"

namespace {
/// Names for what would otherwise be repeated in full: `!kv_cache`, `#rope`.
struct PrefillAsmInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;

  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isa<RopeAttr>(attr))
      return AliasResult::NoAlias;
    os << "rope";
    return AliasResult::OverridableAlias;
  }
  AliasResult getAlias(Type type, raw_ostream &os) const override {
    if (!isa<KVCacheType>(type))
      return AliasResult::NoAlias;
    os << "kv_cache";
    return AliasResult::OverridableAlias;
  }
};
} // namespace

void PrefillDialect::initialize() {
  addInterfaces<PrefillAsmInterface>();
  registerTypes();
  registerAttrs();
  addOperations<
#define GET_OP_LIST
#include "prefill/Dialect/Prefill/IR/PrefillOps.cpp.inc"
      >();
}

void mlir::prefill::nameResults(Operation *op, OpAsmSetValueNameFn setName) {
  auto nameAll = [&](ArrayRef<StringRef> names) {
    for (auto [result, name] : llvm::zip_equal(op->getResults(), names))
      setName(result, name);
  };
  if (isa<AttentionWorkgroupOp>(op))
    return nameAll({"sequence", "row_begin", "row_end", "kv_head", "seqlen_q",
                    "seqlen_kv"});
  if (isa<OnlineAttentionOp>(op))
    return nameAll({"accumulator", "row_max", "row_sum"});
  if (auto attention = dyn_cast<AttentionOp>(op);
      attention && attention.getNumSplits() && attention.getLse())
    return nameAll({"partials", "lse"});
  StringRef name = op->getName().stripDialect();
  if (auto weight = dyn_cast<GetWeightOp>(op))
    name = weight.getName();
  else if (auto given = op->getAttrOfType<StringAttr>(kNameAttr))
    name = given.getValue();
  // Lists of results share the first one's name: `%qkv_proj#1`.
  bool isList =
      isa<GemmOp, RowwiseOp, SplitOp, AttentionPartialOp, LaunchOp>(op);
  for (OpResult result : op->getResults())
    if (!isList || result.getResultNumber() == 0)
      setName(result, isa<KVCacheType>(result.getType()) ? "cache" : name);
}
