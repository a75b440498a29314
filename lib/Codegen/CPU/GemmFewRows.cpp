//===- GemmFewRows.cpp - a gemm's tile of few rows ------------------------===//
#include "GemmFewRows.h"
#include "Int8Rows.h"
#include "VectorMemory.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/Microkernel.h"
#include "prefill/Codegen/CPU/TileTable.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

class FewRowsEmitter {
public:
  FewRowsEmitter(KernelBuilder &b, const CpuIsa &isa, KernelABI &abi,
                 const FewRowsTile &tile)
      : b(b), isa(isa), tile(tile) {
    elementBytes = tile.elementType.getIntOrFloatBitWidth() / 8;
    maxRows = isa.microRows;
    converts = isa.convertsLeftOperand(tile.elementType);
    Type type = converts ? b.getF32Type() : tile.elementType;
    if (isInt8())
      type = stagedInt8Type(b.getContext(), isa);
    // Rows a multiple of 4 KiB apart would share one set of the first-level
    // cache, as many as it has ways: every line of a panel would evict one.
    int64_t line = kCacheLineBytes * 8 / type.getIntOrFloatBitWidth();
    stagePitch = llvm::alignTo(tile.k, line) + line;
    stage =
        abi.allocateScratch(type, (maxRows + (tile.bias ? 1 : 0)) * stagePitch);
    unknownZero = abi.unknownZero();
  }

  void emit() {
    b.forLoop(b.index(0), tile.rows, 1, [&](Value row) { stageRow(row); });
    if (tile.bias)
      stageInt8Zeros(b, stage, b.index(maxRows * stagePitch), tile.k);
    SmallVector<int64_t> heights;
    for (int64_t height = 1; height <= maxRows; ++height)
      heights.push_back(height);
    auto choice = scf::IndexSwitchOp::create(b, TypeRange(), tile.rows, heights,
                                             heights.size());
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, height] :
         llvm::zip_equal(choice.getCaseRegions(), heights)) {
      b.createBlock(&region);
      emitPanels(height);
      scf::YieldOp::create(b);
    }
    b.createBlock(&choice.getDefaultRegion());
    scf::YieldOp::create(b);
  }

private:
  bool isInt8() const { return tile.elementType.isSignlessInteger(8); }

  void stageRow(Value row) {
    Value from = b.mul(b.add(tile.firstRow, row), tile.inputPitch);
    Value to = b.mul(row, stagePitch);
    if (isInt8())
      return stageInt8Row(b, isa, tile.input, from, stage, to, b.index(tile.k));
    int64_t width =
        converts ? isa.lanes : isa.lanes * sizeof(float) / elementBytes;
    int64_t whole = tile.k / width * width;
    auto type = VectorType::get({width}, tile.elementType);
    b.forLoop(b.index(0), b.index(whole), width, [&](Value k) {
      Value values =
          vector::LoadOp::create(b, type, tile.input, b.add(from, k));
      if (converts)
        values = arith::ExtFOp::create(b, b.vectorF32(width), values);
      vector::StoreOp::create(b, values, stage, b.add(to, k));
    });
    if (whole == tile.k)
      return;
    // Masked lanes become zeros: the other half of the last pair of an odd K.
    for (int64_t k = whole; k < tile.k; k += isa.lanes) {
      Value mask = vector::CreateMaskOp::create(
          b, VectorType::get({isa.lanes}, b.getI1Type()),
          ValueRange{b.index(std::min(tile.k - k, isa.lanes))});
      storeColumns(b, isa,
                   loadColumns(b, tile.input, b.add(from, k), isa.lanes, mask),
                   stage, b.add(to, k));
    }
  }

  void emitPanels(int64_t rows) {
    int64_t together = panelsAtOnce(rows);
    Value grouped = b.mul(b.divide(tile.panels, together), together);
    auto emit = [&](Value first, int64_t count) {
      SmallVector<Value> panels, targets;
      for (int64_t i = 0; i < count; ++i) {
        Value q = b.add(first, i);
        panels.push_back(b.mul(b.add(tile.firstPanel, q), tile.panelElements));
        targets.push_back(tile.columnOf(q));
      }
      emitPanels(rows, panels, targets);
    };
    b.forLoop(b.index(0), grouped, together,
              [&](Value q) { emit(q, together); });
    if (together > 1)
      b.forLoop(grouped, tile.panels, 1, [&](Value q) { emit(q, 1); });
  }

  int64_t accumulatorsOf(int64_t rows, int64_t columns) const {
    return (rows + (tile.bias ? 1 : 0)) * columns / isa.lanes;
  }

  /// Columns of a panel that a microkernel takes. (A single row has too few
  /// sums with a part of them to hide a multiply-add's latency.)
  int64_t columnsOf(int64_t rows) const {
    return rows == 1 || accumulatorsOf(rows, kPanelN) <= kWholePanelSums
               ? kPanelN
               : isa.microColumns;
  }

  /// Panels that a microkernel reads side by side, since the processor's
  /// prefetcher follows several streams where it is left alone.
  int64_t panelsAtOnce(int64_t rows) const {
    if (!isa.readsPanelsSideBySide() || columnsOf(rows) < kPanelN)
      return 1;
    return std::max(kSideBySideSums / accumulatorsOf(rows, kPanelN),
                    int64_t(1));
  }

  /// Whether the weight is asked for a little ahead: where that is always
  /// better, or the multiply-adds of a line take long enough (a row's take a
  /// cycle with 16 lanes on one pipe or 8 lanes on two).
  bool prefetches(int64_t rows) const {
    if (isa.prefetchesForFewRows())
      return true;
    MacKind kind = isa.macKind(tile.elementType);
    bool split = kind == MacKind::Bf16Split || kind == MacKind::Int8Split;
    return rows * (split ? 2 : 1) >= kWeightPrefetchCycles;
  }

  /// Multiplies all rows with some panels, whose sums begin at `targets`.
  void emitPanels(int64_t rows, ArrayRef<Value> panels,
                  ArrayRef<Value> targets) {
    int64_t pack = kPack(tile.elementType);
    int64_t steps = llvm::divideCeil(tile.k, pack);
    MicrokernelOperands operands;
    operands.elementType = tile.elementType;
    operands.a = stage;
    for (int64_t r = 0; r < rows; ++r)
      operands.aRowOffsets.push_back(b.index(r * stagePitch));
    // The bias is the sums of one more row.
    if (tile.bias)
      operands.aRowOffsets.push_back(b.index(maxRows * stagePitch));
    operands.b = tile.weight;
    operands.bStepStride = kPanelN * pack;
    operands.steps = b.index(steps);
    operands.unknownZero = unknownZero;
    int64_t columns = columnsOf(rows);
    int64_t perPanel = columns / isa.lanes;
    // Into the next panels, but not past the weight.
    Value end = b.index(tile.weightElements);
    Value next = b.add(panels.back(), tile.panelElements);
    if (columns < kPanelN) {
      // A part's lines are not neighbours: each part asks for its share of the
      // next panel, line after line.
      operands.prefetchSource = tile.weight;
      operands.prefetchStride = b.index(columns * pack);
      next = b.min(next, b.sub(end, b.index(tile.panelElements)));
    } else if (panels.size() == 1 && prefetches(rows)) {
      operands.prefetchDistance =
          b.min(b.sub(end, next), kWeightPrefetchBytes / elementBytes);
    }
    b.forLoop(b.index(0), b.index(kPanelN), columns, [&](Value part) {
      if (operands.prefetchSource)
        operands.prefetchStart = b.add(next, b.mul(part, pack * steps));
      operands.bOffsets.clear();
      SmallVector<Value> places;
      for (auto [panel, target] : llvm::zip_equal(panels, targets)) {
        operands.bOffsets.append(
            panelVectorOffsets(b, isa, tile.elementType,
                               b.add(panel, b.mul(part, pack)), perPanel));
        for (int64_t v = 0; v < perPanel; ++v)
          places.push_back(b.add(b.add(target, part), v * isa.lanes));
      }
      SmallVector<Value> sums = emitMicrokernel(b, isa, operands);
      for (int64_t r = 0; r < rows; ++r)
        for (auto [v, place] : llvm::enumerate(places))
          vector::StoreOp::create(b, sums[r * places.size() + v],
                                  tile.accumulators,
                                  b.add(place, r * tile.pitch));
      for (auto [v, place] : llvm::enumerate(places))
        if (tile.bias)
          vector::StoreOp::create(b, sums[rows * places.size() + v], tile.bias,
                                  place);
    });
  }

  KernelBuilder &b;
  const CpuIsa &isa;
  const FewRowsTile &tile;
  int64_t elementBytes, stagePitch, maxRows;
  bool converts; // rows to f32
  Value unknownZero;
  Value stage; // the rows, stagePitch apart
};

} // namespace

void prefill::emitFewRowsTile(KernelBuilder &b, const CpuIsa &isa,
                              KernelABI &abi, const FewRowsTile &tile) {
  FewRowsEmitter(b, isa, abi, tile).emit();
}
