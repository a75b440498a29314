//===- RowDomainsTest.cpp - rows of tokens and rows of logits -------------===//
#include "prefill/Analysis/RowDomains.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr const char *kModule = R"mlir(
func.func @prefill(%batch: !prefill.batch, %x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %g: tensor<8xf32>)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x1xf32>) {
  %tokens = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    prefill.yield %acc : tensor<?x8xf32>
  }
  %embedded = prefill.rowwise : tensor<?x8xf32> body {
    %0 = prefill.embed %batch, %w : tensor<8x8xf32> -> tensor<?x8xf32>
    prefill.yield %0 : tensor<?x8xf32>
  }
  %selected = prefill.rowwise : tensor<?x8xf32> body {
    %0 = prefill.select_rows %tokens, %batch : tensor<?x8xf32> -> tensor<?x8xf32>
    %1 = prefill.rms_norm %0, %g {eps = 1.0e-5} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
    prefill.yield %1 : tensor<?x8xf32>
  }
  %logits, %sums = prefill.gemm %selected, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>, tensor<?x1xf32> epilogue {
  ^bb0(%acc: tensor<?x8xf32>):
    %0 = prefill.row_sumsq %acc : tensor<?x8xf32> -> tensor<?x1xf32>
    prefill.yield %acc, %0 : tensor<?x8xf32>, tensor<?x1xf32>
  }
  return %tokens, %embedded, %selected, %logits, %sums
    : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x1xf32>
}
)mlir";

TEST(RowDomains, LogitsAreWhatDerivesFromSelectRows) {
  MLIRContext context;
  context.loadDialect<PrefillDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kModule, &context);
  ASSERT_TRUE(module);
  auto function = module->lookupSymbol<func::FuncOp>(kEntryName);
  RowDomains domains(function);
  Operation *results = function.getBody().front().getTerminator();
  EXPECT_EQ(domains.get(results->getOperand(0)), RowDomain::Tokens);
  EXPECT_EQ(domains.get(results->getOperand(1)), RowDomain::Tokens);
  EXPECT_EQ(domains.get(results->getOperand(2)), RowDomain::Logits);
  EXPECT_EQ(domains.get(results->getOperand(3)), RowDomain::Logits);
  EXPECT_EQ(domains.get(results->getOperand(4)), RowDomain::Logits);
  EXPECT_EQ(domains.get(function.getArgument(1)), RowDomain::Tokens);

  // Inside of regions too.
  Operation *logits = results->getOperand(3).getDefiningOp();
  EXPECT_EQ(domains.get(logits->getRegion(0).getArgument(0)),
            RowDomain::Logits);
}

} // namespace
