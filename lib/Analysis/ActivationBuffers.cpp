//===- ActivationBuffers.cpp - the tensors that a plan stores -------------===//
#include "prefill/Analysis/ActivationBuffers.h"
#include "prefill/Analysis/RowDomains.h"

using namespace mlir;
using namespace mlir::prefill;

bool prefill::isPlanStep(Operation *op) {
  return !isa<GetWeightOp>(op) && !op->hasTrait<OpTrait::IsTerminator>();
}

int64_t prefill::rowPitch(ShapedType type, bool padRows) {
  constexpr int64_t pageBytes = 4096, lineBytes = 64;
  int64_t elements = type.getDimSize(1);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (!padRows || elements * bytes % pageBytes != 0)
    return elements;
  return elements + lineBytes / bytes;
}

int64_t prefill::bytesPerRow(RankedTensorType type, bool padRows) {
  return rowPitch(type, padRows) * (type.getElementTypeBitWidth() / 8);
}

SmallVector<ActivationBuffer>
prefill::collectActivationBuffers(func::FuncOp function, bool padRows) {
  SmallVector<ActivationBuffer> buffers;
  if (function.isExternal())
    return buffers;
  Block &block = function.getBody().front();
  RowDomains domains(function);
  llvm::DenseMap<Operation *, int64_t> steps;
  for (Operation &op : block)
    steps[&op] = steps.size();
  for (Operation &op : block) {
    if (!isPlanStep(&op))
      continue;
    for (OpResult result : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type)
        continue;
      ActivationBuffer buffer{result, domains.get(result), {}};
      buffer.life.bytes = bytesPerRow(type, padRows);
      buffer.life.first = buffer.life.last = steps[&op];
      // A use inside a region is one of the op that holds it.
      for (Operation *user : result.getUsers())
        buffer.life.last = std::max(buffer.life.last,
                                    steps[block.findAncestorOpInBlock(*user)]);
      buffers.push_back(buffer);
    }
  }
  return buffers;
}
