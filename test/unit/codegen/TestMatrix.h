//===- TestMatrix.h - inputs and outputs of kernels under test --*- C++ -*-===//
#ifndef PREFILL_TEST_CODEGEN_TESTMATRIX_H
#define PREFILL_TEST_CODEGEN_TESTMATRIX_H

#include "CompiledKernel.h"
#include <cmath>
#include <limits>
#include <random>

namespace prefill_test {

enum class Element { F32, BF16, F16, I8 };
inline Element elementOf(bool bf16) {
  return bf16 ? Element::BF16 : Element::F32;
}

/// A row-major matrix as a kernel sees it and as doubles.
class Matrix {
public:
  Matrix(int64_t rows, int64_t columns, Element element)
      : rows(rows), columns(columns), element(element),
        bf16(element == Element::BF16), values(size_t(rows * columns), 0.0) {}
  Matrix(int64_t rows, int64_t columns, bool bf16)
      : Matrix(rows, columns, elementOf(bf16)) {}

  /// Uniform in [-scale, scale], representable in the element type; integers in
  /// [-127, 127].
  Matrix &randomize(unsigned seed, double scale = 1.0) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform{float(-scale), float(scale)};
    for (double &value : values) {
      float f = uniform(generator);
      if (element == Element::I8) {
        value = std::nearbyint(127 * f / scale);
        continue;
      }
      value = bf16                      ? roundBF16(f)
              : element == Element::F16 ? double(_Float16(f))
                                        : double(f);
    }
    return *this;
  }
  Matrix &fill(double value) {
    values.assign(values.size(), value);
    return *this;
  }
  double &at(int64_t r, int64_t c) { return values[size_t(r * columns + c)]; }
  double at(int64_t r, int64_t c) const {
    return values[size_t(r * columns + c)];
  }

  /// To memory, before a kernel runs; the pointer stays valid.
  const void *upload() {
    halves.clear();
    smalls.clear();
    floats.clear();
    bytes.clear();
    for (double value : values)
      if (element == Element::I8) // which has no NaN
        bytes.push_back(std::isnan(value) ? int8_t(-128) : int8_t(value));
      else if (bf16)
        halves.push_back(toBF16(float(value)));
      else if (element == Element::F16)
        smalls.push_back(_Float16(value));
      else
        floats.push_back(float(value));
    if (bf16)
      return halves.data();
    if (element == Element::F16)
      return smalls.data();
    if (element == Element::I8)
      return bytes.data();
    return floats.data();
  }
  /// From memory, after a kernel ran.
  Matrix &download() {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = bf16                      ? fromBF16(halves[i])
                  : element == Element::F16 ? float(smalls[i])
                  : element == Element::I8  ? float(bytes[i])
                                            : floats[i];
    return *this;
  }

  int64_t rows, columns;
  Element element;
  bool bf16;
  std::vector<double> values;

private:
  std::vector<BFloat16> halves;
  std::vector<_Float16> smalls;
  std::vector<float> floats;
  std::vector<int8_t> bytes;
};

/// k_pack of #prefill.pack.
inline int64_t packedTogether(Element element) {
  return element == Element::BF16 ? 2 : element == Element::I8 ? 4 : 1;
}
/// #prefill.pack, written from its description: [N, K] to [panels,
/// ceil(K / k_pack), 32, k_pack], groups of rows padded to whole panels. One
/// row of the result is a panel.
inline Matrix pack(const Matrix &w, int64_t groupN) {
  int64_t kPack = packedTogether(w.element);
  int64_t steps = (w.columns + kPack - 1) / kPack;
  int64_t panelsPerGroup = (groupN + 31) / 32;
  int64_t panels = w.rows / groupN * panelsPerGroup;
  Matrix packed(panels, steps * 32 * kPack, w.element);
  for (int64_t n = 0; n < w.rows; ++n)
    for (int64_t k = 0; k < w.columns; ++k) {
      int64_t inGroup = n % groupN;
      int64_t panel = n / groupN * panelsPerGroup + inGroup / 32;
      packed.at(panel, ((k / kPack) * 32 + inGroup % 32) * kPack + k % kPack) =
          w.at(n, k);
    }
  return packed;
}

/// x * transpose(w) in double, and the sum of the terms' magnitudes: rounding
/// errors of an f32 sum are relative to it.
struct Product {
  Matrix sum, magnitude;
};
inline Product multiply(const Matrix &x, const Matrix &w) {
  Product product{Matrix(x.rows, w.rows, false), Matrix(x.rows, w.rows, false)};
  // By pointers: tests are not optimized, and most of their time went in here.
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t n = 0; n < w.rows; ++n) {
      const double *xs = &x.values[r * x.columns];
      const double *ws = &w.values[n * x.columns];
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < x.columns; ++k) {
        double term = xs[k] * ws[k];
        sum += term;
        magnitude += std::abs(term);
      }
      product.sum.at(r, n) = sum;
      product.magnitude.at(r, n) = magnitude;
    }
  return product;
}

/// Rows of 8-bit integers as kernels of the variant hold them, and back: with
/// 128 added as unsigned where they multiply with vpdpbusd.
inline Matrix asHeldBy(llvm::StringRef isa, Matrix rows) {
  if (rows.element == Element::I8 &&
      mlir::prefill::lookupCpuIsa(isa)->hasInt8Dot)
    for (double &value : rows.values)
      value += value < 0 ? 128 : -128;
  return rows;
}

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Text of types and attributes.
inline std::string dtype(Element element) {
  return element == Element::F32   ? "f32"
         : element == Element::F16 ? "f16"
         : element == Element::I8  ? "i8"
                                   : "bf16";
}
inline std::string dtype(bool bf16) { return dtype(elementOf(bf16)); }
inline std::string rowsType(int64_t columns, const std::string &element) {
  return "tensor<?x" + std::to_string(columns) + "x" + element + ">";
}
inline std::string packedType(int64_t n, int64_t k, int64_t groupN,
                              Element element) {
  int64_t kPack = packedTogether(element);
  return "tensor<" + std::to_string(n / groupN * ((groupN + 31) / 32)) + "x" +
         std::to_string((k + kPack - 1) / kPack) + "x32x" +
         std::to_string(kPack) + "x" + dtype(element) + ">";
}
inline std::string packedType(int64_t n, int64_t k, int64_t groupN, bool bf16) {
  return packedType(n, k, groupN, elementOf(bf16));
}
inline std::string config(int64_t blockM, int64_t blockN,
                          const std::string &domain = "tokens") {
  return "lowering_config = #prefill.lowering_config<" + domain +
         ", block_m = " + std::to_string(blockM) +
         ", block_n = " + std::to_string(blockN) +
         ", block_kv = 0, panel_n = 32, row_buckets = [1]>";
}

} // namespace prefill_test

#endif // PREFILL_TEST_CODEGEN_TESTMATRIX_H
