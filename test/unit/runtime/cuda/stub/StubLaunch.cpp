// The recording driver: modules, launches, graphs, tensor maps.
#include "StubControl.h"
#include "StubState.h"

#include <cstring>

using namespace prefill::test::stub;

#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  PREFILL_STUB_API CUresult symbol parameters;
#include "cuda/DriverFunctions.def"

namespace {

struct Call {
  State &state = State::instance();
  std::lock_guard<std::recursive_mutex> lock{state.mutex};
  CUresult result;

  Call(const char *name, const std::string &arguments = "")
      : result(state.begin(name, arguments)) {}
  explicit operator bool() const { return result == CUDA_SUCCESS; }
};

Function *findFunction(State &state, CUfunction handle) {
  auto found = state.functions.find(handle);
  return found == state.functions.end() ? nullptr : found->second.get();
}

/// A copy of the buffer of words in `extra`; false where it is not what
/// cuLaunchKernel documents.
bool readWords(void **extra, std::vector<uint64_t> &words) {
  const void *buffer = nullptr;
  size_t bytes = 0;
  for (;; extra += 2) {
    uintptr_t kind = reinterpret_cast<uintptr_t>(extra[0]);
    if (kind == launchParamEnd)
      break;
    if (kind == launchParamBufferPointer)
      buffer = extra[1];
    else if (kind == launchParamBufferSize)
      bytes = *static_cast<size_t *>(extra[1]);
    else
      return false;
  }
  if (bytes % 8 || (bytes && !buffer))
    return false;
  words.resize(bytes / 8);
  if (bytes)
    std::memcpy(words.data(), buffer, bytes);
  return true;
}

} // namespace

CUresult cuModuleLoadDataEx(CUmodule *module, const void *data,
                            unsigned numOptions, CUjit_option *options,
                            void **values) {
  Call call("cuModuleLoadDataEx");
  if (!call)
    return call.result;
  State &state = call.state;
  std::optional<Image> image = parseImage(data);
  if (!image)
    return CUDA_ERROR_INVALID_IMAGE;
  state.calls.insert(state.calls.size() - 1,
                     (image->isPtx ? " ptx sm_" : " cubin sm_") +
                         std::to_string(image->chip));
  int chip = state.settings.chip;
  if (image->isPtx && !state.settings.jitLog.empty()) {
    char *log = nullptr;
    size_t size = 0;
    for (unsigned i = 0; i < numOptions; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        log = static_cast<char *>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        size = reinterpret_cast<uintptr_t>(values[i]);
    }
    if (log && size)
      std::strncpy(log, state.settings.jitLog.c_str(), size);
    return CUDA_ERROR_INVALID_PTX;
  }
  if (image->isPtx ? image->chip > chip
                   : image->chip / 10 != chip / 10 || image->chip > chip)
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  Module *made = state.modules.make();
  made->image = std::move(*image);
  if (!state.settings.emulate.empty()) {
    std::string problem;
    made->emulated = EmulatedImage::find(state.settings.emulate, data, problem);
    if (!made->emulated)
      state.finding("emulate: " + problem);
  }
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  Call call("cuModuleUnload");
  call.state.streams.forEach([&](Stream &stream) {
    for (const Operation &operation : stream.pending)
      if (operation.function)
        call.state.finding("a module unloaded while " + operation.name +
                           " is to run");
  });
  if (!call.state.modules.destroy(module))
    call.state.finding("cuModuleUnload of what is no module");
  return call.result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle,
                             const char *name) {
  Call call("cuModuleGetFunction", name);
  if (!call)
    return call.result;
  Module *module = call.state.modules.find(handle);
  if (!module)
    return CUDA_ERROR_INVALID_HANDLE;
  auto entry = module->image.entries.find(name);
  if (entry == module->image.entries.end())
    return CUDA_ERROR_NOT_FOUND;
  auto made = std::make_unique<Function>();
  made->name = name;
  made->emulated = module->emulated;
  made->entry = entry->second;
  *function = reinterpret_cast<CUfunction>(made.get());
  call.state.functions[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                            CUfunction handle) {
  Call call("cuFuncGetAttribute");
  if (!call)
    return call.result;
  Function *function = findFunction(call.state, handle);
  if (!function)
    return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = function->entry.maxThreads;
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *value = static_cast<int>(function->entry.staticShared);
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute,
                            int value) {
  Call call("cuFuncSetAttribute", std::to_string(value));
  if (!call)
    return call.result;
  Function *function = findFunction(call.state, handle);
  if (!function || attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return CUDA_ERROR_INVALID_VALUE;
  function->dynamicSharedLimit = value;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset,
                            size_t *bytes) {
  Call call("cuFuncGetParamInfo");
  if (!call)
    return call.result;
  Function *function = findFunction(call.state, handle);
  if (!function || index >= function->entry.parameterBytes.size())
    return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = function->entry.parameterBytes[index];
  for (size_t i = 0; i < index; ++i)
    *offset += function->entry.parameterBytes[i];
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle,
                          void **parameters, void **extra) {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  Function *function = findFunction(state, handle);
  std::string name = function ? function->name : "?";
  if (CUresult result = state.begin("cuLaunchKernelEx", name);
      result != CUDA_SUCCESS)
    return result;
  Stream *stream = state.stream(config->hStream, "cuLaunchKernelEx");
  if (!function || !stream)
    return CUDA_ERROR_INVALID_HANDLE;
  auto broken = [&](const std::string &text) {
    state.finding("launch of " + name + ": " + text);
    return CUDA_ERROR_INVALID_VALUE;
  };
  if (parameters || !extra)
    return broken("its arguments are not in one buffer");
  std::vector<uint64_t> words;
  if (!readWords(extra, words))
    return broken("a malformed argument buffer");
  if (words.size() != function->entry.parameterBytes.size())
    return broken(std::to_string(words.size()) + " words for " +
                  std::to_string(function->entry.parameterBytes.size()) +
                  " parameters");
  if (!config->gridDimX || !config->gridDimY || !config->gridDimZ ||
      config->gridDimX > 0x7fffffffu || config->gridDimY > 65535 ||
      config->gridDimZ > 65535)
    return broken("grid out of range");
  uint64_t threads =
      uint64_t(config->blockDimX) * config->blockDimY * config->blockDimZ;
  if (!threads || threads > static_cast<uint64_t>(function->entry.maxThreads))
    return broken("block of " + std::to_string(threads) + " threads");
  if (config->sharedMemBytes > function->dynamicSharedLimit)
    return broken(std::to_string(config->sharedMemBytes) +
                  " bytes of shared memory without opting in");
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute &attribute = config->attrs[i];
    if (state.settings.chip < 90)
      return broken("an attribute that needs sm_90");
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      cluster = attribute.value.clusterDim.x;
    state.calls += attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
                       ? "  cluster " + std::to_string(cluster) + "\n"
                       : "  overlaps\n";
  }
  if (cluster == 0 || config->gridDimX % cluster)
    return broken("a grid that is no multiple of its cluster");
  unsigned blocks = config->gridDimX;
  return state.enqueue(*stream,
                       {name,
                        [&state, function, words, blocks] {
                          return state.runKernel(*function, words, blocks);
                        },
                        handle, words,
                        1 + blocks * state.settings.blockMicroseconds * 1e-3});
}

// ---- Graphs.

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph handle,
                                     unsigned long long) {
  Call call("cuGraphInstantiateWithFlags");
  if (!call)
    return call.result;
  Graph *graph = call.state.graphs.find(handle);
  if (!graph)
    return CUDA_ERROR_INVALID_HANDLE;
  Graph *made = call.state.executables.make();
  *made = *graph;
  *executable = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph handle,
                              CUgraphExecUpdateResultInfo *info) {
  Call call("cuGraphExecUpdate");
  if (!call)
    return call.result;
  Graph *graph = call.state.graphs.find(handle);
  Graph *target = call.state.executables.find(executable);
  if (!graph || !target)
    return CUDA_ERROR_INVALID_HANDLE;
  bool same = target->operations.size() == graph->operations.size() &&
              !call.state.settings.refuseUpdates;
  for (size_t i = 0; same && i < graph->operations.size(); ++i)
    same = target->operations[i].function == graph->operations[i].function;
  if (!same) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  *target = *graph;
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  Call call("cuGraphLaunch");
  if (!call)
    return call.result;
  Graph *graph = call.state.executables.find(executable);
  Stream *stream = call.state.stream(handle, "cuGraphLaunch");
  if (!graph || !stream)
    return CUDA_ERROR_INVALID_HANDLE;
  for (const Operation &operation : graph->operations)
    call.state.enqueue(*stream, operation);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  Call call("cuGraphExecDestroy");
  if (!call.state.executables.destroy(executable))
    call.state.finding("cuGraphExecDestroy of what is no graph");
  return call.result;
}

CUresult cuGraphDestroy(CUgraph graph) {
  Call call("cuGraphDestroy");
  if (!call.state.graphs.destroy(graph))
    call.state.finding("cuGraphDestroy of what is no graph");
  return call.result;
}

// ---- Tensor maps.

CUresult
cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type,
                       uint32_t rank, void *address, const uint64_t *extents,
                       const uint64_t *, const uint32_t *box, const uint32_t *,
                       CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  Call call("cuTensorMapEncodeTiled", "rank " + std::to_string(rank));
  if (!call)
    return call.result;
  std::memset(map, 0, sizeof *map);
  map->opaque[0] = reinterpret_cast<uintptr_t>(address);
  map->opaque[1] = uint64_t(type) << 32 | uint64_t(swizzle);
  map->opaque[2] = extents[0];
  map->opaque[3] = box[0];
  return CUDA_SUCCESS;
}
