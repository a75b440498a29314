//===- RopeAngles.cpp - RoPE, the interpreter's own -----------------------===//
// docs/spec.md, "Rotary position embedding". The compiler's implementation is
// lib/Analysis/RopeFrequencies.cpp; a unit test compares the two bit by bit.
//===----------------------------------------------------------------------===//
#include "prefill/Reference/Evaluators.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Expected;

/// One f32 operation of the definition: both operands are f32, and so is the
/// result. In f64 the four operations round innocuously (53 >= 2 * 24 + 2).
static double f32(double exact) { return static_cast<float>(exact); }

std::vector<float>
mlir::prefill::reference::inverseFrequencies(RopeAttr attribute) {
  int64_t pairs = attribute.getRotaryDim() / 2;
  double factor = f32(attribute.getFactor());
  std::vector<float> result(pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    double exponent = f32(2.0 * i / attribute.getRotaryDim());
    double frequency = f32(1.0 / f32(std::pow(attribute.getTheta(), exponent)));
    if (attribute.getScaling() == RopeScaling::Linear)
      frequency = f32(frequency / factor);
    if (attribute.getScaling() == RopeScaling::Llama3) {
      double original = attribute.getOriginalMaxPosition();
      double low = attribute.getLowFreqFactor();
      double high = attribute.getHighFreqFactor();
      double wavelength = f32(f32(1.0 / frequency) * f32(2.0 * M_PI));
      bool longWave = wavelength > f32(original / low);
      bool shortWave = wavelength < f32(original / high);
      if (longWave) {
        frequency = f32(frequency / factor);
      } else if (!shortWave) {
        double ratio = f32(f32(1.0 / wavelength) * f32(original));
        double smooth = f32(f32(ratio - f32(low)) / f32(high - low));
        double divided = f32(f32(f32(1.0 - smooth) * frequency) / factor);
        frequency = f32(divided + f32(smooth * frequency));
      }
    }
    result[i] = static_cast<float>(frequency);
  }
  return result;
}

Tensor mlir::prefill::reference::ropeTable(RopeAttr attribute,
                                           int64_t maxPosition) {
  std::vector<float> frequencies = inverseFrequencies(attribute);
  int64_t pairs = frequencies.size();
  Tensor table({maxPosition, 2 * pairs});
  for (int64_t position = 0; position < maxPosition; ++position)
    for (int64_t i = 0; i < pairs; ++i) {
      double angle = f32(f32(position) * frequencies[i]);
      table.row(position)[i] = std::cos(angle);
      table.row(position)[pairs + i] = std::sin(angle);
    }
  return table;
}

Expected<Tensor> mlir::prefill::reference::rope(const Tensor &input,
                                                const Batch &batch,
                                                const Tensor *table,
                                                RopeAttr attribute,
                                                int64_t headDim) {
  int64_t pairs = attribute.getRotaryDim() / 2;
  std::vector<float> frequencies = inverseFrequencies(attribute);
  Tensor result = input;
  for (int64_t row = 0; row < input.rows(); ++row) {
    int64_t position = batch.positions[row];
    if (position < 0 || (table && position >= table->rows()))
      return createStringError(
          "position " + llvm::Twine(position) + " of row " + llvm::Twine(row) +
          " is outside the table of " +
          (table ? llvm::Twine(table->rows()) : llvm::Twine("all")) +
          " positions");
    for (int64_t i = 0; i < pairs; ++i) {
      double angle = f32(f32(position) * frequencies[i]);
      double cosine = table ? table->row(position)[i] : std::cos(angle);
      double sine = table ? table->row(position)[pairs + i] : std::sin(angle);
      int64_t first = attribute.getInterleaved() ? 2 * i : i;
      int64_t second = attribute.getInterleaved() ? 2 * i + 1 : i + pairs;
      for (int64_t head = 0; head < input.channels(); head += headDim) {
        double a = input.row(row)[head + first];
        double b = input.row(row)[head + second];
        result.row(row)[head + first] = a * cosine - b * sine;
        result.row(row)[head + second] = b * cosine + a * sine;
      }
    }
  }
  return result;
}
