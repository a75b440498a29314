//===- RopeFrequencies.cpp - inverse frequencies of RoPE ------------------===//
// Formulas: Llama 3.1's frequency bands and position interpolation (Chen et al.
// 2023) as transformers computes them; docs/spec.md has them step by step.
//===----------------------------------------------------------------------===//
#include "prefill/Analysis/RopeFrequencies.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;

// Contracting a product and a sum into an fma would skip a rounding.
#pragma STDC FP_CONTRACT OFF

namespace {
/// Llama 3.1: wavelengths up to `shortest` keep their frequency, from `longest`
/// on it is divided by `factor`, between them the two are blended.
struct Llama3Bands {
  explicit Llama3Bands(RopeAttr rope)
      : factor(static_cast<float>(rope.getFactor())),
        low(static_cast<float>(rope.getLowFreqFactor())),
        span(static_cast<float>(rope.getHighFreqFactor() -
                                rope.getLowFreqFactor())),
        trained(static_cast<float>(rope.getOriginalMaxPosition())),
        longest(static_cast<float>(rope.getOriginalMaxPosition() /
                                   rope.getLowFreqFactor())),
        shortest(static_cast<float>(rope.getOriginalMaxPosition() /
                                    rope.getHighFreqFactor())) {}

  float operator()(float frequency) const {
    // A scalar over a tensor is reciprocal, then product, in torch: two
    // roundings.
    float reciprocal = 1.0f / frequency;
    float wavelength = reciprocal * static_cast<float>(2.0 * M_PI);
    if (wavelength < shortest)
      return frequency;
    if (wavelength > longest)
      return frequency / factor;
    float perTrained = (1.0f / wavelength) * trained;
    float smooth = (perTrained - low) / span;
    float stretched = (1.0f - smooth) * frequency;
    stretched = stretched / factor;
    float kept = smooth * frequency;
    return stretched + kept;
  }

  float factor, low, span, trained, longest, shortest;
};
} // namespace

SmallVector<float> prefill::computeInvFreq(RopeAttr rope) {
  float dim = static_cast<float>(rope.getRotaryDim());
  SmallVector<float> frequencies;
  for (int64_t channel = 0; channel < rope.getRotaryDim(); channel += 2) {
    float exponent = static_cast<float>(channel) / dim;
    float power = static_cast<float>(
        std::pow(rope.getTheta(), static_cast<double>(exponent)));
    frequencies.push_back(1.0f / power);
  }
  switch (rope.getScaling()) {
  case RopeScaling::None:
    break;
  case RopeScaling::Linear:
    for (float &frequency : frequencies)
      frequency /= static_cast<float>(rope.getFactor());
    break;
  case RopeScaling::Llama3: {
    Llama3Bands bands(rope);
    for (float &frequency : frequencies)
      frequency = bands(frequency);
    break;
  }
  }
  return frequencies;
}
