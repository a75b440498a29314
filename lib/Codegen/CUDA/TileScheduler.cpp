//===- TileScheduler.cpp - the order of a gemm's tiles --------------------===//
#include "prefill/Codegen/CUDA/TileScheduler.h"
#include <algorithm>
#include <limits>

using namespace mlir;
using namespace mlir::prefill;

int64_t prefill::selectGroupRows(const CudaChip &chip, const GemmTile &tile) {
  int64_t wave =
      chip.sms *
      std::max<int64_t>(1, blocksPerSM(chip, tile.threads(),
                                       tile.mainloopBytes(), tile.registers()));
  int64_t best = 1, leastLoad = std::numeric_limits<int64_t>::max();
  for (int64_t chunks = 1; chunks <= wave; ++chunks) {
    int64_t columns = (wave + chunks - 1) / chunks;
    int64_t load = chunks * tile.blockM + columns * tile.blockN;
    if (load < leastLoad) {
      leastLoad = load;
      best = chunks;
    }
  }
  return best * tile.blockM;
}
