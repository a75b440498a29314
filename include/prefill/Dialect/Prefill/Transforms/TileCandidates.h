//===- TileCandidates.h - tiles that might be measured ----------*- C++ -*-===//
#ifndef PREFILL_DIALECT_PREFILL_TRANSFORMS_TILECANDIDATES_H
#define PREFILL_DIALECT_PREFILL_TRANSFORMS_TILECANDIDATES_H

#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include <string>
#include <vector>

namespace mlir::prefill {

/// The tiles that a chip has for one kind of gemm or attention: ops that an
/// entry of a tuning file does not tell apart.
struct TileCandidates {
  /// block_m x block_n or block_q x block_kv, with the estimated time for each
  /// of the row counts; times of one row count compare with each other.
  struct Tile {
    int64_t first, second;
    SmallVector<double> times;
  };

  bool isGemm;
  std::string name, dtype;        ///< name: of the first such kernel
  int64_t n = 0, k = 0;           ///< of a gemm's weight
  int64_t group = 0, headDim = 0; ///< of attention
  /// The width, or the keys of a step, must be the same for all rows.
  bool oneSecond = false;
  std::pair<int64_t, int64_t> table; ///< what the module has
  std::vector<Tile> tiles;

  /// An entry of a tuning file holds for both.
  bool sameOp(const TileCandidates &other) const {
    return isGemm == other.isGemm && dtype == other.dtype && n == other.n &&
           k == other.k && group == other.group && headDim == other.headDim;
  }
};

/// Those of the kernels of a module of level config whose rows are a call's
/// tokens.
std::vector<TileCandidates> listTileCandidates(ModuleOp config,
                                               const CudaChip &chip,
                                               ArrayRef<int64_t> rows);

} // namespace mlir::prefill

#endif // PREFILL_DIALECT_PREFILL_TRANSFORMS_TILECANDIDATES_H
