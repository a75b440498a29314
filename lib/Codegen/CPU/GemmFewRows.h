//===- GemmFewRows.h - a gemm's tile of few rows ----------------*- C++ -*-===//
//
// Rows of which one microkernel takes all: decode steps and the shortest
// prompts. Arithmetic then hides behind the weights, which come from memory and
// are read once, so everything serves their stream: panels in the order of
// memory, one after the other or a few side by side, no row padding, lines
// asked for ahead where the processor does not, and the rows in a place where
// they leave the first-level cache to the panels.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_GEMMFEWROWS_H
#define PREFILL_CODEGEN_CPU_GEMMFEWROWS_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"

namespace mlir::prefill {

struct FewRowsTile {
  Type elementType; ///< of input and weight: f32, bf16, f16 or i8
  int64_t k;
  /// Rows [firstRow, firstRow + rows) of the flat input; 1 <= rows <=
  /// isa.microRows.
  Value input, firstRow, rows;
  int64_t inputPitch; ///< elements from one row to the next
  /// Flat packed weight of `weightElements`, in panels of `panelElements`.
  Value weight;
  int64_t weightElements, panelElements;
  /// Panels [firstPanel, firstPanel + panels); panel firstPanel + q goes to
  /// columns columnOf(q) and following of the accumulators.
  Value firstPanel, panels;
  llvm::function_ref<Value(Value q)> columnOf;
  /// f32, or i32 for i8; row r at r * pitch.
  Value accumulators;
  int64_t pitch;
  /// The columns' bias (Int8Rows.h), like a row; null: there is none.
  Value bias;
};

/// Fills the accumulators, with the sums of the microkernels of taller tiles.
void emitFewRowsTile(KernelBuilder &b, const CpuIsa &isa, KernelABI &abi,
                     const FewRowsTile &tile);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_GEMMFEWROWS_H
