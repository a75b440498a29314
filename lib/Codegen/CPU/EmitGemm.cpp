//===- EmitGemm.cpp - a gemm's workgroup ----------------------------------===//
//
// A workgroup is block_m rows by block_n columns. For every panel of packed
// columns microkernels run down the rows of the chunk and put f32 accumulators
// into scratch that stays in the first-level cache; the epilogue then goes over
// the rows. Weights of a panel are read from memory once for all rows. Where a
// pass's weights are copied first, microkernels go over all panels row by row.
//
//===----------------------------------------------------------------------===//
#include "AmxTiles.h"
#include "BF16Pairs.h"
#include "Epilogue.h"
#include "GemmAmx.h"
#include "GemmFewRows.h"
#include "Int8Rows.h"
#include "VectorMemory.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/EmitKernels.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/CPU/TileTable.h"
#include "prefill/Codegen/Common/PackedWeights.h"
#include <numeric>

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// The sums of a chunk's rows lie in scratch, whose size must not overflow.
constexpr int64_t kMaxBlockM = 1 << 20;

/// Static sizes of a gemm kernel.
struct GemmShape {
  int64_t n, k;
  int64_t blockM, blockN;
  /// Columns that were padded together when the weight was packed.
  int64_t groupN;
  int64_t panels;
  /// k of one pass; a multiple of k_pack unless it is all of K.
  int64_t blockK;
  Type elementType;
  bool usesAmx = false;
  /// Many rows multiply with f32 copies of both operands, in passes of
  /// widenBlockK.
  bool widensWeight = false;
  int64_t widenBlockK = 0;

  int64_t panelsPerGroup() const { return llvm::divideCeil(groupN, kPanelN); }
  int64_t panelsPerTile() const {
    return groupN == n ? llvm::divideCeil(blockN, kPanelN)
                       : blockN / groupN * panelsPerGroup();
  }
  int64_t kPackSize() const { return kPack(elementType); }
  bool isInt8() const { return elementType.isSignlessInteger(8); }
  int64_t steps() const { return llvm::divideCeil(k, kPackSize()); }
  int64_t blockSteps() const { return llvm::divideCeil(blockK, kPackSize()); }
  bool onePass() const { return blockK >= k; }
  /// Of one step of a panel.
  int64_t stepElements() const { return kPanelN * kPackSize(); }
  int64_t panelElements() const { return steps() * stepElements(); }
  /// A row of accumulators: the last panel's padding reaches past block_n, and
  /// an epilogue may read a vector past the last column.
  int64_t pitch() const { return llvm::alignTo(blockN, kPanelN) + kPanelN; }
};

/// k of a pass whose rows are copied as f32: the copy takes half of the room,
/// as the rows themselves pass through the same cache.
int64_t stagedBlockK(int64_t blockK, Type elementType) {
  int64_t bits = elementType.getIntOrFloatBitWidth();
  int64_t pairs = blockK * bits / 32 / 2 / 2;
  return std::max<int64_t>(2 * pairs, 2);
}

/// What the rows of many are always copied as; null: they may stay as they are.
Type stagedType(const CpuIsa &isa, Type elementType) {
  MLIRContext *context = elementType.getContext();
  if (isa.macKind(elementType) == MacKind::Int8Split)
    return stagedInt8Type(context, isa);
  return isa.convertsLeftOperand(elementType) ? Float32Type::get(context)
                                              : Type();
}

FailureOr<GemmShape> shapeOf(GemmOp gemm, const CpuIsa &isa) {
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
  if (shape.groupN < 1)
    return gemm.emitOpError("has ") << kGroupNAttr << " = " << shape.groupN
                                    << "; expected a divisor of " << shape.n;
  if (shape.blockM > kMaxBlockM)
    return gemm.emitOpError("has block_m = ")
           << shape.blockM << "; expected at most " << kMaxBlockM;
  if (!shape.elementType.isF32() && !shape.elementType.isBF16() &&
      !shape.elementType.isF16() && !shape.isInt8())
    return gemm.emitOpError("has element type ")
           << shape.elementType
           << "; target cpu has kernels for f32, bf16, f16 and i8";
  shape.blockK = shape.k;
  if (auto blockK = gemm->getAttrOfType<IntegerAttr>(kBlockKAttr))
    shape.blockK = std::min(shape.k, blockK.getInt());
  if (shape.blockK < 1 ||
      (!shape.onePass() && shape.blockK % shape.kPackSize() != 0))
    return gemm.emitOpError("has ")
           << kBlockKAttr << " = " << shape.blockK
           << "; expected a positive multiple of " << shape.kPackSize();
  if (auto blockK = gemm->getAttrOfType<IntegerAttr>(kBlockKAttr))
    if (isa.convertsLeftOperand(shape.elementType))
      shape.blockK =
          std::min(shape.k, stagedBlockK(blockK.getInt(), shape.elementType));
  shape.widensWeight = isa.widensWeight(shape.elementType);
  shape.widenBlockK = std::min(shape.steps() * shape.kPackSize(), kWidenBlockK);
  shape.usesAmx = gemmUsesAmx(isa, shape.elementType, shape.k);
  if (shape.usesAmx)
    shape.blockK = std::clamp<int64_t>(llvm::alignDown(shape.blockK, kAmxK),
                                       kAmxK, kAmxBlockK);
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
    evenChunk();
    Type sumType = accumulatorType(b, isa, shape.elementType).getElementType();
    accumulators = abi.allocateScratch(sumType, maxRows() * shape.pitch());
    if (shape.isInt8() && int8RowBias(isa))
      bias = abi.allocateScratch(sumType, shape.pitch());
    EpilogueEmitter epilogue(b, isa, abi, gemm.getEpilogue().front(),
                             gemm.getOuts());
    if (failed(epilogue.collectSinks()))
      return failure();
    this->epilogue = &epilogue;
    cutRows();
    emitMainloop(tileIndex);
    return emitEpilogue(tileIndex);
  }

private:
  int64_t inputPitch() { return abi.rowPitch(gemm.getInput()); }
  /// What chunks are cut in.
  int64_t rowUnit() const {
    return std::min(shape.usesAmx ? kAmxRows : isa.microRows, shape.blockM);
  }
  int64_t maxRows() const {
    return llvm::alignTo(llvm::alignTo(shape.blockM, rowUnit()),
                         shape.usesAmx ? kAmxRows : 1);
  }

  /// Evens out the chunks of rows: 130 rows are 64 + 66 in place of 128 + 2,
  /// because 2 rows need the whole weight as well. `firstRow` is this chunk's
  /// number times block_m until here.
  void evenChunk() {
    Value allRows = abi.rowsOf(gemm.getInput());
    Value chunks = b.ceilDivide(allRows, shape.blockM);
    Value units = b.ceilDivide(allRows, rowUnit());
    Value chunk = b.divide(firstRow, shape.blockM);
    auto startOf = [&](Value index) {
      Value unit = b.divide(b.mul(index, units), chunks);
      return b.min(b.mul(unit, rowUnit()), allRows);
    };
    firstRow = startOf(chunk);
    Value next = b.add(chunk, 1);
    rows = b.sub(startOf(next), firstRow);
    endsGroup = b.compare(arith::CmpIPredicate::eq, next, chunks);
    if (auto groupM = gemm->getAttrOfType<IntegerAttr>(kGroupMAttr))
      endsGroup = arith::OrIOp::create(
          b, endsGroup,
          b.compare(arith::CmpIPredicate::eq,
                    b.remainder(next, groupM.getInt() / shape.blockM),
                    b.index(0)));
  }

  void emitMainloop(Value tileIndex) {
    if (shape.usesAmx)
      amxRows.emplace(b, abi, shape.k);
    else
      allocateStage();
    Value firstPanel = b.mul(tileIndex, shape.panelsPerTile());
    Value count = b.index(shape.panelsPerTile());
    if (shape.panels % shape.panelsPerTile() != 0)
      count = b.min(count, b.sub(b.index(shape.panels), firstPanel));
    if (amxRows)
      amxRows->begin(abi.flat(gemm.getInput()), inputPitch(), firstRow, rows);
    int64_t fewRows = amxRows ? kAmxRows : isa.microRows;
    b.ifThenElse(
        b.compare(arith::CmpIPredicate::sle, rows, b.index(fewRows)),
        [&] { emitFewRows(firstPanel, count); },
        [&] { emitManyRows(firstPanel, count); });
  }

  void emitFewRows(Value firstPanel, Value count) {
    if (amxRows) {
      firstStep = b.index(0);
      steps = b.index(shape.steps());
      emitPanels(firstPanel, count, /*fewRows=*/true);
      return;
    }
    FewRowsTile tile;
    tile.elementType = shape.elementType;
    tile.k = shape.k;
    tile.input = abi.flat(gemm.getInput());
    tile.inputPitch = inputPitch();
    tile.firstRow = firstRow;
    tile.rows = rows;
    tile.weight = abi.flat(gemm.getWeight());
    tile.weightElements = shape.panels * shape.panelElements();
    tile.panelElements = shape.panelElements();
    tile.firstPanel = firstPanel;
    tile.panels = count;
    auto column = [&](Value q) { return columnOf(q); };
    tile.columnOf = column;
    tile.accumulators = accumulators;
    tile.pitch = shape.pitch();
    tile.bias = bias;
    emitFewRowsTile(b, isa, abi, tile);
  }

  void emitManyRows(Value firstPanel, Value count) {
    if (!shape.widensWeight)
      return emitPasses(firstPanel, count);
    b.ifThenElse(
        b.compare(arith::CmpIPredicate::slt, rows, b.index(kWidenMinRows)),
        [&] { emitPasses(firstPanel, count); },
        [&] { emitWidenedPasses(firstPanel, count); });
  }

  /// Pass by pass over K: a tile's columns are copied as f32, then a
  /// microkernel's rows at a time, which take all columns while they are in the
  /// first-level cache. The order of additions is that of emitPasses.
  void emitWidenedPasses(Value firstPanel, Value count) {
    int64_t blockSteps = shape.widenBlockK / shape.kPackSize();
    int64_t copyElements = shape.widenBlockK * kPanelN;
    Value weight = abi.flat(gemm.getWeight());
    auto emitPass = [&](Value start) {
      firstStep = start;
      steps = b.min(b.sub(b.index(shape.steps()), firstStep), blockSteps);
      auto panelOf = [&](Value q) {
        return b.add(b.mul(b.add(firstPanel, q), shape.panelElements()),
                     b.mul(firstStep, shape.stepElements()));
      };
      b.forLoop(b.index(0), count, 1, [&](Value q) {
        widenPanel(b, isa, weight, panelOf(q), wideWeight,
                   b.mul(q, copyElements), steps);
      });
      Value toNext = distanceToNextPass(firstPanel, count, blockSteps);
      forEachMicrokernel([&](Value row, int64_t microRows) {
        emitStage(row, b.index(microRows), shape.widenBlockK);
        b.forLoop(b.index(0), count, 1, [&](Value q) {
          PanelOperands panel;
          panel.elementType = b.getF32Type();
          panel.weight = wideWeight;
          panel.start = b.mul(q, copyElements);
          panel.steps = b.mul(steps, shape.kPackSize());
          panel.unroll = unrollOf(panel.elementType, blockSteps);
          panel.next = b.add(panelOf(q), toNext);
          panel.isOnlyPass = shape.steps() <= blockSteps;
          emitTile(panel, stagedRows(b.index(0), microRows), columnOf(q), row);
        });
      });
    };
    b.forLoop(b.index(0), b.index(shape.steps()), blockSteps, emitPass);
  }

  /// Pass by pass over K; in each, panel by panel down the rows.
  void emitPasses(Value firstPanel, Value count) {
    auto emitPass = [&](Value start) {
      firstStep = start;
      steps = shape.steps() % shape.blockSteps() == 0
                  ? b.index(shape.blockSteps())
                  : b.min(b.sub(b.index(shape.steps()), firstStep),
                          shape.blockSteps());
      if (stage)
        emitStage(b.index(0), rows, shape.blockK);
      emitPanels(firstPanel, count);
    };
    if (shape.onePass())
      emitPass(b.index(0));
    else
      b.forLoop(b.index(0), b.index(shape.steps()), shape.blockSteps(),
                emitPass);
  }

  void emitPanels(Value firstPanel, Value count, bool fewRows = false) {
    b.forLoop(b.index(0), count, 1, [&](Value q) {
      Value panel = b.mul(b.add(firstPanel, q), shape.panelElements());
      nextPanel =
          distanceToNext(firstPanel, count, q, fewRows || shape.onePass());
      if (amxRows)
        emitAmxPanel(panel, columnOf(q), fewRows);
      else
        emitPanel(panel, columnOf(q));
    });
  }

  void emitAmxPanel(Value start, Value column, bool fewRows) {
    GemmAmxRows::Panel panel;
    panel.weight = abi.flat(gemm.getWeight());
    panel.start = b.add(start, b.mul(firstStep, kPanelN * shape.kPackSize()));
    panel.firstStep = firstStep;
    panel.steps = steps;
    panel.isOnlyPass = fewRows || shape.onePass();
    panel.accumulators = accumulators;
    panel.target = column;
    panel.pitch = shape.pitch();
    panel.next = b.add(panel.start, nextPanel);
    auto beforeRow = [&](Value row) {
      epilogue->prefetchAddends(b.add(firstRow, row),
                                b.add(firstColumn, column));
    };
    panel.beforeRow = beforeRow;
    if (fewRows)
      amxRows->emitPanelOfFewRows(panel);
    else
      amxRows->emitPanel(panel);
  }

  Value select(Value condition, Value yes, Value no) {
    return arith::SelectOp::create(b, condition, yes, no);
  }
  Value below(Value lhs, Value rhs) {
    return b.compare(arith::CmpIPredicate::ult, lhs, rhs);
  }

  /// From panel `q` to what is multiplied next, in elements of the weight: the
  /// next panel, the first one's k of the next pass, the next workgroup's first
  /// panel. That one has the same tile and the group's next chunk of rows, then
  /// the next tile (TileGemm). 0 where nothing follows.
  Value distanceToNext(Value firstPanel, Value count, Value q, bool onlyPass) {
    int64_t stepStride = kPanelN * shape.kPackSize();
    Value toStart = b.mul(firstStep, stepStride);
    Value toFirst = b.mul(b.sub(count, b.index(1)), shape.panelElements());
    auto back = [&](Value panels) {
      return b.sub(b.index(0), b.add(panels, toStart));
    };
    Value toWeight = b.add(b.mul(firstPanel, shape.panelElements()), toFirst);
    Value toNextTile =
        select(below(b.add(firstPanel, count), b.index(shape.panels)),
               b.sub(b.index(shape.panelElements()), toStart),
               select(below(b.add(firstRow, rows), abi.rowsOf(gemm.getInput())),
                      back(toWeight), b.index(0)));
    Value distance = select(endsGroup, toNextTile, back(toFirst));
    if (!onlyPass) {
      Value toPass = b.sub(b.index(shape.blockSteps() * stepStride), toFirst);
      distance = select(
          below(b.add(firstStep, shape.blockSteps()), b.index(shape.steps())),
          toPass, distance);
    }
    distance = select(below(b.add(q, 1), count), b.index(shape.panelElements()),
                      distance);
    return distance;
  }

  /// From a panel's part of this pass to what takes its place in the copy next,
  /// in elements of the weight: its part of the next pass, or the same place of
  /// the next workgroup's tile (of the first one where that is narrower).
  Value distanceToNextPass(Value firstPanel, Value count, int64_t blockSteps) {
    Value toStart = b.sub(b.index(0), b.mul(firstStep, shape.stepElements()));
    Value next = b.add(firstPanel, count);
    Value panels = select(below(b.add(next, count), b.index(shape.panels + 1)),
                          count, b.sub(b.index(0), firstPanel));
    Value toTile = b.add(toStart, b.mul(panels, shape.panelElements()));
    return select(below(b.add(firstStep, blockSteps), b.index(shape.steps())),
                  b.index(blockSteps * shape.stepElements()),
                  select(endsGroup, toTile, toStart));
  }

  /// Of panel `q` of the tile. Panels lie at their true columns: the next group
  /// overwrites the padding of the one before, because the sums of a row are
  /// stored in ascending order of panels.
  Value columnOf(Value q) {
    int64_t perGroup = shape.panelsPerGroup();
    if (shape.groupN % kPanelN == 0 || shape.groupN == shape.n)
      return b.mul(q, kPanelN);
    return b.add(b.mul(b.divide(q, perGroup), shape.groupN),
                 b.mul(b.remainder(q, perGroup), kPanelN));
  }

  /// A copy of the rows for one pass: in f32 where the microkernels want that,
  /// and where pairs of bf16 would end in the next row, which may hold NaN.
  void allocateStage() {
    Type type = stagedType(isa, shape.elementType);
    if (!type && shape.k % shape.kPackSize() == 0)
      return;
    if (!type)
      type = shape.elementType;
    int64_t blockK = shape.blockK, stagedRows = maxRows();
    if (shape.widensWeight) {
      blockK = std::max(blockK, shape.widenBlockK);
      stagedRows = std::min(stagedRows, kWidenMinRows);
      wideWeight = abi.allocateScratch(
          b.getF32Type(), shape.panelsPerTile() * shape.widenBlockK * kPanelN);
    }
    // Rows a power of two apart would share a set of the first-level cache.
    int64_t line = kCacheLineBytes * 8 / type.getIntOrFloatBitWidth();
    stagePitch = llvm::alignTo(blockK, 64) + line;
    stage = abi.allocateScratch(type, stagedRows * stagePitch);
  }

  /// Copies `count` rows of the chunk from `first` on, of a pass of `blockK`.
  void emitStage(Value first, Value count, int64_t blockK) {
    int64_t lanes = isa.lanes;
    Value input = abi.flat(gemm.getInput());
    Value firstK = b.mul(firstStep, shape.kPackSize());
    Value length = b.min(b.sub(b.index(shape.k), firstK), blockK);
    if (shape.isInt8()) {
      b.forLoop(b.index(0), count, 1, [&](Value row) {
        Value from = b.add(
            b.mul(b.add(b.add(firstRow, first), row), inputPitch()), firstK);
        stageInt8Row(b, isa, input, from, stage, b.mul(row, stagePitch),
                     length);
      });
      return;
    }
    Value whole = b.mul(b.divide(length, lanes), lanes);
    Value rest =
        vector::CreateMaskOp::create(b, VectorType::get({lanes}, b.getI1Type()),
                                     ValueRange{b.sub(length, whole)});
    b.forLoop(b.index(0), count, 1, [&](Value row) {
      Value from = b.add(
          b.mul(b.add(b.add(firstRow, first), row), inputPitch()), firstK);
      Value to = b.mul(row, stagePitch);
      b.forLoop(b.index(0), whole, lanes, [&](Value k) {
        // Short runs of each row are read: the hardware's prefetcher has no
        // time to see them coming. Prefetches past the last row do no harm.
        memref::PrefetchOp::create(
            b, input, ValueRange{b.add(b.add(from, k), 2 * inputPitch())},
            /*isWrite=*/false, /*localityHint=*/3, /*isDataCache=*/true);
        storeColumns(b, isa, loadColumns(b, input, b.add(from, k), lanes),
                     stage, b.add(to, k));
      });
      if (shape.k % lanes == 0 && blockK % lanes == 0)
        return;
      // Masked lanes become zeros: the other half of the last pair.
      storeColumns(b, isa,
                   loadColumns(b, input, b.add(from, whole), lanes, rest),
                   stage, b.add(to, whole));
    });
  }

  /// Cuts the rows of the chunk: as many of the tallest microkernels as fit,
  /// then the rest in one or two of lower height. A rest that would leave too
  /// few accumulators in flight is evened out with the last tall one: 37 rows
  /// are 4 x 8 + 5, but 34 are 3 x 8 + 5 + 5.
  void cutRows() {
    int64_t tallest = isa.microRows;
    Value rest = b.remainder(rows, tallest);
    Value whole = b.sub(rows, rest);
    auto both = [&](Value lhs, Value rhs) -> Value {
      return arith::AndIOp::create(b, lhs, rhs);
    };
    Value low =
        both(b.compare(arith::CmpIPredicate::sgt, rest, b.index(0)),
             b.compare(arith::CmpIPredicate::slt, rest, b.index(tallest / 2)));
    Value even =
        both(low, b.compare(arith::CmpIPredicate::sgt, whole, b.index(0)));
    auto choose = [&](Value ifEven, Value otherwise) -> Value {
      return arith::SelectOp::create(b, even, ifEven, otherwise);
    };
    tallEnd = b.sub(whole, choose(b.index(tallest), b.index(0)));
    Value tail = b.sub(rows, tallEnd);
    firstTail = choose(b.ceilDivide(tail, 2), tail);
    secondTail = b.sub(tail, firstTail);
  }

  /// Calls `emit(row, microRows)` for all microkernels of the chunk, from the
  /// first row down.
  void forEachMicrokernel(llvm::function_ref<void(Value, int64_t)> emit) {
    int64_t tallest = isa.microRows;
    b.forLoop(b.index(0), tallEnd, tallest,
              [&](Value row) { emit(row, tallest); });
    SmallVector<int64_t> heights;
    // A chunk of fewer rows than one tall microkernel's is not here.
    for (int64_t height = tallest / 2; height < tallest; ++height)
      heights.push_back(height);
    b.forLoop(b.index(0), b.index(2), 1, [&](Value tail) {
      Value isFirst = b.compare(arith::CmpIPredicate::eq, tail, b.index(0));
      Value height = arith::SelectOp::create(b, isFirst, firstTail, secondTail);
      Value row = arith::SelectOp::create(b, isFirst, tallEnd,
                                          b.add(tallEnd, firstTail));
      auto choice = scf::IndexSwitchOp::create(b, TypeRange(), height, heights,
                                               heights.size());
      OpBuilder::InsertionGuard guard(b);
      for (auto [region, microRows] :
           llvm::zip_equal(choice.getCaseRegions(), heights)) {
        b.createBlock(&region);
        emit(row, microRows);
        scf::YieldOp::create(b);
      }
      b.createBlock(&choice.getDefaultRegion());
      scf::YieldOp::create(b);
    });
  }

  /// A pass's part of a panel.
  struct PanelOperands {
    Type elementType;
    Value weight, start; // where it begins
    Value steps;
    int64_t unroll;
    Value next; // in the packed weight: what is asked for meanwhile
    bool isOnlyPass;
  };

  /// Steps of an iteration for passes of `blockSteps` (of k_pack of the
  /// weight's elements) over all steps, the last pass of what is left.
  int64_t unrollOf(Type elementType, int64_t blockSteps) const {
    int64_t perStep = shape.kPackSize() / kPack(elementType);
    int64_t divisor = std::gcd(shape.steps(), blockSteps) * perStep;
    bool isDotBf16 = isa.macKind(elementType) == MacKind::Bf16Dot;
    return !isDotBf16 && divisor % kFmaUnroll == 0 ? kFmaUnroll : 1;
  }

  /// Offsets of rows in the stage.
  SmallVector<Value> stagedRows(Value first, int64_t microRows) {
    SmallVector<Value> offsets;
    for (int64_t r = 0; r < microRows; ++r)
      offsets.push_back(b.mul(b.add(first, r), stagePitch));
    return offsets;
  }

  void emitPanel(Value start, Value column) {
    PanelOperands panel;
    panel.elementType = shape.elementType;
    panel.weight = abi.flat(gemm.getWeight());
    panel.start = b.add(start, b.mul(firstStep, shape.stepElements()));
    panel.steps = steps;
    panel.unroll = unrollOf(panel.elementType, shape.blockSteps());
    panel.next = b.add(panel.start, nextPanel);
    panel.isOnlyPass = shape.onePass();
    if (bias)
      emitInt8Bias(b, isa, panel.weight, panel.start, steps, panel.unroll, bias,
                   column,
                   b.compare(arith::CmpIPredicate::eq, firstStep, b.index(0)));
    forEachMicrokernel([&](Value row, int64_t microRows) {
      SmallVector<Value> rowOffsets;
      Value firstK = b.mul(firstStep, shape.kPackSize());
      if (stage)
        rowOffsets = stagedRows(row, microRows);
      for (int64_t r = 0; !stage && r < microRows; ++r)
        rowOffsets.push_back(
            b.add(b.mul(b.add(b.add(firstRow, row), r), inputPitch()), firstK));
      emitTile(panel, rowOffsets, column, row);
    });
  }

  /// Whether the sums are complete after the current pass.
  Value isLastPass() {
    return b.compare(arith::CmpIPredicate::uge, b.add(firstStep, steps),
                     b.index(shape.steps()));
  }

  /// One microkernel's height of rows, from `row` of the chunk on.
  void emitTile(const PanelOperands &panel, ArrayRef<Value> rowOffsets,
                Value column, Value row) {
    int64_t microRows = rowOffsets.size();
    MicrokernelOperands operands;
    operands.elementType = panel.elementType;
    operands.a = stage ? stage : abi.flat(gemm.getInput());
    operands.aRowOffsets.assign(rowOffsets.begin(), rowOffsets.end());
    operands.b = panel.weight;
    operands.bStepStride = kPanelN * kPack(panel.elementType);
    operands.steps = panel.steps;
    // The rest of the rows is not worth the code, and LLVM's time with it.
    operands.unroll = microRows == isa.microRows ? panel.unroll : 1;
    operands.unknownZero = abi.unknownZero();
    operands.prefetchSource = abi.flat(gemm.getWeight());
    // Each tile asks for its share of what is multiplied next. All of it within
    // one tile's time would be more than memory delivers.
    int64_t columns = microRows == 1 ? kPanelN : isa.microColumns;
    int64_t parts = kPanelN / columns;
    Value shares = b.mul(rows, parts);
    Value share = b.divide(b.mul(panel.steps, operands.bStepStride), shares);
    int64_t steps = std::min(operands.unroll, isa.prefetchSteps());
    operands.prefetchStride = b.divide(
        b.add(shares, steps * operands.bStepStride * microRows - 1), shares);
    auto prefetchAddends = [&] {
      for (int64_t r = 0; r < microRows; ++r)
        epilogue->prefetchAddends(b.add(b.add(firstRow, row), r),
                                  b.add(firstColumn, column));
    };
    if (panel.isOnlyPass)
      prefetchAddends();
    else
      b.ifThen(isLastPass(), prefetchAddends);
    Value target = b.add(b.mul(row, shape.pitch()), column);
    // A single row has too few accumulators to hide the latency of a
    // multiply-add when it takes only a part of the panel.
    int64_t vectors = columns / isa.lanes;
    int64_t pack = kPack(panel.elementType);
    b.forLoop(b.index(0), b.index(kPanelN), columns, [&](Value part) {
      operands.bOffsets =
          panelVectorOffsets(b, isa, panel.elementType,
                             b.add(panel.start, b.mul(part, pack)), vectors);
      Value before =
          b.add(b.mul(row, parts), b.mul(b.divide(part, columns), microRows));
      operands.prefetchStart = b.add(panel.next, b.mul(before, share));
      auto at = [&](int64_t r, int64_t v) {
        return b.add(b.add(target, part), r * shape.pitch() + v * isa.lanes);
      };
      SmallVector<Value> results =
          emitMicrokernel(b, isa, operands,
                          emitStart(panel.isOnlyPass, microRows, vectors, at));
      for (int64_t r = 0; r < microRows; ++r)
        for (int64_t v = 0; v < vectors; ++v)
          vector::StoreOp::create(b, results[r * vectors + v], accumulators,
                                  at(r, v));
    });
  }

  /// What a microkernel's accumulators start with: nothing stands for zeros,
  /// else what the pass before stored.
  SmallVector<Value> emitStart(bool isOnlyPass, int64_t microRows,
                               int64_t vectors,
                               llvm::function_ref<Value(int64_t, int64_t)> at) {
    if (isOnlyPass)
      return {};
    VectorType type = accumulatorType(b, isa, shape.elementType);
    SmallVector<Type> types(microRows * vectors, type);
    auto start = scf::IfOp::create(
        b, types, b.compare(arith::CmpIPredicate::eq, firstStep, b.index(0)),
        /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(start.thenBlock());
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
    scf::YieldOp::create(b, SmallVector<Value>(types.size(), zero));
    b.setInsertionPointToEnd(start.elseBlock());
    SmallVector<Value> loaded;
    for (int64_t r = 0; r < microRows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        loaded.push_back(
            vector::LoadOp::create(b, type, accumulators, at(r, v)));
    scf::YieldOp::create(b, loaded);
    return SmallVector<Value>(start.getResults());
  }

  LogicalResult emitEpilogue(Value tileIndex) {
    epilogue->setAccumulators(
        {accumulators, bias, shape.pitch(), firstRow, firstColumn});
    for (ArrayRef<Sink> group : epilogue->sinkGroups())
      if (failed(emitGroup(group, tileIndex)))
        return failure();
    return success();
  }

  /// The epilogue of one part of the columns; only tiles in it take it.
  LogicalResult emitGroup(ArrayRef<Sink> group, Value tileIndex) {
    ColumnSpace space = group.front().space;
    int64_t columns = group.front().columns;
    bool interleaved = space.granularity != 0;
    int64_t width = interleaved ? shape.blockN / 2 : shape.blockN;
    if (interleaved && shape.blockN % (2 * space.granularity) != 0)
      return gemm.emitOpError("has block_n = ")
             << shape.blockN << ", which cuts runs of " << space.granularity
             << " interleaved columns";
    if (failed(epilogue->verifyTiles(group, width)))
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
        epilogue->beginRow(row, group);
        epilogue->emitTile(tile, group);
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
  EpilogueEmitter *epilogue = nullptr;
  Value rows, accumulators;
  Value bias;      // of the columns, where rows are biased (Int8Rows.h)
  Value endsGroup; // this chunk of rows is its group's last
  Value tallEnd, firstTail, secondTail;
  // Of the current pass.
  Value firstStep, steps;
  Value nextPanel;         // of the current panel
  Value stage, wideWeight; // copies of rows and of a tile's columns
  int64_t stagePitch = 0;
  std::optional<GemmAmxRows> amxRows; // with AMX
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
        FailureOr<GemmShape> shape = shapeOf(gemm, isa);
        if (failed(shape))
          return failure();
        return GemmEmitter(b, isa, abi, gemm, *shape,
                           mapping.lookup(gemm.getTile()[0]),
                           mapping.lookup(gemm.getTile()[1]))
            .emit();
      });
}
