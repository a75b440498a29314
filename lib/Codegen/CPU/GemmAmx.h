//===- GemmAmx.h - a gemm's panel on AMX tiles ----------------*- C++ -*-===//
//
// Microkernels of 32 x 32 sums: two tiles of rows by two of columns, as many as
// the eight registers hold with their operands. Rows are read where they lie,
// row-major; those that do not fill a tile are copied first, because a tile
// must not read past the input.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_GEMMAMX_H
#define PREFILL_LIB_CODEGEN_CPU_GEMMAMX_H

#include "AmxTiles.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"

namespace mlir::prefill {

/// Whether a gemm of that type and K is one for tiles. All of its rows are
/// then: tdpbf16ps adds up in another order than vdpbf16ps, and the bits of a
/// row must not depend on how many there are.
bool gemmUsesAmx(const CpuIsa &isa, Type elementType, int64_t k);

/// Rows of a chunk, which panels are multiplied with.
class GemmAmxRows {
public:
  /// Allocates the copy of the last rows.
  GemmAmxRows(KernelBuilder &b, KernelABI &abi, int64_t k);

  /// Rows [firstRow, firstRow + rows) of the flat input, `inputPitch` elements
  /// apart. Copies what does not fill a tile.
  void begin(Value input, int64_t inputPitch, Value firstRow, Value rows);

  struct Panel {
    /// Flat packed weight, and where the pass's part of the panel begins.
    Value weight, start;
    /// Pairs of k before the pass and in it.
    Value firstStep, steps;
    bool isOnlyPass;
    /// f32: where row 0's sums go, and the elements between rows.
    Value accumulators, target;
    int64_t pitch;
    /// Where what is multiplied next begins; it is asked for on the way.
    Value next;
    /// Called with each row before its sums are finished.
    llvm::function_ref<void(Value row)> beforeRow;
  };
  void emitPanel(const Panel &panel);
  /// The same for at most kAmxRows rows.
  void emitPanelOfFewRows(const Panel &panel);

private:
  /// Tiles of rows: elements from row to row and from one step's tile to the
  /// next.
  struct Left {
    Value memref, offset;
    int64_t stride, step;
  };
  /// Rows from `row` on where the input has them, and the copied ones.
  Left inPlace(const Panel &panel, Value row);
  Left inTail(const Panel &panel);
  void emitTiles(const Panel &panel, Value row, int64_t rowTiles, Left left,
                 int64_t prefetches);
  SmallVector<Value> multiply(const Panel &panel, Left left, Value row,
                              SmallVector<Value> sums, int64_t rowTiles,
                              int64_t prefetches);

  KernelBuilder &b;
  int64_t k, inputPitch = 0;
  Value tail; // bf16 [k / kAmxK, kAmxRows, kAmxK]: a tile each
  Value input, firstRow, rows;
};

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_GEMMAMX_H
