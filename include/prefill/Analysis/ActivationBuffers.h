//===- ActivationBuffers.h - the tensors that a plan stores -----*- C++ -*-===//
#ifndef PREFILL_ANALYSIS_ACTIVATIONBUFFERS_H
#define PREFILL_ANALYSIS_ACTIVATIONBUFFERS_H

#include "prefill/Analysis/BufferPacking.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// Offsets in the arena are multiples of this many bytes a row.
inline constexpr int64_t kBufferAlignment = 64;

/// A tensor result of a compute op: it needs a buffer of `life.bytes` for each
/// padded row of its domain, from its op (life.first) to its last use.
struct ActivationBuffer {
  OpResult value;
  RowDomain domain;
  BufferLifetime life;
};

/// Whether `op` is a step of the plan: all of an entry function's body is, but
/// get_weight and the terminator.
bool isPlanStep(Operation *op);

/// Bytes of a row: channels times the element's size.
int64_t bytesPerRow(RankedTensorType type);

/// The tensor results of the function's plan steps, in order. What the function
/// returns lives to its end.
SmallVector<ActivationBuffer> collectActivationBuffers(func::FuncOp function);

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ACTIVATIONBUFFERS_H
