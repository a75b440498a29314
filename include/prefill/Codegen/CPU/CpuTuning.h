//===- CpuTuning.h - block sizes that were measured -------------*- C++ -*-===//
// They overrule what TileTable and AttentionTileTable compute.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_CPUTUNING_H
#define PREFILL_CODEGEN_CPU_CPUTUNING_H

#include <cstdint>

namespace mlir::prefill {

/// 0: what the table says.
struct CpuTuning {
  int64_t gemmBlockM = 0;
  /// Widest tile, a multiple of 32; where heads or parts need it, a tile is
  /// narrower.
  int64_t gemmBlockN = 0;
  int64_t attentionBlockQ = 0;
  int64_t attentionBlockKv = 0; ///< a multiple of 32
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_CPUTUNING_H
