//===- Microkernel.h - register-blocked inner product loop ------*- C++ -*-===//
// acc[r, c] += sum_k a[r, k] * b[k, c] over a K loop with every accumulator in
// a register, f32, or i32 for 8-bit integers. GEMM and both products of
// attention use it.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_MICROKERNEL_H
#define PREFILL_CODEGEN_CPU_MICROKERNEL_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

struct MicrokernelOperands {
  /// f32, bf16, f16 or i8: the element type of the right operand.
  Type elementType;
  /// Flat memref of the left operand, of that type or f32 (always f32 where it
  /// is f16, or bf16 without vdpbf16ps); row r's element k is at
  /// aRowOffsets[r] + k. bf16 rows are read in pairs of k. i8 rows are read
  /// in fours of k, as Int8Rows.h says.
  Value a;
  SmallVector<Value> aRowOffsets;
  /// Flat memref of the right operand in packed order: step s (k_pack
  /// consecutive k) of the columns [0, lanes) of vector v is at
  /// bOffsets[v] + s * bStepStride, column-major in groups of k_pack.
  Value b;
  SmallVector<Value> bOffsets;
  /// Elements between steps: panel_n * k_pack for a packed weight.
  int64_t bStepStride;
  /// Number of steps: K / k_pack.
  Value steps;
  /// Steps that one iteration of the loop takes; `steps` is a multiple of it.
  int64_t unroll = 1;
  /// Elements ahead of what it reads of the right operand that a step asks the
  /// second-level cache for; null: it does not.
  Value prefetchDistance = {};
  /// Or: of unrolled steps one in `CpuIsa::prefetchSteps`, else each asks it
  /// for the line with this element of prefetchSource, which is prefetchStride
  /// elements on the next time.
  Value prefetchStart = {}, prefetchStride = {}, prefetchSource = {};
  /// An index that is 0, which LLVM cannot know (KernelABI.h). With it the odd
  /// halves of split pairs are loaded on their own where there are 16
  /// registers, which do not hold both halves beside 12 accumulators: LLVM
  /// would spill rather than load twice.
  Value unknownZero = {};
};

/// Offsets of the `count` vectors of a panel's columns that begin at element
/// `start`.
SmallVector<Value> panelVectorOffsets(KernelBuilder &b, const CpuIsa &isa,
                                      Type elementType, Value start,
                                      int64_t count);

/// The type of a microkernel's accumulators.
VectorType accumulatorType(KernelBuilder &b, const CpuIsa &isa,
                           Type elementType);

/// Emits the loop at the builder's place. Returns the accumulators, row-major:
/// rows * vectors values of vector<lanes x f32>, for i8 of i32. They start at
/// `init`, or at zero when it is empty. The order of the additions depends on K
/// alone.
SmallVector<Value> emitMicrokernel(KernelBuilder &b, const CpuIsa &isa,
                                   const MicrokernelOperands &operands,
                                   ValueRange init = {});

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_MICROKERNEL_H
