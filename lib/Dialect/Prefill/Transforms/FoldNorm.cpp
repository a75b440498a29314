//===- FoldNorm.cpp - RMSNorm into weights and epilogues ------------------===//
// (x / rms(x) * gain) w^T = (x (w * gain)^T) / rms(x): the gain scales the
// weight's columns once at load time, 1/rms scales the accumulator's rows.
//===----------------------------------------------------------------------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FOLDNORMPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {
class FoldNormPass
    : public mlir::prefill::impl::FoldNormPassBase<FoldNormPass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    WeightSteps steps(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      llvm::DenseSet<Attribute> embeddings;
      function.walk([&](EmbedOp embed) {
        if (FlatSymbolRefAttr table = getWeightSymbol(embed.getTable()))
          embeddings.insert(table);
      });
      for (auto norm :
           llvm::make_early_inc_range(function.getOps<RMSNormOp>())) {
        // The norm of a head needs no row sums: fold-kv-append takes it.
        if (norm.getHeadDim() && static_cast<int64_t>(*norm.getHeadDim()) !=
                                     numColumns(norm.getInput()))
          continue;
        if (std::optional<std::string> reason =
                whyNotFoldable(norm, embeddings)) {
          noteNotFolded(norm, getArgument(), *reason);
          ++numNotFolded;
          continue;
        }
        fold(norm, steps);
        ++numFolded;
      }
      eraseDeadGetWeights(function);
    }
  }

  static std::optional<std::string>
  whyNotFoldable(RMSNormOp norm, const llvm::DenseSet<Attribute> &embeddings);
  static void fold(RMSNormOp norm, WeightSteps &steps);
};
} // namespace

std::optional<std::string>
FoldNormPass::whyNotFoldable(RMSNormOp norm,
                             const llvm::DenseSet<Attribute> &embeddings) {
  if (!getWeightSymbol(norm.getGain()))
    return "its gain is no prefill.get_weight";
  if (norm->use_empty())
    return "nothing uses it";
  for (OpOperand &use : norm->getUses()) {
    Operation *user = use.getOwner();
    if (isa<LMHeadOp>(user))
      return "its user is lm_head, whose weight may be the embedding and keeps "
             "its values";
    if (!isa<LinearOp, GemmOp>(user) || use.getOperandNumber() != 0)
      return ("its user " + user->getName().getStringRef() +
              " is no projection that could scale its rows")
          .str();
    FlatSymbolRefAttr weight = getWeightSymbol(weightOperand(user).get());
    if (!weight)
      return "a projection's weight is no prefill.get_weight";
    if (embeddings.contains(weight))
      return ("weight @" + weight.getValue() +
              " is tied to the embedding and keeps its values")
          .str();
  }
  return std::nullopt;
}

void FoldNormPass::fold(RMSNormOp norm, WeightSteps &steps) {
  Location loc = norm.getLoc();
  Value input = norm.getInput();
  auto inputType = cast<RankedTensorType>(input.getType());
  OpBuilder builder(norm);

  // One sum of squares for each value; it stands by its producer, into whose
  // region fold-residual-into-epilogue moves it.
  RowSumsqOp sumsq;
  for (Operation *user : input.getUsers())
    if (auto existing = dyn_cast<RowSumsqOp>(user))
      if (existing->getBlock() == norm->getBlock())
        sumsq = existing;
  if (!sumsq) {
    builder.setInsertionPointAfterValue(input);
    sumsq =
        RowSumsqOp::create(builder, loc,
                           RankedTensorType::get({inputType.getDimSize(0), 1},
                                                 builder.getF32Type()),
                           input);
    if (Operation *producer = input.getDefiningOp())
      copyLayer(producer, sumsq);
  }

  FlatSymbolRefAttr gain = getWeightSymbol(norm.getGain());
  SmallVector<Operation *> consumers(norm->getUsers());
  for (Operation *consumer : consumers) {
    OpOperand &weight = weightOperand(consumer);
    FlatSymbolRefAttr symbol = getWeightSymbol(weight.get());
    builder.setInsertionPoint(consumer);
    Value scaled =
        steps.append(builder, loc, (symbol.getValue() + ".gain_folded").str(),
                     cast<RankedTensorType>(weight.get().getType()),
                     ScaleColumnsAttr::get(builder.getContext(), symbol, gain));
    weight.set(scaled);
    GemmOp gemm = isa<LinearOp>(consumer)
                      ? convertToGemm(cast<LinearOp>(consumer))
                      : cast<GemmOp>(consumer);
    gemm.getInputMutable().assign(input);

    // Before the bias: the bias is no part of the product.
    BlockArgument accumulator = gemm.getEpilogue().getArgument(0);
    builder.setInsertionPointToStart(&gemm.getEpilogue().front());
    auto scale = RowRMSScaleOp::create(
        builder, loc, accumulator.getType(), accumulator, sumsq,
        norm.getEpsAttr(), builder.getI64IntegerAttr(inputType.getDimSize(1)));
    accumulator.replaceAllUsesExcept(scale.getResult(), scale);
  }
  norm.erase();
}
