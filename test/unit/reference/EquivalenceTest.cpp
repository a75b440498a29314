#include "prefill/Reference/Equivalence.h"
#include "ReferenceTesting.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using ::testing::HasSubstr;

namespace {

constexpr StringLiteral kCache =
    "!cache = !prefill.kv_cache<contiguous, num_kv_heads = 1, head_dim_qk = 4, "
    "head_dim_v = 4, dtype = f32, block_size = 32>\n";
constexpr StringLiteral kPagedCache =
    "!cache = !prefill.kv_cache<paged_nhd, num_kv_heads = 1, head_dim_qk = 4, "
    "head_dim_v = 4, dtype = f32, block_size = 3>\n";

constexpr StringLiteral kUnfused = R"(
prefill.weight @e : tensor<11x8xf32> = #prefill.checkpoint<"e">
prefill.weight @q : tensor<8x8xf32> = #prefill.checkpoint<"q">
prefill.weight @k : tensor<4x8xf32> = #prefill.checkpoint<"k">
prefill.weight @v : tensor<4x8xf32> = #prefill.checkpoint<"v">
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x11xf32>, !cache) {
  %e = prefill.get_weight @e : tensor<11x8xf32>
  %x = prefill.embed %batch, %e : tensor<11x8xf32> -> tensor<?x8xf32>
  %wq = prefill.get_weight @q : tensor<8x8xf32>
  %wk = prefill.get_weight @k : tensor<4x8xf32>
  %wv = prefill.get_weight @v : tensor<4x8xf32>
  %q = prefill.linear %x, %wq : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %k = prefill.linear %x, %wk : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
  %v = prefill.linear %x, %wv : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
  %c = prefill.kv_append %k, %v into %cache, %batch : tensor<?x4xf32>, tensor<?x4xf32> into !cache
  %o = prefill.attention %q, %c, %batch {scale = 0.5, causal} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  %r = prefill.select_rows %o, %batch : tensor<?x8xf32> -> tensor<?x8xf32>
  %l = prefill.lm_head %r, %e : tensor<?x8xf32>, tensor<11x8xf32> -> tensor<?x11xf32>
  return %l, %c : tensor<?x11xf32>, !cache
}
)";

/// The same with one GEMM, the weights concatenated in the given order and the
/// queries multiplied by `factor`.
std::string fused(StringRef order, StringRef factor) {
  std::string text = R"(
prefill.weight @e : tensor<11x8xf32> = #prefill.checkpoint<"e">
prefill.weight @q : tensor<8x8xf32> = #prefill.checkpoint<"q">
prefill.weight @k : tensor<4x8xf32> = #prefill.checkpoint<"k">
prefill.weight @v : tensor<4x8xf32> = #prefill.checkpoint<"v">
prefill.weight @qkv : tensor<16x8xf32> = #prefill.concat<[ORDER]>
func.func @prefill(%batch: !prefill.batch, %cache: !cache) -> (tensor<?x11xf32>, !cache) {
  %e = prefill.get_weight @e : tensor<11x8xf32>
  %x = prefill.embed %batch, %e : tensor<11x8xf32> -> tensor<?x8xf32>
  %w = prefill.get_weight @qkv : tensor<16x8xf32>
  %q, %c = prefill.gemm %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x8xf32>, !cache epilogue {
  ^bb0(%acc: tensor<?x16xf32>):
    %qq, %k, %v = prefill.split %acc : tensor<?x16xf32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
    %qs = prefill.scale %qq {factor = FACTOR} : tensor<?x8xf32> -> tensor<?x8xf32>
    %c1 = prefill.kv_append %k, %v into %cache, %batch : tensor<?x4xf32>, tensor<?x4xf32> into !cache
    prefill.yield %qs, %c1 : tensor<?x8xf32>, !cache
  }
  %o = prefill.attention %q, %c, %batch {scale = 1.0, causal, base2} : tensor<?x8xf32>, !cache -> tensor<?x8xf32>
  %r = prefill.select_rows %o, %batch : tensor<?x8xf32> -> tensor<?x8xf32>
  %l = prefill.lm_head %r, %e : tensor<?x8xf32>, tensor<11x8xf32> -> tensor<?x11xf32>
  return %l, %c : tensor<?x11xf32>, !cache
}
)";
  text.replace(text.find("ORDER"), 5, order.str());
  text.replace(text.find("FACTOR"), 6, factor.str());
  return text;
}

constexpr StringLiteral kHalfLog2E = "0.72134752044448170368 : f64";

struct EquivalenceTest : ReferenceTest {
  llvm::Expected<Equivalence> compareTexts(const std::string &before,
                                           const std::string &after) {
    first = parse(before), second = parse(after);
    if (!first || !second)
      return llvm::createStringError("no module");
    return compare(*first, *second);
  }
  OwningOpRef<ModuleOp> first, second;
};

TEST_F(EquivalenceTest, FusedModelIsTheModel) {
  Equivalence result =
      get(compareTexts((kCache + kUnfused).str(),
                       kCache.str() + fused("@q, @k, @v", kHalfLog2E)));
  EXPECT_TRUE(result.holds()) << result.logits << " " << result.caches;
}

TEST_F(EquivalenceTest, LayoutOfTheCacheDoesNotMatter) {
  Equivalence result = get(
      compareTexts((kCache + kUnfused).str(), (kPagedCache + kUnfused).str()));
  EXPECT_EQ(result.worst(), 0);
}

TEST_F(EquivalenceTest, WrongScaleShowsInLogits) {
  Equivalence result =
      get(compareTexts((kCache + kUnfused).str(),
                       kCache.str() + fused("@q, @k, @v", "0.7213475 : f64")));
  EXPECT_FALSE(result.holds());
  EXPECT_EQ(result.caches, 0);
}

TEST_F(EquivalenceTest, SwappedKeysAndValuesShowInCaches) {
  Equivalence result =
      get(compareTexts((kCache + kUnfused).str(),
                       kCache.str() + fused("@q, @v, @k", kHalfLog2E)));
  EXPECT_GT(result.caches, 0.1);
}

TEST_F(EquivalenceTest, DefaultScheduleIsRagged) {
  std::vector<Step> steps = defaultSchedule(11);
  ASSERT_EQ(steps.size(), 3u);
  for (const Step &step : steps)
    for (const std::vector<int32_t> &tokens : step.tokens)
      for (int32_t token : tokens)
        EXPECT_TRUE(token >= 0 && token < 11);
}

TEST_F(EquivalenceTest, SaysWhichSideFails) {
  EXPECT_THAT(messageOf(compareTexts("module {}", (kCache + kUnfused).str())),
              HasSubstr("before: the module has no function @prefill"));
  EXPECT_THAT(messageOf(compareTexts((kCache + kUnfused).str(), "module {}")),
              HasSubstr("after: the module has no function @prefill"));
}

} // namespace
