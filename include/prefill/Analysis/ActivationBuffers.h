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

/// Elements from one row of an activation to the next. With `padRows`, what
/// kernels for a CPU read, rows of a multiple of 4 KiB are a line apart: else a
/// column of rows would lie in few sets of the caches, more rows than they have
/// ways. (AMX reads columns of rows; its gemms gain 3 % at K = 2048 and 29 % at
/// K = 8192. Gemms of f32 read rows where they lie; on Zen 3 the best rounds of
/// eight shapes gain 4 % in the median.)
int64_t rowPitch(ShapedType type, bool padRows);

/// Bytes of a row, up to the next.
int64_t bytesPerRow(RankedTensorType type, bool padRows = false);

/// The tensor results of the function's plan steps, in order. What the function
/// returns lives to its end.
SmallVector<ActivationBuffer> collectActivationBuffers(func::FuncOp function,
                                                       bool padRows = false);

} // namespace mlir::prefill

#endif // PREFILL_ANALYSIS_ACTIVATIONBUFFERS_H
