//===- EmitGemm.cpp - a gemm's workgroup ----------------------------------===//
//
// A workgroup is block_m rows by block_n columns. For every panel of packed
// columns microkernels run down the rows of the chunk and put f32 accumulators
// into scratch that stays in the first-level cache; the epilogue then goes over
// the rows. Weights of a panel are read from memory once for all rows.
//
//===----------------------------------------------------------------------===//
#include "Epilogue.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/EmitKernels.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/Common/PackedWeights.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Static sizes of a gemm kernel.
struct GemmShape {
  int64_t n, k;
  int64_t blockM, blockN;
  /// Columns that were padded together when the weight was packed.
  int64_t groupN;
  int64_t panels;
  Type elementType;

  int64_t panelsPerGroup() const { return llvm::divideCeil(groupN, kPanelN); }
  int64_t panelsPerTile() const {
    return groupN == n ? llvm::divideCeil(blockN, kPanelN)
                       : blockN / groupN * panelsPerGroup();
  }
  int64_t kPackSize() const { return kPack(elementType); }
  int64_t steps() const { return llvm::divideCeil(k, kPackSize()); }
  int64_t panelElements() const { return steps() * kPanelN * kPackSize(); }
  /// A row of accumulators: the last panel's padding reaches past block_n, and
  /// an epilogue may read a vector past the last column.
  int64_t pitch() const { return llvm::alignTo(blockN, kPanelN) + kPanelN; }
};

FailureOr<GemmShape> shapeOf(GemmOp gemm) {
  auto input = cast<ShapedType>(gemm.getInput().getType());
  auto weight = cast<ShapedType>(gemm.getWeight().getType());
  auto acc = cast<ShapedType>(gemm.getEpilogue().getArgument(0).getType());
  LoweringConfigAttr config = *gemm.getLoweringConfig();
  GemmShape shape;
  shape.n = acc.getDimSize(1);
  shape.k = input.getDimSize(1);
  shape.blockM = config.getBlockM();
  shape.blockN = config.getBlockN();
  shape.elementType = input.getElementType();
  shape.groupN = shape.n;
  if (auto group = gemm->getAttrOfType<IntegerAttr>(kGroupNAttr))
    shape.groupN = group.getInt();
  if (!shape.elementType.isF32() && !shape.elementType.isBF16())
    return gemm.emitOpError("has element type ")
           << shape.elementType << "; target cpu has kernels for f32 and bf16";
  if (shape.k % shape.kPackSize() != 0)
    return gemm.emitOpError("has K = ")
           << shape.k << ", which is odd; target cpu reads bf16 in pairs of k";
  if (weight.getRank() != 4)
    return gemm.emitOpError("has a weight of type ")
           << weight << "; expected a packed one (run prefill-pack-weights)";
  shape.panels = weight.getDimSize(0);
  SmallVector<int64_t> expected{shape.n / shape.groupN * shape.panelsPerGroup(),
                                shape.steps(), kPanelN, shape.kPackSize()};
  if (shape.n % shape.groupN != 0 || weight.getShape() != ArrayRef(expected) ||
      weight.getElementType() != shape.elementType)
    return gemm.emitOpError("has a weight of type ")
           << weight << "; expected shape [" << expected << "] of "
           << shape.elementType << " for N = " << shape.n << " in groups of "
           << shape.groupN;
  // A tile that holds every column may end within a panel, as a group may.
  bool wholePanels = shape.groupN == shape.n ? shape.blockN % kPanelN == 0 ||
                                                   shape.blockN == shape.n
                                             : shape.blockN % shape.groupN == 0;
  if (!wholePanels)
    return gemm.emitOpError("has block_n = ")
           << shape.blockN << "; expected a multiple of "
           << (shape.groupN == shape.n ? kPanelN : shape.groupN);
  return shape;
}

class GemmEmitter {
public:
  GemmEmitter(KernelBuilder &b, const CpuIsa &isa, KernelABI &abi, GemmOp gemm,
              GemmShape shape, Value firstRow, Value firstColumn)
      : b(b), isa(isa), abi(abi), gemm(gemm), shape(shape), firstRow(firstRow),
        firstColumn(firstColumn) {}

  LogicalResult emit() {
    Value tileIndex = b.divide(firstColumn, shape.blockN);
    rows = b.min(b.sub(abi.rowsOf(gemm.getInput()), firstRow), shape.blockM);
    accumulators =
        abi.allocateScratch(b.getF32Type(), shape.blockM * shape.pitch());
    emitMainloop(tileIndex);
    return emitEpilogue(tileIndex);
  }

private:
  void emitMainloop(Value tileIndex) {
    Value firstPanel = b.mul(tileIndex, shape.panelsPerTile());
    Value count = b.index(shape.panelsPerTile());
    if (shape.panels % shape.panelsPerTile() != 0)
      count = b.min(count, b.sub(b.index(shape.panels), firstPanel));
    b.forLoop(b.index(0), count, 1, [&](Value q) {
      Value panel = b.mul(b.add(firstPanel, q), shape.panelElements());
      // Panels lie at their true columns: the next group overwrites the padding
      // of the one before, because panels are done in ascending order.
      int64_t perGroup = shape.panelsPerGroup();
      Value column = shape.groupN % kPanelN == 0 || shape.groupN == shape.n
                         ? b.mul(q, kPanelN)
                         : b.add(b.mul(b.divide(q, perGroup), shape.groupN),
                                 b.mul(b.remainder(q, perGroup), kPanelN));
      emitPanel(panel, column);
    });
  }

  /// Microkernels down the rows of the chunk: the largest, then 4 rows, then
  /// single ones.
  void emitPanel(Value panel, Value column) {
    Value done = b.index(0);
    SmallVector<int64_t> heights{isa.microRows, 4, 1};
    heights.erase(llvm::unique(heights), heights.end());
    for (int64_t microRows : heights) {
      Value end =
          b.add(done, b.mul(b.divide(b.sub(rows, done), microRows), microRows));
      b.forLoop(done, end, microRows,
                [&](Value r) { emitTile(panel, column, r, microRows); });
      done = end;
    }
  }

  void emitTile(Value panel, Value column, Value row, int64_t microRows) {
    MicrokernelOperands operands;
    operands.elementType = shape.elementType;
    operands.a = abi.flat(gemm.getInput());
    operands.b = abi.flat(gemm.getWeight());
    operands.bStepStride = kPanelN * shape.kPackSize();
    operands.steps = b.index(shape.steps());
    for (int64_t r = 0; r < microRows; ++r)
      operands.aRowOffsets.push_back(
          b.mul(b.add(b.add(firstRow, row), r), shape.k));
    Value target = b.add(b.mul(row, shape.pitch()), column);
    // A single row has too few accumulators to hide the latency of a
    // multiply-add when it takes only a part of the panel.
    int64_t columns = microRows == 1 ? kPanelN : isa.microColumns;
    int64_t vectors = columns / isa.lanes;
    for (int64_t part = 0; part < kPanelN; part += columns) {
      operands.bOffsets =
          panelVectorOffsets(b, isa, shape.elementType, panel, part, vectors);
      SmallVector<Value> results = emitMicrokernel(b, isa, operands);
      for (int64_t r = 0; r < microRows; ++r)
        for (int64_t v = 0; v < vectors; ++v)
          vector::StoreOp::create(
              b, results[r * vectors + v], accumulators,
              b.add(target, r * shape.pitch() + part + v * isa.lanes));
    }
  }

  LogicalResult emitEpilogue(Value tileIndex) {
    EpilogueEmitter epilogue(b, isa, abi, gemm.getEpilogue().front(),
                             gemm.getOuts());
    if (failed(epilogue.collectSinks()))
      return failure();
    epilogue.setAccumulators(
        {accumulators, shape.pitch(), firstRow, firstColumn});
    for (ArrayRef<Sink> group : epilogue.sinkGroups())
      if (failed(emitGroup(epilogue, group, tileIndex)))
        return failure();
    return success();
  }

  /// The epilogue of one part of the columns; only tiles in it take it.
  LogicalResult emitGroup(EpilogueEmitter &epilogue, ArrayRef<Sink> group,
                          Value tileIndex) {
    ColumnSpace space = group.front().space;
    int64_t columns = group.front().columns;
    bool interleaved = space.granularity != 0;
    int64_t width = interleaved ? shape.blockN / 2 : shape.blockN;
    if (interleaved && shape.blockN % (2 * space.granularity) != 0)
      return gemm.emitOpError("has block_n = ")
             << shape.blockN << ", which cuts runs of " << space.granularity
             << " interleaved columns";
    if (failed(epilogue.verifyTiles(group, width)))
      return failure();
    bool wholeRow = space.offset == 0 && (interleaved || columns == shape.n);
    if (!wholeRow && (space.offset % shape.blockN || columns % shape.blockN))
      return gemm.emitOpError("has block_n = ")
             << shape.blockN << ", whose tiles straddle the part of " << columns
             << " columns at column " << space.offset;
    auto emitRows = [&] {
      ColumnTile tile;
      Value inPart = b.sub(firstColumn, b.index(space.offset));
      tile.first = interleaved ? b.divide(inPart, 2) : inPart;
      tile.width = width;
      tile.limit = columns;
      tile.index = b.sub(tileIndex, b.index(space.offset / shape.blockN));
      b.forLoop(firstRow, b.add(firstRow, rows), 1, [&](Value row) {
        epilogue.beginRow(row, group);
        epilogue.emitTile(tile, group);
      });
    };
    if (wholeRow) {
      emitRows();
      return success();
    }
    auto inside = [&](arith::CmpIPredicate predicate, int64_t column) {
      return b.compare(predicate, tileIndex, b.index(column / shape.blockN));
    };
    Value taken = arith::AndIOp::create(
        b, inside(arith::CmpIPredicate::uge, space.offset),
        inside(arith::CmpIPredicate::ult, space.offset + columns));
    b.ifThen(taken, emitRows);
    return success();
  }

  KernelBuilder &b;
  const CpuIsa &isa;
  KernelABI &abi;
  GemmOp gemm;
  GemmShape shape;
  Value firstRow, firstColumn;
  Value rows, accumulators;
};

} // namespace

LogicalResult prefill::emitGemmKernel(KernelABI &abi, const CpuIsa &isa,
                                      func::FuncOp tiled) {
  return convertTiledBody(
      tiled, abi,
      [&](Operation *op, KernelBuilder &b,
          IRMapping &mapping) -> LogicalResult {
        auto gemm = dyn_cast<GemmOp>(op);
        if (!gemm || gemm.getTile().size() != 2 || !gemm.getLoweringConfig())
          return op->emitOpError("is not a gemm in tile form (run "
                                 "prefill-tile)");
        FailureOr<GemmShape> shape = shapeOf(gemm);
        if (failed(shape))
          return failure();
        return GemmEmitter(b, isa, abi, gemm, *shape,
                           mapping.lookup(gemm.getTile()[0]),
                           mapping.lookup(gemm.getTile()[1]))
            .emit();
      });
}
