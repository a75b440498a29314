//===- AmxTiles.h - AMX tiles --------------------------------*- C++ -*-===//
//
// Tiles of 16 rows of 64 bytes: operands of bf16, 16 x 32, and sums of f32,
// 16 x 16. All tiles have that shape, so that a kernel configures the registers
// once; where there are fewer rows, the others hold anything, and reach rows of
// the result that nobody reads. The right operand lies as vdpbf16ps wants it
// (pairs of k, kPanelN columns a step), which is what tdpbf16ps wants as well.
//
// A processor has eight tiles; LLVM assigns them and would spill a ninth.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_AMXTILES_H
#define PREFILL_LIB_CODEGEN_CPU_AMXTILES_H

#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

inline constexpr int64_t kAmxRows = 16;
/// Columns of a tile of sums.
inline constexpr int64_t kAmxColumns = 16;
/// bf16 of a row of the left operand.
inline constexpr int64_t kAmxK = 32;

class AmxTiles {
public:
  explicit AmxTiles(KernelBuilder &b) : b(b) {}

  Value zero();
  /// The tile whose row r begins at element offset + r * rowStride of a flat
  /// memref of bf16 or f32.
  Value load(Value memref, Value offset, Value rowStride);
  /// The same past the first-level cache, for what is not read again soon.
  Value loadStreamed(Value memref, Value offset, Value rowStride);
  void store(Value tile, Value memref, Value offset, Value rowStride);
  /// sums + left * right.
  Value multiplyAdd(Value sums, Value left, Value right);

private:
  Value load(StringRef name, Value memref, Value offset, Value rowStride);
  Value pointer(Value memref, Value offset);
  Value byteStride(Value memref, Value rowStride);
  SmallVector<Value> shape();
  Value call(StringRef name, ValueRange operands);

  KernelBuilder &b;
};

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_AMXTILES_H
