//===- Epilogue.h - nodes of an epilogue, eight columns a thread -*- C++
//-*-===//
//
// gemm and rowwise share it, so that every node is lowered once. A thread
// evaluates a chunk, 8 columns of one row, in f32 registers: 16 bytes of f16 or
// bf16 in memory. Neighbouring lanes have neighbouring chunks, so that a warp
// reads and writes whole sectors, and a tile's columns of a row lie in the
// lanes of one warp: nodes that need other columns of a head (rope, QK-norm)
// and sums over a row get them by shuffles. A gemm's accumulators come from a
// staging tile in shared memory.
//
// All lanes of a warp evaluate together. Lanes without a row or a column of
// their own read those of the last one and store nothing.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_EPILOGUE_H
#define PREFILL_CODEGEN_CUDA_EPILOGUE_H

#include "AccumulatorStage.h"
#include "prefill/Codegen/CUDA/KernelFrame.h"
#include "prefill/Codegen/Common/EpilogueGraph.h"

namespace mlir::prefill::cuda {

/// Columns of a chunk.
inline constexpr int64_t kChunkColumns = 8;
using Chunk = SmallVector<Value, kChunkColumns>;

/// Lanes of a warp and the rows and chunks of a tile of columns.
struct LaneMap {
  int64_t chunks;      // of a row, at most 32
  int64_t rowsPerWarp; // 32 / chunks
  Value lane;          // i32
  Value row;           // i32: which of the warp's rows; rowsPerWarp: none
  Value chunk;         // i32
  Value firstLane;     // i32: of the row

  LaneMap(CudaBuilder &b, int64_t chunks, Value lane);
  /// Whether lanes are left over.
  bool hasIdle() const { return chunks * rowsPerWarp != 32; }
};

/// A tile of columns of a value.
struct ColumnTile {
  Value first;   // i32
  int64_t width; // a multiple of 8
  int64_t limit; // real columns of the value; the last tile may be narrower
  Value index;   // i32, of the tile in its row
};

class EpilogueEmitter {
public:
  /// `body` is the region of a gemm or rowwise, `outs` its buffers (values of
  /// the tiled function).
  EpilogueEmitter(CudaBuilder &b, KernelFrame &frame, Block &body,
                  ValueRange outs)
      : b(b), frame(frame), graph(body, outs, "cuda"), body(body) {}

  /// Finds what the region writes. Fails with a diagnostic on nodes that the
  /// target cannot emit.
  LogicalResult collect();
  SmallVector<SmallVector<EpilogueSink>> groups() const {
    return graph.groups();
  }
  /// Whether `sinks` can be evaluated in tiles of `width` columns; a diagnostic
  /// if not.
  LogicalResult verifyTiles(ArrayRef<EpilogueSink> sinks, int64_t width);

  /// gemm: computes what is one number for each row of the tile (row_rms_scale)
  /// into shared memory, before the mainloop, whose barriers make it visible.
  /// `firstRow`, `rowCount`: index.
  void prepareRows(int64_t blockM, Value firstRow, Value rowCount, Value thread,
                   int64_t threads);
  /// gemm: where accumulators come from; `firstColumn` (i32) is column 0 of the
  /// tile.
  void setAccumulators(const AccumulatorStage &stage, Value shared,
                       Value firstColumn);

  /// A row that lanes are at.
  struct Row {
    Value index;  // of the row, index; of an existing one for every lane
    Value exists; // i1; null: always
    // gemm: in the tile and in the staging tile, i32.
    Value inTile, inStage;
  };
  /// Makes a row current for each lane of `lanes` and computes the row's
  /// numbers for `sinks`.
  void beginRow(const Row &row, const LaneMap &lanes,
                ArrayRef<EpilogueSink> sinks);
  /// Evaluates and writes one tile of the current rows.
  void emitTile(const ColumnTile &tile, ArrayRef<EpilogueSink> sinks);

private:
  /// What a lane evaluates: 8 columns from `column` (i32) on.
  struct Position {
    Value column;
    Value exists; // i1: the column is one of the tile; null: always
  };
  /// A chunk's values in f32 and, when they are rounded to 16 bits, the words.
  struct Evaluated {
    Chunk values;
    SmallVector<Value, 4> words;
  };

  // EpilogueNodes.cpp
  Evaluated evaluate(Value value, const Position &at);
  Chunk evaluateNode(Value value, const Position &at);
  Evaluated loadChunk(Value argument, Value row, Value column);
  Chunk evaluateAccumulator(const Position &at);
  Chunk evaluateSplit(SplitOp op, OpResult result, const Position &at);
  Chunk evaluateDeinterleave(DeinterleaveOp op, OpResult result,
                             const Position &at);
  Chunk evaluateRMSNorm(RMSNormOp op, const Position &at);
  Chunk evaluateGatedAct(GatedActOp op, const Position &at);
  Evaluated round(ArrayRef<Value> values, Type element);
  Position moved(const Position &at, Value column) {
    return {column, at.exists};
  }

  // EpilogueSplits.cpp
  Chunk evaluateCombineSplits(CombineSplitsOp op, const Position &at);

  // EpilogueHeads.cpp: nodes that need other columns of a head.
  Chunk evaluateHeadNorm(RMSNormOp op, const Position &at);
  Chunk evaluateRope(RopeOp op, const Position &at);
  struct Angles {
    Chunk cos, sin;
  };
  Angles loadAngles(RopeOp op, Value first, int64_t count);
  Value rotate(Value x, Value partner, Value cos, Value sin, Value isFirst);
  Chunk rotateHalves(RopeOp op, ArrayRef<Value> x, Value headChunk);
  Chunk rotateCutHalves(RopeOp op, ArrayRef<Value> x, Value headChunk);
  Chunk rotatePairs(RopeOp op, ArrayRef<Value> x, Value headChunk);
  Value sumOverLanes(Value value, int64_t lanes, Value firstLane);

  // EpilogueRowScalars.cpp: nodes that are one value for a row.
  void computeRowScalar(Operation *op);
  Value computeRowRMSScale(RowRMSScaleOp op, Value row);
  Value computeRMS(RMSNormOp op);
  void computeSlot(Value cache);

  // EpilogueSinks.cpp: stores.
  void store(const EpilogueSink &sink, const Evaluated &chunk,
             const ColumnTile &tile, const Position &at);
  void storeFloatPairs(const EpilogueSink &sink, ArrayRef<Value> values,
                       const Position &at, Value exists);
  void storeSum(const EpilogueSink &sink, Value sum, const ColumnTile &tile);

  CudaBuilder &b;
  KernelFrame &frame;
  EpilogueGraph graph;
  Block &body;

  // gemm
  const AccumulatorStage *stage = nullptr;
  Value stageShared, accumulatorColumn;
  DenseMap<Operation *, int64_t> preparedRows; // byte offset of f32 [block_m]

  // Of the current rows.
  Row row;
  const LaneMap *lanes = nullptr;
  DenseMap<Operation *, Value> rowScalars;
  struct Slot {
    Value isValid, offset;
  };
  DenseMap<Value, Slot> slots; // by cache
  // Of the current position.
  DenseMap<std::pair<Value, Value>, Evaluated> evaluated;
};

} // namespace mlir::prefill::cuda

#endif // PREFILL_CODEGEN_CUDA_EPILOGUE_H
