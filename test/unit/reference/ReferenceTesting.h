// What the interpreter's tests share: matching numbers, a parsed module.
#ifndef PREFILL_TEST_UNIT_REFERENCE_REFERENCETESTING_H
#define PREFILL_TEST_UNIT_REFERENCE_REFERENCETESTING_H

#include "mlir/Parser/Parser.h"
#include "prefill/Reference/Evaluators.h"
#include "prefill/Reference/Interpreter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mlir::prefill::reference {

/// The value of an Expected; a failure of the test, with its message, when it
/// is an error.
template <typename T> T get(llvm::Expected<T> value) {
  if (!value) {
    ADD_FAILURE() << llvm::toString(value.takeError());
    return T();
  }
  return std::move(*value);
}

/// The message of an error; empty when there is none.
template <typename T> std::string messageOf(llvm::Expected<T> value) {
  return value ? "" : llvm::toString(value.takeError());
}

inline void expectValues(const Tensor &actual, ArrayRef<double> expected,
                         double tolerance = 1e-13) {
  ASSERT_EQ(actual.values.size(), expected.size());
  for (auto [index, value] : llvm::enumerate(expected))
    EXPECT_NEAR(actual.values[index], value, tolerance) << "element " << index;
}

class ReferenceTest : public ::testing::Test {
protected:
  ReferenceTest() { context.loadDialect<PrefillDialect, func::FuncDialect>(); }

  OwningOpRef<ModuleOp> parse(StringRef text) {
    OwningOpRef<ModuleOp> module =
        parseSourceString<ModuleOp>(text, ParserConfig(&context));
    EXPECT_TRUE(module) << "the test's IR does not parse";
    return module;
  }

  MLIRContext context;
};

} // namespace mlir::prefill::reference

#endif // PREFILL_TEST_UNIT_REFERENCE_REFERENCETESTING_H
