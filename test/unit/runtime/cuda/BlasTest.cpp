// cuBLASLt through its recording stub, above that of the driver.
#include "StubBlas.h"
#include "StubDriver.h"
#include "cuda/BlasMatmul.h"
#include "cuda/DeviceBuffer.h"
#include "cuda/GraphCache.h"
#include "cuda/PinnedStaging.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;
using prefill::test::StubBlas;
using prefill::test::StubDriver;

namespace {

/// A directory of this process alone, which goes with it.
struct CacheDirectory {
  std::filesystem::path path =
      testing::TempDir() + "/prefill-blas-" + std::to_string(::getpid());
  ~CacheDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

std::string cachePath() {
  static const CacheDirectory directory;
  return directory.path / "cublaslt.json";
}

/// A stream, the library and operands of one problem: in[m, k] = row + k,
/// weight[n, k] = column - k, bias[n] = 100 * column, all in f32.
struct Multiplying {
  std::unique_ptr<CudaDevice> device = StubDriver::device();
  std::optional<CommandStream> commands;
  std::string warning;
  BlasAlgorithmCache cache;
  std::unique_ptr<BlasMatmul> matmul;
  std::optional<DeviceBuffer> in, weight, out, bias, workspace;
  MatmulProblem problem;

  explicit Multiplying(const std::string &path = "", bool withBias = false)
      : cache(BlasAlgorithmCache::read(path, warning)),
        problem{3, 5, 4, CUDA_R_32F, CUDA_R_32F, withBias} {
    auto stream = CommandStream::create(*device);
    EXPECT_TRUE(stream);
    commands.emplace(std::move(*stream));
    auto api = BlasApi::load({PREFILL_CUBLASLT_STUB_LIBRARY});
    EXPECT_TRUE(api) << api.error().message;
    auto memory = DeviceBuffer::allocate(*commands, BlasMatmul::workspaceBytes,
                                         "the workspace");
    EXPECT_TRUE(memory);
    workspace.emplace(std::move(*memory));
    auto made =
        BlasMatmul::create(*api, *commands, cache, workspace->address());
    EXPECT_TRUE(made) << made.error().message;
    matmul = std::move(*made);
    upload(in, problem.m, problem.k,
           [](int64_t row, int64_t k) { return float(row + k); });
    upload(weight, problem.n, problem.k,
           [](int64_t column, int64_t k) { return float(column - k); });
    upload(bias, 1, problem.n,
           [](int64_t, int64_t column) { return float(100 * column); });
    upload(out, problem.m, problem.n, [](int64_t, int64_t) { return -1.f; });
  }
  ~Multiplying() { EXPECT_TRUE(commands->synchronize("the end")); }

  template <typename Value>
  void upload(std::optional<DeviceBuffer> &target, int64_t rows,
              int64_t columns, Value value) {
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        values.push_back(value(row, column));
    auto buffer =
        DeviceBuffer::allocate(*commands, values.size() * 4, "an operand");
    EXPECT_TRUE(buffer);
    target.emplace(std::move(*buffer));
    auto staging = PinnedStaging::create(*commands, 1 << 12);
    EXPECT_TRUE(staging && staging->upload(target->address(), values.data(),
                                           values.size() * 4, "an operand"));
  }

  MatmulOperands operands() const {
    return {in->address(), weight->address(), out->address(), bias->address()};
  }
  std::vector<float> result() {
    std::vector<float> values(problem.m * problem.n);
    auto staging = PinnedStaging::create(*commands, 1 << 12);
    EXPECT_TRUE(staging && staging->download(values.data(), out->address(),
                                             values.size() * 4, "the result"));
    return values;
  }
  std::vector<float> expected() const {
    std::vector<float> values;
    for (int64_t row = 0; row < problem.m; ++row)
      for (int64_t column = 0; column < problem.n; ++column) {
        float sum = problem.bias ? 100.f * column : 0;
        for (int64_t k = 0; k < problem.k; ++k)
          sum += float(row + k) * float(column - k);
        values.push_back(sum);
      }
    return values;
  }
};

} // namespace

TEST(BlasApi, TheFirstLibraryThatIsThere) {
  auto api =
      BlasApi::load({"libprefill-absent.so.13", PREFILL_CUBLASLT_STUB_LIBRARY});
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_EQ((*api)->version, 130100u);
  auto absent = BlasApi::load({"libprefill-absent.so.13"});
  ASSERT_FALSE(absent);
  EXPECT_TRUE(absent.error().message.starts_with(
      "cuBLASLt cannot be opened: 'libprefill-absent.so.13: "))
      << absent.error().message;
  auto other = BlasApi::load({PREFILL_CUDA_STUB_LIBRARY});
  ASSERT_FALSE(other);
  EXPECT_TRUE(other.error().message.ends_with("has no cublasLtGetVersion"))
      << other.error().message;
}

TEST(BlasMatmul, MultipliesByRows) {
  for (bool bias : {false, true}) {
    StubDriver driver;
    StubBlas blas;
    Multiplying on("", bias);
    ASSERT_TRUE(on.matmul->prepare(on.problem));
    ASSERT_TRUE(on.matmul->enqueue(on.problem, on.operands()));
    EXPECT_EQ(on.result(), on.expected());
    EXPECT_EQ(blas.calls(), "heuristic 1\nmatmul 1\n");
  }
}

TEST(BlasMatmul, IsCapturedInAGraph) {
  StubDriver driver;
  StubBlas blas;
  Multiplying on;
  ASSERT_TRUE(on.matmul->prepare(on.problem));
  GraphCache graphs(*on.commands);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(on.commands->fill(on.out->address(), 0, on.out->size(), "out"));
    ASSERT_TRUE(graphs.run({1}, {1}, [&] {
      return on.matmul->enqueue(on.problem, on.operands());
    }));
    EXPECT_EQ(on.result(), on.expected());
  }
  EXPECT_EQ(graphs.statistics().replayed, 2u);
  EXPECT_EQ(blas.calls(), "heuristic 1\nmatmul 1\nmatmul 1\n");
}

TEST(BlasMatmul, WhatTheLibraryRefuses) {
  StubDriver driver;
  StubBlas blas("refuse-n=5");
  Multiplying on;
  for (int i = 0; i < 2; ++i) {
    auto ok = on.matmul->prepare(on.problem);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().message, "cuBLASLt has no algorithm for 3x5x4 f32 -> "
                                  "f32: CUBLAS_STATUS_NOT_SUPPORTED");
  }
  EXPECT_EQ(blas.calls(), "heuristic 1\n"); // asked once
}

TEST(BlasMatmul, TheFastestIsKept) {
  std::filesystem::remove_all(std::filesystem::path(cachePath()).parent_path());
  StubDriver driver;
  {
    StubBlas blas;
    Multiplying on(cachePath());
    auto time = on.matmul->tune(on.problem, on.operands());
    ASSERT_TRUE(time) << time.error().message;
    EXPECT_EQ(*time, 1);
    ASSERT_TRUE(on.matmul->enqueue(on.problem, on.operands()));
    EXPECT_EQ(on.result(), on.expected());
    EXPECT_TRUE(blas.calls().ends_with("matmul 2\n")) << blas.calls();
  }
  { // The next process asks nobody.
    StubBlas blas;
    Multiplying on(cachePath());
    EXPECT_EQ(on.warning, "");
    ASSERT_TRUE(on.matmul->prepare(on.problem));
    ASSERT_TRUE(on.matmul->enqueue(on.problem, on.operands()));
    EXPECT_EQ(blas.calls(), "check 2\nmatmul 2\n");
  }
  { // One that is no longer good is replaced.
    StubBlas blas("refuse-checks");
    Multiplying on(cachePath());
    ASSERT_TRUE(on.matmul->prepare(on.problem));
    EXPECT_EQ(blas.calls(), "check 2\nheuristic 1\n");
  }
}

TEST(BlasAlgorithmCache, DamagedFilesAreIgnored) {
  std::filesystem::create_directories(
      std::filesystem::path(cachePath()).parent_path());
  for (
      const char *text :
      {"", "{", "[]", R"({"version":2,"algorithms":{}})", R"({"version":1})",
       R"({"version":1,"algorithms":{"k":{}}})",
       R"({"version":1,"algorithms":{"k":{"algorithm":"00","measured":true}}})"}) {
    std::ofstream(cachePath()) << text;
    std::string warning;
    BlasAlgorithmCache cache = BlasAlgorithmCache::read(cachePath(), warning);
    EXPECT_TRUE(warning.starts_with("the cache of cuBLASLt's algorithms '" +
                                    cachePath() + "' is ignored: "))
        << text << ": " << warning;
    EXPECT_FALSE(cache.find("k"));
    // It is written anew.
    cublasLtMatmulAlgo_t algorithm = {{1, 2, 3, 4, 5, 6, 7, ~uint64_t(0)}};
    ASSERT_TRUE(cache.add("k", {algorithm, true}));
    warning.clear();
    auto found = BlasAlgorithmCache::read(cachePath(), warning).find("k");
    EXPECT_EQ(warning, "");
    ASSERT_TRUE(found);
    EXPECT_EQ(std::memcmp(&found->algorithm, &algorithm, sizeof algorithm), 0);
    EXPECT_TRUE(found->measured);
  }
}

TEST(BlasAlgorithmCache, OthersEntriesAreKept) {
  std::filesystem::remove_all(std::filesystem::path(cachePath()).parent_path());
  std::string warning;
  BlasAlgorithmCache first = BlasAlgorithmCache::read(cachePath(), warning),
                     second = BlasAlgorithmCache::read(cachePath(), warning);
  ASSERT_TRUE(first.add("a", {{{1}}, false}));
  ASSERT_TRUE(second.add("b", {{{2}}, false}));
  BlasAlgorithmCache both = BlasAlgorithmCache::read(cachePath(), warning);
  EXPECT_TRUE(both.find("a") && both.find("b"));
  EXPECT_EQ(warning, "");
  EXPECT_FALSE(BlasAlgorithmCache::read("/dev/null/x", warning)
                   .add("a", {{{1}}, false}));
}
