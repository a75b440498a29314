//===- RowDomains.cpp - which row count a tensor follows ------------------===//
#include "prefill/Analysis/RowDomains.h"

using namespace mlir;
using namespace mlir::prefill;

RowDomains::RowDomains(func::FuncOp function) {
  if (function.isExternal())
    return;
  for (Operation &op : function.getBody().front())
    visit(&op);
}

RowDomain RowDomains::get(Value value) const {
  auto known = domains.find(value);
  return known == domains.end() ? RowDomain::Tokens : known->second;
}

/// Whether the tensor has a row for each row of its domain, as weights do not.
static bool hasRows(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 2 && type.isDynamicDim(0);
}

void RowDomains::visit(Operation *op) {
  // The rows of the first operand that has rows.
  auto ofOperands = [&](Operation *of) {
    for (Value operand : of->getOperands())
      if (hasRows(operand))
        return get(operand);
    return RowDomain::Tokens;
  };
  if (op->getNumRegions() == 1 && op->getRegion(0).hasOneBlock()) {
    Block &block = op->getRegion(0).front();
    for (BlockArgument argument : block.getArguments())
      domains[argument] = ofOperands(op);
    for (Operation &nested : block)
      visit(&nested);
    for (auto [result, yielded] :
         llvm::zip(op->getResults(), block.getTerminator()->getOperands()))
      domains[result] = get(yielded);
    return;
  }
  auto attention = dyn_cast<AttentionOp>(op);
  RowDomain domain =
      isa<SelectRowsOp>(op) || (attention && attention.getSelectedRows())
          ? RowDomain::Logits
          : ofOperands(op);
  for (Value result : op->getResults())
    domains[result] = domain;
}
