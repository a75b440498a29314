#include "core/Topology.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <set>
#include <sys/syscall.h>
#include <unistd.h>

using namespace prefill::rt;

namespace {

constexpr int maxNumber = 65535;
constexpr uint64_t pageBytes = 4096;

std::optional<std::vector<int>> readList(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  return parseCpuList(text);
}

/// Nothing when the files make no sense.
std::optional<std::vector<Topology::Node>>
readNodes(const std::string &root, const std::vector<int> &allowed) {
  std::optional<std::vector<int>> online = readList(root + "/online");
  if (!online)
    return std::nullopt;
  std::vector<Topology::Node> nodes;
  std::set<int> seen;
  for (int id : *online) {
    std::optional<std::vector<int>> cpus =
        readList(root + "/node" + std::to_string(id) + "/cpulist");
    if (!cpus)
      return std::nullopt;
    Topology::Node node{id, {}};
    for (int cpu : *cpus) {
      if (!seen.insert(cpu).second)
        return std::nullopt;
      if (std::binary_search(allowed.begin(), allowed.end(), cpu))
        node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty())
      nodes.push_back(std::move(node));
  }
  // A processor of ours that belongs nowhere: the files do not tell all.
  size_t found = 0;
  for (const Topology::Node &node : nodes)
    found += node.cpus.size();
  if (found != allowed.size())
    return std::nullopt;
  return nodes;
}

std::vector<int> allowedProcessors() {
  // The kernel refuses a set that is smaller than its own.
  for (size_t count = CPU_SETSIZE; count <= 65536; count *= 2) {
    cpu_set_t *set = CPU_ALLOC(count);
    if (!set)
      return {};
    std::vector<int> cpus;
    if (::sched_getaffinity(0, CPU_ALLOC_SIZE(count), set) == 0)
      for (size_t cpu = 0; cpu < count; ++cpu)
        if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(count), set))
          cpus.push_back(static_cast<int>(cpu));
    CPU_FREE(set);
    if (!cpus.empty())
      return cpus;
  }
  return {};
}

} // namespace

std::optional<std::vector<int>>
prefill::rt::parseCpuList(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  std::set<int> numbers;
  const char *at = text.data(), *end = text.data() + text.size();
  auto number = [&](int &value) {
    auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value > maxNumber)
      return false;
    at = next;
    return true;
  };
  while (at != end) {
    int first = 0, last = 0;
    if (!number(first))
      return std::nullopt;
    last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first)
        return std::nullopt;
    }
    for (int i = first; i <= last; ++i)
      numbers.insert(i);
    if (at == end)
      break;
    if (*at != ',' || ++at == end)
      return std::nullopt;
  }
  return std::vector<int>(numbers.begin(), numbers.end());
}

Topology Topology::read(const std::string &root,
                        const std::vector<int> &allowed) {
  if (auto nodes = readNodes(root, allowed); nodes && !nodes->empty())
    return {std::move(*nodes)};
  return {{Node{0, allowed}}};
}

Topology Topology::ofThisMachine() {
  return read("/sys/devices/system/node", allowedProcessors());
}

Placement::Placement(int numThreads)
    : shareOfThread(numThreads, 0), firstThread{0, numThreads} {}

Placement::Placement(int numThreads, const Topology &topology)
    : Placement(numThreads) {
  if (topology.nodes.size() <= 1)
    return;
  int64_t cpus = 0;
  for (const Topology::Node &node : topology.nodes)
    cpus += static_cast<int64_t>(node.cpus.size());
  shareOfThread.clear();
  firstThread = {0};
  int64_t before = 0;
  int thread = 0;
  for (const Topology::Node &node : topology.nodes) {
    before += static_cast<int64_t>(node.cpus.size());
    // Thread t stands for processor t * cpus / numThreads of all.
    int first = thread;
    while (thread < numThreads && thread * cpus / numThreads < before)
      ++thread;
    if (thread == first)
      continue; // fewer threads than nodes
    shareOfThread.resize(thread, static_cast<int>(nodes.size()));
    firstThread.push_back(thread);
    nodes.push_back(node);
  }
  if (nodes.size() == 1)
    nodes.clear();
}

int64_t Placement::begin(int share, int64_t count, int64_t grain) const {
  if (share >= numShares())
    return count;
  // In 128 bits: a count of bytes times threads may need them.
  auto exact = static_cast<int64_t>(static_cast<__int128>(count) *
                                    firstThread[share] / numThreads());
  return exact / grain * grain;
}

void Placement::pinCallingThread(int thread) const {
  if (nodes.empty())
    return;
  const std::vector<int> &cpus = nodes[share(thread)].cpus;
  auto count = static_cast<size_t>(cpus.back()) + 1;
  cpu_set_t *set = CPU_ALLOC(count);
  if (!set)
    return;
  CPU_ZERO_S(CPU_ALLOC_SIZE(count), set);
  for (int cpu : cpus)
    CPU_SET_S(static_cast<size_t>(cpu), CPU_ALLOC_SIZE(count), set);
  ::sched_setaffinity(0, CPU_ALLOC_SIZE(count), set);
  CPU_FREE(set);
}

std::vector<Placement::Binding> Placement::bindings(uint64_t bytes) const {
  std::vector<Binding> result;
  auto size = static_cast<int64_t>(bytes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    int64_t first = begin(static_cast<int>(i), size, pageBytes),
            last = begin(static_cast<int>(i) + 1, size, pageBytes);
    if (first < last)
      result.push_back({nodes[i].id, static_cast<uint64_t>(first),
                        static_cast<uint64_t>(last - first)});
  }
  return result;
}

void Placement::placeShares(void *data, uint64_t bytes) const {
#ifdef SYS_mbind
  constexpr int preferred = 1; // MPOL_PREFERRED of linux/mempolicy.h
  constexpr int bitsPerWord = 8 * sizeof(unsigned long);
  for (const Binding &binding : bindings(bytes)) {
    std::vector<unsigned long> mask(binding.node / bitsPerWord + 1);
    mask.back() = 1ul << binding.node % bitsPerWord;
    // The kernel counts one bit less than it is told.
    ::syscall(SYS_mbind, static_cast<std::byte *>(data) + binding.offset,
              binding.bytes, preferred, mask.data(),
              mask.size() * bitsPerWord + 1, 0);
  }
#endif
}
