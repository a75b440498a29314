//===- TargetTiles.h - the tiles that a target chooses ----------*- C++ -*-===//
// prefill-select-lowering-strategy makes compute ops and asks here for tiles.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_TARGETTILES_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_TARGETTILES_H

#include "prefill/Codegen/CPU/CpuCaches.h"
#include "prefill/Codegen/CPU/CpuTuning.h"
#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Codegen/CUDA/CudaTuning.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

namespace mlir::prefill {

/// What an epilogue's nodes demand of the tiles.
struct ColumnDemands {
  int64_t columns = 0;        // of the accumulator or the widest value
  SmallVector<int64_t> parts; // widths that no tile may straddle
  int64_t unit = 0;           // head_dim
  int64_t granularity = 0;    // of interleaved columns
  RowDomain domain = RowDomain::Tokens;
};

/// The fields of a #prefill.lowering_config.
struct OpTiles {
  int64_t blockM = 0, blockN = 0, blockKv = 0;
  int64_t panelN = 1;
};

/// Of a gemm or rowwise op, whose domain they leave open; emits an error where
/// nodes ask for different head sizes.
FailureOr<ColumnDemands> collectDemands(Operation *op, StringRef target);

class TargetTiles {
public:
  virtual ~TargetTiles() = default;
  /// For messages.
  virtual StringRef name() const = 0;
  /// Emits an error that names op and attribute when the target cannot do what
  /// an op of the model level asks for.
  virtual LogicalResult refuse(Operation *op) const = 0;

  // Tiles of an op; they may set discardable attributes that the target's
  // kernels read. Emit an error where nothing fits.
  virtual FailureOr<OpTiles> gemm(GemmOp op,
                                  const ColumnDemands &demands) const = 0;
  virtual FailureOr<OpTiles> rowwise(RowwiseOp op,
                                     const ColumnDemands &demands) const = 0;
  virtual FailureOr<OpTiles> attention(AttentionOp op) const = 0;
};

std::unique_ptr<TargetTiles>
createCpuTiles(const CpuCaches &caches, const CpuTuning &tuning, bool plain);
/// Tiles of one of a plan's schedules; all of them say what bits depend on.
std::unique_ptr<TargetTiles> createCudaTiles(const CudaChip &chip,
                                             const CudaSchedule &schedule,
                                             ArrayRef<CudaSchedule> all,
                                             const CudaTuning &tuning,
                                             bool plain);

/// Discardable unit on attention whose tile somebody demands: prefill-split-kv
/// keeps it, and removes the mark.
inline constexpr llvm::StringLiteral kTileGivenAttr = "prefill.tile_given";

/// What the tiles of an attention op depend on.
AttentionHeads attentionHeads(AttentionOp op);

/// The error of an op for which no width fits.
InFlightDiagnostic noTileWidth(Operation *op, const ColumnDemands &demands,
                               StringRef target);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_TARGETTILES_H
