//===- QuantizeWeightsTest.cpp - what 8-bit integers cost -----------------===//
// Quantization changes numbers, by as much as its steps say; whatever comes
// after it changes nothing. The reference interpreter runs modules before and
// after in f64 without rounding.
//===----------------------------------------------------------------------===//
#include "SmallModels.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "prefill/Analysis/RowDomains.h"
#include "prefill/Import/Import.h"
#include "prefill/Reference/Equivalence.h"
#include "prefill/Reference/Evaluators.h"
#include "prefill/Reference/Interpreter.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;
using reference::Tensor;

namespace {

/// What fold-norm and quantize-weights do is the other's alternative.
constexpr unsigned kFoldNorm = 1u << 4;

/// The relative error to expect of a model of `numLayers` layers. A number of a
/// row or of a channel is off by at most half of its step, 1/127 of the
/// largest, and as a rule by 1/sqrt(12) of it. The largest is about four times
/// the root mean square. Both factors of a product are off, and errors of the
/// four projections of each layer add up like those of chance.
double expectedError(int64_t numLayers) {
  double ofFactor = 4 / (127 * std::sqrt(12.0));
  return std::sqrt(2.0 * 4 * numLayers) * ofFactor;
}

/// A call of few tokens, whose logits are few, may have bad luck.
double tolerance(int64_t numLayers) { return 2 * expectedError(numLayers); }

//===----------------------------------------------------------------------===//
// One projection, by the formula
//===----------------------------------------------------------------------===//

constexpr StringLiteral kProjection = R"(
prefill.weight @e : tensor<11x40xf32> = #prefill.checkpoint<"e">
prefill.weight @g : tensor<40xf32> = #prefill.checkpoint<"g">
prefill.weight @w : tensor<24x40xf32> = #prefill.checkpoint<"w">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x24xf32> {
  %e = prefill.get_weight @e : tensor<11x40xf32>
  %g = prefill.get_weight @g : tensor<40xf32>
  %w = prefill.get_weight @w : tensor<24x40xf32>
  %x = prefill.embed %batch, %e : tensor<11x40xf32> -> tensor<?x40xf32>
  %n = prefill.rms_norm %x, %g {eps = 1.0e-5} : tensor<?x40xf32>, tensor<40xf32> -> tensor<?x40xf32>
  %y = prefill.linear %n, %w {prefill.layer = 0 : i64} : tensor<?x40xf32>, tensor<24x40xf32> -> tensor<?x24xf32>
  return %y : tensor<?x24xf32>
}
)";

/// The largest magnitude of a row.
double largest(const Tensor &tensor, int64_t row) {
  double result = 0;
  for (int64_t k = 0; k < tensor.channels(); ++k)
    result = std::max(result, std::abs(tensor.row(row)[k]));
  return result;
}

TEST(QuantizedProjection, IsTheSumOfIntegersWithinHalfAStepOfEachFactor) {
  MLIRContext context;
  context.loadDialect<PrefillDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(kProjection, &context);
  ASSERT_TRUE(module);
  PassManager manager(&context);
  manager.addPass(createQuantizeWeightsPass());
  ASSERT_TRUE(succeeded(manager.run(*module)));

  reference::RandomWeights weights(5);
  reference::Interpreter interpreter(*module, weights);
  std::vector<reference::KVCache> caches;
  std::vector<int32_t> tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  auto y = interpreter.run(reference::makeSequenceBatch(0, tokens), caches);
  ASSERT_TRUE(bool(y)) << llvm::toString(y.takeError());

  Tensor x = reference::rmsNorm(cantFail(weights.get("e", {11, 40})),
                                cantFail(weights.get("g", {40})), 1e-5);
  Tensor w = cantFail(weights.get("w", {24, 40}));
  double worst = 0;
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < w.rows(); ++n) {
      double ax = largest(x, m), aw = largest(w, n);
      double exact = 0, ofIntegers = 0, bound = 0;
      for (int64_t k = 0; k < x.channels(); ++k) {
        double xk = x.row(m)[k], wk = w.row(n)[k];
        exact += xk * wk;
        ofIntegers +=
            std::nearbyint(xk / ax * 127) * std::nearbyint(wk / aw * 127);
        bound += ax / 254 * std::abs(wk) + aw / 254 * std::abs(xk) +
                 ax / 254 * aw / 254;
      }
      double actual = y->row(m)[n];
      EXPECT_NEAR(actual, ofIntegers * ax / 127 * aw / 127, 1e-12);
      EXPECT_LE(std::abs(actual - exact), bound);
      worst = std::max(worst, std::abs(actual - exact) / bound);
    }
  EXPECT_GT(worst, 0.1); // integers they are
}

//===----------------------------------------------------------------------===//
// Whole models
//===----------------------------------------------------------------------===//

class QuantizedModels : public testing::TestWithParam<ModelCase> {
protected:
  QuantizedModels() {
    DecoderConfig config = smallModel();
    GetParam().change(config);
    model = buildDecoder(&context, config, TensorNaming::huggingFace);
  }

  /// The model after the graph passes whose bit is set and quantize-weights.
  OwningOpRef<ModuleOp> quantize(unsigned passes = kAllPasses & ~kFoldNorm) {
    OwningOpRef<ModuleOp> module(
        cast<ModuleOp>(model->getOperation()->clone()));
    PassManager manager(&context);
    for (unsigned i = 0; i < kNumPasses; ++i)
      if (passes & (1u << i))
        manager.addPass(kGraphPasses[i].create());
    manager.addPass(createQuantizeWeightsPass());
    manager.addPass(createEraseUnusedWeightsPass());
    manager.addPass(createVerifyFusedPass());
    EXPECT_TRUE(succeeded(manager.run(*module)));
    EXPECT_TRUE(succeeded(verify(*module)));
    return module;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> model;
};

TEST_P(QuantizedModels, AreOffByTheirSteps) {
  for (unsigned left = 0; left < kNumPasses; ++left) {
    SCOPED_TRACE(testing::Message() << "without " << kGraphPasses[left].flag);
    unsigned passes = kAllPasses & ~kFoldNorm & ~(1u << left);
    auto result = reference::compare(*model, *quantize(passes), left);
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_LE(result->worst(), tolerance(2));
    EXPECT_GE(result->worst(), expectedError(2) / 5);
  }
}

// A norm that fold-norm took first, and nothing but the pass itself.
TEST_P(QuantizedModels, NeedNoOtherPass) {
  for (unsigned passes : {kAllPasses, 0u}) {
    SCOPED_TRACE(passes);
    auto result = reference::compare(*model, *quantize(passes), 1);
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_LE(result->worst(), tolerance(2));
  }
}

// Tiles, padding, buffers and launches say how the kernels run, not what they
// compute.
TEST_P(QuantizedModels, ThePlanOfKernelsKeepsTheMeaning) {
  for (unsigned passes : {kAllPasses & ~kFoldNorm, 0u}) {
    SCOPED_TRACE(passes);
    OwningOpRef<ModuleOp> before = quantize(passes);
    OwningOpRef<ModuleOp> after(
        cast<ModuleOp>(before->getOperation()->clone()));
    PassManager manager(&context);
    manager.addPass(createSelectLoweringStrategyPass());
    manager.addPass(createEraseUnusedWeightsPass());
    manager.addPass(createPadMPass());
    PlanMemoryPassOptions options;
    options.padRows = true;
    manager.addPass(createPlanMemoryPass(options));
    manager.addPass(createVerifyConfigPass());
    manager.addPass(createOutlineKernelsPass());
    ASSERT_TRUE(succeeded(manager.run(*after)));
    auto result = reference::compare(*before, *after, 2);
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_TRUE(result->holds()) << result->worst();
  }
}

// Each projection has a kernel in front, and the norms are in two of these. In
// the last layer they have the rows of the logits.
TEST_P(QuantizedModels, ALayerIsNineComputeOps) {
  OwningOpRef<ModuleOp> module = quantize();
  auto function = module->lookupSymbol<func::FuncOp>(kEntryName);
  RowDomains domains(function);
  constexpr RowDomain tokens = RowDomain::Tokens, logits = RowDomain::Logits;
  using Layer = std::vector<std::pair<std::string, RowDomain>>;
  std::map<int64_t, Layer> layers;
  for (Operation &op : function.getBody().front())
    if (auto layer = op.getAttrOfType<IntegerAttr>(kLayerAttr)) {
      auto name = op.getAttrOfType<StringAttr>(kNameAttr);
      layers[layer.getInt()].emplace_back(
          name ? name.str() : op.getName().stripDialect().str(),
          domains.get(op.getResult(0)));
    }
  Layer first = {{"quantize_qkv_proj", tokens},
                 {"qkv_proj", tokens},
                 {"attention", tokens},
                 {"quantize_o_proj", tokens},
                 {"o_proj", tokens},
                 {"quantize_gate_up_proj", tokens},
                 {"gate_up_proj", tokens},
                 {"quantize_down_proj", tokens},
                 {"down_proj", tokens}};
  Layer last = first;
  for (auto &[name, domain] : llvm::drop_begin(last, 2))
    domain = logits;
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0], first);
  EXPECT_EQ(layers[1], last);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedModels, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });

// Numbers of a model that was trained have larger outliers than those of
// chance.
TEST(TrainedModel, IsOffByItsSteps) {
  const std::string directory = PREFILL_SOURCE_DIR "/test/models/tiny";
  MLIRContext context;
  auto model = importHuggingFace(&context, directory);
  ASSERT_TRUE(model) << model.error().message;
  auto checkpoint = ::prefill::rt::Checkpoint::open(directory);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  reference::CheckpointWeights weights(std::move(*checkpoint));
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 24; ++i)
    tokens.push_back((i * 17 + 5) % 61);

  auto logits = [&](ModuleOp module) {
    reference::Interpreter interpreter(module, weights);
    auto caches = cantFail(interpreter.makeCaches(1));
    return cantFail(
        interpreter.run(reference::makeSequenceBatch(0, tokens), caches));
  };
  Tensor expected = logits(**model);
  PassManager manager(&context);
  for (unsigned i = 0; i < kNumPasses; ++i)
    if (~kFoldNorm & (1u << i))
      manager.addPass(kGraphPasses[i].create());
  manager.addPass(createQuantizeWeightsPass());
  ASSERT_TRUE(succeeded(manager.run(**model)));
  Tensor actual = logits(**model);

  Tensor difference = reference::add(actual, reference::scale(expected, -1));
  double relative = difference.norm() / expected.norm();
  EXPECT_LE(relative, tolerance(4));
  EXPECT_GE(relative, expectedError(4) / 5);
}

} // namespace
