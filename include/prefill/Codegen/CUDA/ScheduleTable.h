//===- ScheduleTable.h - row counts with launches of their own --*- C++ -*-===//
// Kernels of one height of tiles do not suit both a decode step and a long
// prompt: a plan for a chip has launches for each range of row counts.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_SCHEDULETABLE_H
#define PREFILL_CODEGEN_CUDA_SCHEDULETABLE_H

#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace mlir::prefill {

/// Calls of more tokens than the schedule before takes, up to `maxRows`.
struct CudaSchedule {
  int64_t maxRows; ///< 0: any number
  /// What tiles are chosen for: tokens of such calls, and the keys that the
  /// cache holds already (decode steps, chunks of a prompt).
  llvm::SmallVector<int64_t, 2> rows;
  int64_t cached = 0;
  /// Its say in what all schedules have in common.
  double weight = 1.0;

  /// Attention of those calls, of one sequence each.
  llvm::SmallVector<AttentionCall> attentionCalls() const;
};

/// Ascending; the last takes any number.
llvm::ArrayRef<CudaSchedule> cudaSchedules();
/// Null where no schedule has that limit.
const CudaSchedule *lookupCudaSchedule(int64_t maxRows);
/// The one that runs calls of so many tokens.
const CudaSchedule &scheduleOfCall(int64_t rows);
/// "16, 128, ..., 0" for messages.
std::string cudaScheduleLimits();

// Where attention is not split along the keys, bits must not depend on the
// schedule, so that a prompt in chunks gives those of the prompt in one call.
// Heights of tiles decide none; these numbers do, and are the same for all:
// best where each schedule may have its own height. 0 where no tile fits.

/// Columns of a tile of a gemm that leaves a partial row sum for each tile.
int64_t commonGemmWidth(const CudaChip &chip,
                        llvm::ArrayRef<CudaSchedule> schedules, int64_t k,
                        const GemmColumns &columns,
                        const GemmTileLimits &limits);
/// Keys of a step of attention. `givenBlockQ`: what somebody demands; 0:
/// anything.
int64_t commonAttentionKeys(const CudaChip &chip,
                            llvm::ArrayRef<CudaSchedule> schedules,
                            const AttentionHeads &heads, int64_t givenBlockQ);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_SCHEDULETABLE_H
