//===- PadM.cpp - row counts that kernels are run with --------------------===//
#include "mlir/IR/Remarks.h"
#include "prefill/Analysis/ActivationBuffers.h"
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/RowBuckets.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_PADMPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

LoweringConfigAttr prefill::getLoweringConfig(Operation *op) {
  return op->getAttrOfType<LoweringConfigAttr>("lowering_config");
}

double prefill::worstPaddingFraction(int64_t previous, int64_t bucket) {
  return double(bucket - previous - 1) / double(bucket);
}

std::optional<std::string>
prefill::whyInvalidRowBuckets(ArrayRef<int64_t> buckets) {
  if (buckets.empty())
    return "row buckets are empty, expected at least one";
  int64_t previous = 0;
  for (int64_t bucket : buckets) {
    if (bucket <= previous)
      return ("row buckets hold " + Twine(bucket) + " after " +
              Twine(previous) + ", expected increasing positive numbers")
          .str();
    previous = bucket;
  }
  return std::nullopt;
}

static std::string listed(ArrayRef<int64_t> numbers) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::interleaveComma(numbers, stream);
  return text;
}

namespace {
class PadMPass : public mlir::prefill::impl::PadMPassBase<PadMPass> {
public:
  using PadMPassBase::PadMPassBase;

private:
  void runOnOperation() override {
    SmallVector<int64_t> rows(buckets.begin(), buckets.end());
    if (rows.empty() && StringRef(target).starts_with("cuda:"))
      rows.assign(gemmBlockHeights().rbegin(), gemmBlockHeights().rend());
    else if (rows.empty())
      llvm::append_range(rows, kCpuRowBuckets);
    if (std::optional<std::string> reason = whyInvalidRowBuckets(rows)) {
      emitError(getOperation().getLoc()) << getArgument() << ": " << *reason;
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (Operation &op : function.getBody().front())
        if (isa<GemmOp, RowwiseOp, AttentionOp>(op) &&
            failed(setBuckets(&op, rows)))
          return signalPassFailure();
    }
    reportCost(rows);
  }

  /// An op that already has other buckets than the plain [1] would disagree
  /// with its producers and consumers about the rows of a buffer.
  LogicalResult setBuckets(Operation *op, ArrayRef<int64_t> rows) {
    LoweringConfigAttr config = getLoweringConfig(op);
    if (!config)
      return emitError(op->getLoc())
             << op->getName() << " has no lowering_config (run "
             << "prefill-select-lowering-strategy first)";
    ArrayRef<int64_t> present = config.getRowBuckets();
    if (present != ArrayRef<int64_t>{1} && present != rows)
      return emitError(op->getLoc())
             << op->getName() << " has row_buckets [" << listed(present)
             << "], but its producers and consumers get [" << listed(rows)
             << "]";
    op->setAttr("lowering_config",
                LoweringConfigAttr::get(op->getContext(), config.getDomain(),
                                        config.getBlockM(), config.getBlockN(),
                                        config.getBlockKv(), config.getPanelN(),
                                        rows));
    ++numPadded;
    return success();
  }

  void reportCost(ArrayRef<int64_t> rows) {
    auto report = [&](int64_t previous, int64_t bucket) {
      double fraction = worstPaddingFraction(previous, bucket);
      maxPaddingPercent.updateMax(unsigned(fraction * 100));
      remark::analysis(
          getOperation().getLoc(),
          remark::RemarkOpts::name(getArgument()).category("prefill-padding"))
          << remark::add("{0} to {1} rows are padded to {1}: at most {2:P} of "
                         "the rows are padding",
                         previous + 1, bucket, fraction);
    };
    int64_t previous = 0;
    for (int64_t bucket : rows) {
      report(previous, bucket);
      previous = bucket;
    }
    // Above the last: its multiples, worst right above it.
    report(previous, 2 * previous);
  }
};
} // namespace
