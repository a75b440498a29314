// How much processor time a container leaves to this process.
#ifndef PREFILL_RUNTIME_CORE_CPUQUOTA_H
#define PREFILL_RUNTIME_CORE_CPUQUOTA_H

#include <optional>
#include <string>

namespace prefill::rt {

/// The quota of control groups, in processors: ceil(quota / period), at least
/// 1, the least of those of the process's group and of all groups around it.
/// Nothing where no group has one.
///
/// Reads `root`/proc/self/cgroup, then cpu.max (version 2) and cpu.cfs_quota_us
/// with cpu.cfs_period_us (version 1) below `root`/sys/fs/cgroup. What is
/// missing or makes no sense limits nothing. A container often sees its own
/// group as the root of the mount under a path that exists outside alone: the
/// directories of that path are then missing, and the root counts.
std::optional<int> cpuQuota(const std::string &root = "");

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_CPUQUOTA_H
