//===- VerifyConfig.cpp - contract of level config ------------------------===//
#include "prefill/Analysis/ActivationBuffers.h"
#include "prefill/Analysis/RowDomains.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/RowBuckets.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_VERIFYCONFIGPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

/// The rows that a step's results have: those of its first tensor.
static RowDomain domainOf(Operation *op, const RowDomains &domains) {
  for (Value result : op->getResults())
    if (isa<RankedTensorType>(result.getType()))
      return domains.get(result);
  return RowDomain::Tokens;
}

static LogicalResult verifyTiles(Operation *op, const RowDomains &domains) {
  LoweringConfigAttr config = getLoweringConfig(op);
  if (!config)
    return emitError(op->getLoc())
           << op->getName() << " has no lowering_config";
  // Attention has no columns to tile: a workgroup has whole heads.
  if (config.getBlockM() < 1 ||
      (config.getBlockN() < 1 && !isa<AttentionOp>(op)))
    return emitError(op->getLoc())
           << op->getName() << " has tiles of " << config.getBlockM() << " x "
           << config.getBlockN() << ", expected positive sizes";
  if (isa<AttentionOp>(op) && config.getBlockKv() < 1)
    return emitError(op->getLoc())
           << op->getName() << " has block_kv " << config.getBlockKv()
           << ", expected a positive size";
  if (std::optional<std::string> reason =
          whyInvalidRowBuckets(config.getRowBuckets()))
    return emitError(op->getLoc()) << op->getName() << ": " << *reason;
  RowDomain domain = domainOf(op, domains);
  if (config.getDomain() != domain)
    return emitError(op->getLoc())
           << op->getName() << " has lowering_config for rows of "
           << stringifyRowDomain(config.getDomain()) << ", but its rows are "
           << stringifyRowDomain(domain);
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    LoweringConfigAttr other =
        producer ? getLoweringConfig(producer) : LoweringConfigAttr();
    if (other && other.getRowBuckets() != config.getRowBuckets())
      return emitError(op->getLoc())
             << op->getName() << " and its producer " << producer->getName()
             << " pad rows differently";
  }
  return success();
}

/// The buffer of each result, by the op's attribute.
static LogicalResult verifyBuffers(Operation *op, const RowDomains &domains) {
  auto buffers = op->getAttrOfType<ArrayAttr>(kBuffersAttr);
  if (!buffers || buffers.size() != op->getNumResults())
    return emitError(op->getLoc())
           << op->getName() << " has " << (buffers ? buffers.size() : 0)
           << " buffers, expected one for each of " << op->getNumResults()
           << " results";
  for (auto [result, attribute] : llvm::zip(op->getResults(), buffers)) {
    auto type = dyn_cast<RankedTensorType>(result.getType());
    if (!type) {
      if (!isa<UnitAttr>(attribute))
        return emitError(op->getLoc())
               << op->getName() << " has buffer " << attribute
               << " for a cache, which is written in place";
      continue;
    }
    auto buffer = dyn_cast<BufferAttr>(attribute);
    if (!buffer)
      return emitError(op->getLoc())
             << op->getName() << " has no buffer for its result of type "
             << type;
    int64_t rowBytes = bytesPerRow(
        type, op->getParentOfType<ModuleOp>()->hasAttr(kPadRowsAttr));
    if (buffer.getBufferClass() != BufferClass::Activation ||
        buffer.getDomain() != domains.get(result) ||
        buffer.getRowBytes() != rowBytes || buffer.getRowOffset() < 0 ||
        buffer.getRowOffset() % kBufferAlignment != 0)
      return emitError(op->getLoc())
             << op->getName() << " has buffer " << buffer << " for " << type
             << " in rows of " << stringifyRowDomain(domains.get(result))
             << ", expected activation, row_bytes = " << rowBytes
             << " and a row_offset that is a multiple of " << kBufferAlignment;
  }
  return success();
}

/// Tensors that live at once lie apart.
static LogicalResult verifyOverlap(ArrayRef<ActivationBuffer> tensors) {
  auto bufferOf = [](const ActivationBuffer &tensor) {
    auto buffers =
        tensor.value.getOwner()->getAttrOfType<ArrayAttr>(kBuffersAttr);
    return cast<BufferAttr>(buffers[tensor.value.getResultNumber()]);
  };
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    BufferAttr buffer = bufferOf(tensor);
    for (const ActivationBuffer &earlier : tensors.take_front(index)) {
      BufferAttr other = bufferOf(earlier);
      if (earlier.domain == tensor.domain &&
          earlier.life.last >= tensor.life.first &&
          other.getRowOffset() < buffer.getRowOffset() + buffer.getRowBytes() &&
          buffer.getRowOffset() < other.getRowOffset() + other.getRowBytes())
        return emitError(tensor.value.getLoc())
               << tensor.value.getOwner()->getName() << " has buffer " << buffer
               << ", which overlaps " << other << " of "
               << earlier.value.getOwner()->getName()
               << " that is still in use";
    }
  }
  return success();
}

namespace {
class VerifyConfigPass
    : public mlir::prefill::impl::VerifyConfigPassBase<VerifyConfigPass> {
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>(kEntryName);
    if (!function || function.isExternal()) {
      emitError(getOperation().getLoc())
          << "the module has no function @" << kEntryName;
      return signalPassFailure();
    }
    RowDomains domains(function);
    for (Operation &op : function.getBody().front()) {
      if (!isPlanStep(&op))
        continue;
      if (!isa<GemmOp, RowwiseOp, AttentionOp>(op)) {
        emitError(op.getLoc()) << op.getName() << " is no op of level config";
        return signalPassFailure();
      }
      if (failed(verifyTiles(&op, domains)) ||
          failed(verifyBuffers(&op, domains)))
        return signalPassFailure();
    }
    SmallVector<ActivationBuffer> tensors = collectActivationBuffers(function);
    numBuffers += tensors.size();
    if (failed(verifyOverlap(tensors)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
