#include "cuda/KernelFunction.h"
#include "prefill/checkpoint/Quote.h"

#include <cstdio>
#include <limits>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

/// More has to be asked for, function by function.
constexpr int64_t sharedBytesWithoutOptIn = 48 << 10;

Error refused(const KernelShape &shape, const std::string &reason) {
  return Error{ErrorCode::invalidModule,
               "kernel " + quote(shape.name) + " " + reason};
}

/// Newer drivers tell what parameters a kernel has; a launch with others reads
/// beyond the arguments.
Result<void> checkParameters(const DriverApi &api, CUfunction function,
                             const KernelShape &shape) {
  if (!api.funcGetParamInfo)
    return {};
  size_t offset = 0, bytes = 0;
  for (int64_t i = 0; i < shape.numWords; ++i)
    if (api.funcGetParamInfo(function, static_cast<size_t>(i), &offset,
                             &bytes) != CUDA_SUCCESS ||
        offset != static_cast<size_t>(i) * 8 || bytes != 8)
      return refused(shape, "has no 64-bit parameter " + std::to_string(i) +
                                ", expected " + std::to_string(shape.numWords) +
                                " words as the module says");
  if (api.funcGetParamInfo(function, static_cast<size_t>(shape.numWords),
                           &offset, &bytes) == CUDA_SUCCESS)
    return refused(shape, "has more parameters than the " +
                              std::to_string(shape.numWords) +
                              " words that the module says");
  return {};
}

} // namespace

std::string prefill::rt::cuda::describeLaunch(const KernelShape &shape,
                                              uint64_t blocks,
                                              std::span<const uint64_t> words) {
  std::string text = "kernel " + quote(shape.name) + ", grid " +
                     std::to_string(blocks) + ", block " +
                     std::to_string(shape.blockThreads) + ", " +
                     std::to_string(shape.sharedBytes) +
                     " bytes of shared memory, arguments [";
  for (size_t i = 0; i < words.size(); ++i) {
    char word[32];
    // Sizes and strides in decimal, addresses in hexadecimal.
    std::snprintf(word, sizeof word, words[i] >> 32 ? "%#llx" : "%llu",
                  static_cast<unsigned long long>(words[i]));
    text += (i ? ", " : "") + std::string(word);
  }
  return text + "]";
}

Result<KernelFunction> KernelFunction::create(const CodeModule &code,
                                              const KernelShape &shape) {
  const CudaDevice &device = code.device();
  const DriverApi &api = device.api();
  CurrentContext current(device);
  CUfunction function;
  if (CUresult result =
          api.moduleGetFunction(&function, code.handle(), shape.name.c_str());
      result != CUDA_SUCCESS)
    return api.error(result, code.loaded() + ": kernel " + quote(shape.name));

  int threads = 0, staticShared = 0;
  if (CUresult result = api.funcGetAttribute(
          &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
      result != CUDA_SUCCESS)
    return api.error(result, "cuFuncGetAttribute, kernel " + quote(shape.name));
  if (CUresult result = api.funcGetAttribute(
          &staticShared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
      result != CUDA_SUCCESS)
    return api.error(result, "cuFuncGetAttribute, kernel " + quote(shape.name));
  if (shape.blockThreads < 1 || shape.blockThreads > threads)
    return refused(
        shape, "needs blocks of " + std::to_string(shape.blockThreads) +
                   " threads, its registers allow 1 to " +
                   std::to_string(threads) + " on " + device.properties().name);
  int64_t shared = device.properties().maxSharedBytes - int64_t(staticShared);
  if (shape.sharedBytes < 0 || shape.sharedBytes > shared)
    return refused(shape, "needs " + std::to_string(shape.sharedBytes) +
                              " bytes of shared memory, a block has " +
                              std::to_string(shared) + " on " +
                              device.properties().name);
  if (Result<void> ok = checkParameters(api, function, shape); !ok)
    return ok.takeError();
  if (shape.sharedBytes + staticShared > sharedBytesWithoutOptIn)
    if (CUresult result = api.funcSetAttribute(
            function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            static_cast<int>(shape.sharedBytes));
        result != CUDA_SUCCESS)
      return api.error(result, "cuFuncSetAttribute, " +
                                   std::to_string(shape.sharedBytes) +
                                   " bytes of shared memory for kernel " +
                                   quote(shape.name));
  return KernelFunction(shape, function);
}

Result<void> KernelFunction::launch(const CommandStream &commands,
                                    uint64_t blocks,
                                    std::span<const uint64_t> words,
                                    const LaunchOptions &options) const {
  if (static_cast<int64_t>(words.size()) != about.numWords)
    return refused(about, "is given " + std::to_string(words.size()) +
                              " words, expected " +
                              std::to_string(about.numWords));
  if (blocks == 0)
    return {};
  if (blocks > uint64_t(std::numeric_limits<int32_t>::max()))
    return refused(about, "is launched with " + std::to_string(blocks) +
                              " blocks, expected less than 2^31");
  if (options.clusterBlocks == 0 || blocks % options.clusterBlocks)
    return refused(about, "is launched with " + std::to_string(blocks) +
                              " blocks, expected a multiple of the cluster's " +
                              std::to_string(options.clusterBlocks));

  CUlaunchAttribute attributes[2] = {};
  unsigned numAttributes = 0;
  if (options.clusterBlocks > 1) {
    CUlaunchAttribute &attribute = attributes[numAttributes++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {options.clusterBlocks, 1, 1};
  }
  if (options.overlapsPrevious) {
    CUlaunchAttribute &attribute = attributes[numAttributes++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(about.blockThreads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(about.sharedBytes);
  config.hStream = commands.handle();
  config.attrs = numAttributes ? attributes : nullptr;
  config.numAttrs = numAttributes;

  // One buffer of all words, whose size the driver sees, rather than a pointer
  // to each, of which it would read as many as the kernel has.
  size_t bytes = words.size_bytes();
  void *extra[] = {reinterpret_cast<void *>(launchParamBufferPointer),
                   const_cast<uint64_t *>(words.data()),
                   reinterpret_cast<void *>(launchParamBufferSize), &bytes,
                   reinterpret_cast<void *>(launchParamEnd)};
  const DriverApi &api = commands.device().api();
  CurrentContext current(commands.device());
  CUresult result = api.launchKernelEx(&config, function, nullptr, extra);
  if (result != CUDA_SUCCESS)
    return api.error(result, "cuLaunchKernelEx, " +
                                 describeLaunch(about, blocks, words));
  return {};
}
