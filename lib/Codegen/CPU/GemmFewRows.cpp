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
    b.forLoop(b.index(0), tile.panels, 1, [&](Value q) {
      Value panel = b.mul(b.add(tile.firstPanel, q), tile.panelElements);
      emitPanel(rows, panel, tile.columnOf(q));
    });
  }

  /// Whether the multiply-adds of a line take long enough: a row's take a cycle
  /// with 16 lanes on one pipe or 8 lanes on two.
  bool prefetches(int64_t rows) const {
    if (isa.prefetchesForFewRows())
      return true;
    MacKind kind = isa.macKind(tile.elementType);
    bool split = kind == MacKind::Bf16Split || kind == MacKind::Int8Split;
    return rows * (split ? 2 : 1) >= kWeightPrefetchCycles;
  }

  void emitPanel(int64_t rows, Value panel, Value column) {
    int64_t pack = kPack(tile.elementType);
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
    operands.steps = b.index(llvm::divideCeil(tile.k, pack));
    operands.unknownZero = unknownZero;
    if (prefetches(rows)) // into the next panels, but not past the weight
      operands.prefetchDistance = b.min(
          b.sub(b.index(tile.weightElements), b.add(panel, tile.panelElements)),
          kWeightPrefetchBytes / elementBytes);
    // A single row has too few accumulators to hide the latency of a
    // multiply-add when it takes only a part of the panel.
    int64_t columns = rows == 1 ? kPanelN : isa.microColumns;
    int64_t vectors = columns / isa.lanes;
    for (int64_t part = 0; part < kPanelN; part += columns) {
      operands.bOffsets =
          panelVectorOffsets(b, isa, tile.elementType, panel, part, vectors);
      SmallVector<Value> sums = emitMicrokernel(b, isa, operands);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t v = 0; v < vectors; ++v)
          vector::StoreOp::create(
              b, sums[r * vectors + v], tile.accumulators,
              b.add(column, r * tile.pitch + part + v * isa.lanes));
      for (int64_t v = 0; tile.bias && v < vectors; ++v)
        vector::StoreOp::create(b, sums[rows * vectors + v], tile.bias,
                                b.add(column, part + v * isa.lanes));
    }
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
