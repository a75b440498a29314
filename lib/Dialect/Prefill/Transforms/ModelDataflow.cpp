//===- ModelDataflow.cpp - caches and rows of level model -----------------===//
// Compiled kernels write a cache in place and size a buffer by what its rows
// are, so that the plan of a function that breaks these rules would mean
// something else than the function.
//===----------------------------------------------------------------------===//
#include "ModelContract.h"
#include "prefill/Analysis/RowDomains.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

/// The layer whose cache an argument of the entry function is, or -1.
static int64_t layerOfCache(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument ? int64_t(argument.getArgNumber()) - 1 : -1;
}

/// CACHES-C4: the op's layer is that of its cache.
static LogicalResult verifyLayer(Operation *op, int64_t cacheLayer) {
  auto layer = op->getAttrOfType<IntegerAttr>(kLayerAttr);
  if (!layer)
    return emitError(op->getLoc())
           << op->getName() << " has no prefill.layer, expected " << cacheLayer
           << ", the layer of its cache";
  if (layer.getInt() != cacheLayer)
    return emitError(op->getLoc())
           << op->getName() << " has prefill.layer " << layer.getInt()
           << ", but uses the cache of layer " << cacheLayer;
  return success();
}

static LogicalResult verifyCaches(func::FuncOp function) {
  SmallVector<KVAppendOp> appends(function.getNumArguments() - 1);
  for (auto append : function.getOps<KVAppendOp>()) {
    // CACHES-C1
    int64_t layer = layerOfCache(append.getCache());
    if (layer < 0)
      return emitError(append.getLoc())
             << "prefill.kv_append appends to the result of another "
                "prefill.kv_append, expected a cache argument of @"
             << function.getName();
    if (appends[layer])
      return emitError(append.getLoc())
             << "the cache of layer " << layer
             << " has a second prefill.kv_append, expected one";
    if (failed(verifyLayer(append, layer)))
      return failure();
    appends[layer] = append;
  }
  for (auto attention : function.getOps<AttentionOp>()) {
    // CACHES-C2
    auto append = attention.getCache().getDefiningOp<KVAppendOp>();
    if (!append)
      return emitError(attention.getLoc())
             << "prefill.attention reads the cache of layer "
             << layerOfCache(attention.getCache())
             << " as it was before this call, expected the result of the "
                "layer's prefill.kv_append";
    if (failed(verifyLayer(attention, layerOfCache(append.getCache()))))
      return failure();
  }
  // CACHES-C3
  Operation *terminator = function.getBody().front().getTerminator();
  for (auto [layer, append] : llvm::enumerate(appends)) {
    if (!append)
      return emitError(function.getLoc())
             << "layer " << layer
             << " has no prefill.kv_append, expected one for each cache";
    if (terminator->getOperand(layer + 1) != append.getResult())
      return emitError(terminator->getLoc())
             << "result " << layer + 1 << " of @" << function.getName()
             << " is not the result of the prefill.kv_append of layer "
             << layer;
  }
  return success();
}

static StringRef describe(RowDomain domain) {
  return domain == RowDomain::Tokens ? "rows of the batch" : "selected rows";
}

/// What `op` reads as activations, the first operands, has rows of `domain`.
static LogicalResult verifyRowsOf(Operation *op, RowDomain domain,
                                  const RowDomains &domains) {
  unsigned count = isa<AddOp, GatedActOp, KVAppendOp>(op) ? 2 : 1;
  for (Value operand : op->getOperands().take_front(count)) {
    // ROWS-C4: weights alone have a static row count (verify-model).
    auto type = cast<RankedTensorType>(operand.getType());
    if (type.getRank() != 2 || !type.isDynamicDim(0))
      return emitError(op->getLoc())
             << op->getName() << " reads a weight as an activation";
    if (domains.get(operand) != domain)
      return emitError(op->getLoc())
             << op->getName() << " reads " << describe(domains.get(operand))
             << ", expected " << describe(domain);
  }
  return success();
}

static LogicalResult verifyRows(func::FuncOp function) {
  RowDomains domains(function);
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (isa<GetWeightOp, EmbedOp>(op))
      continue;
    // ROWS-C1: ops that take any rows take those of their first operand.
    RowDomain domain = domains.get(op.getResult(0));
    if (isa<SelectRowsOp, RopeOp, KVAppendOp, AttentionOp>(op))
      domain = RowDomain::Tokens;
    else if (isa<LMHeadOp>(op))
      domain = RowDomain::Logits; // ROWS-C2
    if (failed(verifyRowsOf(&op, domain, domains)))
      return failure();
  }
  // ROWS-C3
  Operation *terminator = function.getBody().front().getTerminator();
  if (!terminator->getOperand(0).getDefiningOp<LMHeadOp>())
    return emitError(terminator->getLoc())
           << "result 0 of @" << function.getName()
           << " is not the result of prefill.lm_head";
  return success();
}

LogicalResult prefill::verifyModelDataflow(func::FuncOp function) {
  return success(succeeded(verifyCaches(function)) &&
                 succeeded(verifyRows(function)));
}
