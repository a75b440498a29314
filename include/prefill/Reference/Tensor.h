//===- Tensor.h - values of the reference interpreter -----------*- C++ -*-===//
// The interpreter computes in f64. What an element type means for a value is
// rounding alone, and rounding can be switched off.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_REFERENCE_TENSOR_H
#define PREFILL_REFERENCE_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"
#include <vector>

namespace mlir::prefill::reference {

/// Row-major f64 values; rank 1 is a vector, rank 2 is [rows, channels].
struct Tensor {
  Tensor() = default;
  /// All zero.
  explicit Tensor(ArrayRef<int64_t> shape);
  Tensor(ArrayRef<int64_t> shape, std::vector<double> values);

  int64_t rank() const { return shape.size(); }
  int64_t rows() const { return shape.front(); }
  /// Extent of the last dimension.
  int64_t channels() const { return shape.back(); }
  double *row(int64_t index) { return values.data() + index * channels(); }
  const double *row(int64_t index) const {
    return values.data() + index * channels();
  }
  /// Square root of the sum of squares.
  double norm() const;

  SmallVector<int64_t, 2> shape;
  std::vector<double> values;
};

/// `None`: f64 throughout (RoPE's angles excepted, which are f32 by
/// definition). `Model`: the result of each op is rounded to its element type,
/// once, from the f64 value.
enum class Rounding { None, Model };

/// Nearest value of the type (f64, f32, bf16 or f16), ties to even; beyond its
/// largest, infinity. Values of i8 are integers as they are made, with or
/// without rounding.
double roundTo(Type elementType, double value);
void roundTo(Type elementType, Tensor &tensor);

} // namespace mlir::prefill::reference

#endif // PREFILL_REFERENCE_TENSOR_H
