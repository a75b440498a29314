//===- OffsetMutationTest.cpp - offsets in memory that need 64 bits -------===//
//
// Query, cache and output lie at addresses that no page backs: without data
// movement the emulator checks the addresses of copies and stores alone, and
// reads the arrays that steer them. What is reached lies 2.5 GiB into each, an
// offset that 32 bits make negative.
//
//===----------------------------------------------------------------------===//
#include "CudaAttention.h"
#include "EmbeddingProblem.h"
#include "MutationTrial.h"
#include "gtest/gtest.h"
#include <deque>

using namespace mlir;
using namespace prefill_test;

namespace {

constexpr uint64_t kGiB = 1 << 30;
constexpr uint64_t kFar = 5 * kGiB / 2;

/// Memory of a launch: some of it of addresses alone.
class FarLaunch {
public:
  FarLaunch() { options.countOnly = true, options.countSectors = false; }

  void far(const char *name, bool writable = false) {
    uint64_t address = 0x200000000000 + nextRange++ * 16 * kGiB;
    auto added = emulator.memory().add(reinterpret_cast<const void *>(address),
                                       4 * kGiB, name, writable);
    ASSERT_TRUE(added) << added.error().message;
    words.push_back(address);
  }
  void inside(uint64_t bytes) { words.push_back(words.back() + bytes); }
  void word(uint64_t value) { words.push_back(value); }
  template <typename T> void array(const std::vector<T> &values) {
    size_t size = values.size() * sizeof(T);
    DeviceBytes &copy = arrays.emplace_back(size);
    std::memcpy(copy.data(), values.data(), size);
    auto added =
        emulator.memory().add(copy.data(), size, "array", /*writable=*/false);
    ASSERT_TRUE(added) << added.error().message;
    words.push_back(reinterpret_cast<uint64_t>(copy.data()));
  }
  std::optional<Report> run(const Program &program, int64_t workgroups) {
    auto outcome = emulator.launch(program, program.kernels[0].name, words,
                                   workgroups, options);
    if (!outcome) {
      ADD_FAILURE() << outcome.error().message;
      return std::nullopt;
    }
    return outcome->report;
  }

private:
  Emulator emulator{1};
  LaunchOptions options;
  std::vector<uint64_t> words;
  std::deque<DeviceBytes> arrays;
  uint64_t nextRange = 0;
};

void expectOutOfBounds(const std::optional<Report> &report,
                       const std::string &site) {
  ASSERT_TRUE(report) << site;
  EXPECT_EQ(report->finding, Finding::globalOutOfBounds) << report->message();
  EXPECT_EQ(report->site, site) << report->message();
}

/// A sequence of 20 tokens, whose keys are a page's that lies as far into the
/// cache as the rows do into query and output.
std::optional<Report> runAttention(const Mutation &mutation) {
  AttentionProblem p;
  p.headDimQk = p.headDimV = 64;
  p.blockQ = 16;
  p.blockKv = 32;
  p.layout = "paged_nhd";
  p.blockSize = 32;
  CudaAttention attention(
      p, [&](ModuleOp module) { return !mutation || apply(mutation, module); });
  if (!attention.ok())
    return std::nullopt;
  uint64_t rowBytes = uint64_t(p.heads() * p.headDimQk * 2);
  int64_t tokenStride = p.kvHeads * p.headDimQk;
  int64_t blockStride = 2 * p.blockSize * tokenStride;
  auto firstRow = int32_t(kFar / rowBytes);
  std::vector<int32_t> cuSeqlens{firstRow, firstRow + 20}, kvLens{20};
  std::vector<int32_t> blockTable{int32_t(kFar / uint64_t(2 * blockStride))};
  std::vector<int32_t> unused{0};
  std::vector<int64_t> slots{0};
  FarLaunch launch;
  launch.far("query");
  launch.far("keys");
  launch.inside(uint64_t(p.blockSize * tokenStride * 2));
  for (int64_t stride : {blockStride, tokenStride, p.headDimQk})
    launch.word(uint64_t(stride));
  launch.word(uint64_t(firstRow) + 20); // rows
  launch.word(1);                       // sequences
  launch.word(1);                       // rows of logits
  launch.array(unused);
  launch.array(unused);
  launch.array(slots);
  launch.array(cuSeqlens);
  launch.array(kvLens);
  launch.array(blockTable);
  launch.word(1);
  launch.array(unused);
  launch.far("out", /*writable=*/true);
  return launch.run(attention.code(), 3 * p.kvHeads);
}

TEST(OffsetMutation, Attention) {
  std::optional<Report> right = runAttention({});
  EXPECT_FALSE(right) << right->message();
  for (const char *site :
       {"attention.load_q", "attention.load_k", "attention.load_v"})
    expectOutOfBounds(runAttention(narrowOffset(site, Role::Source)), site);
  expectOutOfBounds(
      runAttention(narrowOffset("attention.store", Role::Address)),
      "attention.store");
}

/// Keys and values of a few rows to slots that lie far into the cache.
std::optional<Report> runAppend(const Mutation &mutation) {
  constexpr int64_t columns = 128, rows = 5;
  std::string type = rowsType(columns, "bf16");
  std::string cache = "!prefill.kv_cache<contiguous, num_kv_heads = 2, "
                      "head_dim_qk = 64, head_dim_v = 64, dtype = bf16, "
                      "block_size = 16777216>";
  KernelOptions options;
  options.edit = [&](ModuleOp module) {
    return !mutation || apply(mutation, module);
  };
  CudaKernel kernel(
      rowwiseText("%k: " + type + ", %v: " + type + ", %cache: " + cache +
                      ", %batch: !prefill.batch",
                  config(4, columns),
                  "%c = prefill.kv_append %k, %v into %cache, %batch : " +
                      type + ", " + type + " into " + cache,
                  "%c", cache),
      options);
  if (!kernel.ok())
    return std::nullopt;
  std::vector<int32_t> unused(rows, 0);
  std::vector<int64_t> slots;
  for (int64_t r = 0; r < rows; ++r)
    slots.push_back(int64_t(kFar) / (columns * 2) + 3 * r);
  FarLaunch launch;
  launch.far("k");
  launch.far("v");
  launch.far("keys", /*writable=*/true);
  launch.far("values", /*writable=*/true);
  launch.word(0); // block stride: one block
  launch.word(columns);
  launch.word(64);
  launch.word(rows);
  launch.word(1); // sequences
  launch.word(rows);
  launch.array(unused);
  launch.array(unused);
  launch.array(slots);
  for (int i = 0; i < 3; ++i)
    launch.array(unused);
  launch.word(1);
  launch.array(unused);
  return launch.run(kernel.code(), 2);
}

TEST(OffsetMutation, KVAppend) {
  std::optional<Report> right = runAppend({});
  EXPECT_FALSE(right) << right->message();
  for (const char *site : {"kv_append.store_k", "kv_append.store_v"})
    expectOutOfBounds(runAppend(narrowOffset(site, Role::Address)), site);
}

} // namespace
