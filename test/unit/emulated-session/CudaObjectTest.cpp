//===- CudaObjectTest.cpp - PTX, and what the assembler says of it --------===//
#include "EmulatedModel.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;
using testing::HasSubstr;

namespace {

class CudaObjectTest : public testing::TestWithParam<const char *> {
protected:
  CudaObjectTest() {
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module =
        parseSourceString<ModuleOp>(prefill_test::kernelText({}), &context);
  }
  const CudaChip &chip() { return *lookupCudaChip(GetParam()); }

  DialectRegistry registry;
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
};
INSTANTIATE_TEST_SUITE_P(Chips, CudaObjectTest,
                         testing::Values("sm_80", "sm_86", "sm_89", "sm_90"),
                         [](const auto &info) { return info.param; });

TEST_P(CudaObjectTest, PtxNamesChipKernelsAndBlockSize) {
  auto object = compileCudaObject(*module, chip(), std::nullopt);
  ASSERT_TRUE(succeeded(object));
  EXPECT_TRUE(object->cubin.empty());
  EXPECT_TRUE(object->kernels.empty());
  EXPECT_THAT(object->ptx, HasSubstr(std::string(".target ") + GetParam()));
  for (const char *kernel : {"embed", "append", "logits"})
    EXPECT_THAT(object->ptx, HasSubstr(std::string(".entry ") + kernel + "("));
  EXPECT_THAT(object->ptx, HasSubstr(".maxntid 32"));
}

TEST_P(CudaObjectTest, TheAssemblerTakesIt) {
  std::optional<std::string> assembler = findAssembler();
  if (!assembler)
    GTEST_SKIP() << "no ptxas";
  auto object = compileCudaObject(*module, chip(), assembler);
  ASSERT_TRUE(succeeded(object));
  ASSERT_GT(object->cubin.size(), 4u);
  EXPECT_EQ(StringRef(object->cubin.data(), 4), "\x7f"
                                                "ELF");
  ASSERT_EQ(object->kernels.size(), 3u);
  for (const AssembledKernel &kernel : object->kernels) {
    EXPECT_GT(kernel.registers, 4) << kernel.name;
    EXPECT_LT(kernel.registers, 64) << kernel.name;
    EXPECT_EQ(kernel.spillBytes, 0) << kernel.name;
    EXPECT_GT(kernel.occupancy, 0) << kernel.name;
    EXPECT_LE(kernel.occupancy, 1) << kernel.name;
  }
}

TEST_P(CudaObjectTest, WhatTheAssemblerRefusesIsAnError) {
  std::optional<std::string> assembler = findAssembler();
  if (!assembler)
    GTEST_SKIP() << "no ptxas";
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(
      assemble("no PTX", chip(), *assembler, UnknownLoc::get(&context))));
  EXPECT_THAT(message, HasSubstr(std::string("refused the code for ") +
                                 GetParam() + ": ptxas"));
  EXPECT_TRUE(
      failed(assemble("", chip(), "/nonexistent", UnknownLoc::get(&context))));
  EXPECT_THAT(message, HasSubstr("/nonexistent"));
}

TEST(AssemblerReport, NumbersByKernel) {
  auto kernels = parseAssemblerReport(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'gemm' for 'sm_80'\n"
      "ptxas info    : Function properties for gemm\n"
      "    144 bytes stack frame, 136 bytes spill stores, 152 bytes spill "
      "loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 144 bytes "
      "cumulative stack size\n"
      "ptxas info    : Compiling entry function 'norm' for 'sm_80'\n"
      "ptxas info    : Function properties for norm\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 18 registers, used 0 barriers\n");
  ASSERT_TRUE(bool(kernels));
  ASSERT_EQ(kernels->size(), 2u);
  EXPECT_EQ((*kernels)[0].name, "gemm");
  EXPECT_EQ((*kernels)[0].registers, 255);
  EXPECT_EQ((*kernels)[0].spillBytes, 136 + 152);
  EXPECT_EQ((*kernels)[1].name, "norm");
  EXPECT_EQ((*kernels)[1].registers, 18);
  EXPECT_EQ((*kernels)[1].spillBytes, 0);
}

TEST(AssemblerReport, WhatIsMissingIsNamed) {
  auto kernels = parseAssemblerReport(
      "ptxas info    : Compiling entry function 'gemm' for 'sm_80'\n"
      "ptxas info    : Compiling entry function 'norm' for 'sm_80'\n");
  ASSERT_FALSE(bool(kernels));
  EXPECT_EQ(llvm::toString(kernels.takeError()),
            "ptxas reported no registers of kernel 'gemm'");
}

} // namespace
