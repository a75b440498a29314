// Quotas that this machine does not have, read from directories.
#include "SafetensorsFile.h"

#include "core/CpuQuota.h"
#include "core/Device.h"
#include "core/ThreadPool.h"

#include <gtest/gtest.h>

#include <climits>
#include <filesystem>
#include <map>

using namespace prefill::rt;
using namespace prefill::test;

namespace {

/// A root of a file system with these files; those of `groups` lie below
/// /sys/fs/cgroup.
class Root {
public:
  Root(const std::string &membership,
       const std::map<std::string, std::string> &groups) {
    write("proc/self/cgroup", membership);
    for (const auto &[path, text] : groups)
      write("sys/fs/cgroup/" + path, text);
  }

  std::optional<int> quota() const { return cpuQuota(directory.path()); }
  const std::string &path() const { return directory.path(); }

private:
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories(
        std::filesystem::path(directory.path() + "/" + path).parent_path());
    directory.write(path, text);
  }

  TemporaryDirectory directory;
};

std::optional<int> version2(const std::string &cpuMax) {
  return Root("0::/\n", {{"cpu.max", cpuMax}}).quota();
}

TEST(CpuQuota, IsRoundedUp) {
  EXPECT_EQ(version2("200000 100000\n"), 2);
  EXPECT_EQ(version2("200001 100000\n"), 3);
  EXPECT_EQ(version2("150000 100000\n"), 2);
  EXPECT_EQ(version2("100000 100000"), 1);
  EXPECT_EQ(version2("1000 100000\n"), 1);
  EXPECT_EQ(version2("70000 10000\n"), 7);
  EXPECT_EQ(version2("9223372036854775807 1\n"), INT_MAX);
  EXPECT_EQ(version2("9223372036854775807 9223372036854775806\n"), 2);
}

TEST(CpuQuota, WhatMakesNoSenseLimitsNothing) {
  for (const char *text :
       {"max 100000\n", "max", "", "\n", "200000\n", "200000 \n", " 100000\n",
        "0 100000\n", "-1 100000\n", "200000 0\n", "200000 -1\n",
        "200000 100000 1\n", "200000  100000\n", "2e5 100000\n", "0x10 10\n",
        "200000 100000x\n", "9223372036854775808 1\n", "200000\t100000\n"})
    EXPECT_EQ(version2(text), std::nullopt) << text;
}

TEST(CpuQuota, TheLeastOfAllGroupsAround) {
  const std::string self = "0::/pod/container/job\n";
  auto nested = [&](const std::string &top, const std::string &pod,
                    const std::string &container, const std::string &job) {
    return Root(self, {{"cpu.max", top},
                       {"pod/cpu.max", pod},
                       {"pod/container/cpu.max", container},
                       {"pod/container/job/cpu.max", job},
                       {"pod/other/cpu.max", "100000 100000"}})
        .quota();
  };
  const std::string none = "max 100000\n", broken = "what\n";
  EXPECT_EQ(nested(none, none, none, none), std::nullopt);
  EXPECT_EQ(nested(none, none, none, "300000 100000"), 3);
  EXPECT_EQ(nested(none, none, "300000 100000", none), 3);
  EXPECT_EQ(nested(none, "300000 100000", none, none), 3);
  EXPECT_EQ(nested("300000 100000", none, none, none), 3);
  EXPECT_EQ(
      nested("800000 100000", "50000 10000", "40000 10000", "600000 100000"),
      4);
  EXPECT_EQ(nested(broken, "500000 100000", broken, broken), 5);
}

TEST(CpuQuota, GroupsThatTheContainerDoesNotSee) {
  // The mount's root is the container's group; its path is the host's.
  EXPECT_EQ(Root("0::/system.slice/c.scope\n", {{"cpu.max", "200000 100000"}})
                .quota(),
            2);
  // A group outside of the name space. Nothing beside the mount is read.
  for (const char *path : {"/../other", "/..", "/a/../../proc"})
    EXPECT_EQ(Root("0::" + std::string(path) + "\n",
                   {{"cpu.max", "300000 100000"},
                    {"../cpu.max", "100000 100000"},
                    {"../other/cpu.max", "100000 100000"},
                    {"a/cpu.max", "100000 100000"},
                    {"other/cpu.max", "100000 100000"}})
                  .quota(),
              3)
        << path;
}

TEST(CpuQuota, Version1) {
  auto read = [](const std::string &membership, const std::string &directory,
                 const std::string &quota, const std::string &period) {
    return Root(membership, {{directory + "cpu.cfs_quota_us", quota},
                             {directory + "cpu.cfs_period_us", period}})
        .quota();
  };
  const std::string self =
      "5:memory:/m\n4:cpu,cpuacct:/docker/c\n1:name=systemd:/\n";
  EXPECT_EQ(read(self, "cpu/docker/c/", "250000\n", "100000\n"), 3);
  EXPECT_EQ(read(self, "cpu,cpuacct/docker/c/", "250000\n", "100000\n"), 3);
  EXPECT_EQ(read(self, "cpu/docker/", "250000\n", "100000\n"), 3);
  EXPECT_EQ(read(self, "cpu/", "250000\n", "50000\n"), 5);
  EXPECT_EQ(read("2:cpuacct,cpu:/c\n", "cpu/c/", "1\n", "100000\n"), 1);
  EXPECT_EQ(read("2:cpu:/\n", "cpu/", "200000\n", "100000\n"), 2);
  EXPECT_EQ(read(self, "cpu/docker/c/", "-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(read(self, "cpu/docker/c/", "0\n", "100000\n"), std::nullopt);
  EXPECT_EQ(read(self, "cpu/docker/c/", "200000\n", "0\n"), std::nullopt);
  EXPECT_EQ(read(self, "cpu/docker/c/", "much\n", "100000\n"), std::nullopt);
  // Other hierarchies, other groups.
  EXPECT_EQ(read(self, "cpu/m/", "200000\n", "100000\n"), std::nullopt);
  EXPECT_EQ(read(self, "memory/m/", "200000\n", "100000\n"), std::nullopt);
  EXPECT_EQ(read("3:cpuset:/\n", "cpu/", "200000\n", "100000\n"), std::nullopt);
  EXPECT_EQ(Root(self, {{"cpu/docker/c/cpu.cfs_quota_us", "200000\n"}}).quota(),
            std::nullopt)
      << "no period";
}

TEST(CpuQuota, BothVersions) {
  std::map<std::string, std::string> groups = {
      {"cpu/a/cpu.cfs_quota_us", "300000"},
      {"cpu/a/cpu.cfs_period_us", "100000"},
      {"unified/b/cpu.max", "200000 100000"}};
  const std::string self = "1:cpu:/a\n0::/b\n";
  EXPECT_EQ(Root(self, groups).quota(), 2);
  groups["unified/b/cpu.max"] = "max 100000";
  EXPECT_EQ(Root(self, groups).quota(), 3);
}

TEST(CpuQuota, NoGroups) {
  EXPECT_EQ(cpuQuota("/nonexistent"), std::nullopt);
  EXPECT_EQ(Root("0::/\n", {}).quota(), std::nullopt);
  for (const char *membership :
       {"", "\n", "nonsense\n", "0:\n", "0::\n", "0::a\n", ":", "::"})
    EXPECT_EQ(Root(membership, {{"cpu.max", "200000 100000"}}).quota(),
              std::nullopt)
        << membership;
}

TEST(CpuQuota, LimitsThreadsThatNobodyAskedFor) {
  int processors = ThreadPool::availableProcessors();
  auto threads = [](const std::string &cpuMax) {
    Root root("0::/\n", {{"cpu.max", cpuMax}});
    return ThreadPool::defaultSize(root.path());
  };
  EXPECT_EQ(threads("max 100000"), processors);
  EXPECT_EQ(threads("1000000000 1000"), processors);
  EXPECT_EQ(threads("50000 100000"), 1);
  EXPECT_EQ(threads("150000 100000"), std::min(2, processors));

  auto device = Device::create("cpu", 0);
  ASSERT_TRUE(device);
  EXPECT_EQ((*device)->threads().size(), ThreadPool::defaultSize());
  auto more = Device::create("cpu", processors + 1);
  ASSERT_TRUE(more);
  EXPECT_EQ((*more)->threads().size(), processors + 1);
}

} // namespace
