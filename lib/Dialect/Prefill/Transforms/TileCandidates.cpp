//===- TileCandidates.cpp - tiles that might be measured ------------------===//
#include "prefill/Dialect/Prefill/Transforms/TileCandidates.h"
#include "TargetTiles.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

static std::string elementName(Type element) {
  std::string name;
  llvm::raw_string_ostream(name) << element;
  return name;
}

static TileCandidates gemmCandidates(GemmOp gemm, const CudaChip &chip,
                                     ArrayRef<int64_t> rows) {
  auto weight = cast<ShapedType>(gemm.getWeight().getType());
  TileCandidates result;
  result.isGemm = true;
  result.dtype = elementName(weight.getElementType());
  result.n = weight.getDimSize(0);
  result.k = weight.getDimSize(1);
  result.oneSecond =
      gemm.getEpilogue()
          .walk([](RowSumsqOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  FailureOr<ColumnDemands> demands = collectDemands(gemm, "cuda");
  if (failed(demands))
    return result;
  GemmColumns columns{demands->parts, demands->unit, demands->granularity};
  for (const GemmTile &tile : gemmTiles(chip, columns)) {
    TileCandidates::Tile entry{tile.blockM, tile.blockN, {}};
    for (int64_t count : rows)
      entry.times.push_back(
          estimatedGemmCycles(chip, tile, count, result.n, result.k));
    result.tiles.push_back(std::move(entry));
  }
  return result;
}

static TileCandidates attentionCandidates(AttentionOp attention,
                                          const CudaChip &chip,
                                          ArrayRef<int64_t> rows) {
  AttentionHeads heads = attentionHeads(attention);
  TileCandidates result;
  result.isGemm = false;
  result.dtype = elementName(attention.getCache().getType().getDtype());
  result.group = heads.group;
  result.headDim = heads.headDimQk;
  result.oneSecond = true;
  for (CudaAttentionTile tile : cudaAttentionTiles(chip, heads)) {
    TileCandidates::Tile entry{tile.blockQ, tile.blockKv, {}};
    AttentionLayout layout = cantFail(attentionLayout(chip, heads, tile));
    for (int64_t count : rows)
      entry.times.push_back(
          estimatedAttentionTime(chip, heads, tile, layout, count));
    result.tiles.push_back(std::move(entry));
  }
  return result;
}

std::vector<TileCandidates>
prefill::listTileCandidates(ModuleOp config, const CudaChip &chip,
                            ArrayRef<int64_t> rows) {
  std::vector<TileCandidates> all;
  config.walk([&](func::FuncOp kernel) {
    if (!kernel->hasAttr(kKernelAttr))
      return;
    kernel.walk([&](Operation *op) {
      auto tiles = op->getAttrOfType<LoweringConfigAttr>("lowering_config");
      if (!tiles || tiles.getDomain() != RowDomain::Tokens ||
          !isa<GemmOp, AttentionOp>(op))
        return;
      TileCandidates made =
          isa<GemmOp>(op)
              ? gemmCandidates(cast<GemmOp>(op), chip, rows)
              : attentionCandidates(cast<AttentionOp>(op), chip, rows);
      made.name = kernel.getName().str();
      made.table = {tiles.getBlockM(),
                    made.isGemm ? tiles.getBlockN() : tiles.getBlockKv()};
      auto known = llvm::find_if(
          all, [&](const TileCandidates &other) { return other.sameOp(made); });
      if (known == all.end()) {
        all.push_back(std::move(made));
        return;
      }
      // An entry gives both the same tile, which must fit both.
      known->oneSecond |= made.oneSecond;
      llvm::erase_if(known->tiles, [&](const TileCandidates::Tile &tile) {
        return llvm::none_of(made.tiles, [&](const auto &other) {
          return other.first == tile.first && other.second == tile.second;
        });
      });
    });
  });
  return all;
}
