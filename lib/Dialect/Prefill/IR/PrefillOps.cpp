//===- PrefillOps.cpp - generated op definitions, memory effects ----------===//
#include "mlir/IR/Builders.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

#define GET_OP_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillOps.cpp.inc"

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
