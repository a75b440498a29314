// Topologies that this machine does not have, read from directories.
#include "SafetensorsFile.h"
#include "TestModel.h"

#include "core/KVCache.h"
#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/Session.h"
#include "core/Topology.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::test;

namespace {

using Cpus = std::vector<int>;

/// Writes a tree like /sys/devices/system/node and reads it.
Topology read(const std::string &online,
              const std::map<int, std::string> &nodes, const Cpus &allowed) {
  TemporaryDirectory root;
  root.write("online", online);
  for (const auto &[id, cpus] : nodes) {
    std::string directory = "node" + std::to_string(id);
    std::filesystem::create_directory(root.path() + "/" + directory);
    root.write(directory + "/cpulist", cpus);
  }
  return Topology::read(root.path(), allowed);
}

std::vector<std::pair<int, Cpus>> list(const Topology &topology) {
  std::vector<std::pair<int, Cpus>> nodes;
  for (const Topology::Node &node : topology.nodes)
    nodes.emplace_back(node.id, node.cpus);
  return nodes;
}
using Nodes = std::vector<std::pair<int, Cpus>>;

TEST(CpuList, ReadsRangesAndRefusesTheRest) {
  EXPECT_EQ(parseCpuList("0-2,5\n"), (Cpus{0, 1, 2, 5}));
  EXPECT_EQ(parseCpuList("7"), (Cpus{7}));
  EXPECT_EQ(parseCpuList("3,1-2"), (Cpus{1, 2, 3}));
  EXPECT_EQ(parseCpuList("\n"), Cpus{});
  for (const char *bad : {"a", "1-", "-1", "2-1", "1,", ",1", "1,,2", "1 2",
                          "0x1", "65536", "0-99999999", "99999999999999"})
    EXPECT_EQ(parseCpuList(bad), std::nullopt) << bad;
}

TEST(Topology, OneNode) {
  EXPECT_EQ(list(read("0\n", {{0, "0-3\n"}}, {0, 1, 2, 3})),
            (Nodes{{0, {0, 1, 2, 3}}}));
}

TEST(Topology, TwoNodesWithInterleavedProcessors) {
  EXPECT_EQ(list(read("0-1", {{0, "0,2"}, {1, "1,3"}}, {0, 1, 2, 3})),
            (Nodes{{0, {0, 2}}, {1, {1, 3}}}));
}

TEST(Topology, NodesWithoutProcessorsDoNotCount) {
  // Memory alone (node 1), and node numbers with a hole.
  EXPECT_EQ(
      list(read("0-1,4", {{0, "0-1"}, {1, "\n"}, {4, "2-3"}}, {0, 1, 2, 3})),
      (Nodes{{0, {0, 1}}, {4, {2, 3}}}));
}

TEST(Topology, OfflineAndForbiddenProcessorsDoNotCount) {
  // cpu 3 is offline (in no list, not allowed); a cpuset leaves 1 and 2.
  EXPECT_EQ(list(read("0-1", {{0, "0-1"}, {1, "2"}}, {1, 2})),
            (Nodes{{0, {1}}, {1, {2}}}));
  // All of node 1 is shut out.
  EXPECT_EQ(list(read("0-1", {{0, "0-1"}, {1, "2-3"}}, {0, 1})),
            (Nodes{{0, {0, 1}}}));
}

TEST(Topology, WhatMakesNoSenseIsOneNode) {
  const Cpus all = {0, 1, 2, 3};
  const Nodes one = {{0, all}};
  EXPECT_EQ(list(Topology::read("/nonexistent", all)), one);
  EXPECT_EQ(list(read("nonsense", {{0, "0-1"}, {1, "2-3"}}, all)), one);
  EXPECT_EQ(list(read("0-1", {{0, "0-1"}}, all)), one) << "no node1";
  EXPECT_EQ(list(read("0-1", {{0, "0-1"}, {1, "2-x"}}, all)), one);
  EXPECT_EQ(list(read("0-1", {{0, "0-2"}, {1, "2-3"}}, all)), one)
      << "cpu 2 twice";
  EXPECT_EQ(list(read("0-1", {{0, "0-1"}, {1, "2"}}, all)), one)
      << "cpu 3 nowhere";
  EXPECT_EQ(list(read("", {{0, "0-3"}}, all)), one);
}

TEST(Topology, OfThisMachineHasAllOurProcessors) {
  Topology topology = Topology::ofThisMachine();
  size_t cpus = 0;
  for (const Topology::Node &node : topology.nodes)
    cpus += node.cpus.size();
  EXPECT_EQ(cpus, size_t(ThreadPool::availableProcessors()));
}

Topology twoNodes(const Cpus &first, const Cpus &second) {
  return {{{0, first}, {1, second}}};
}

TEST(Placement, ThreadsFollowTheProcessors) {
  auto shares = [](int threads, const Topology &topology) {
    Placement placement(threads, topology);
    std::vector<int> result;
    for (int i = 0; i < threads; ++i)
      result.push_back(placement.share(i));
    EXPECT_EQ(placement.numThreads(), threads);
    return result;
  };
  using Shares = std::vector<int>;
  Topology even = twoNodes({0, 1}, {2, 3});
  EXPECT_EQ(shares(4, even), (Shares{0, 0, 1, 1}));
  EXPECT_EQ(shares(2, even), (Shares{0, 1}));
  EXPECT_EQ(shares(1, even), (Shares{0}));
  EXPECT_EQ(shares(8, even), (Shares{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(shares(4, twoNodes({0, 1, 2}, {3})), (Shares{0, 0, 0, 1}));
  EXPECT_EQ(shares(3, {{{0, {0, 1, 2}}}}), (Shares{0, 0, 0}));
  // A node in the middle may get no thread.
  Topology three = {{{0, {0, 1, 2}}, {1, {3}}, {2, {4, 5, 6, 7}}}};
  EXPECT_EQ(shares(2, three), (Shares{0, 1}));
  EXPECT_EQ(Placement(2, three).bindings(1 << 20).back().node, 2);
}

TEST(Placement, SharesCoverARange) {
  for (int threads : {1, 2, 3, 7, 16})
    for (int64_t grain : {1, 3, 8})
      for (int64_t count : {0, 1, 2, 5, 24, 1000, 999999}) {
        Placement placement(threads, twoNodes({0, 1, 2}, {3, 4}));
        EXPECT_EQ(placement.begin(0, count, grain), 0);
        for (int i = 1; i <= placement.numShares(); ++i) {
          int64_t begin = placement.begin(i, count, grain);
          EXPECT_GE(begin, placement.begin(i - 1, count, grain));
          EXPECT_TRUE(begin % grain == 0 || begin == count);
        }
        EXPECT_EQ(placement.begin(placement.numShares(), count, grain), count);
      }
  Placement placement(5, twoNodes({0, 1, 2}, {3, 4}));
  EXPECT_EQ(placement.begin(1, 1000, 1), 600);
}

TEST(Placement, MemoryFollowsTheShares) {
  Placement placement(4, twoNodes({0}, {1, 2, 3}));
  std::vector<Placement::Binding> bindings = placement.bindings(10 << 20);
  ASSERT_EQ(bindings.size(), 2u);
  EXPECT_EQ(bindings[0].node, 0);
  EXPECT_EQ(bindings[0].offset, 0u);
  EXPECT_EQ(bindings[0].bytes, (10u << 20) / 4);
  EXPECT_EQ(bindings[1].node, 1);
  EXPECT_EQ(bindings[1].offset, bindings[0].bytes);
  EXPECT_EQ(bindings[1].offset + bindings[1].bytes, 10u << 20);
  // One node: nothing is bound, nothing is pinned.
  Placement one(4, {{{0, {0, 1, 2, 3}}}});
  EXPECT_EQ(one.numShares(), 1);
  EXPECT_TRUE(one.bindings(10 << 20).empty());
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  one.pinCallingThread(1);
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(Placement, WorkersAreBoundToTheirNode) {
  // The processors of this machine, pretending to be nodes of one each.
  Topology topology, here = Topology::ofThisMachine();
  for (int cpu : here.nodes[0].cpus)
    topology.nodes.push_back({int(topology.nodes.size()), {cpu}});
  if (topology.nodes.size() < 2)
    GTEST_SKIP() << "one processor";
  int threads = static_cast<int>(topology.nodes.size());
  ThreadPool pool(Placement(threads, topology));
  std::atomic<int> seen{0};
  // Every thread waits in its first chunk until all have one.
  pool.run(threads, [&](int thread, int64_t, int64_t) {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    if (thread != 0) {
      EXPECT_EQ(CPU_COUNT(&set), 1);
      EXPECT_TRUE(CPU_ISSET(topology.nodes[thread].cpus[0], &set));
    }
    ++seen;
    while (seen < threads)
      std::this_thread::yield();
  });
  EXPECT_EQ(seen, threads);
}

TEST(Placement, PoolCoversEveryRangeOnceAndHelpsOut) {
  for (int threads : {2, 3, 5}) {
    ThreadPool pool(Placement(threads, twoNodes({0}, {1})));
    EXPECT_EQ(pool.placement().numShares(), 2);
    for (int64_t count : {1, 2, 3, 7, 64, 1000, 12345})
      for (int64_t grain : {1, 4, 100}) {
        std::vector<std::atomic<int>> visits(count);
        pool.run(
            count,
            [&](int, int64_t begin, int64_t end) {
              ASSERT_LT(begin, end);
              for (int64_t i = begin; i < end; ++i)
                ++visits[i];
            },
            grain);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(visits[i], 1) << threads << " " << count << " " << grain;
      }
    // The second node's threads are stuck in their first chunk until all the
    // rest is done: thread 0 does it.
    std::atomic<int64_t> left{1000};
    pool.run(1000, [&](int thread, int64_t begin, int64_t end) {
      left -= end - begin;
      if (thread != 0)
        while (left > 0)
          std::this_thread::yield();
    });
    EXPECT_EQ(left, 0);
  }
}

TEST(Placement, ThreadsBeginWithTheirNodesShare) {
  ThreadPool pool(Placement(2, twoNodes({0}, {1})));
  std::atomic<int> seen{0};
  std::atomic<int64_t> first[2] = {-1, -1};
  pool.run(1000, [&](int thread, int64_t begin, int64_t) {
    if (first[thread] < 0) {
      first[thread] = begin;
      ++seen;
      while (seen < 2)
        std::this_thread::yield();
    }
  });
  EXPECT_EQ(first[0], 0);
  EXPECT_EQ(first[1], 500);
}

// As linux/mempolicy.h has them.
constexpr int defaultPolicy = 0, preferredPolicy = 1;
constexpr unsigned long ofAddress = 2;

/// Policy and nodes of the page at `address`: (policy, ids). Nothing, and
/// errno, where the kernel refuses.
using Policy = std::pair<int, std::vector<int>>;
std::optional<Policy> policyAt(const void *address) {
#ifdef SYS_get_mempolicy
  constexpr int wordBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 1024 / wordBits> mask{};
  Policy policy;
  if (::syscall(SYS_get_mempolicy, &policy.first, mask.data(),
                mask.size() * wordBits, address, ofAddress) != 0)
    return std::nullopt;
  for (int id = 0; id < static_cast<int>(mask.size()) * wordBits; ++id)
    if (mask[id / wordBits] >> id % wordBits & 1)
      policy.second.push_back(id);
  return policy;
#else
  errno = ENOSYS;
  return std::nullopt;
#endif
}

/// Why memory cannot be bound to a node here, or nothing: sandboxes forbid it,
/// and a kernel may lack it.
std::string whyNoBinding(int node) {
#if defined(SYS_mbind) && defined(SYS_get_mempolicy)
  alignas(4096) static std::byte page[4096];
  std::array<unsigned long, 16> mask{};
  constexpr int wordBits = 8 * sizeof(unsigned long);
  mask[node / wordBits] = 1ul << node % wordBits;
  if (::syscall(SYS_mbind, page, sizeof page, preferredPolicy, mask.data(),
                mask.size() * wordBits, 0) != 0)
    return "mbind to node " + std::to_string(node) + ": " +
           std::strerror(errno);
  if (!policyAt(page))
    return std::string("get_mempolicy: ") + std::strerror(errno);
  return "";
#else
  return "no mbind or get_mempolicy for node " + std::to_string(node);
#endif
}

const Policy unbound(defaultPolicy, {});
Policy preferring(int node) { return {preferredPolicy, {node}}; }

TEST(Placement, TheKernelKnowsWhereMemoryBelongs) {
  // The first and the last node of this machine, which may be one.
  Topology here = Topology::ofThisMachine();
  int first = here.nodes.front().id, last = here.nodes.back().id;
  if (std::string reason = whyNoBinding(first); !reason.empty())
    GTEST_SKIP() << reason;
  constexpr uint64_t bytes = 8 << 20, around = 1 << 20;
  auto place = [&](int firstNode, int lastNode, auto check) {
    Allocator allocator;
    Allocation memory = std::move(*allocator.allocate(
        MemoryClass::weights, bytes + 2 * around, "a test"));
    std::byte *data = memory.data() + around;
    Placement(4, {{{firstNode, {0}}, {lastNode, {1, 2, 3}}}})
        .placeShares(data, bytes);
    EXPECT_EQ(policyAt(data - 1), unbound);
    EXPECT_EQ(policyAt(data + bytes), unbound);
    check(data);
  };
  place(first, last, [&](std::byte *data) {
    EXPECT_EQ(policyAt(data), preferring(first));
    EXPECT_EQ(policyAt(data + bytes / 4 - 1), preferring(first));
    EXPECT_EQ(policyAt(data + bytes / 4), preferring(last));
    EXPECT_EQ(policyAt(data + bytes - 1), preferring(last));
  });
  // What the kernel refuses, here a node that does not exist, stays unbound.
  constexpr int missing = 1000;
  ASSERT_FALSE(whyNoBinding(missing).empty());
  place(first, missing, [&](std::byte *data) {
    EXPECT_EQ(policyAt(data), preferring(first));
    EXPECT_EQ(policyAt(data + bytes / 4 - 1), preferring(first));
    EXPECT_EQ(policyAt(data + bytes / 4), unbound);
    EXPECT_EQ(policyAt(data + bytes - 1), unbound);
  });
}

// On a machine of two nodes weights are copied out of the cache's file, and
// everything has the bits that one node gives.
TEST(Placement, TwoNodesGiveTheSameBits) {
  module::ModuleT table = makeTestModule();
  table.plans[0]->schedules[0]->launches.clear();
  table.plans[0]->weights.clear();
  for (int64_t rows : {5, 1700}) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = "w" + std::to_string(rows);
    weight->shape = {rows, 1024};
    module::CheckpointSourceT source;
    source.name = weight->name;
    weight->source.Set(source);
    weight->resident = true;
    table.plans[0]->weights.push_back(std::move(weight));
  }
  std::vector<uint8_t> bytes = serialize(table);
  auto loadWith = [&](const Topology &topology) {
    auto device = std::move(*Device::create("cpu", 3, topology));
    auto module = std::move(
        *LoadedModule::loadMemory(*device, bytes.data(), bytes.size()));
    auto weights =
        std::move(*ResidentWeights::load(*module, RandomSource(5), nullptr));
    return std::tuple(std::move(device), std::move(module), std::move(weights));
  };
  auto [device1, module1, one] = loadWith({{{0, {0, 1}}}});
  auto [device2, module2, two] = loadWith(twoNodes({0}, {1}));
  TemporaryDirectory directory;
  std::string path = directory.path() + "/w";
  WeightsCacheKey key{{1, 2}, {3, 4}};
  auto written = writeWeightsCache(
      path, module1->plan(), key,
      [&](uint32_t weight) { return one->data(weight); }, nullptr);
  ASSERT_TRUE(written) << written.error().message;
  auto file = WeightsCacheFile::open(path, module2->plan(), key);
  ASSERT_TRUE(file && *file);
  uint64_t last = 0;
  auto copied = std::move(*ResidentWeights::map(
      *module2, std::move(**file), [&](const char *, uint64_t done, uint64_t) {
        EXPECT_GE(done, last);
        last = done;
      }));
  EXPECT_EQ(last, one->bytes());
  EXPECT_EQ(copied->bytes(), one->bytes());
  EXPECT_EQ(copied->damagedWeight(), -1);
  for (uint32_t i : {0u, 1u}) {
    size_t size = table.plans[0]->weights[i]->shape[0] * 4096;
    EXPECT_EQ(std::memcmp(one->data(i), two->data(i), size), 0);
    EXPECT_EQ(std::memcmp(one->data(i), copied->data(i), size), 0);
  }
  // The large weight is bound, whichever way it came.
  if (whyNoBinding(0).empty()) {
    EXPECT_EQ(policyAt(one->data(1)), unbound);
    EXPECT_EQ(policyAt(two->data(1)), preferring(0));
    EXPECT_EQ(policyAt(copied->data(1)), preferring(0));
  }
}

/// The logits of a session with three threads: prompts of two sequences in one
/// call, the rest of one of them, and a step of decoding.
std::vector<float> runOn(const Topology &topology, module::KVLayout layout) {
  auto device = std::move(*Device::create("cpu:avx2", 3, topology));
  EXPECT_EQ(device->threads().placement().numShares(),
            static_cast<int>(topology.nodes.size()));
  std::vector<uint8_t> bytes = serialize(makeTestModule({layout}));
  auto module =
      std::move(*LoadedModule::loadMemory(*device, bytes.data(), bytes.size()));
  auto weights =
      std::move(*ResidentWeights::load(*module, RandomSource(7), nullptr));
  auto cache = std::move(*KVCache::create(*module, 2, 0));
  auto session = std::move(*Session::create(*module, *weights, *cache));
  std::vector<float> all;
  auto call = [&](const std::vector<int32_t> &lengths,
                  const std::vector<int32_t> &sequences) {
    std::vector<int32_t> ends = {0};
    for (int32_t length : lengths)
      ends.push_back(ends.back() + length);
    std::vector<int32_t> tokens(ends.back());
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>((i * 5 + all.size()) % testVocab);
    std::vector<float> logits(tokens.size() * testVocab);
    Result<void> ok =
        session->run(tokens.data(), ends.data(), sequences.data(),
                     static_cast<int64_t>(lengths.size()), true, logits.data());
    EXPECT_TRUE(ok) << ok.error().message;
    all.insert(all.end(), logits.begin(), logits.end());
  };
  call({43, 61}, {0, 1});
  call({17}, {0});
  call({1, 1}, {1, 0});
  return all;
}

TEST(Placement, ASessionOnTwoNodesGivesTheSameBits) {
  for (module::KVLayout layout :
       {module::KVLayout::contiguous, module::KVLayout::head_major,
        module::KVLayout::paged_nhd}) {
    std::vector<float> one = runOn({{{0, {0, 1}}}}, layout);
    ASSERT_EQ(one.size(), size_t(43 + 61 + 17 + 2) * testVocab);
    for (const Topology &topology :
         {twoNodes({0}, {1}), twoNodes({0}, {1, 2, 3, 4, 5})}) {
      std::vector<float> two = runOn(topology, layout);
      EXPECT_EQ(one.size(), two.size());
      EXPECT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)),
                0)
          << module::EnumNameKVLayout(layout);
    }
  }
}

} // namespace
