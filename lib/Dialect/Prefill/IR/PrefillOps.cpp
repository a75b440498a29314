//===- PrefillOps.cpp - generated op definitions and symbol uses
//------------===//
#include "mlir/IR/Builders.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

#define GET_OP_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillOps.cpp.inc"

LogicalResult
GetWeightOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto weight =
      symbolTable.lookupNearestSymbolFrom<WeightOp>(*this, getNameAttr());
  if (!weight)
    return emitOpError("names weight ")
           << getNameAttr() << ", which is not a prefill.weight of this module";
  if (weight.getType() != getType())
    return emitOpError("has type ")
           << getType() << ", but weight " << getNameAttr() << " has type "
           << weight.getType();
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto kernel =
      symbolTable.lookupNearestSymbolFrom<func::FuncOp>(*this, getKernelAttr());
  if (!kernel || !kernel->hasAttr(kKernelAttr))
    return emitOpError("names kernel ")
           << getKernelAttr()
           << ", which is not a func.func with prefill.kernel";
  return success();
}

/// The tile form stores: into its buffers, and through `kv_append` into a cache
/// that no operand names as memory.
static void
addTileEffects(OperandRange tile,
               SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  if (!tile.empty())
    effects.emplace_back(MemoryEffects::Write::get());
}

void GemmOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addTileEffects(getTile(), effects);
}

void RowwiseOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  addTileEffects(getTile(), effects);
}
