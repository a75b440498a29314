// The recording cuBLASLt in a test: fresh at first, and without findings and
// leaks at the end.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBBLAS_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBBLAS_H

#include "stub/StubCublasLt.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>

namespace prefill::test {

class StubBlas {
public:
  explicit StubBlas(const std::string &settings = "") {
    library = ::dlopen(PREFILL_CUBLASLT_STUB_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library) << ::dlerror();
    find<decltype(prefill_blas_stub_reset)>("prefill_blas_stub_reset")(
        settings.c_str());
  }
  ~StubBlas() {
    EXPECT_STREQ(
        find<decltype(prefill_blas_stub_report)>("prefill_blas_stub_report")(),
        "");
    ::dlclose(library);
  }
  std::string calls() const {
    return find<decltype(prefill_blas_stub_calls)>("prefill_blas_stub_calls")();
  }

private:
  template <typename Function> Function *find(const char *name) const {
    return reinterpret_cast<Function *>(::dlsym(library, name));
  }
  void *library;
};

} // namespace prefill::test

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUBBLAS_H
