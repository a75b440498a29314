#include "cuda/GraphCache.h"

#include <algorithm>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

GraphCache::~GraphCache() {
  for (Entry &entry : entries)
    destroy(entry);
}

void GraphCache::destroy(Entry &entry) {
  if (!entry.executable)
    return;
  CurrentContext current(commands.device());
  commands.device().api().graphExecDestroy(entry.executable);
  entry.executable = nullptr;
}

Result<CUgraph>
GraphCache::capture(const std::function<Result<void>()> &enqueue) {
  const DriverApi &api = commands.device().api();
  // Other threads may allocate and copy meanwhile.
  if (CUresult result = api.streamBeginCapture(
          commands.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      result != CUDA_SUCCESS)
    return api.error(result, "cuStreamBeginCapture");
  Result<void> enqueued = enqueue();
  CUgraph graph = nullptr;
  CUresult result = api.streamEndCapture(commands.handle(), &graph);
  if (!enqueued) {
    if (result == CUDA_SUCCESS && graph)
      api.graphDestroy(graph);
    return enqueued.takeError();
  }
  if (result != CUDA_SUCCESS)
    return api.error(result, "cuStreamEndCapture");
  return graph;
}

Result<void> GraphCache::build(Entry &entry, CUgraph graph) {
  const DriverApi &api = commands.device().api();
  if (entry.executable) {
    CUgraphExecUpdateResultInfo info = {};
    if (api.graphExecUpdate(entry.executable, graph, &info) == CUDA_SUCCESS) {
      ++counts.updated;
      return {};
    }
    destroy(entry); // another topology: it is built anew
  }
  CUgraphExec executable = nullptr;
  if (CUresult result = api.graphInstantiateWithFlags(&executable, graph, 0);
      result != CUDA_SUCCESS)
    return api.error(result, "cuGraphInstantiateWithFlags");
  entry.executable = executable;
  ++counts.instantiated;
  return {};
}

bool GraphCache::isNew(const Key &key) const {
  return std::none_of(entries.begin(), entries.end(),
                      [&](const Entry &entry) { return entry.key == key; });
}

Result<void> GraphCache::run(const Key &key,
                             const std::vector<uint64_t> &arguments,
                             const std::function<Result<void>()> &enqueue) {
  auto found =
      std::find_if(entries.begin(), entries.end(),
                   [&](const Entry &entry) { return entry.key == key; });
  if (found == entries.end()) {
    if (entries.size() == capacity) {
      destroy(entries.back());
      entries.pop_back();
    }
    entries.push_front(Entry{key, nullptr, {}});
    ++counts.direct;
    return enqueue();
  }
  entries.splice(entries.begin(), entries, found);
  Entry &entry = entries.front();

  const DriverApi &api = commands.device().api();
  CurrentContext current(commands.device());
  if (!entry.executable || entry.arguments != arguments) {
    Result<CUgraph> graph = capture(enqueue);
    if (!graph)
      return graph.takeError();
    Result<void> built = build(entry, *graph);
    api.graphDestroy(*graph);
    if (!built)
      return built;
    entry.arguments = arguments;
  }
  if (CUresult result = api.graphLaunch(entry.executable, commands.handle());
      result != CUDA_SUCCESS)
    return api.error(result, "cuGraphLaunch");
  ++counts.replayed;
  return {};
}
