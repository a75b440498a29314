//===- RowEvaluators.cpp - ops that see one row at a time -----------------===//
#include "prefill/Reference/Evaluators.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Expected;

Expected<Tensor> mlir::prefill::reference::embed(const Batch &batch,
                                                 const Tensor &table) {
  Tensor result({batch.numRows(), table.channels()});
  for (int64_t row = 0; row < batch.numRows(); ++row) {
    int64_t token = batch.tokens[row];
    if (token < 0 || token >= table.rows())
      return createStringError(
          "token " + llvm::Twine(token) + " of row " + llvm::Twine(row) +
          " is outside the vocabulary of " + llvm::Twine(table.rows()));
    std::copy_n(table.row(token), table.channels(), result.row(row));
  }
  return result;
}

Tensor mlir::prefill::reference::rmsNorm(const Tensor &input,
                                         const Tensor &gain, double eps) {
  int64_t group = gain.channels();
  Tensor result = input;
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t begin = 0; begin < input.channels(); begin += group) {
      const double *x = input.row(row) + begin;
      double sum = 0;
      for (int64_t c = 0; c < group; ++c)
        sum += x[c] * x[c];
      double root = std::sqrt(sum / group + eps);
      for (int64_t c = 0; c < group; ++c)
        result.row(row)[begin + c] = x[c] / root * gain.values[c];
    }
  return result;
}

Tensor mlir::prefill::reference::linear(const Tensor &input,
                                        const Tensor &weight,
                                        const Tensor *bias) {
  int64_t m = input.rows(), n = weight.rows(), k = input.channels();
  Tensor result({m, n});
  // Four columns at a time, each with its own sum in ascending k: the additions
  // of one column wait for one another, those of four overlap.
  constexpr int64_t kColumns = 4;
  for (int64_t row = 0; row < m; ++row) {
    const double *x = input.row(row);
    double *y = result.row(row);
    int64_t column = 0;
    for (; column + kColumns <= n; column += kColumns) {
      const double *w = weight.row(column);
      double sums[kColumns] = {};
      for (int64_t i = 0; i < k; ++i)
        for (int64_t c = 0; c < kColumns; ++c)
          sums[c] += x[i] * w[c * k + i];
      std::copy_n(sums, kColumns, y + column);
    }
    for (; column < n; ++column) {
      const double *w = weight.row(column);
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += x[i] * w[i];
      y[column] = sum;
    }
  }
  return bias ? biasAdd(result, *bias) : result;
}

Tensor mlir::prefill::reference::gatedAct(GateKind kind, const Tensor &gate,
                                          const Tensor &up) {
  Tensor result = gate;
  for (auto [value, factor] : llvm::zip(result.values, up.values)) {
    double x = value;
    switch (kind) {
    case GateKind::Silu:
      value = x / (1 + std::exp(-x));
      break;
    case GateKind::GeluTanh:
      value = 0.5 * x *
              (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      break;
    }
    value *= factor;
  }
  return result;
}

Tensor mlir::prefill::reference::add(const Tensor &lhs, const Tensor &rhs) {
  Tensor result = lhs;
  for (auto [value, other] : llvm::zip(result.values, rhs.values))
    value += other;
  return result;
}

Tensor mlir::prefill::reference::scale(const Tensor &input, double factor) {
  Tensor result = input;
  for (double &value : result.values)
    value *= factor;
  return result;
}

Tensor mlir::prefill::reference::selectRows(const Tensor &input,
                                            const Batch &batch) {
  Tensor result(
      {static_cast<int64_t>(batch.logitsIndices.size()), input.channels()});
  for (auto [row, index] : llvm::enumerate(batch.logitsIndices))
    std::copy_n(input.row(index), input.channels(), result.row(row));
  return result;
}

std::vector<Tensor> mlir::prefill::reference::split(const Tensor &input,
                                                    ArrayRef<int64_t> widths) {
  std::vector<Tensor> results;
  int64_t begin = 0;
  for (int64_t width : widths) {
    Tensor &part = results.emplace_back(Tensor({input.rows(), width}));
    for (int64_t row = 0; row < input.rows(); ++row)
      std::copy_n(input.row(row) + begin, width, part.row(row));
    begin += width;
  }
  return results;
}

std::pair<Tensor, Tensor>
mlir::prefill::reference::deinterleave(const Tensor &input, int64_t granularity,
                                       int64_t width) {
  std::pair<Tensor, Tensor> results(Tensor({input.rows(), width}),
                                    Tensor({input.rows(), width}));
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t column = 0; column < width; ++column) {
      int64_t run = column / granularity, offset = column % granularity;
      const double *pair = input.row(row) + 2 * run * granularity + offset;
      results.first.row(row)[column] = pair[0];
      results.second.row(row)[column] = pair[granularity];
    }
  return results;
}

Tensor mlir::prefill::reference::biasAdd(const Tensor &input,
                                         const Tensor &bias) {
  Tensor result = input;
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t c = 0; c < input.channels(); ++c)
      result.row(row)[c] += bias.values[c];
  return result;
}

Tensor mlir::prefill::reference::rowSumsq(const Tensor &input,
                                          int64_t partials) {
  Tensor result({input.rows(), partials});
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t p = 0; p < partials; ++p) {
      int64_t begin = p * input.channels() / partials;
      int64_t end = (p + 1) * input.channels() / partials;
      for (int64_t c = begin; c < end; ++c)
        result.row(row)[p] += input.row(row)[c] * input.row(row)[c];
    }
  return result;
}

Tensor mlir::prefill::reference::rowRMSScale(const Tensor &input,
                                             const Tensor &sumsq, double eps,
                                             int64_t channels) {
  Tensor result = input;
  for (int64_t row = 0; row < input.rows(); ++row) {
    double sum = 0;
    for (int64_t p = 0; p < sumsq.channels(); ++p)
      sum += sumsq.row(row)[p];
    double root = std::sqrt(sum / channels + eps);
    for (int64_t c = 0; c < input.channels(); ++c)
      result.row(row)[c] /= root;
  }
  return result;
}

QuantizedRows mlir::prefill::reference::quantizeRows(const Tensor &input,
                                                     Rounding rounding) {
  auto step = [&](double value) {
    return rounding == Rounding::Model ? static_cast<float>(value) : value;
  };
  QuantizedRows result{Tensor(input.shape), Tensor({input.rows(), 1})};
  for (int64_t row = 0; row < input.rows(); ++row) {
    const double *x = input.row(row);
    double largest = 0;
    for (int64_t k = 0; k < input.channels(); ++k)
      largest = std::max(largest, std::abs(x[k]));
    if (largest < 0x1p-100)
      continue;
    double factor = step(127 / largest);
    for (int64_t k = 0; k < input.channels(); ++k)
      result.integers.row(row)[k] = std::nearbyint(step(x[k] * factor));
    result.scales.row(row)[0] = largest / 127;
  }
  return result;
}

Tensor mlir::prefill::reference::dequantize(const Tensor &input,
                                            const Tensor &rowScale,
                                            const Tensor &columnScale) {
  Tensor result = input;
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t c = 0; c < input.channels(); ++c)
      result.row(row)[c] *= rowScale.row(row)[0] * columnScale.values[c];
  return result;
}
