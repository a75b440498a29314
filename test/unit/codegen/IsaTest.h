//===- IsaTest.h - a test of every variant of target cpu --------*- C++ -*-===//
#ifndef PREFILL_TEST_CODEGEN_ISATEST_H
#define PREFILL_TEST_CODEGEN_ISATEST_H

#include "CompiledKernel.h"
#include "gtest/gtest.h"
#include <tuple>

namespace prefill_test {

/// Parameters are a variant's name and what else a test has. A variant that
/// this machine lacks is a skip by name, so that a run shows what it left out.
template <typename... Rest>
class IsaTest
    : public testing::TestWithParam<std::tuple<std::string, Rest...>> {
protected:
  void SetUp() override {
    if (!hostRuns(isa()))
      GTEST_SKIP() << "this machine does not run " << isa();
  }
  std::string isa() const { return std::get<0>(this->GetParam()); }
};

} // namespace prefill_test

#endif // PREFILL_TEST_CODEGEN_ISATEST_H
