//===- MultistageMainloop.cpp - cp.async, ldmatrix, mma.sync --------------===//
//
// Shared memory is a ring of stages, each blockK of the tile's rows of A and of
// B. While the warps multiply one stage, copies into the others are on their
// way. One barrier an iteration: behind it the stage's bytes are there for all
// threads, and the stage that was multiplied before is free.
//
//===----------------------------------------------------------------------===//
#include "Mainloop.h"
#include "prefill/Codegen/CUDA/AsyncCopy.h"
#include "prefill/Codegen/CUDA/Fragments.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::cuda;

namespace {

constexpr int64_t kElementBytes = 2;

class MultistageMainloop : public Mainloop {
public:
  MultistageMainloop(CudaBuilder &b, const KernelFrame &frame,
                     const GemmTile &tile, MainloopOperands operands,
                     int64_t sharedOffset)
      : b(b), tile(tile), operands(operands),
        tileA{tile.blockM, tile.blockK / kChunkElements},
        tileB{tile.columns(), tile.blockK / kChunkElements},
        steps(llvm::divideCeil(operands.k, tile.blockK)),
        window(frame.sharedPointer(b, sharedOffset)), thread(b.threadId()),
        copyA(b, tileA, tile.threads(), thread),
        copyB(b, tileB, tile.threads(), thread) {
    sourceA = source(operands.input, operands.firstRow, copyA);
    sourceB = source(operands.weight, operands.firstColumn, copyB);
    for (const AsyncTileCopy::Piece &piece : copyA.pieces())
      bytesA.push_back(bytesIf(b.less(piece.row, operands.rowCount)));
    for (const AsyncTileCopy::Piece &piece : copyB.pieces())
      bytesB.push_back(operands.columnCount
                           ? bytesIf(b.less(piece.row, operands.columnCount))
                           : Value());
  }

  int64_t sharedBytes() const override { return tile.mainloopBytes(); }

  void begin() override {
    for (int64_t stage = 0; stage < tile.stages - 1; ++stage) {
      if (stage < steps)
        copyStage(b.i32(stage), b.i32(stage * tile.stageBytes()));
      b.commitGroup();
    }
  }

  SmallVector<Value> run() override {
    Value lane = b.bitAnd(thread, kWarpThreads - 1);
    Value warp = b.divide(thread, kWarpThreads);
    Value warpM = b.divide(warp, tile.warpsN);
    Value warpN = b.remainder(warp, tile.warpsN);
    FragmentReader readA(b, tileA, FragmentReader::Operand::A, lane,
                         b.mul(warpM, tile.warpRows));
    FragmentReader readB(b, tileB, FragmentReader::Operand::B, lane,
                         b.mul(warpN, tile.warpColumns));

    int64_t fragments = tile.warpRows / kMmaM;
    auto all = [&] { return runSteps(readA, readB, fragments); };
    if (fragments == 1)
      return all();
    // A few rows, as when decoding: other rows of fragments are zeros, and the
    // weight's bytes are not to wait for their multiplication.
    Value few = b.less(operands.rowCount, kMmaM + 1);
    auto branch =
        scf::IfOp::create(b, SmallVector<Type>(numSums(), b.getF32Type()), few,
                          /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(branch.thenBlock());
    scf::YieldOp::create(b, runSteps(readA, readB, 1));
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, all());
    return SmallVector<Value>(branch.getResults());
  }

private:
  int64_t numSums() const {
    return tile.warpRows * tile.warpColumns / kWarpThreads;
  }

  /// All of K for the first `fragments` rows of fragments; the others' sums are
  /// zeros.
  SmallVector<Value> runSteps(const FragmentReader &readA,
                              const FragmentReader &readB, int64_t fragments) {
    int64_t sums = fragments * (tile.warpColumns / kMmaN) * 4;
    SmallVector<Value> carried = b.zeros(sums);
    // The stages that are multiplied and filled, as byte offsets.
    carried.push_back(b.i32(0));
    carried.push_back(b.i32((tile.stages - 1) * tile.stageBytes()));
    carried = b.forLoop(
        b.i32(0), b.i32(steps), 1, carried,
        [&](Value step, ValueRange values) -> SmallVector<Value> {
          Value read = values[sums], write = values[sums + 1];
          b.waitGroup(tile.stages - 2, "gemm.wait");
          b.barrier("gemm.arrived");
          Value next = b.add(step, tile.stages - 1);
          b.ifThen(b.less(next, steps), [&] { copyStage(next, write); });
          b.commitGroup();
          SmallVector<Value> results =
              multiply(readA, readB, read, values.take_front(sums), fragments);
          results.push_back(nextStage(read));
          results.push_back(nextStage(write));
          return results;
        });
    carried.truncate(sums);
    llvm::append_range(carried, b.zeros(numSums() - sums));
    return carried;
  }

  /// This thread's first piece at k = 0.
  Value source(Value base, Value firstRow, const AsyncTileCopy &copy) {
    const AsyncTileCopy::Piece &piece = copy.pieces().front();
    Value row = b.add(firstRow, b.toIndex(piece.row));
    Value bytes = b.add(b.mul(row, operands.k * kElementBytes),
                        b.toIndex(b.mul(piece.chunk, kChunkBytes)));
    return b.pointer(base, bytes);
  }

  Value bytesIf(Value condition) {
    return b.select(condition, b.i32(kChunkBytes), b.i32(0));
  }

  Value nextStage(Value offset) {
    Value next = b.add(offset, tile.stageBytes());
    return b.select(b.equal(next, tile.mainloopBytes()), b.i32(0), next);
  }

  /// What lies at k = step * blockK into the stage at byte `offset`.
  void copyStage(Value step, Value offset) {
    Value stageA = b.pointer(window, offset);
    Value stageB = b.pointer(stageA, tileA.bytes());
    Value bytes = b.mul(b.toI64(step), tile.blockK * kElementBytes);
    copyOperand(copyA, stageA, b.pointer(sourceA, bytes), bytesA, step,
                "gemm.load_a");
    copyOperand(copyB, stageB, b.pointer(sourceB, bytes), bytesB, step,
                "gemm.load_b");
  }

  void copyOperand(const AsyncTileCopy &copy, Value shared, Value first,
                   ArrayRef<Value> bytes, Value step, StringRef site) {
    Value insideK;
    if (operands.k % tile.blockK != 0) {
      Value k = b.add(b.mul(step, tile.blockK),
                      b.mul(copy.pieces().front().chunk, kChunkElements));
      insideK = b.less(k, operands.k);
    }
    const auto *next = bytes.begin();
    copy.issue(b, shared, site, [&](const AsyncTileCopy::Piece &piece) {
      Value count = *next++;
      if (insideK)
        count = b.select(insideK, count ? count : b.i32(kChunkBytes), b.i32(0));
      return AsyncTileCopy::Source{
          b.pointer(first, piece.rowsBelowFirst * operands.k * kElementBytes),
          count};
    });
  }

  SmallVector<Value> multiply(const FragmentReader &readA,
                              const FragmentReader &readB, Value stage,
                              ValueRange sums, int64_t fragments) {
    SmallVector<Value> results(sums);
    Value stageA = b.pointer(window, stage);
    Value stageB = b.pointer(stageA, tileA.bytes());
    int64_t tilesN = tile.warpColumns / kMmaN;
    for (int64_t step = 0; step < tile.blockK / kMmaK; ++step) {
      SmallVector<SmallVector<Value>> a, columns;
      for (int64_t i = 0; i < fragments; ++i)
        a.push_back(readA.load(b, stageA, i * kMmaM, step, "gemm.read_a"));
      for (int64_t column = 0; column < tile.warpColumns; column += 2 * kMmaN)
        columns.push_back(readB.load(b, stageB, column, step, "gemm.read_b"));
      for (auto [i, words] : llvm::enumerate(a))
        for (int64_t j = 0; j < tilesN; ++j) {
          int64_t first = (int64_t(i) * tilesN + j) * 4;
          ArrayRef<Value> sum = ArrayRef<Value>(results).slice(first, 4);
          SmallVector<Value> product =
              b.mma(operands.element, words,
                    ArrayRef<Value>(columns[j / 2]).slice(j % 2 * 2, 2), sum,
                    "gemm.mma");
          llvm::copy(product, results.begin() + first);
        }
    }
    return results;
  }

  CudaBuilder &b;
  GemmTile tile;
  MainloopOperands operands;
  SwizzledTile tileA, tileB;
  int64_t steps;
  Value window, thread;
  AsyncTileCopy copyA, copyB;
  Value sourceA, sourceB;
  SmallVector<Value> bytesA, bytesB;
};

} // namespace

std::unique_ptr<Mainloop>
cuda::createMultistageMainloop(CudaBuilder &b, const KernelFrame &frame,
                               const GemmTile &tile, MainloopOperands operands,
                               int64_t sharedOffset) {
  return std::make_unique<MultistageMainloop>(b, frame, tile, operands,
                                              sharedOffset);
}
