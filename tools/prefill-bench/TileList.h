// What prefill-opt --list-tiles says: the tiles that may be tried on a GPU.
#ifndef PREFILL_TOOLS_PREFILLBENCH_TILELIST_H
#define PREFILL_TOOLS_PREFILLBENCH_TILELIST_H

#include "prefill/checkpoint/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::bench {

using rt::Result;

/// block_m x block_n of a gemm or block_q x block_kv of attention.
struct Tile {
  int64_t first, second;
  auto operator<=>(const Tile &) const = default;
  /// "128x64".
  std::string name() const;
};

/// Ops that an entry of a tuning file does not tell apart.
struct TunedOp {
  bool isGemm;
  std::string launch; ///< in plans
  std::string dtype;
  int64_t n = 0, k = 0;           ///< of a gemm's weight
  int64_t group = 0, headDim = 0; ///< of attention
  /// The width, or the keys of a step, must be the same for all rows.
  bool oneSecond = false;
  /// The compiler's choice for each of the list's row counts.
  std::vector<Tile> table = {};
  /// The best first, by the least estimated time over that of the best tile for
  /// any of the row counts.
  std::vector<Tile> tiles = {};

  /// "gemm/bf16/512x6144x4096", "attention/bf16/g4/d128/s512".
  std::string className(int64_t rows) const;
  /// Whether an entry of a tuning file holds for both.
  bool sameOp(const TunedOp &other) const;
};

struct TileList {
  std::vector<int64_t> rows; ///< ascending
  std::vector<TunedOp> ops;
};

Result<TileList> readTileList(const std::string &path);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_TILELIST_H
