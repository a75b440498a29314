//===- Epilogue.h - nodes of an epilogue, one row at a time -----*- C++ -*-===//
//
// gemm and rowwise share it, so that every node is lowered once. A region is
// evaluated row by row. Elementwise nodes are evaluated on demand for a vector
// of columns; nodes that need other columns of their input (rope, QK-norm)
// first write a tile of the row to f32 scratch; nodes that need the whole row
// (RMSNorm, row_rms_scale) are a scalar for each row.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CPU_EPILOGUE_H
#define PREFILL_CODEGEN_CPU_EPILOGUE_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"
#include "prefill/Codegen/Common/EpilogueGraph.h"

namespace mlir::prefill {

/// Where a gemm's microkernels put a workgroup's accumulators: row r of the
/// chunk and column c of the tile at element r * pitch + c. f32, or i32 of a
/// gemm of 8-bit integers, whose columns may have a bias to be taken away.
struct AccumulatorTile {
  Value buffer, bias;
  int64_t pitch = 0;
  Value firstRow, firstColumn;
};

using Sink = EpilogueSink;
using ColumnSpace = EpilogueColumns;

/// The columns [first, first + width) of a value: the part of a row that is
/// evaluated together.
struct ColumnTile {
  Value first;
  int64_t width;
  /// Real columns of the value; the last tile may be narrower.
  int64_t limit;
  /// Index of the tile in its row.
  Value index;
};

class EpilogueEmitter {
public:
  /// `body` is the region of a gemm or rowwise, `outs` its buffers (values of
  /// the tiled function).
  EpilogueEmitter(KernelBuilder &b, const CpuIsa &isa, KernelABI &abi,
                  Block &body, ValueRange outs)
      : b(b), cpu(isa), abi(abi), graph(body, outs, "cpu"), body(body) {}

  /// Finds what the region writes. Fails with a diagnostic on nodes that the
  /// target cannot emit.
  LogicalResult collectSinks();
  /// Sinks that are evaluated in one loop over columns: same space and width.
  SmallVector<SmallVector<Sink>> sinkGroups() const { return graph.groups(); }

  /// Whether `sinks` can be evaluated in tiles of `width` columns; a diagnostic
  /// if not.
  LogicalResult verifyTiles(ArrayRef<Sink> sinks, int64_t width) const {
    return graph.verifyTiles(sinks, width);
  }

  void setAccumulators(const AccumulatorTile &tile) { accumulators = tile; }

  /// Fetches a panel's columns, from `column` on, of what a row adds to its
  /// accumulators (a residual) to the second-level cache: each row reads a few
  /// lines far from the row before, which the hardware does not foresee.
  void prefetchAddends(Value row, Value column);

  /// Makes row `row` current and computes the row's scalars for `sinks`.
  void beginRow(Value row, ArrayRef<Sink> sinks);
  /// Evaluates and writes one tile of the current row.
  void emitTile(const ColumnTile &tile, ArrayRef<Sink> sinks);

private:
  /// A vector of columns: [column, column + lanes), those in the mask.
  struct Position {
    Value column;
    Value mask;
    // Within a head, when the loop goes head by head.
    Value head, headColumn;
  };
  using ColumnBody =
      llvm::function_ref<SmallVector<Value>(const Position &, ValueRange)>;

  // EpilogueNodes.cpp: one function for each elementwise node.
  Value evaluate(Value value, const Position &at);
  Value evaluateUncached(Value value, const Position &at);
  Value evaluateLeaf(Value argument, Value row, const Position &at);
  Value evaluateAccumulator(const Position &at);
  Value evaluateSplit(SplitOp op, OpResult result, const Position &at);
  Value evaluateDeinterleave(DeinterleaveOp op, OpResult result,
                             const Position &at);
  Value evaluateRMSNorm(RMSNormOp op, const Position &at);
  Value evaluateGatedAct(GatedActOp op, const Position &at);
  Position moved(const Position &at, Value column);
  Value broadcast(Value scalar);

  // EpilogueRowScalars.cpp: nodes that are one value for a row.
  void computeRowScalar(Operation *op);
  Value computeRowRMSScale(RowRMSScaleOp op);
  Value computeRMS(RMSNormOp op);
  void computeSlot(Value cache);
  void computeQuantization(QuantizeRowsOp op);

  // EpilogueHeads.cpp: nodes that need other columns of a head.
  void materialize(Operation *op, const ColumnTile &tile);
  void rotateHead(RopeOp op, Value buffer, Value start);
  void rotateHalves(RopeOp op, Value buffer, Value start);
  void rotatePairs(RopeOp op, Value buffer, Value start);
  void normalizeHead(RMSNormOp op, Value buffer, Value start);

  // EpilogueSinks.cpp: loops over columns, and stores.
  SmallVector<Value> forColumns(const ColumnTile &tile, int64_t headDim,
                                ValueRange init, ColumnBody body);
  SmallVector<Value> forRange(Value first, Value width, int64_t staticWidth,
                              ValueRange init, ColumnBody body);
  void store(const Sink &sink, const Position &at);
  Value maskOf(Value count);

  KernelBuilder &b;
  const CpuIsa &cpu;
  KernelABI &abi;
  EpilogueGraph graph;
  Block &body;
  AccumulatorTile accumulators;
  // Of the current row.
  Value row;
  DenseMap<Operation *, Value> rowScalars;
  struct Slot {
    Value isValid, index, offset;
  };
  DenseMap<Value, Slot> slots; // by cache
  struct Quantization {
    Value scale, inverse;
  };
  DenseMap<Operation *, Quantization> quantizations;
  // Of the current tile: buffer and the tile's first column.
  DenseMap<Value, std::pair<Value, Value>> materialized;
  // Scratch of a head node, allocated once.
  DenseMap<Operation *, Value> headBuffers;
  // Of the current position.
  DenseMap<std::pair<Value, Value>, Value> evaluated;
};

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CPU_EPILOGUE_H
