// The test model as a module for a GPU.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_CUDAMODULE_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_CUDAMODULE_H

#include "../TestModel.h"
#include "StubDriver.h"

#include <memory>
#include <string>

namespace prefill::test {

/// The test model with its plan turned into one for sm_80: PTX whose kernels
/// are empty, as the stub runs those of the CPU by their names.
inline module::ModuleT makeCudaModule(const TestModelOptions &options = {}) {
  module::ModuleT file = makeTestModule(options);
  module::PlanT &plan = *file.plans.front();
  plan.target = "cuda";
  plan.chip = "sm_80";
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n";
  for (auto &kernel : plan.kernels) {
    kernel->scratch_bytes = 0;
    kernel->cuda = std::make_unique<module::CudaResourcesT>();
    kernel->cuda->block_threads = 128;
    kernel->cuda->shared_bytes = 64 << 10;
    std::string entry = emptyPtx("sm_80", {{kernel->name, kernel->num_words}});
    text += entry.substr(entry.find(".visible"));
  }
  plan.code.front()->format = module::CodeFormat::ptx;
  plan.code.front()->variant = "sm_80";
  plan.code.front()->object.assign(text.begin(), text.end());
  return file;
}

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_CUDAMODULE_H
