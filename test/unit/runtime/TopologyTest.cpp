// Topologies that this machine does not have, read from directories.
#include "SafetensorsFile.h"
#include "TestModel.h"

#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/Topology.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <sched.h>

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
}

} // namespace
