//===- Tensor.cpp - values of the reference interpreter -------------------===//
#include "prefill/Reference/Tensor.h"
#include <cassert>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::prefill::reference;

static int64_t numElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

Tensor::Tensor(ArrayRef<int64_t> shape)
    : shape(shape), values(numElements(shape)) {}

Tensor::Tensor(ArrayRef<int64_t> shape, std::vector<double> values)
    : shape(shape), values(std::move(values)) {
  assert(numElements(shape) == static_cast<int64_t>(this->values.size()));
}

double Tensor::norm() const {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

/// Nearest multiple of the type's unit in the last place at the value's
/// magnitude; below `minExponent` the spacing stays (subnormals).
static double roundToBits(double value, int mantissaBits, int minExponent,
                          int maxExponent) {
  if (!std::isfinite(value) || value == 0)
    return value;
  int exponent = std::max(std::ilogb(value), minExponent);
  double unit = std::ldexp(1.0, exponent - mantissaBits);
  double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) >= std::ldexp(1.0, maxExponent + 1))
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

double mlir::prefill::reference::roundTo(Type elementType, double value) {
  if (elementType.isF32())
    return static_cast<float>(value);
  if (elementType.isBF16())
    return roundToBits(value, 7, -126, 127);
  if (elementType.isF16())
    return roundToBits(value, 10, -14, 15);
  assert((elementType.isF64() || elementType.isSignlessInteger(8)) &&
         "verifiers admit f64, f32, bf16, f16 and i8");
  return value;
}

void mlir::prefill::reference::roundTo(Type elementType, Tensor &tensor) {
  for (double &value : tensor.values)
    value = roundTo(elementType, value);
}
