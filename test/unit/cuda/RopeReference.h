//===- RopeReference.h - rotary embedding in plain loops --------*- C++ -*-===//
#ifndef PREFILL_TEST_CUDA_ROPEREFERENCE_H
#define PREFILL_TEST_CUDA_ROPEREFERENCE_H

#include "DeviceMatrix.h"

namespace prefill_test {

struct Rope {
  int64_t rotaryDim = 0;
  bool interleaved = false;

  std::string attribute() const {
    return "#prefill.rope<theta = 1.0e4, rotary_dim = " +
           std::to_string(rotaryDim) + (interleaved ? ", interleaved" : "") +
           ">";
  }
  double angle(int64_t position, int64_t i) const {
    return double(position) *
           std::pow(1.0e4, -2.0 * double(i) / double(rotaryDim));
  }
  /// #prefill.rope_table: cosines, then sines.
  DeviceMatrix table(int64_t positions) const {
    DeviceMatrix table(positions, rotaryDim, Element::F32);
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t i = 0; i < rotaryDim / 2; ++i) {
        table.at(p, i) = float(std::cos(angle(p, i)));
        table.at(p, rotaryDim / 2 + i) = float(std::sin(angle(p, i)));
      }
    return table;
  }
  /// Rotates one head that starts at column `start`.
  void apply(DeviceMatrix &m, int64_t row, int64_t start,
             int64_t position) const {
    for (int64_t i = 0; i < rotaryDim / 2; ++i) {
      int64_t a = start + (interleaved ? 2 * i : i);
      int64_t b = start + (interleaved ? 2 * i + 1 : i + rotaryDim / 2);
      double x = m.at(row, a), y = m.at(row, b);
      double cos = std::cos(angle(position, i));
      double sin = std::sin(angle(position, i));
      m.at(row, a) = x * cos - y * sin;
      m.at(row, b) = y * cos + x * sin;
    }
  }
};

} // namespace prefill_test

#endif // PREFILL_TEST_CUDA_ROPEREFERENCE_H
