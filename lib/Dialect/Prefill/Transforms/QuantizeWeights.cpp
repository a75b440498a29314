//===- QuantizeWeights.cpp - projections of 8-bit integers ----------------===//
// x w^T = sum_k (q_x s_x) (q_w s_w) = s_x s_w sum_k q_x q_w: the scales of rows
// and of output channels leave the sum, so that it is one of integers. Scales
// of weights are one for each output channel; those of activations, one for
// each row, are made as rows come (dynamic quantization per token).
//===----------------------------------------------------------------------===//
#include "mlir/IR/TypeUtilities.h"
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_QUANTIZEWEIGHTSPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// Why a linear or gemm keeps its weight; nullopt if it becomes one of
/// integers.
static std::optional<std::string>
whyNotQuantizable(Operation *projection,
                  const llvm::DenseSet<Attribute> &embeddings) {
  Value weight = weightOperand(projection).get();
  FlatSymbolRefAttr symbol = getWeightSymbol(weight);
  if (!symbol)
    return "its weight is no prefill.get_weight";
  if (embeddings.contains(symbol))
    return ("weight @" + symbol.getValue() +
            " is tied to the embedding and keeps its values")
        .str();
  auto type = cast<RankedTensorType>(weight.getType());
  if (type.getRank() != 2)
    return ("weight @" + symbol.getValue() + " is packed").str();
  if (!projection->hasAttr(kLayerAttr))
    return "it belongs to no decoder layer";
  if (int64_t k = type.getDimSize(1); k > kMaxInt8K)
    return ("it has K = " + Twine(k) + ", and sums of more than " +
            Twine(kMaxInt8K) + " products may not fit 32 bits")
        .str();
  return std::nullopt;
}

namespace {
/// Values that are quantized, with the gemms that read them.
using Readers = llvm::MapVector<Value, SmallVector<GemmOp>>;

class QuantizeWeightsPass
    : public mlir::prefill::impl::QuantizeWeightsPassBase<QuantizeWeightsPass> {
  void runOnOperation() override {
    recordGraphPass(getOperation(), getArgument());
    WeightSteps steps(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto &[input, gemms] : collect(function)) {
        RowwiseOp rows = quantizeInput(input, gemms);
        for (GemmOp gemm : gemms)
          quantize(gemm, rows, steps);
      }
      eraseDeadGetWeights(function);
    }
  }

  Readers collect(func::FuncOp function);
  RowwiseOp quantizeInput(Value input, ArrayRef<GemmOp> gemms);
  void quantize(GemmOp gemm, RowwiseOp rows, WeightSteps &steps);
};
} // namespace

Readers QuantizeWeightsPass::collect(func::FuncOp function) {
  llvm::DenseSet<Attribute> embeddings;
  function.walk([&](EmbedOp embed) {
    if (FlatSymbolRefAttr table = getWeightSymbol(embed.getTable()))
      embeddings.insert(table);
  });
  Readers readers;
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    // Of integers already.
    auto known = dyn_cast<GemmOp>(op);
    if (!isa<LinearOp, GemmOp>(op) ||
        (known && getElementTypeOrSelf(known.getInput()).isSignlessInteger(8)))
      continue;
    if (std::optional<std::string> reason =
            whyNotQuantizable(&op, embeddings)) {
      noteNotFolded(&op, getArgument(), "not quantized: " + *reason);
      continue;
    }
    GemmOp gemm = known ? known : convertToGemm(cast<LinearOp>(op));
    readers[gemm.getInput()].push_back(gemm);
  }
  return readers;
}

/// A norm of whole rows that only `gemms` read: the kernel that quantizes has
/// whole rows too.
static RMSNormOp absorbableNorm(Value input, ArrayRef<GemmOp> gemms) {
  auto norm = input.getDefiningOp<RMSNormOp>();
  if (!norm ||
      (norm.getHeadDim() && int64_t(*norm.getHeadDim()) != numColumns(input)))
    return {};
  bool isRead = llvm::all_of(norm->getUses(), [&](OpOperand &use) {
    auto gemm = dyn_cast<GemmOp>(use.getOwner());
    return gemm && llvm::is_contained(gemms, gemm);
  });
  return isRead ? norm : RMSNormOp();
}

/// The kernel that quantizes the input of `gemms`, in front of the first.
RowwiseOp QuantizeWeightsPass::quantizeInput(Value input,
                                             ArrayRef<GemmOp> gemms) {
  GemmOp first = gemms.front();
  Location loc = first.getLoc();
  OpBuilder builder(first);
  auto type = cast<RankedTensorType>(input.getType());
  Type types[] = {
      type.clone(builder.getI8Type()),
      RankedTensorType::get({type.getDimSize(0), 1}, builder.getF32Type())};
  auto rowwise = RowwiseOp::create(builder, loc, types, ValueRange{},
                                   ValueRange{}, LoweringConfigAttr{});
  copyLayer(first, rowwise);
  auto name = first->getAttrOfType<StringAttr>(kNameAttr);
  rowwise->setAttr(kNameAttr,
                   builder.getStringAttr(
                       "quantize_" + (name ? name.getValue()
                                           : first->getName().stripDialect())));
  builder.createBlock(&rowwise.getBody());
  if (RMSNormOp norm = absorbableNorm(input, gemms)) {
    // Nobody stores it, so that it is not rounded.
    auto inside = cast<RMSNormOp>(builder.clone(*norm));
    inside->setDiscardableAttrs(DictionaryAttr::get(&getContext()));
    inside.removeHeadDimAttr();
    inside.getResult().setType(withF32Elements(type));
    input = inside.getResult();
    ++numNorms;
  }
  auto quantize =
      QuantizeRowsOp::create(builder, loc, types[0], types[1], input);
  YieldOp::create(builder, loc, quantize.getResults());
  return rowwise;
}

/// `rows` has the integers and scales of the gemm's input.
void QuantizeWeightsPass::quantize(GemmOp gemm, RowwiseOp rows,
                                   WeightSteps &steps) {
  Location loc = gemm.getLoc();
  OpBuilder builder(gemm);
  FlatSymbolRefAttr symbol = getWeightSymbol(gemm.getWeight());
  auto type = cast<RankedTensorType>(gemm.getWeight().getType());
  GetWeightOp integers =
      steps.append(builder, loc, (symbol.getValue() + ".int8").str(),
                   type.clone(builder.getI8Type()),
                   QuantizeAttr::get(builder.getContext(), symbol));
  GetWeightOp scales = steps.append(
      builder, loc, (symbol.getValue() + ".scale").str(),
      RankedTensorType::get({type.getDimSize(0)}, builder.getF32Type()),
      QuantizeScaleAttr::get(builder.getContext(), symbol));

  Value input = gemm.getInput();
  gemm.getInputMutable().assign(rows.getResult(0));
  gemm.getWeightMutable().assign(integers);
  // A norm that moved into `rows` is read by none once its last gemm is done.
  if (auto norm = input.getDefiningOp<RMSNormOp>(); norm && norm.use_empty())
    norm.erase();

  // Before all else: nodes of the epilogue know nothing of integers.
  Block &epilogue = gemm.getEpilogue().front();
  BlockArgument accumulator = epilogue.getArgument(0);
  builder.setInsertionPointToStart(&epilogue);
  auto dequantize =
      DequantizeOp::create(builder, loc, accumulator.getType(), accumulator,
                           rows.getResult(1), scales);
  accumulator.replaceAllUsesExcept(dequantize.getResult(), dequantize);
  ++numQuantized;
}
