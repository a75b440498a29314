//===- EmitRowwise.cpp - a rowwise op's workgroup -------------------------===//
// A warp takes a row at a time, in tiles of block_n columns. Where rows are few
// and long, the warps of a block share a row: they take its tiles in turn.
//===----------------------------------------------------------------------===//
#include "Epilogue.h"
#include "prefill/Codegen/CUDA/EmitKernels.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

/// Threads of a block: latency is hidden by the rows of several warps.
static constexpr int64_t kRowwiseThreads = 128;

static constexpr int64_t kMaxSharingWarps = 16;

/// Warps of a row: one, but for split attention, where all of the few rows wait
/// for what was split among a chip's blocks.
static int64_t warpsOfRow(RowwiseOp rowwise) {
  Block &body = rowwise.getBody().front();
  std::optional<LoweringConfigAttr> config = rowwise.getLoweringConfig();
  if (body.getOps<CombineSplitsOp>().empty() || !config ||
      config->getBlockN() < 1)
    return 1;
  int64_t columns = 0;
  for (auto combine : body.getOps<CombineSplitsOp>())
    columns =
        std::max(columns, cast<ShapedType>(combine.getType()).getDimSize(1));
  return std::min(kMaxSharingWarps,
                  llvm::divideCeilSigned(columns, config->getBlockN()));
}

static LogicalResult emitRows(CudaBuilder &b, KernelFrame &frame,
                              RowwiseOp rowwise, Value firstRow) {
  EpilogueEmitter epilogue(b, frame, rowwise.getBody().front(),
                           rowwise.getOuts());
  if (failed(epilogue.collect()))
    return failure();
  LoweringConfigAttr config = *rowwise.getLoweringConfig();
  int64_t width = config.getBlockN();
  SmallVector<SmallVector<EpilogueSink>> groups = epilogue.groups();
  for (ArrayRef<EpilogueSink> group : groups)
    if (failed(epilogue.verifyTiles(group, width)))
      return failure();
  Value rows = config.getDomain() == RowDomain::Logits ? frame.batch().logitRows
                                                       : frame.batch().rows;
  Value end = b.min(b.add(firstRow, config.getBlockM()), rows);
  int64_t sharing = warpsOfRow(rowwise);
  int64_t warps = frame.blockThreads / kWarpThreads;
  LaneMap lanes(b, width / kChunkColumns, b.lane());
  // One row a warp, whatever the width: sums over a row take all lanes.
  lanes.rowsPerWarp = 1;
  Value first = b.add(firstRow, b.toIndex(b.divide(b.warp(), sharing)));
  Value firstTile = b.remainder(b.warp(), sharing);
  b.forLoop(first, end, warps / sharing, [&](Value index) {
    for (ArrayRef<EpilogueSink> group : groups) {
      EpilogueEmitter::Row row;
      row.index = index;
      epilogue.beginRow(row, lanes, group);
      int64_t columns = group.front().columns;
      b.forLoop(firstTile, b.i32(llvm::divideCeil(columns, width)), sharing,
                [&](Value tileIndex) {
                  ColumnTile tile;
                  tile.first = b.mul(tileIndex, width);
                  tile.width = width;
                  tile.limit = columns;
                  tile.index = tileIndex;
                  epilogue.emitTile(tile, group);
                });
    }
  });
  return success();
}

LogicalResult prefill::emitRowwiseKernel(KernelFrame &frame,
                                         const CudaChip &chip,
                                         func::FuncOp tiled) {
  frame.blockThreads = kRowwiseThreads;
  tiled.walk([&](RowwiseOp rowwise) {
    if (int64_t sharing = warpsOfRow(rowwise); sharing > 1)
      frame.blockThreads = sharing * kWarpThreads;
  });
  return convertTiledBody(
      tiled, frame,
      [&](Operation *op, CudaBuilder &b, IRMapping &mapping) -> LogicalResult {
        auto rowwise = dyn_cast<RowwiseOp>(op);
        if (!rowwise || rowwise.getTile().size() != 1 ||
            !rowwise.getLoweringConfig())
          return op->emitOpError("is not a rowwise in tile form (run "
                                 "prefill-tile)");
        return emitRows(b, frame, rowwise,
                        mapping.lookup(rowwise.getTile()[0]));
      });
}
