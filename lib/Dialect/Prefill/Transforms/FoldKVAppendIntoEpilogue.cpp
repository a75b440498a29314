//===- FoldKVAppendIntoEpilogue.cpp - what follows the QKV GEMM -----------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FOLDKVAPPENDINTOEPILOGUEPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Whether the pass tries to move `op`.
static bool isCandidate(Operation *op) {
  if (auto norm = dyn_cast<RMSNormOp>(op))
    return norm.getHeadDim().has_value();
  return isa<RopeOp, ScaleOp, KVAppendOp>(op);
}

/// The group of columns that `op` needs whole, or 1.
static int64_t headDim(Operation *op) {
  return TypeSwitch<Operation *, int64_t>(op)
      .Case([](RopeOp rope) { return static_cast<int64_t>(rope.getHeadDim()); })
      .Case([](RMSNormOp norm) {
        return static_cast<int64_t>(*norm.getHeadDim());
      })
      .Case([](KVAppendOp append) {
        return cast<KVCacheType>(append.getCache().getType()).getHeadDimQk();
      })
      .Default([](Operation *) { return 1; });
}

/// A workgroup's tile is a whole number of heads, so heads and the borders of
/// Q | K | V fall on its edges only if every part is a whole number of heads.
static std::optional<std::string> whyTilesStraddle(Operation *op,
                                                   ValueRange parts) {
  int64_t head = headDim(op);
  for (Value part : parts)
    if (numColumns(part) % head != 0)
      return ("tiles of whole heads of " + Twine(head) +
              " columns would straddle a part of " + Twine(numColumns(part)) +
              " columns")
          .str();
  return std::nullopt;
}

namespace {
class FoldKVAppendIntoEpiloguePass
    : public mlir::prefill::impl::FoldKVAppendIntoEpiloguePassBase<
          FoldKVAppendIntoEpiloguePass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      // In program order: an op's operand is a gemm's result once the op
      // before it has moved.
      SmallVector<Operation *> candidates;
      for (Operation &op : function.getOps())
        if (isCandidate(&op))
          candidates.push_back(&op);
      for (Operation *op : candidates) {
        if (std::optional<std::string> reason = tryToFold(op)) {
          noteNotFolded(op, getArgument(), *reason);
          ++numNotFolded;
        } else {
          ++numFolded;
        }
      }
    }
  }

  /// Moves `op`, or says why not.
  static std::optional<std::string> tryToFold(Operation *op) {
    Operation *producer = op->getOperand(0).getDefiningOp();
    if (!isa_and_nonnull<GemmOp, LinearOp>(producer))
      return "its operand is no projection's result";
    if (auto append = dyn_cast<KVAppendOp>(op))
      if (append.getValue().getDefiningOp() != producer)
        return "key and value come from different GEMMs";
    // All columns of the accumulator that the epilogue cuts into parts.
    SmallVector<Value> parts(producer->getResults());
    if (auto gemm = dyn_cast<GemmOp>(producer)) {
      parts.clear();
      for (SplitOp split : gemm.getEpilogue().getOps<SplitOp>())
        llvm::append_range(parts, split.getResults());
      if (parts.empty())
        parts.push_back(op->getOperand(0));
    }
    if (std::optional<std::string> reason = whyTilesStraddle(op, parts))
      return reason;
    producer = getOrCreateProducerGemm(op->getOperand(0));
    if (std::optional<std::string> reason = whyNotAbsorbable(producer, op))
      return reason;
    absorb(producer, op);
    return std::nullopt;
  }
};
} // namespace
