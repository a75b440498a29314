#include "ReferenceTesting.h"
#include <cmath>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// Hidden size 2, one head, vocabulary 3; small enough to follow by hand.
constexpr StringLiteral kModel = R"(
!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 2, head_dim_v = 2, dtype = f32, block_size = 8>
prefill.weight @e : tensor<3x2xf32> = #prefill.checkpoint<"e">
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x3xf32>, !cache) {
  %e = prefill.get_weight @e : tensor<3x2xf32>
  %x = prefill.embed %batch, %e : tensor<3x2xf32> -> tensor<?x2xf32>
  %c = prefill.kv_append %x, %x into %cache, %batch : tensor<?x2xf32>, tensor<?x2xf32> into !cache
  %o = prefill.attention %x, %c, %batch {scale = 0.0, causal, prefill.layer = 0 : i64} : tensor<?x2xf32>, !cache -> tensor<?x2xf32>
  %r = prefill.select_rows %o, %batch : tensor<?x2xf32> -> tensor<?x2xf32>
  %l = prefill.lm_head %r, %e : tensor<?x2xf32>, tensor<3x2xf32> -> tensor<?x3xf32>
  return %l, %c : tensor<?x3xf32>, !cache
}
)";

struct InterpreterTest : ReferenceTest {
  InterpreterTest() { weights.set("e", Tensor({3, 2}, {1, 0, 0, 1, 1, 1})); }
  GivenWeights weights;
};

TEST_F(InterpreterTest, RunsAModelByHand) {
  OwningOpRef<ModuleOp> module = parse(kModel);
  Interpreter interpreter(*module, weights);
  EXPECT_EQ(get(interpreter.blockSize()), 8);
  std::vector<KVCache> caches = get(interpreter.makeCaches(1));
  Tensor logits = get(interpreter.run(makeSequenceBatch(0, {0, 1}), caches));
  // Row 1 is the mean of (1, 0) and (0, 1).
  EXPECT_THAT(logits.shape, ElementsAre(2, 3));
  expectValues(logits, {1, 0, 1, 0.5, 0.5, 1});
  // The cache carries over.
  logits = get(interpreter.run(makeSequenceBatch(2, {1}, false), caches));
  expectValues(logits, {1 / 3.0, 2 / 3.0, 1});
}

TEST_F(InterpreterTest, ErrorNamesOpAndLayerAndLeavesCaches) {
  OwningOpRef<ModuleOp> module = parse(kModel);
  Interpreter interpreter(*module, weights);
  std::vector<KVCache> caches = get(interpreter.makeCaches(1));
  EXPECT_EQ(messageOf(interpreter.run(makeSequenceBatch(2, {0}), caches)),
            "'prefill.attention' of layer 0: key 0 of sequence 0 is read at "
            "slot 0, which was never written");
  EXPECT_FALSE(caches.front().written[2]);
  EXPECT_EQ(messageOf(interpreter.run(makeSequenceBatch(0, {3}), caches)),
            "'prefill.embed': token 3 of row 0 is outside the vocabulary of 3");
}

TEST_F(InterpreterTest, TraceSeesEveryTensor) {
  OwningOpRef<ModuleOp> module = parse(kModel);
  Interpreter interpreter(*module, weights);
  std::vector<std::string> seen;
  interpreter.setTraceHook([&](Operation *op, const Tensor &value) {
    seen.push_back(
        (op->getName().getStringRef() + " " + llvm::Twine(value.rows())).str());
  });
  std::vector<KVCache> caches = get(interpreter.makeCaches(1));
  get(interpreter.run(makeSequenceBatch(0, {0, 1}, false), caches));
  EXPECT_THAT(seen, ElementsAre("prefill.embed 2", "prefill.attention 2",
                                "prefill.select_rows 1", "prefill.lm_head 1"));
}

TEST_F(InterpreterTest, ModelRoundingRoundsAtOps) {
  OwningOpRef<ModuleOp> module = parse(R"(
prefill.weight @e : tensor<1x1xbf16> = #prefill.checkpoint<"x">
func.func @prefill(%batch: !prefill.batch) -> tensor<?x1xf32> {
  %e = prefill.get_weight @e : tensor<1x1xbf16>
  %x = prefill.embed %batch, %e : tensor<1x1xbf16> -> tensor<?x1xbf16>
  %y = prefill.scale %x {factor = 1.0078125 : f64} : tensor<?x1xbf16> -> tensor<?x1xbf16>
  %l = prefill.lm_head %y, %e : tensor<?x1xbf16>, tensor<1x1xbf16> -> tensor<?x1xf32>
  return %l : tensor<?x1xf32>
})");
  weights.set("x", Tensor({1, 1}, {1.0078125}));
  std::vector<KVCache> none;
  Interpreter exact(*module, weights);
  double x = 1.0078125;
  expectValues(get(exact.run(makeSequenceBatch(0, {0}), none)), {x * x * x}, 0);
  Interpreter rounded(*module, weights,
                      mlir::prefill::reference::Rounding::Model);
  expectValues(get(rounded.run(makeSequenceBatch(0, {0}), none)),
               {static_cast<float>(1.015625 * x)}, 0);
}

TEST_F(InterpreterTest, RunsRegionsAndLaunches) {
  OwningOpRef<ModuleOp> module = parse(R"(
!cache = !prefill.kv_cache<paged_nhd, num_kv_heads = 1, head_dim_qk = 1, head_dim_v = 1, dtype = f32, block_size = 2>
prefill.weight @e : tensor<3x2xf32> = #prefill.checkpoint<"e">
func.func private @embed(%batch: !prefill.batch, %e: tensor<3x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) attributes {prefill.kernel} {
  %x, %s = prefill.rowwise : tensor<?x2xf32>, tensor<?x2xf32> body {
    %y = prefill.embed %batch, %e : tensor<3x2xf32> -> tensor<?x2xf32>
    %t = prefill.row_sumsq %y : tensor<?x2xf32> -> tensor<?x2xf32>
    prefill.yield %y, %t : tensor<?x2xf32>, tensor<?x2xf32>
  }
  return %x, %s : tensor<?x2xf32>, tensor<?x2xf32>
}
func.func private @qkv(%x: tensor<?x2xf32>, %e: tensor<3x2xf32>, %s: tensor<?x2xf32>, %batch: !prefill.batch, %cache: !cache) -> (tensor<?x1xf32>, !cache) attributes {prefill.kernel} {
  %q, %c = prefill.gemm %x, %e : tensor<?x2xf32>, tensor<3x2xf32> -> tensor<?x1xf32>, !cache epilogue {
  ^bb0(%acc: tensor<?x3xf32>):
    %n = prefill.row_rms_scale %acc, %s {eps = 0.0, channels = 1 : i64} : tensor<?x3xf32>, tensor<?x2xf32> -> tensor<?x3xf32>
    %qq, %k, %v = prefill.split %n : tensor<?x3xf32> -> tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x1xf32>
    %c1 = prefill.kv_append %k, %v into %cache, %batch : tensor<?x1xf32>, tensor<?x1xf32> into !cache
    prefill.yield %qq, %c1 : tensor<?x1xf32>, !cache
  }
  return %q, %c : tensor<?x1xf32>, !cache
}
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x1xf32>, !cache) {
  %e = prefill.get_weight @e : tensor<3x2xf32>
  %x, %s = prefill.launch @embed(%batch, %e) : (!prefill.batch, tensor<3x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>)
  %q, %c = prefill.launch @qkv(%x, %e, %s, %batch, %cache) : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x2xf32>, !prefill.batch, !cache) -> (tensor<?x1xf32>, !cache)
  return %q, %c : tensor<?x1xf32>, !cache
})");
  Interpreter interpreter(*module, weights);
  std::vector<KVCache> caches = get(interpreter.makeCaches(1));
  Tensor q = get(interpreter.run(makeSequenceBatch(0, {2}), caches));
  // x (1, 1), sum of squares 2; x e^T = (1, 1, 2).
  expectValues(q, {1 / std::sqrt(2.0)});
  EXPECT_NEAR(caches[0].key(0, 0)[0], 1 / std::sqrt(2.0), 1e-15);
  EXPECT_NEAR(caches[0].value(0, 0)[0], std::sqrt(2.0), 1e-15);
}

TEST_F(InterpreterTest, OpsWithoutEvaluatorAreNamed) {
  OwningOpRef<ModuleOp> module = parse(R"(
func.func private @f() -> tensor<?x1xf32>
func.func @prefill(%batch: !prefill.batch) -> tensor<?x1xf32> {
  %x = func.call @f() : () -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
})");
  Interpreter interpreter(*module, weights);
  std::vector<KVCache> none;
  EXPECT_THAT(messageOf(interpreter.run(makeSequenceBatch(0, {0}), none)),
              HasSubstr("'func.call'"));
}

TEST_F(InterpreterTest, KernelsWithoutAMeaningAreNamed) {
  OwningOpRef<ModuleOp> module = parse(R"(
func.func private @declared(%batch: !prefill.batch) -> tensor<?x1xf32> attributes {prefill.kernel}
func.func @prefill(%batch: !prefill.batch) -> tensor<?x1xf32> {
  %x = prefill.launch @declared(%batch) : (!prefill.batch) -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
})");
  std::vector<KVCache> none;
  Interpreter declared(*module, weights);
  EXPECT_EQ(messageOf(declared.run(makeSequenceBatch(0, {0}), none)),
            "'prefill.launch': function @declared has no body of one block");
  module = parse(R"(
func.func private @tiled(%batch: !prefill.batch, %out: memref<?x1xf32>) attributes {prefill.kernel} {
  return
}
func.func @prefill(%batch: !prefill.batch) -> tensor<?x1xf32> {
  %x = prefill.launch @tiled(%batch) : (!prefill.batch) -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
})");
  Interpreter tiled(*module, weights);
  EXPECT_EQ(messageOf(tiled.run(makeSequenceBatch(0, {0}), none)),
            "'prefill.launch': kernel @tiled returns 0 values, expected 1");
}

TEST_F(InterpreterTest, NoEntryFunction) {
  OwningOpRef<ModuleOp> module = parse("module {}");
  Interpreter interpreter(*module, weights);
  std::vector<KVCache> none;
  EXPECT_THAT(messageOf(interpreter.run(makeSequenceBatch(0, {0}), none)),
              HasSubstr("the module has no function @prefill"));
}

TEST_F(InterpreterTest, TooFewCaches) {
  OwningOpRef<ModuleOp> module = parse(kModel);
  Interpreter interpreter(*module, weights);
  std::vector<KVCache> none;
  EXPECT_THAT(messageOf(interpreter.run(makeSequenceBatch(0, {0}), none)),
              HasSubstr("more than the 0 caches given"));
}

} // namespace
