//===- GraphPassEquivalenceTest.cpp - graph passes keep the meaning -------===//
// Every pass from model to fused, in the pipeline's order, alone and with any
// one left out, on small models of every kind: the reference interpreter runs
// the module before and after in f64 without rounding.
//===----------------------------------------------------------------------===//
#include "SmallModels.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "prefill/Analysis/RowDomains.h"
#include "prefill/Reference/Equivalence.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

class GraphPasses : public testing::TestWithParam<ModelCase> {
protected:
  GraphPasses() {
    DecoderConfig config = smallModel();
    GetParam().change(config);
    model = buildDecoder(&context, config, TensorNaming::huggingFace);
  }

  OwningOpRef<ModuleOp> copy() {
    return OwningOpRef<ModuleOp>(
        cast<ModuleOp>(model->getOperation()->clone()));
  }

  /// The model after the passes whose bit is set.
  OwningOpRef<ModuleOp> run(unsigned passes) {
    OwningOpRef<ModuleOp> module = copy();
    PassManager manager(&context);
    for (unsigned i = 0; i < kNumPasses; ++i)
      if (passes & (1u << i))
        manager.addPass(kGraphPasses[i].create());
    EXPECT_TRUE(succeeded(manager.run(*module)));
    EXPECT_TRUE(succeeded(verify(*module)));
    return module;
  }

  void expectEquivalent(ModuleOp after, uint64_t seed) {
    auto result = reference::compare(*model, after, seed);
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_LE(result->logits, reference::Equivalence::kTolerance);
    EXPECT_LE(result->caches, reference::Equivalence::kTolerance);
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> model;
};

TEST_P(GraphPasses, EachPrefixOfThePipelineKeepsTheMeaning) {
  for (unsigned count = 1; count <= kNumPasses; ++count) {
    SCOPED_TRACE(kGraphPasses[count - 1].flag);
    expectEquivalent(*run((1u << count) - 1), count);
  }
}

TEST_P(GraphPasses, EachPassAloneKeepsTheMeaning) {
  for (unsigned i = 0; i < kNumPasses; ++i) {
    SCOPED_TRACE(kGraphPasses[i].flag);
    expectEquivalent(*run(1u << i), 1);
  }
}

TEST_P(GraphPasses, AnyTwoPassesMayBeLeftOut) {
  for (unsigned i = 0; i < kNumPasses; ++i)
    for (unsigned j = i; j < kNumPasses; ++j) {
      SCOPED_TRACE(testing::Message() << "without " << kGraphPasses[i].flag
                                      << " and " << kGraphPasses[j].flag);
      expectEquivalent(*run(kAllPasses & ~(1u << i) & ~(1u << j)), 1);
    }
}

TEST_P(GraphPasses, OneLongPromptAndItsContinuation) {
  reference::Step prompt, token;
  for (int32_t i = 0; i < 33; ++i)
    prompt.tokens.resize(1), prompt.tokens[0].push_back((i * 17 + 5) % 61);
  token.tokens = {{7}};
  auto result =
      reference::compare(*model, *run(kAllPasses), 3, {prompt, token, token});
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_TRUE(result->holds()) << result->worst();
}

// The last row of each sequence, none of an empty one, and rows of padding.
TEST_P(GraphPasses, LogitsOfLastRowsOnly) {
  reference::Step prompt, rest;
  prompt.tokens = {{3, 1, 4, 1, 5}, {9}, {2, 6, 5}};
  rest.tokens = {{3}, {5, 8, 9, 7}, {}};
  prompt.paddedRows = 2;
  prompt.allRows = rest.allRows = false;
  for (unsigned passes : {1u, kAllPasses, kAllPasses & ~1u}) {
    SCOPED_TRACE(passes);
    auto result = reference::compare(*model, *run(passes), 4, {prompt, rest});
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_TRUE(result->holds()) << result->worst();
  }
}

TEST_P(GraphPasses, TheLastLayerComputesSelectedRowsOnly) {
  OwningOpRef<ModuleOp> module = run(kAllPasses);
  auto function = module->lookupSymbol<func::FuncOp>(kEntryName);
  RowDomains domains(function);
  std::map<std::string, std::vector<RowDomain>> found;
  for (Operation &op : function.getBody().front())
    if (auto name = op.getAttrOfType<StringAttr>(kNameAttr))
      found[name.str()].push_back(domains.get(op.getResult(0)));
  constexpr RowDomain tokens = RowDomain::Tokens, logits = RowDomain::Logits;
  std::vector<RowDomain> every = {tokens, tokens}, selected = {tokens, logits};
  EXPECT_EQ(found["qkv_proj"], every);
  for (const char *name : {"o_proj", "gate_up_proj", "down_proj"})
    EXPECT_EQ(found[name], selected) << name;
  std::vector<bool> attentions;
  function.walk([&](AttentionOp attention) {
    attentions.push_back(attention.getSelectedRows());
  });
  EXPECT_EQ(attentions, (std::vector<bool>{false, true}));
}

TEST_P(GraphPasses, ALayerIsFiveComputeOps) {
  OwningOpRef<ModuleOp> module = run(kAllPasses);
  auto function = module->lookupSymbol<func::FuncOp>(kEntryName);
  std::map<int64_t, std::vector<std::string>> layers;
  for (Operation &op : function.getBody().front())
    if (auto layer = op.getAttrOfType<IntegerAttr>(kLayerAttr))
      layers[layer.getInt()].push_back(
          op.getName().stripDialect().str() +
          (op.hasAttr(kNameAttr)
               ? " " + op.getAttrOfType<StringAttr>(kNameAttr).str()
               : ""));
  std::vector<std::string> layer = {"gemm qkv_proj", "attention", "gemm o_proj",
                                    "gemm gate_up_proj", "gemm down_proj"};
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0], layer);
  EXPECT_EQ(layers[1], layer);
}

TEST_P(GraphPasses, FusedModulesSatisfyTheirContract) {
  OwningOpRef<ModuleOp> module = run(kAllPasses);
  PassManager manager(&context);
  manager.addPass(createVerifyFusedPass());
  EXPECT_TRUE(succeeded(manager.run(*module)));
  PassManager before(&context);
  before.addPass(createVerifyModelPass());
  EXPECT_TRUE(succeeded(before.run(*model)));
}

// Tiles, padding, buffers and launches say how the kernels run, not what they
// compute.
TEST_P(GraphPasses, ThePlanOfKernelsKeepsTheMeaning) {
  for (unsigned passes : {kAllPasses, 0u}) {
    OwningOpRef<ModuleOp> module = run(passes);
    PassManager manager(&context);
    manager.addPass(createSelectLoweringStrategyPass());
    manager.addPass(createPadMPass());
    manager.addPass(createPlanMemoryPass());
    manager.addPass(createVerifyConfigPass());
    manager.addPass(createOutlineKernelsPass());
    ASSERT_TRUE(succeeded(manager.run(*module)));
    expectEquivalent(*module, 2);
  }
}

// Splits of the keys and what combines them are attention. A prompt of 200
// tokens has keys in two splits.
TEST_P(GraphPasses, SplitKVKeepsTheMeaning) {
  OwningOpRef<ModuleOp> module = run(kAllPasses & ~1u);
  PassManager manager(&context);
  SelectLoweringStrategyPassOptions tiles;
  tiles.attentionBlockKv = 64;
  manager.addPass(createSelectLoweringStrategyPass(tiles));
  SplitKVPassOptions options;
  options.splits = 3;
  manager.addPass(createSplitKVPass(options));
  manager.addPass(createPadMPass());
  manager.addPass(createPlanMemoryPass());
  manager.addPass(createVerifyConfigPass());
  manager.addPass(createOutlineKernelsPass());
  ASSERT_TRUE(succeeded(manager.run(*module)));
  int64_t launches = 0;
  module->walk([&](LaunchOp launch) {
    launches += launch.getKernel().starts_with("combine_splits");
  });
  EXPECT_EQ(launches, 2);
  expectEquivalent(*module, 2);
  reference::Step prompt, token;
  prompt.tokens.resize(1);
  for (int32_t i = 0; i < 200; ++i)
    prompt.tokens[0].push_back((i * 17 + 5) % 61);
  token.tokens = {{7}};
  prompt.allRows = false;
  auto result = reference::compare(*model, *module, 3, {prompt, token});
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_TRUE(result->holds()) << result->worst();
}

// The comparison would notice: a norm whose epsilon is off by a millionth.
TEST_P(GraphPasses, AWrongEpsilonIsSeen) {
  OwningOpRef<ModuleOp> module = run(kAllPasses);
  module->walk([&](RowRMSScaleOp scale) {
    double eps = scale.getEps().convertToDouble();
    scale.setEpsAttr(Builder(&context).getF64FloatAttr(eps * (1 + 1e-6)));
  });
  auto result = reference::compare(*model, *module);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_FALSE(result->holds());
}

// Every subset of the passes on a layer that no importer writes.
TEST(UnusualLayer, EverySubsetOfThePassesKeepsTheMeaning) {
  MLIRContext context;
  context.loadDialect<PrefillDialect, func::FuncDialect>();
  OwningOpRef<ModuleOp> model = parseSourceFile<ModuleOp>(
      PREFILL_SOURCE_DIR "/test/unit/passes/unusual-layer.mlir", &context);
  ASSERT_TRUE(model);
  for (unsigned passes = 1; passes <= kAllPasses; ++passes) {
    SCOPED_TRACE(testing::Message() << "passes " << passes);
    OwningOpRef<ModuleOp> module(
        cast<ModuleOp>(model->getOperation()->clone()));
    PassManager manager(&context);
    for (unsigned i = 0; i < kNumPasses; ++i)
      if (passes & (1u << i))
        manager.addPass(kGraphPasses[i].create());
    manager.addPass(createVerifyFusedPass());
    ASSERT_TRUE(succeeded(manager.run(*module)));
    auto result = reference::compare(*model, *module, passes);
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    ASSERT_TRUE(result->holds()) << result->worst();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GraphPasses, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });

} // namespace
