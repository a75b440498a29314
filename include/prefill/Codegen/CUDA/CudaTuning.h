//===- CudaTuning.h - tiles that were measured on a GPU ---------*- C++ -*-===//
// They overrule what GemmTileTable and AttentionTileTable choose.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_CUDATUNING_H
#define PREFILL_CODEGEN_CUDA_CUDATUNING_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mlir::prefill {

/// The tile of a gemm of a weight [N, K].
struct CudaGemmTuning {
  std::string dtype;
  int64_t rows = 0; ///< of calls with at most so many rows; 0: of all others
  int64_t n = 0, k = 0;
  int64_t blockM = 0, blockN = 0;

  /// The same op and rows.
  bool sameClass(const CudaGemmTuning &other) const {
    return dtype == other.dtype && rows == other.rows && n == other.n &&
           k == other.k;
  }
};

/// The tile of attention with so many query heads a KV head.
struct CudaAttentionTuning {
  std::string dtype;
  int64_t rows = 0; ///< as above
  int64_t group = 0, headDim = 0;
  int64_t blockQ = 0, blockKv = 0;

  bool sameClass(const CudaAttentionTuning &other) const {
    return dtype == other.dtype && rows == other.rows && group == other.group &&
           headDim == other.headDim;
  }
};

/// Of one chip. Row counts of different calls may take different tiles, but not
/// different bits: keys of a step are the same for all, and so is the width of
/// gemms that leave partial row sums.
struct CudaTuning {
  // Of ops that no entry is for; 0: what the table says. The width is that of
  // the widest tile, as on a CPU.
  int64_t gemmBlockM = 0, gemmBlockN = 0;
  int64_t attentionBlockQ = 0, attentionBlockKv = 0;
  std::vector<CudaGemmTuning> gemms;
  std::vector<CudaAttentionTuning> attentions;

  /// What holds for a plan's calls of up to `rows` rows: the entry with the
  /// fewest rows that are no fewer, else the one for all others.
  std::optional<CudaGemmTuning> gemm(llvm::StringRef dtype, int64_t rows,
                                     int64_t n, int64_t k) const;
  std::optional<CudaAttentionTuning> attention(llvm::StringRef dtype,
                                               int64_t rows, int64_t group,
                                               int64_t headDim) const;
  /// The widths that entries of any row count give the gemm.
  std::vector<int64_t> gemmWidths(llvm::StringRef dtype, int64_t n,
                                  int64_t k) const;
  /// The keys of a step that entries of any row count give.
  std::optional<int64_t> attentionKeys(llvm::StringRef dtype, int64_t group,
                                       int64_t headDim) const;
};

// As the options of prefill-select-lowering-strategy have them, named like the
// rows of prefill-bench: "bf16/512x6144x4096:128x256" is rows x N x K : block_m
// x block_n, "bf16/g4/d128/s512:32x64" block_q x block_kv for a group of 4
// heads; without "512x" or "/s512" for all others.
std::string toText(const CudaGemmTuning &tuning);
std::string toText(const CudaAttentionTuning &tuning);
llvm::Expected<CudaGemmTuning> parseGemmTuning(llvm::StringRef text);
llvm::Expected<CudaAttentionTuning> parseAttentionTuning(llvm::StringRef text);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_CUDATUNING_H
