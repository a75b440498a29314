// The recording driver in a test: fresh at first, and without findings and
// leaks at the end.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBDRIVER_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBDRIVER_H

#include "cuda/CudaDevice.h"
#include "stub/StubControl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <memory>
#include <string>

namespace prefill::test {

class StubDriver {
public:
  explicit StubDriver(const std::string &settings = "") {
    library = ::dlopen(PREFILL_CUDA_STUB_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library) << ::dlerror();
    find<decltype(prefill_stub_reset)>("prefill_stub_reset")(settings.c_str());
  }
  ~StubDriver() {
    EXPECT_EQ(report(), "");
    find<decltype(prefill_stub_reset)>("prefill_stub_reset")("");
    ::dlclose(library);
  }

  std::string report() const {
    return find<decltype(prefill_stub_report)>("prefill_stub_report")();
  }
  /// For tests of the stub itself: what it found is what was meant.
  std::string takeReport() {
    std::string text = report();
    find<decltype(prefill_stub_reset)>("prefill_stub_reset")("");
    return text;
  }
  std::string calls() const {
    return find<decltype(prefill_stub_calls)>("prefill_stub_calls")();
  }
  uint64_t count(const char *name) const {
    return find<decltype(prefill_stub_count)>("prefill_stub_count")(name);
  }

  static std::unique_ptr<rt::cuda::CudaDevice>
  device(const std::string &name = "cuda") {
    auto device = rt::cuda::CudaDevice::create(name, PREFILL_CUDA_STUB_LIBRARY);
    EXPECT_TRUE(device) << device.error().message;
    return device ? std::move(*device) : nullptr;
  }

private:
  template <typename Function> Function *find(const char *name) const {
    return reinterpret_cast<Function *>(::dlsym(library, name));
  }
  void *library;
};

/// PTX of kernels that do nothing, each with `words` 64-bit parameters.
struct EmptyKernel {
  std::string name;
  int words;
};
inline std::string emptyPtx(const std::string &chip,
                            std::initializer_list<EmptyKernel> kernels,
                            const std::string &directives = "") {
  std::string text = ".version 7.0\n.target " + chip + "\n.address_size 64\n";
  for (const EmptyKernel &kernel : kernels) {
    text += ".visible .entry " + kernel.name + "(";
    for (int i = 0; i < kernel.words; ++i)
      text += (i ? ",\n" : "\n") + std::string("\t.param .u64 ") + kernel.name +
              "_param_" + std::to_string(i);
    text += "\n)\n" + directives + "{\n\tret;\n}\n";
  }
  return text;
}

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBDRIVER_H
