//===- CudaObjectTest.cpp - PTX, and what the assembler says of it --------===//
#include "EmulatedModel.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;
using testing::AllOf;
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
}

/// A program that stands in for the assembler.
class FakeAssembler {
public:
  explicit FakeAssembler(const std::string &script) {
    std::error_code error = llvm::sys::fs::createTemporaryFile(
        "prefill-fake-ptxas", "sh", descriptor, file);
    EXPECT_FALSE(error) << error.message();
    remover.emplace(file);
    llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
    stream << "#!/bin/sh\n" << script << "\n";
    stream.close();
    EXPECT_FALSE(llvm::sys::fs::setPermissions(file, llvm::sys::fs::owner_all));
  }
  std::string path() const { return file.str().str(); }

private:
  int descriptor = -1;
  llvm::SmallString<128> file;
  std::optional<llvm::FileRemover> remover;
};

// An assembler that is none must not pass for one that was not there.
TEST_P(CudaObjectTest, AssemblersThatDoNotDoTheirWork) {
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  auto refusal = [&](const std::string &assembler) {
    message = "";
    EXPECT_TRUE(failed(compileCudaObject(*module, chip(), assembler)));
    return message;
  };
  std::string on = std::string(" for ") + GetParam();
  EXPECT_THAT(refusal("/nonexistent"),
              AllOf(HasSubstr("cannot run the assembler '/nonexistent'" + on),
                    HasSubstr("No such file or directory")));
  FakeAssembler missing("no-such-program");
  EXPECT_THAT(refusal(missing.path()),
              AllOf(HasSubstr("cannot run the assembler '" + missing.path() +
                              "'" + on + ": "),
                    HasSubstr("no-such-program")));
  FakeAssembler silent("exit 0");
  EXPECT_EQ(refusal(silent.path()), silent.path() +
                                        " ended well but wrote no cubin" + on +
                                        ": 0 bytes, expected an ELF file");
  FakeAssembler mute("exit 3");
  EXPECT_EQ(refusal(mute.path()), mute.path() + " refused the code" + on +
                                      " without a message, exit code 3");
  FakeAssembler chatty("echo 'ptxas info    : 0 bytes gmem'; echo; "
                       "echo 'ptxas fatal   : no room'; exit 255");
  EXPECT_EQ(refusal(chatty.path()), chatty.path() + " refused the code" + on +
                                        ": ptxas fatal   : no room");
  // A cubin, but not a word about its kernels.
  FakeAssembler quiet("for last; do true; done; printf "
                      "'\\177ELF\\2\\1\\1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\2\\0"
                      "\\276\\0' >\"$last\"");
  EXPECT_EQ(refusal(quiet.path()),
            quiet.path() + " did not say what kernel 'embed' takes on " +
                GetParam() + ", expected a line of registers for each kernel");
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
