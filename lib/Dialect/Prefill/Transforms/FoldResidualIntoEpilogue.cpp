//===- FoldResidualIntoEpilogue.cpp - residual add and row sums -----------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FOLDRESIDUALINTOEPILOGUEPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// A rowwise that does what `embed` does.
static RowwiseOp wrapInRowwise(EmbedOp embed) {
  OpBuilder builder(embed);
  auto rowwise =
      RowwiseOp::create(builder, embed.getLoc(), embed->getResultTypes(),
                        ValueRange{}, ValueRange{}, LoweringConfigAttr{});
  builder.createBlock(&rowwise.getBody());
  Operation *inside = builder.clone(*embed);
  YieldOp::create(builder, embed.getLoc(), inside->getResults());
  rowwise->setDiscardableAttrs(embed->getDiscardableAttrDictionary());
  rowwise->setAttr(kNameAttr, builder.getStringAttr("embed"));
  inside->removeDiscardableAttr(kNameAttr);
  inside->removeDiscardableAttr(kLayerAttr);
  embed->replaceAllUsesWith(rowwise->getResults());
  embed.erase();
  return rowwise;
}

namespace {
class FoldResidualIntoEpiloguePass
    : public mlir::prefill::impl::FoldResidualIntoEpiloguePassBase<
          FoldResidualIntoEpiloguePass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto add : llvm::make_early_inc_range(function.getOps<AddOp>())) {
        if (std::optional<std::string> reason = foldAdd(add)) {
          noteNotFolded(add, getArgument(), *reason);
          ++numNotFolded;
        } else {
          ++numAddsFolded;
        }
      }
      foldSelections(function);
      for (auto sumsq :
           llvm::make_early_inc_range(function.getOps<RowSumsqOp>())) {
        if (std::optional<std::string> reason = foldSumsq(sumsq)) {
          noteNotFolded(sumsq, getArgument(), *reason);
          ++numNotFolded;
        } else {
          ++numSumsFolded;
        }
      }
    }
  }

  /// Rows of the residual stream are picked where they are added.
  void foldSelections(func::FuncOp function) {
    for (auto select :
         llvm::make_early_inc_range(function.getOps<SelectRowsOp>())) {
      bool isAddend = llvm::all_of(select->getUsers(), [](Operation *user) {
        return isa<AddOp>(user) && isa<GemmOp>(user->getParentOp());
      });
      if (select.use_empty() || !isAddend)
        continue;
      for (OpOperand &use : llvm::make_early_inc_range(select->getUses())) {
        OpBuilder builder(use.getOwner());
        use.set(builder.clone(*select)->getResult(0));
      }
      select.erase();
      ++numSelectionsFolded;
    }
  }

  static std::optional<std::string> foldAdd(AddOp add) {
    // The later operand is the branch, the earlier one the residual stream.
    SmallVector<Value, 2> branches;
    for (Value operand : {add.getLhs(), add.getRhs()})
      if (isa_and_nonnull<LinearOp, GemmOp>(operand.getDefiningOp()) &&
          operand.getDefiningOp()->getBlock() == add->getBlock())
        branches.push_back(operand);
    if (branches.empty())
      return "neither operand is a projection's result";
    if (branches.size() == 2 && branches[0].getDefiningOp()->isBeforeInBlock(
                                    branches[1].getDefiningOp()))
      std::swap(branches[0], branches[1]);
    std::optional<std::string> firstReason;
    for (Value branch : branches) {
      std::optional<std::string> reason;
      if (!branch.hasOneUse() && add.getLhs() != add.getRhs()) {
        reason = "the projection's result has other users";
      } else {
        GemmOp gemm = getOrCreateProducerGemm(branch);
        reason = whyNotAbsorbable(gemm, add);
        if (!reason) {
          absorb(gemm, add);
          return std::nullopt;
        }
      }
      if (!firstReason)
        firstReason = reason;
    }
    return firstReason;
  }

  static std::optional<std::string> foldSumsq(RowSumsqOp sumsq) {
    Operation *producer = sumsq.getInput().getDefiningOp();
    if (auto embed = dyn_cast_or_null<EmbedOp>(producer))
      producer = wrapInRowwise(embed);
    if (!isa_and_nonnull<GemmOp, RowwiseOp>(producer))
      return "its operand is not stored by a GEMM or the embedding";
    if (std::optional<std::string> reason = whyNotAbsorbable(producer, sumsq))
      return reason;
    absorb(producer, sumsq);
    return std::nullopt;
  }
};
} // namespace
