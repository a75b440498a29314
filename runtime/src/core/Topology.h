// Which processors are near which memory, and where threads and weights go.
#ifndef PREFILL_RUNTIME_CORE_TOPOLOGY_H
#define PREFILL_RUNTIME_CORE_TOPOLOGY_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prefill::rt {

/// The NUMA nodes that this process may compute on.
struct Topology {
  struct Node {
    int id;                ///< as the system counts
    std::vector<int> cpus; ///< ascending, only those that the process may use
  };
  /// At least one. A node without a processor for us (memory alone, all
  /// offline, or shut out by affinity or a cpuset) is not among them.
  std::vector<Node> nodes;

  /// Reads `root`/online and `root`/nodeN/cpulist, as in
  /// /sys/devices/system/node; `allowed` are the processors of the process.
  /// What is missing or makes no sense (no such file, no list, a processor in
  /// two nodes) gives one node with all of `allowed`: then nothing is placed,
  /// and nothing depends on what the system says about itself.
  static Topology read(const std::string &root,
                       const std::vector<int> &allowed);
  /// Of this machine and this process.
  static Topology ofThisMachine();
};

/// "0-2,5" as 0 1 2 5; an empty list is one too. Nothing for any other text, a
/// descending range, or a number above 65535.
std::optional<std::vector<int>> parseCpuList(std::string_view text);

/// Threads and shares of work by node. Both follow one rule, so that a thread
/// finds what it computes first in its own node's memory: nodes stand in
/// ascending order, threads go to them in proportion to their processors, and a
/// range (the workgroups of a launch, the panels of a weight) is cut in
/// proportion to the threads.
class Placement {
public:
  /// One node: nothing is pinned or bound.
  explicit Placement(int numThreads);
  Placement(int numThreads, const Topology &topology);

  int numThreads() const { return static_cast<int>(shareOfThread.size()); }
  /// Nodes that have threads.
  int numShares() const { return static_cast<int>(firstThread.size()) - 1; }
  int share(int thread) const { return shareOfThread[thread]; }
  int threadsOf(int share) const {
    return firstThread[share + 1] - firstThread[share];
  }
  /// Where a share of [0, count) begins, a multiple of `grain`, or count; the
  /// end of the last one is begin(numShares(), count, grain) == count.
  int64_t begin(int share, int64_t count, int64_t grain) const;

  /// Binds the calling thread to the processors of its node. Nothing happens
  /// with one node, nor when the system refuses.
  void pinCallingThread(int thread) const;
  /// Asks the system to put the shares of [data, data + bytes) on their nodes,
  /// page by page, when they are touched first. A wish: nodes that are full
  /// give way to others, and nothing happens with one node.
  void placeShares(void *data, uint64_t bytes) const;
  /// What placeShares binds: (node id, first byte, bytes), whole pages.
  struct Binding {
    int node;
    uint64_t offset, bytes;
  };
  std::vector<Binding> bindings(uint64_t bytes) const;

private:
  std::vector<Topology::Node> nodes; ///< of the shares; empty with one node
  std::vector<int> shareOfThread, firstThread;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_TOPOLOGY_H
