//===- CpuTuning.h - block sizes that were measured -------------*- C++ -*-===//
// They overrule what TileTable and AttentionTileTable compute.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_CPUTUNING_H
#define PREFILL_CODEGEN_CPU_CPUTUNING_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
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

/// Reads what `prefill-bench --tune` writes, a regular file: {"machine": "...",
/// "gemm": {"block_m": 64, "block_n": 128}, "attention": {"block_q": 64,
/// "block_kv": 256}}; every key may be absent. The error is one line that names
/// the file, the key, its value and what was expected.
llvm::Expected<CpuTuning> readCpuTuning(llvm::StringRef path);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_CPUTUNING_H
