#include "CudaAttention.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Target/CUDA/KernelToNVVM.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "gtest/gtest.h"
#include <cmath>
#include <map>

using namespace mlir;
using namespace mlir::prefill;

namespace prefill_test {

static MLIRContext &context() {
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    registry.insert<PrefillDialect>();
    registerAllPasses();
    registerPrefillPasses();
    registerPrefillConversionPasses();
    return new MLIRContext(registry, MLIRContext::Threading::DISABLED);
  }();
  return *shared;
}

static OwningOpRef<ModuleOp> compile(const AttentionProblem &problem,
                                     const std::string &chip) {
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(problem.source(), &context());
  if (!module)
    return {};
  PassManager pm(&context());
  std::string passes = problem.pipeline() +
                       ",prefill-convert-to-cuda-kernels{chip=" + chip + "}";
  if (failed(parsePassPipeline(passes, pm)))
    return {};
  buildKernelToNVVMPipeline(pm);
  if (failed(pm.run(*module)))
    return {};
  return module;
}

OwningOpRef<ModuleOp> nvvmAttention(const AttentionProblem &problem,
                                    const std::string &chip) {
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    ADD_FAILURE() << diagnostic.str() << " in " << problem.describe();
    return success();
  });
  OwningOpRef<ModuleOp> module = compile(problem, chip);
  EXPECT_TRUE(module) << problem.describe();
  return module;
}

std::string refusalOfAttention(const AttentionProblem &problem,
                               const std::string &chip) {
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  EXPECT_FALSE(compile(problem, chip)) << problem.describe();
  return message;
}

static std::shared_ptr<Program> load(ModuleOp module) {
  auto image = compileEmulation(module);
  EXPECT_TRUE(succeeded(image));
  if (failed(image))
    return nullptr;
  auto loaded = Program::load(reinterpret_cast<const uint8_t *>(image->data()),
                              image->size(), "test");
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  return std::make_shared<Program>(std::move(*loaded));
}

CudaAttention::CudaAttention(const AttentionProblem &problem,
                             const std::string &chip)
    : problem(problem) {
  static std::map<std::string, std::shared_ptr<Program>> compiled;
  auto &slot = compiled[chip + " " + problem.describe()];
  if (!slot)
    if (OwningOpRef<ModuleOp> module = nvvmAttention(problem, chip))
      slot = load(*module);
  program = slot;
}

CudaAttention::CudaAttention(const AttentionProblem &problem,
                             const std::function<bool(ModuleOp)> &edit)
    : problem(problem) {
  OwningOpRef<ModuleOp> module = nvvmAttention(problem, "sm_80");
  if (module && edit(*module))
    program = load(*module);
}

CudaAttention::Run CudaAttention::run(const std::vector<Sequence> &sequences,
                                      int64_t paddedRows,
                                      const LaunchOptions &options) {
  AttentionBatch batch(problem, sequences, paddedRows);
  Emulator emulator(1);
  for (const AttentionBatch::Region &region : batch.regions()) {
    auto added = emulator.memory().add(region.begin, region.bytes, region.name,
                                       region.writable);
    if (!added)
      ADD_FAILURE() << added.error().message;
  }
  report.reset();
  counters = {};
  auto outcome = emulator.launch(*program, program->kernels[0].name,
                                 batch.words, batch.workgroups, options);
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    return {};
  }
  if (outcome->report)
    ADD_FAILURE() << "seed " << options.seed << ": "
                  << outcome->report->message();
  report = outcome->report;
  counters = outcome->counters;
  return {batch.result(), counters};
}

// With u the unit roundoff of the element type, an element o = sum p v / sum p
// has three kinds of error:
// - each probability is rounded before the second product: at most
//   u sum p |v| / sum p;
// - the output is rounded: at most u |o|;
// - scores, exponentials and sums in f32: 2^-14 sum p |v| / sum p leaves room
//   for head_dim * 2^-24 in a score and its factor ln 2 in the exponential, and
//   for ex2.approx (2^-22). f16 has no probability below 2^-25: 2^-24 a key.
// Nothing else may be wrong. And as the two roundings cannot be avoided, the
// error over all elements is that of double loops with just these two: the
// errors are independent, so the norms differ by less the more elements there
// are.
void CudaAttention::check(const std::vector<Sequence> &sequences,
                          int64_t paddedRows, uint64_t seed) {
  ASSERT_TRUE(ok()) << problem.describe();
  std::string trace = problem.describe() + " seed " + std::to_string(seed);
  for (const Sequence &sequence : sequences)
    trace += " [" + std::to_string(sequence.seqlenQ) + " of " +
             std::to_string(sequence.seqlenKv) + "]";
  SCOPED_TRACE(trace);
  LaunchOptions options;
  options.seed = seed;
  AttentionResult result = run(sequences, paddedRows, options).result;
  std::vector<double> expected = attentionReference(problem, sequences);
  std::vector<double> magnitudes = attentionMagnitudes(problem, sequences);
  ASSERT_EQ(result.values.size(), expected.size());
  expectEmptyRowsZero(problem, sequences, result);
  if (problem.numSplits > 1) {
    // A score's error is at most as in the second term above.
    std::vector<double> lse = splitLogSumExps(problem, sequences);
    ASSERT_EQ(result.lse.size(), lse.size());
    for (size_t i = 0; i < lse.size(); ++i)
      if (std::isfinite(lse[i]))
        ASSERT_NEAR(result.lse[i], lse[i], 0x1p-14 * (1 + std::fabs(lse[i])))
            << "log-sum-exp " << i;
      else
        ASSERT_EQ(result.lse[i], lse[i]) << "log-sum-exp " << i;
  }
  double u = unitRoundoff(problem.dtype);
  int64_t keys = 0;
  for (const Sequence &sequence : sequences)
    keys = std::max(keys, sequence.seqlenKv);
  for (size_t i = 0; i < expected.size(); ++i) {
    double bound = u * std::fabs(expected[i]) * 1.01 +
                   (u + 0x1p-14) * magnitudes[i] + double(keys) * 0x1p-24;
    ASSERT_LE(std::fabs(result.values[i] - expected[i]), bound)
        << "element " << i << ": " << result.values[i] << ", expected "
        << expected[i];
  }
  if (expected.size() < 1024)
    return;
  double unavoidable =
      relativeError(roundedAttentionReference(problem, sequences), expected);
  // The splits' outputs are put together in doubles.
  ASSERT_LE(relativeError(result.values, expected), 1.1 * unavoidable + 1e-15);
}

} // namespace prefill_test
