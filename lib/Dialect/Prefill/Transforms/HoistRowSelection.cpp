//===- HoistRowSelection.cpp - rows are selected before the work on them --===//
// Only some rows need logits. An op that computes row i from row i alone may
// run on these rows: f(x)[rows] = f(x[rows]). In a decoder that is all of the
// last layer behind its keys and values; attention has a form of its own that
// computes and stores selected rows.
//===----------------------------------------------------------------------===//
#include "mlir/IR/Remarks.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_HOISTROWSELECTIONPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Whether row i of the result follows from row i of the operands, whichever
/// row of the batch it is: rope, for one, asks for the row's position.
static bool isRowLocal(Operation &op) {
  return isa<RMSNormOp, LinearOp, GatedActOp, AddOp, ScaleOp>(op);
}

/// Whether the value has a row for each row of the batch, as weights do not.
static bool hasRows(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() == 2 && type.isDynamicDim(0);
}

namespace {
class HoistRowSelectionPass
    : public mlir::prefill::impl::HoistRowSelectionPassBase<
          HoistRowSelectionPass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        hoist(function);
  }

  void hoist(func::FuncOp function);
};

/// The ops of one selection that move behind it.
using OpSet = llvm::SmallSetVector<Operation *, 16>;
} // namespace

/// Ops whose rows nobody reads but the batch's selection, in the block's order.
static OpSet collectBehindSelection(Block &block, Value batch) {
  llvm::SmallPtrSet<Operation *, 16> found;
  auto readsSelectedRows = [&](Operation *user) {
    auto select = dyn_cast<SelectRowsOp>(user);
    return select ? select.getBatch() == batch : found.contains(user);
  };
  auto canSelect = [&](Operation &op) {
    auto attention = dyn_cast<AttentionOp>(op);
    return attention
               ? attention.getBatch() == batch && !attention.getSelectedRows()
               : isRowLocal(op);
  };
  for (Operation &op : llvm::reverse(block))
    if (canSelect(op) && !op.use_empty() &&
        llvm::all_of(op.getUsers(), readsSelectedRows))
      found.insert(&op);
  OpSet ordered;
  for (Operation &op : block)
    if (found.contains(&op))
      ordered.insert(&op);
  return ordered;
}

void HoistRowSelectionPass::hoist(func::FuncOp function) {
  Block &block = function.getBody().front();
  SmallVector<SelectRowsOp> selections(function.getOps<SelectRowsOp>());
  llvm::SmallSetVector<Value, 1> batches;
  for (SelectRowsOp selection : selections)
    batches.insert(selection.getBatch());
  for (Value batch : batches) {
    OpSet moved = collectBehindSelection(block, batch);
    if (moved.empty())
      continue;

    // A value is selected once. As early as it can be, so that the selections
    // stand together.
    llvm::SmallDenseMap<Value, Value> selected;
    auto select = [&](Value value) -> Value {
      Value &known = selected[value];
      if (known)
        return known;
      OpBuilder builder(moved.front());
      Operation *producer = value.getDefiningOp();
      if (producer && !producer->isBeforeInBlock(moved.front()))
        builder.setInsertionPointAfter(producer);
      return known = SelectRowsOp::create(builder, value.getLoc(),
                                          value.getType(), value, batch);
    };
    for (Operation *op : moved) {
      if (auto attention = dyn_cast<AttentionOp>(op)) {
        attention.setSelectedRows(true);
        continue;
      }
      for (OpOperand &operand : op->getOpOperands())
        if (hasRows(operand.get()) &&
            !moved.contains(operand.get().getDefiningOp()))
          operand.set(select(operand.get()));
    }

    for (SelectRowsOp selection : selections)
      if (selection.getBatch() == batch &&
          moved.contains(selection.getInput().getDefiningOp())) {
        selection.replaceAllUsesWith(selection.getInput());
        selection.erase();
      }
    numMoved += moved.size();
    numSelections += selected.size();
    remark::passed(function.getLoc(), remark::RemarkOpts::name(getArgument())
                                          .category("prefill-rows")
                                          .function(function.getName()))
        << remark::add("{0} ops compute only the rows whose logits are asked "
                       "for",
                       moved.size());
  }
}
