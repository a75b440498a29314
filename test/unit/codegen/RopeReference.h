//===- RopeReference.h - rotary embedding by its definition -----*- C++ -*-===//
#ifndef PREFILL_TEST_CODEGEN_ROPEREFERENCE_H
#define PREFILL_TEST_CODEGEN_ROPEREFERENCE_H

#include "TestMatrix.h"

namespace prefill_test {

struct Rope {
  int64_t rotaryDim = 0; // 0: no rope
  bool interleaved = false;

  std::string attribute() const {
    return "#prefill.rope<theta = 10000.0, rotary_dim = " +
           std::to_string(rotaryDim) + (interleaved ? ", interleaved" : "") +
           ">";
  }
  double angle(int64_t position, int64_t pair) const {
    return double(position) *
           std::pow(10000.0, -2.0 * double(pair) / double(rotaryDim));
  }
  /// #prefill.rope_table for positions below `maxPosition`.
  Matrix table(int64_t maxPosition) const {
    Matrix table(maxPosition, rotaryDim, false);
    for (int64_t p = 0; p < maxPosition; ++p)
      for (int64_t i = 0; i < rotaryDim / 2; ++i) {
        table.at(p, i) = std::cos(angle(p, i));
        table.at(p, rotaryDim / 2 + i) = std::sin(angle(p, i));
      }
    return table;
  }
  /// Rotates the head of `values` that starts at column `start` of row `row`.
  void apply(Matrix &values, int64_t row, int64_t start,
             int64_t position) const {
    for (int64_t i = 0; i < rotaryDim / 2; ++i) {
      int64_t first = start + (interleaved ? 2 * i : i);
      int64_t second = interleaved ? first + 1 : first + rotaryDim / 2;
      double c = std::cos(angle(position, i)), s = std::sin(angle(position, i));
      double x = values.at(row, first), y = values.at(row, second);
      values.at(row, first) = x * c - y * s;
      values.at(row, second) = y * c + x * s;
    }
  }
};

} // namespace prefill_test

#endif // PREFILL_TEST_CODEGEN_ROPEREFERENCE_H
