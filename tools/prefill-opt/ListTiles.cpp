//===- ListTiles.cpp - `prefill-opt --list-tiles` -------------------------===//
#include "ListTiles.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Dialect/Prefill/Transforms/TileCandidates.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::prefill;

static void writeTile(llvm::json::OStream &json, bool isGemm, int64_t first,
                      int64_t second) {
  json.attribute(isGemm ? "block_m" : "block_q", first);
  json.attribute(isGemm ? "block_n" : "block_kv", second);
}

static void writeOp(llvm::json::OStream &json, const TileCandidates &op) {
  json.attribute("section", op.isGemm ? "gemm" : "attention");
  json.attribute("name", op.name);
  json.attribute("dtype", op.dtype);
  if (op.isGemm) {
    json.attribute("n", op.n);
    json.attribute("k", op.k);
  } else {
    json.attribute("group", op.group);
    json.attribute("head_dim", op.headDim);
  }
  json.attribute(op.isGemm ? "one_block_n" : "one_block_kv", op.oneSecond);
  json.attributeArray("table", [&] {
    for (size_t i = 0; i < std::size(kTileRows); ++i)
      json.object(
          [&] { writeTile(json, op.isGemm, op.table.first, op.table.second); });
  });
  json.attributeArray("tiles", [&] {
    for (const TileCandidates::Tile &tile : op.tiles)
      json.object([&] {
        writeTile(json, op.isGemm, tile.first, tile.second);
        json.attributeArray("times", [&] {
          for (double time : tile.times)
            json.value(time);
        });
      });
  });
}

LogicalResult mlir::prefill::listTiles(
    ModuleOp model, const CompileOptions &options,
    llvm::function_ref<LogicalResult(PassManager &)> configure,
    llvm::raw_ostream &os) {
  OwningOpRef<ModuleOp> config(model.clone());
  if (failed(runToLevel(*config, Level::Config, options, configure)))
    return failure();
  llvm::json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("target", options.target.planName());
    json.attributeArray("rows", [&] {
      for (int64_t rows : kTileRows)
        json.value(rows);
    });
    json.attributeArray("ops", [&] {
      for (const TileCandidates &op : listTileCandidates(
               *config, *lookupCudaChip(options.target.chip), kTileRows))
        json.object([&] { writeOp(json, op); });
    });
  });
  os << "\n";
  return success();
}
