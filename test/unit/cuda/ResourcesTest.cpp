//===- ResourcesTest.cpp - known models on every chip, assembled ----------===//
// What can be known of the kernels of real models without a device: their
// instructions, and what the assembler says of registers, spills and occupancy.
//===----------------------------------------------------------------------===//
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Transforms/Passes.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Import/Import.h"
#include "prefill/Pipelines/Compile.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <regex>

using namespace mlir;
using namespace mlir::prefill;

namespace {

MLIRContext &context() {
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    registry.insert<PrefillDialect>();
    registerPrefillPasses();
    registerPrefillConversionPasses();
    registerTransformsPasses();
    auto *context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *shared;
}

struct Model {
  std::string shape, dtype, layout;
};

class ResourcesTest
    : public testing::TestWithParam<std::tuple<std::string, Model>> {};

/// The text of an entry, up to the next one.
std::string entryOf(const std::string &ptx, const std::string &kernel) {
  size_t begin = ptx.find(".entry " + kernel + "(");
  if (begin == std::string::npos)
    return "";
  return ptx.substr(begin, ptx.find(".entry ", begin + 1) - begin);
}

TEST_P(ResourcesTest, NoSpillsWithinLimits) {
  std::optional<std::string> assembler = findAssembler();
  if (!assembler)
    GTEST_SKIP() << "no ptxas";
  auto [name, model] = GetParam();
  const CudaChip &chip = *lookupCudaChip(name);
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    ADD_FAILURE() << diagnostic.str();
    return success();
  });
  // First, middle and last layer have the kernels of all layers.
  auto module = synthesize(&context(), model.shape, 3, std::nullopt);
  ASSERT_TRUE(module) << module.error().message;
  CompileOptions options;
  options.target.kind = CompileTarget::Cuda;
  options.target.chip = name;
  options.dtype = model.dtype;
  options.kvLayout = model.layout;
  auto kernels = lowerCudaKernels(**module, options,
                                  [](PassManager &) { return success(); });
  ASSERT_TRUE(succeeded(kernels));
  auto object = compileCudaObject(**kernels, chip, assembler);
  ASSERT_TRUE(succeeded(object));

  int64_t gemms = 0;
  for (const AssembledKernel &kernel : object->kernels) {
    EXPECT_EQ(kernel.spillBytes, 0) << kernel.name;
    EXPECT_LE(kernel.registers, kMaxThreadRegisters) << kernel.name;
    EXPECT_LE(kernel.sharedBytes, chip.sharedPerBlock) << kernel.name;
    EXPECT_GT(kernel.occupancy, 0) << kernel.name;
    std::string text = entryOf(object->ptx, kernel.name);
    EXPECT_FALSE(text.empty()) << kernel.name;
    EXPECT_EQ(text.find(".local"), std::string::npos) << kernel.name;
    if (text.find("mma.sync") == std::string::npos)
      continue;
    ++gemms;
    auto has = [&](const std::string &pattern) {
      return std::regex_search(text, std::regex(pattern));
    };
    EXPECT_TRUE(has("mma\\.sync\\.aligned\\.m16n8k16\\.row\\.col\\.f32\\." +
                    model.dtype))
        << kernel.name;
    EXPECT_TRUE(has("ldmatrix\\.sync\\.aligned\\.m8n8\\.x4\\.shared"))
        << kernel.name;
    EXPECT_TRUE(has("cp\\.async\\.cg\\.shared\\.global [^;]*, 16"))
        << kernel.name;
  }
  // Q|K|V, attention, output, gate|up and down for long prompts and for decode
  // steps, and the head.
  EXPECT_GE(gemms, 11);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ResourcesTest,
    testing::Combine(testing::Values("sm_80", "sm_86", "sm_89", "sm_90"),
                     testing::Values(Model{"llama-3-8b", "bf16", "contiguous"},
                                     Model{"qwen2.5-0.5b", "f16",
                                           "contiguous"})),
    [](const auto &info) {
      std::string text =
          std::get<0>(info.param) + "_" + std::get<1>(info.param).shape;
      for (char &c : text)
        if (!isalnum(c))
          c = '_';
      return text;
    });

} // namespace
