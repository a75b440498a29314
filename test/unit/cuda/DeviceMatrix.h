//===- DeviceMatrix.h - arrays that emulated kernels work on ----*- C++ -*-===//
#ifndef PREFILL_TEST_CUDA_DEVICEMATRIX_H
#define PREFILL_TEST_CUDA_DEVICEMATRIX_H

#include "prefill/checkpoint/FloatConversion.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace prefill_test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

enum class Element { F32, BF16, F16 };
inline std::string dtype(Element element) {
  return element == Element::F32    ? "f32"
         : element == Element::BF16 ? "bf16"
                                    : "f16";
}
/// `value` rounded to `element`, nearest even.
inline double roundTo(double value, Element element) {
  float f = float(value);
  return element == Element::BF16
             ? prefill::rt::bf16ToFloat(prefill::rt::floatToBf16(f))
         : element == Element::F16 ? double(_Float16(f))
                                   : double(f);
}
/// Half the distance of neighbours, relative.
inline double unitOf(Element element) {
  return element == Element::BF16  ? 1.0 / 256
         : element == Element::F16 ? 1.0 / 2048
                                   : 1.0 / (1 << 24);
}

/// Bytes aligned to 256, as the device gives them, at least one. No other array
/// lies within kGuard bytes, so that an access just outside is one of no array.
class DeviceBytes {
public:
  explicit DeviceBytes(size_t size = 0)
      : storage((size + 2 * kGuard + 256) / 8 + 1), count(size ? size : 1) {}
  uint8_t *data() const {
    auto address = reinterpret_cast<uintptr_t>(storage.data()) + kGuard;
    return reinterpret_cast<uint8_t *>((address + 255) / 256 * 256);
  }
  size_t size() const { return count; }

private:
  static constexpr size_t kGuard = 4096;

  mutable std::vector<uint64_t> storage;
  size_t count;
};

/// Row-major, as doubles and as the device has it.
class DeviceMatrix {
public:
  DeviceMatrix(int64_t rows, int64_t columns, Element element)
      : rows(rows), columns(columns), element(element),
        values(size_t(rows * columns), 0.0),
        bytes(size_t(rows * columns) * size_t(elementBytes())) {}

  int elementBytes() const { return element == Element::F32 ? 4 : 2; }
  double &at(int64_t r, int64_t c) { return values[size_t(r * columns + c)]; }
  double at(int64_t r, int64_t c) const {
    return values[size_t(r * columns + c)];
  }
  /// Uniform in [-scale, scale], representable in the element type.
  DeviceMatrix &randomize(uint64_t seed, double scale = 1.0) {
    uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
    for (double &value : values) {
      state = state * 6364136223846793005 + 1442695040888963407;
      double uniform = double(state >> 40) / double(1 << 23) - 1.0;
      value = roundTo(uniform * scale, element);
    }
    return *this;
  }
  DeviceMatrix &fill(double value) {
    values.assign(values.size(), value);
    return *this;
  }
  void fillRow(int64_t r, double value) {
    for (int64_t c = 0; c < columns; ++c)
      at(r, c) = value;
  }

  /// To the device's memory.
  DeviceMatrix &upload() {
    for (size_t i = 0; i < values.size(); ++i) {
      auto value = float(values[i]);
      if (element == Element::F32) {
        std::memcpy(bytes.data() + i * 4, &value, 4);
        continue;
      }
      uint16_t half = element == Element::BF16 ? prefill::rt::floatToBf16(value)
                                               : prefill::rt::floatToF16(value);
      std::memcpy(bytes.data() + i * 2, &half, 2);
    }
    return *this;
  }
  /// From it.
  DeviceMatrix &download() {
    for (size_t i = 0; i < values.size(); ++i) {
      if (element == Element::F32) {
        float value;
        std::memcpy(&value, bytes.data() + i * 4, 4);
        values[i] = value;
        continue;
      }
      uint16_t half;
      std::memcpy(&half, bytes.data() + i * 2, 2);
      values[i] = element == Element::BF16 ? prefill::rt::bf16ToFloat(half)
                                           : prefill::rt::f16ToFloat(half);
    }
    return *this;
  }

  int64_t rows, columns;
  Element element;
  std::vector<double> values;
  DeviceBytes bytes;
};

/// x [M, K] times the transpose of w [N, K], and the sum of the magnitudes.
struct Product {
  DeviceMatrix sum, magnitude;
};
inline Product multiply(const DeviceMatrix &x, const DeviceMatrix &w) {
  Product p{{x.rows, w.rows, Element::F32}, {x.rows, w.rows, Element::F32}};
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < x.columns; ++k) {
        double term = x.at(m, k) * w.at(n, k);
        sum += term;
        magnitude += std::abs(term);
      }
      p.sum.at(m, n) = sum;
      p.magnitude.at(m, n) = magnitude;
    }
  return p;
}

} // namespace prefill_test

#endif // PREFILL_TEST_CUDA_DEVICEMATRIX_H
