//===- FuseQKVProjection.cpp - query, key and value in one GEMM -----------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_FUSEQKVPROJECTIONPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// The linear that `value` comes from, through ops that keep its shape.
static LinearOp traceToLinear(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto linear = dyn_cast<LinearOp>(op))
      return linear;
    if (!isa<RopeOp, ScaleOp, RMSNormOp>(op))
      return {};
    value = op->getOperand(0);
  }
  return {};
}

namespace {
struct Projections {
  LinearOp query, key, value;
  SmallVector<LinearOp, 3> all() { return {query, key, value}; }
};

class FuseQKVProjectionPass
    : public mlir::prefill::impl::FuseQKVProjectionPassBase<
          FuseQKVProjectionPass> {
  void runOnOperation() override {
    WeightSteps steps(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto attention :
           llvm::make_early_inc_range(function.getOps<AttentionOp>())) {
        Projections found;
        if (std::optional<std::string> reason = match(attention, found)) {
          noteNotFolded(attention, getArgument(), *reason);
          ++numNotFused;
          continue;
        }
        fuse(found, steps);
        ++numFused;
      }
      eraseDeadGetWeights(function);
    }
  }

  /// Fills `found`, or says why the projections of `attention` stay apart.
  static std::optional<std::string> match(AttentionOp attention,
                                          Projections &found);
  static void fuse(Projections &projections, WeightSteps &steps);
};
} // namespace

std::optional<std::string> FuseQKVProjectionPass::match(AttentionOp attention,
                                                        Projections &found) {
  auto append = attention.getCache().getDefiningOp<KVAppendOp>();
  if (!append)
    return "the cache that attention reads is no result of a kv_append here";
  found.query = traceToLinear(attention.getQuery());
  found.key = traceToLinear(append.getKey());
  found.value = traceToLinear(append.getValue());
  if (!found.query || !found.key || !found.value)
    return "query, key and value do not all come from a linear";
  if (found.query == found.key || found.query == found.value ||
      found.key == found.value)
    return "query, key and value are not three linears";
  for (LinearOp linear : found.all()) {
    if (linear.getInput() != found.query.getInput())
      return "the projections read different inputs";
    if (linear->getBlock() != found.query->getBlock())
      return "the projections stand in different blocks";
    if (!getWeightSymbol(linear.getWeight()))
      return "a projection's weight is no prefill.get_weight";
    if (linear.getBias() && !getWeightSymbol(linear.getBias()))
      return "a projection's bias is no prefill.get_weight";
    if (cast<RankedTensorType>(linear.getWeight().getType()).getElementType() !=
        cast<RankedTensorType>(found.query.getWeight().getType())
            .getElementType())
      return "the projections' weights have different element types";
  }
  return std::nullopt;
}

void FuseQKVProjectionPass::fuse(Projections &projections, WeightSteps &steps) {
  SmallVector<LinearOp, 3> linears = projections.all();
  LinearOp query = projections.query;
  LinearOp first = query;
  for (LinearOp linear : linears)
    if (linear->isBeforeInBlock(first))
      first = linear;

  OpBuilder builder(first);
  Location loc = builder.getFusedLoc(
      {query.getLoc(), projections.key.getLoc(), projections.value.getLoc()});
  SmallVector<FlatSymbolRefAttr> weights, biases;
  SmallVector<Type> resultTypes, partTypes;
  int64_t columns = 0;
  for (LinearOp linear : linears) {
    weights.push_back(getWeightSymbol(linear.getWeight()));
    if (linear.getBias())
      biases.push_back(getWeightSymbol(linear.getBias()));
    auto type = cast<RankedTensorType>(linear.getType());
    resultTypes.push_back(type);
    partTypes.push_back(withF32Elements(type));
    columns += type.getDimSize(1);
  }

  MLIRContext *context = builder.getContext();
  auto weightType = cast<RankedTensorType>(query.getWeight().getType());
  Value weight =
      steps.append(builder, loc,
                   replaceNamePart(weights[0].getValue(), "q_proj", "qkv_proj"),
                   RankedTensorType::get({columns, weightType.getDimSize(1)},
                                         weightType.getElementType()),
                   ConcatAttr::get(context, weights));
  Value bias;
  if (biases.size() == linears.size())
    bias = steps.append(
        builder, loc,
        replaceNamePart(biases[0].getValue(), "q_proj", "qkv_proj"),
        RankedTensorType::get(
            {columns},
            cast<RankedTensorType>(query.getBias().getType()).getElementType()),
        ConcatAttr::get(context, biases));
  else
    for (LinearOp linear : linears)
      if (Value partBias = linear.getBias())
        if (first->isBeforeInBlock(partBias.getDefiningOp()))
          partBias.getDefiningOp()->moveBefore(first);

  GemmOp gemm = createGemm(
      builder, loc, query.getInput(), weight, resultTypes,
      [&](OpBuilder &b, Value accumulator) {
        if (bias)
          accumulator = BiasAddOp::create(b, loc, accumulator.getType(),
                                          accumulator, bias);
        auto split = SplitOp::create(b, loc, partTypes, accumulator);
        SmallVector<Value> parts(split.getResults());
        // A bias that only some have is added to their part.
        if (!bias)
          for (auto [part, linear] : llvm::zip_equal(parts, linears))
            if (Value partBias = linear.getBias())
              part = BiasAddOp::create(b, loc, part.getType(), part, partBias);
        return parts;
      });
  copyLayer(query, gemm);
  gemm->setAttr(kNameAttr, builder.getStringAttr("qkv_proj"));
  for (auto [linear, result] : llvm::zip_equal(linears, gemm.getResults())) {
    linear.getResult().replaceAllUsesWith(result);
    linear.erase();
  }
}
