//===- EmitGemm.cpp - a gemm's workgroup ----------------------------------===//
//
// A block computes block_m x block_n outputs: the mainloop's sums go through a
// staging tile in shared memory, where the mainloop's stages were, in as many
// passes as that is too small for, and the epilogue works on its rows.
//
//===----------------------------------------------------------------------===//
#include "Epilogue.h"
#include "Mainloop.h"
#include "prefill/Codegen/CUDA/EmitKernels.h"
#include "prefill/Codegen/CUDA/Fragments.h"
#include "prefill/Codegen/CUDA/GemmTileTable.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

namespace {

struct GemmShape {
  int64_t n, k;
  Type element;
  GemmTile tile;
};

FailureOr<GemmShape> shapeOf(GemmOp gemm, const CudaChip &chip) {
  auto input = cast<ShapedType>(gemm.getInput().getType());
  auto weight = cast<ShapedType>(gemm.getWeight().getType());
  auto sums = cast<ShapedType>(gemm.getEpilogue().getArgument(0).getType());
  LoweringConfigAttr config = *gemm.getLoweringConfig();
  GemmShape shape;
  shape.n = sums.getDimSize(1);
  shape.k = input.getDimSize(1);
  shape.element = input.getElementType();
  if (!shape.element.isBF16() && !shape.element.isF16())
    return gemm.emitOpError("has element type ")
           << shape.element
           << "; target cuda has gemm kernels for bf16 and f16";
  if (weight.getRank() != 2 || weight.getElementType() != shape.element ||
      weight.getDimSize(0) != shape.n || weight.getDimSize(1) != shape.k)
    return gemm.emitOpError("has a weight of type ")
           << weight << "; target cuda expects [" << shape.n << ", " << shape.k
           << "] of " << shape.element;
  if (shape.k % kChunkElements != 0)
    return gemm.emitOpError("has K = ")
           << shape.k << "; target cuda needs a multiple of " << kChunkElements
           << ", so that rows begin at multiples of 16 bytes";
  std::optional<GemmTile> tile =
      gemmTile(chip, config.getBlockM(), config.getBlockN());
  if (!tile)
    return gemm.emitOpError("has block_m = ")
           << config.getBlockM() << " and block_n = " << config.getBlockN()
           << ", which target cuda:" << chip.name
           << " has no tile for (run prefill-select-lowering-strategy with "
              "that target)";
  shape.tile = *tile;
  return shape;
}

class GemmEmitter {
public:
  GemmEmitter(CudaBuilder &b, KernelFrame &frame, GemmOp gemm, GemmShape shape,
              Value firstRow, Value firstColumn)
      : b(b), frame(frame), gemm(gemm), shape(shape), tile(shape.tile),
        firstRow(firstRow), firstColumn(firstColumn),
        epilogue(b, frame, gemm.getEpilogue().front(), gemm.getOuts()) {}

  LogicalResult emit() {
    if (failed(epilogue.collect()))
      return failure();
    groups = epilogue.groups();
    for (ArrayRef<EpilogueSink> group : groups)
      if (failed(verifyGroup(group)))
        return failure();
    // More than one tile a block: the last one's rows may still be read.
    if (!isa<scf::ForallOp>(gemm->getParentOp()))
      b.barrier("gemm.next_tile");

    rows = frame.tensor(gemm.getInput()).rows;
    MainloopOperands operands;
    operands.input = frame.tensor(gemm.getInput()).pointer;
    operands.weight = frame.tensor(gemm.getWeight()).pointer;
    operands.element = shape.element;
    operands.k = shape.k;
    operands.firstRow = firstRow;
    operands.firstColumn = firstColumn;
    operands.rowCount = b.min(b.toI32(b.sub(rows, firstRow)), tile.blockM);
    if (shape.n % tile.blockN != 0 || tile.columns() != tile.blockN)
      operands.columnCount =
          b.min(b.toI32(b.sub(b.index(shape.n), firstColumn)), tile.blockN);
    stage = chooseStage();
    sharedOffset =
        frame.shared.allocate(std::max(tile.mainloopBytes(), stage.bytes()));
    auto mainloop =
        createMultistageMainloop(b, frame, tile, operands, sharedOffset);
    mainloop->begin();
    epilogue.prepareRows(tile.blockM, firstRow, rows, b.threadId(),
                         tile.threads());
    SmallVector<Value> sums = mainloop->run();
    emitEpilogue(sums);
    return success();
  }

private:
  static bool isInterleaved(ArrayRef<EpilogueSink> group) {
    return group.front().space.granularity != 0;
  }
  int64_t widthOf(ArrayRef<EpilogueSink> group) const {
    return isInterleaved(group) ? tile.blockN / 2 : tile.blockN;
  }
  /// Whether the group's columns are all of the accumulator's.
  bool isWholeRow(ArrayRef<EpilogueSink> group) const {
    return group.front().space.offset == 0 &&
           (isInterleaved(group) || group.front().columns == shape.n);
  }

  LogicalResult verifyGroup(ArrayRef<EpilogueSink> group) {
    EpilogueColumns space = group.front().space;
    int64_t columns = group.front().columns;
    if (isInterleaved(group) && tile.blockN % (2 * space.granularity) != 0)
      return gemm.emitOpError("has block_n = ")
             << tile.blockN << ", which cuts runs of " << space.granularity
             << " interleaved columns";
    if (!isWholeRow(group) &&
        (space.offset % tile.blockN || columns % tile.blockN))
      return gemm.emitOpError("has block_n = ")
             << tile.blockN << ", whose tiles straddle the part of " << columns
             << " columns at column " << space.offset;
    return epilogue.verifyTiles(group, widthOf(group));
  }

  /// As many rows as fit where the mainloop's stages were, at least 16 of each
  /// warp.
  AccumulatorStage chooseStage() {
    AccumulatorStage stage;
    stage.columns = tile.columns();
    for (fragments = tile.warpRows / kMmaM;; fragments /= 2) {
      stage.rows = tile.warpsM * fragments * kMmaM;
      if (stage.bytes() <= tile.mainloopBytes() || fragments == 1)
        return stage;
    }
  }

  void emitEpilogue(ArrayRef<Value> sums) {
    Value shared = frame.sharedPointer(b, sharedOffset);
    column = b.toI32(firstColumn);
    tileIndex = b.divide(column, tile.blockN);
    epilogue.setAccumulators(stage, shared, column);
    int64_t all = tile.warpRows / kMmaM;
    for (int64_t first = 0; first < all; first += fragments) {
      b.barrier("epilogue.stage_free");
      storeSums(shared, sums, first);
      b.barrier("epilogue.staged");
      for (ArrayRef<EpilogueSink> group : groups)
        emitGroup(group, first);
    }
  }

  /// Rows of fragments [first, first + fragments) of each warp.
  void storeSums(Value shared, ArrayRef<Value> sums, int64_t first) {
    Value lane = b.lane(), warp = b.warp();
    Value warpM = b.divide(warp, tile.warpsN);
    Value warpN = b.remainder(warp, tile.warpsN);
    int64_t tilesN = tile.warpColumns / kMmaN;
    for (int64_t i = 0; i < fragments; ++i) {
      Value row = b.add(b.mul(warpM, fragments * kMmaM), i * kMmaM);
      for (int64_t j = 0; j < tilesN; ++j)
        stage.store(b, shared, lane, row, b.mul(warpN, tile.warpColumns),
                    j * kMmaN, sums.slice(((first + i) * tilesN + j) * 4, 4));
    }
  }

  /// The epilogue of one part of the columns; only tiles in it take it.
  void emitGroup(ArrayRef<EpilogueSink> group, int64_t first) {
    if (isWholeRow(group))
      return emitRows(group, first);
    EpilogueColumns space = group.front().space;
    Value inPart = b.sub(tileIndex, b.i32(space.offset / tile.blockN));
    Value taken = b.compare(arith::CmpIPredicate::ult, inPart,
                            b.i32(group.front().columns / tile.blockN));
    b.ifThen(taken, [&] { emitRows(group, first); });
  }

  void emitRows(ArrayRef<EpilogueSink> group, int64_t first) {
    EpilogueColumns space = group.front().space;
    ColumnTile columns;
    Value inPart = b.sub(column, b.i32(space.offset));
    columns.first = isInterleaved(group) ? b.divide(inPart, 2) : inPart;
    columns.width = widthOf(group);
    columns.limit = group.front().columns;
    columns.index = b.sub(tileIndex, b.i32(space.offset / tile.blockN));
    LaneMap lanes(b, columns.width / kChunkColumns, b.lane());
    int64_t warpStage = fragments * kMmaM;
    int64_t step = tile.warps() * lanes.rowsPerWarp;
    // Lanes without a row go with the warp's first, for which a request touches
    // nothing more.
    Value inWarp = lanes.row;
    if (lanes.hasIdle())
      inWarp = b.select(b.less(inWarp, lanes.rowsPerWarp), inWarp, b.i32(0));
    Value ownRow = b.add(b.mul(b.warp(), lanes.rowsPerWarp), inWarp);
    b.forLoop(b.i32(0), b.i32(stage.rows), step, [&](Value begin) {
      Value own = b.add(begin, ownRow);
      EpilogueEmitter::Row row;
      row.inStage = own;
      bool ragged = stage.rows % step != 0 || lanes.hasIdle();
      if (ragged)
        row.inStage = b.min(own, stage.rows - 1);
      // Warps of a column of warps are one above the other in the stage.
      Value warpM = b.divide(row.inStage, warpStage);
      row.inTile = b.add(b.add(b.mul(warpM, tile.warpRows), first * kMmaM),
                         b.remainder(row.inStage, warpStage));
      Value index = b.add(firstRow, b.toIndex(row.inTile));
      row.exists = b.less(index, rows);
      if (ragged)
        row.exists = b.both(row.exists, b.less(own, stage.rows));
      row.index = b.min(index, b.sub(rows, b.index(1)));
      epilogue.beginRow(row, lanes, group);
      epilogue.emitTile(columns, group);
    });
  }

  CudaBuilder &b;
  KernelFrame &frame;
  GemmOp gemm;
  GemmShape shape;
  GemmTile tile;
  Value firstRow, firstColumn, rows;
  EpilogueEmitter epilogue;
  SmallVector<SmallVector<EpilogueSink>> groups;
  int64_t sharedOffset = 0;
  AccumulatorStage stage;
  int64_t fragments = 0;   // rows of 16 that a warp stages at a time
  Value column, tileIndex; // i32
};

} // namespace

LogicalResult prefill::emitGemmKernel(KernelFrame &frame, const CudaChip &chip,
                                      func::FuncOp tiled) {
  return convertTiledBody(
      tiled, frame,
      [&](Operation *op, CudaBuilder &b, IRMapping &mapping) -> LogicalResult {
        auto gemm = dyn_cast<GemmOp>(op);
        if (!gemm || gemm.getTile().size() != 2 || !gemm.getLoweringConfig())
          return op->emitOpError("is not a gemm in tile form (run "
                                 "prefill-tile)");
        FailureOr<GemmShape> shape = shapeOf(gemm, chip);
        if (failed(shape))
          return failure();
        frame.blockThreads = shape->tile.threads();
        return GemmEmitter(b, frame, gemm, *shape,
                           mapping.lookup(gemm.getTile()[0]),
                           mapping.lookup(gemm.getTile()[1]))
            .emit();
      });
}
