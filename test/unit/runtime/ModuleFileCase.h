// A module file as it is damaged for the tests, and what loading it says.
#ifndef PREFILL_TEST_UNIT_RUNTIME_MODULEFILECASE_H
#define PREFILL_TEST_UNIT_RUNTIME_MODULEFILECASE_H

#include "TestModel.h"

#include <string>
#include <vector>

namespace prefill::test {

/// The error of loading `bytes`, or "" when they load.
std::string loadError(const std::vector<uint8_t> &bytes,
                      const char *deviceName = "cpu");
std::string loadError(const module::ModuleT &file);

/// Weights of the test module, [32, 32] and [32], and the first one that is
/// added.
inline constexpr uint32_t matrixWeight = 2, vectorWeight = 3;
inline constexpr uint32_t firstAdded = 10;

/// Appends a weight that a launch may use.
template <typename Source>
module::WeightT &addWeight(module::ModuleT &file, std::vector<int64_t> shape,
                           Source source,
                           module::DType dtype = module::DType::f32) {
  auto &weights = file.plans[0]->weights;
  auto weight = std::make_unique<module::WeightT>();
  weight->name = "w" + std::to_string(weights.size());
  weight->shape = std::move(shape);
  weight->dtype = dtype;
  weight->source.Set(std::move(source));
  weight->resident = true;
  weights.push_back(std::move(weight));
  return *weights.back();
}

module::WeightT &addQuantized(module::ModuleT &file,
                              uint32_t input = matrixWeight);
module::WeightT &addScales(module::ModuleT &file,
                           uint32_t input = matrixWeight);
module::WeightT &addPack(module::ModuleT &file, uint32_t input,
                         module::DType dtype);

/// The test module with 8-bit integers wherever they may be.
module::ModuleT makeInt8Module();

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_MODULEFILECASE_H
