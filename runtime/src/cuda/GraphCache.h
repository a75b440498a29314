// Sequences of launches that are replayed as one.
#ifndef PREFILL_RUNTIME_CUDA_GRAPHCACHE_H
#define PREFILL_RUNTIME_CUDA_GRAPHCACHE_H

#include "cuda/CommandStream.h"

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

namespace prefill::rt::cuda {

/// One graph for each bucket of lengths. The first call of a bucket is enqueued
/// as it is, since most prompts' lengths come once; from the second on a graph
/// is captured, instantiated once and replayed. A call of the same bucket whose
/// arguments differ (a block table that has grown, say) is captured anew and
/// the graph updated in place, which takes less than launching each kernel and
/// far less than instantiating.
class GraphCache {
public:
  /// Equal keys promise the same launches of the same kernels in order.
  using Key = std::vector<int64_t>;
  static constexpr size_t defaultCapacity = 16;

  /// `commands` outlives it.
  explicit GraphCache(const CommandStream &commands,
                      size_t capacity = defaultCapacity)
      : commands(commands), capacity(capacity) {}
  GraphCache(const GraphCache &) = delete;
  GraphCache &operator=(const GraphCache &) = delete;
  ~GraphCache();

  /// The next call of this bucket will call `enqueue` and capture nothing.
  bool isNew(const Key &key) const;

  /// Enqueues what `enqueue` would: by calling it, or by a graph of it.
  /// `arguments` is everything that the launches depend on.
  Result<void> run(const Key &key, const std::vector<uint64_t> &arguments,
                   const std::function<Result<void>()> &enqueue);

  struct Statistics {
    uint64_t direct = 0, instantiated = 0, updated = 0, replayed = 0;
  };
  const Statistics &statistics() const { return counts; }

private:
  struct Entry {
    Key key;
    CUgraphExec executable = nullptr;
    std::vector<uint64_t> arguments;
  };

  Result<CUgraph> capture(const std::function<Result<void>()> &enqueue);
  Result<void> build(Entry &entry, CUgraph graph);
  void destroy(Entry &entry);

  const CommandStream &commands;
  size_t capacity;
  std::list<Entry> entries; ///< the last used first
  Statistics counts;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_GRAPHCACHE_H
