#include "prefill/checkpoint/RandomWeights.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <cmath>

using namespace prefill::rt;

namespace {

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014, "Fast splittable
/// pseudorandom number generators").
uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

/// FNV-1a.
uint64_t hashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

} // namespace

RandomTensor::RandomTensor(uint64_t seed, std::string_view name,
                           const std::vector<int64_t> &shape)
    : stream(mix(mix(seed + 0x9e3779b97f4a7c15) ^ hashName(name))) {
  // sum of four uniforms on 0 .. 65535: variance 4 * (65536^2 - 1) / 12.
  const double standardDeviation = std::sqrt((65536.0 * 65536.0 - 1) / 3);
  double spread = shape.size() >= 2 ? 1 / std::sqrt(double(shape.back())) : 0.1;
  bool isNorm = shape.size() < 2 && name.find("norm") != std::string_view::npos;
  mean = isNorm ? 1 : 0;
  scale = spread / standardDeviation;
}

float RandomTensor::operator[](uint64_t index) const {
  uint64_t bits = mix(stream + index * 0x9e3779b97f4a7c15);
  int64_t sum = int64_t(bits & 0xffff) + int64_t(bits >> 16 & 0xffff) +
                int64_t(bits >> 32 & 0xffff) + int64_t(bits >> 48);
  // Product and sum are rounded separately on every machine: the build forbids
  // a fused multiply-add here, which would change a last bit now and then.
  return bf16ToFloat(
      floatToBf16(static_cast<float>(mean + double(sum - 2 * 65535) * scale)));
}
