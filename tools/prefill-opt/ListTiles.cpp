//===- ListTiles.cpp - `prefill-opt --list-tiles` -------------------------===//
#include "ListTiles.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/Transforms/TileCandidates.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::prefill;

static void writeTile(llvm::json::OStream &json, bool isGemm, int64_t first,
                      int64_t second) {
  json.attribute(isGemm ? "block_m" : "block_q", first);
  json.attribute(isGemm ? "block_n" : "block_kv", second);
}

/// `table`: the same op in each schedule.
static void writeOp(llvm::json::OStream &json, const TileCandidates &op,
                    ArrayRef<const TileCandidates *> table) {
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
    for (const TileCandidates *chosen : table)
      json.object([&] {
        writeTile(json, op.isGemm, chosen->table.first, chosen->table.second);
      });
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
  const CudaChip &chip = *lookupCudaChip(options.target.chip);
  SmallVector<int64_t> rows;
  for (const CudaSchedule &schedule : cudaSchedules())
    rows.push_back(schedule.maxRows ? schedule.maxRows : schedule.rows.back());
  // Of each schedule.
  std::vector<std::vector<TileCandidates>> lists;
  for (const CudaSchedule &schedule : cudaSchedules()) {
    CompileOptions own = options;
    own.maxRows = schedule.maxRows;
    // Splits have tiles of their own, with other keys in each schedule.
    own.deterministic = true;
    OwningOpRef<ModuleOp> config(model.clone());
    if (failed(runToLevel(*config, Level::Config, own, configure)))
      return failure();
    lists.push_back(listTileCandidates(*config, chip, rows));
  }
  llvm::json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("target", options.target.planName());
    json.attributeArray("rows", [&] {
      for (int64_t count : rows)
        json.value(count);
    });
    json.attributeArray("ops", [&] {
      // The last one's: no call is too long for it.
      for (const TileCandidates &op : lists.back()) {
        SmallVector<const TileCandidates *> table;
        for (const std::vector<TileCandidates> &list : lists) {
          auto same = llvm::find_if(list, [&](const TileCandidates &other) {
            return other.sameOp(op);
          });
          table.push_back(same == list.end() ? &op : &*same);
        }
        json.object([&] { writeOp(json, op, table); });
      }
    });
  });
  os << "\n";
  return success();
}
