// The recording driver: the entry points of the runtime's table, in host
// memory.
#include "StubControl.h"
#include "StubState.h"

#include <cstring>

using namespace prefill::test::stub;

// Declared first, so that a definition with other parameters does not compile.
#define PREFILL_CUDA_FUNCTION(member, symbol, parameters)                      \
  PREFILL_STUB_API CUresult symbol parameters;
#include "cuda/DriverFunctions.def"

namespace {

std::string number(uint64_t value) { return std::to_string(value); }

/// The lock, and the record of the call.
struct Call {
  State &state = State::instance();
  std::lock_guard<std::recursive_mutex> lock{state.mutex};
  CUresult result;

  Call(const char *name, const std::string &arguments = "",
       bool needsContext = true)
      : result(state.begin(name, arguments, needsContext)) {}
  explicit operator bool() const { return result == CUDA_SUCCESS; }
};

CUcontext contextOf(CUdevice device) {
  static char contexts[16];
  return reinterpret_cast<CUcontext>(&contexts[device]);
}

} // namespace

CUresult cuInit(unsigned) {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  state.initialized = true;
  if (CUresult result = state.begin("cuInit", "", false);
      result != CUDA_SUCCESS)
    return result;
  return state.settings.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
  Call call("cuDriverGetVersion", "", false);
  *version = 13000;
  return call.result;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  switch (error) {
#define CASE(name)                                                             \
  case name:                                                                   \
    *text = #name;                                                             \
    return CUDA_SUCCESS;
    CASE(CUDA_ERROR_INVALID_VALUE)
    CASE(CUDA_ERROR_OUT_OF_MEMORY)
    CASE(CUDA_ERROR_NO_DEVICE)
    CASE(CUDA_ERROR_INVALID_PTX)
    CASE(CUDA_ERROR_INVALID_IMAGE)
    CASE(CUDA_ERROR_NO_BINARY_FOR_GPU)
    CASE(CUDA_ERROR_NOT_FOUND)
    CASE(CUDA_ERROR_ILLEGAL_ADDRESS)
    CASE(CUDA_ERROR_LAUNCH_FAILED)
    CASE(CUDA_ERROR_INVALID_HANDLE)
#undef CASE
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  if (error == CUDA_ERROR_OUT_OF_MEMORY)
    *text = "out of memory";
  else if (error == CUDA_ERROR_NO_DEVICE)
    *text = "no CUDA-capable device is detected";
  else if (error == CUDA_ERROR_ILLEGAL_ADDRESS)
    *text = "an illegal memory access was encountered";
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  Call call("cuDeviceGetCount", "", false);
  *count = call.state.settings.devices;
  return call.result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  Call call("cuDeviceGet", number(ordinal), false);
  if (ordinal < 0 || ordinal >= call.state.settings.devices)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return call.result;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice) {
  Call call("cuDeviceGetName", "", false);
  std::strncpy(name, "Recording stub", length);
  return call.result;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice) {
  Call call("cuDeviceGetAttribute", number(attribute), false);
  int chip = call.state.settings.chip;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = 1024;
    break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    *value = 1410000;
    break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = 108;
    break;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
    *value = 1215000;
    break;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
    *value = 5120;
    break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
    *value = 40 << 20;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = chip / 10;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = chip % 10;
    break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    *value = chip == 80 ? 166912 : chip == 90 ? 232448 : 101376;
    break;
  case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    *value = 1;
    break;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  return call.result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  Call call("cuDeviceTotalMem", "", false);
  *bytes = call.state.settings.memory;
  return call.result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain", "", false);
  if (call) {
    ++call.state.primaryContexts;
    *context = contextOf(device);
  }
  return call.result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  Call call("cuDevicePrimaryCtxRelease", "", false);
  if (call.state.primaryContexts == 0)
    call.state.finding("a context released that was not retained");
  else
    --call.state.primaryContexts;
  return call.result;
}

// Not recorded: they stand before and after everything.
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (!State::instance().primaryContexts)
    State::instance().finding("a context made current that is not retained");
  contextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (contextStack().empty())
    return CUDA_ERROR_INVALID_CONTEXT;
  *context = contextStack().back();
  contextStack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  Call call("cuMemGetInfo");
  *total = call.state.settings.memory;
  *available = *total - call.state.allocatedBytes;
  return call.result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle) {
  Call call("cuMemAllocAsync", number(bytes));
  if (!call)
    return call.result;
  Stream *stream = call.state.stream(handle, "cuMemAllocAsync");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  return call.state.allocate(bytes, address);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  Call call("cuMemFreeAsync");
  Stream *stream = call.state.stream(handle, "cuMemFreeAsync");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult freed = call.state.enqueueFree(*stream, address);
  return call ? freed : call.result;
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  Call call("cuMemHostAlloc", number(bytes));
  if (!call)
    return call.result;
  auto *memory = static_cast<unsigned char *>(
      std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  Block &block = call.state.pinnedBlocks[reinterpret_cast<uintptr_t>(memory)];
  block.bytes = bytes;
  block.memory = {memory, std::free};
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address) {
  Call call("cuMemFreeHost");
  if (!call.state.pinnedBlocks.erase(reinterpret_cast<uintptr_t>(address)))
    call.state.finding("cuMemFreeHost of what is no pinned allocation");
  return call.result;
}

// ---- Copies.

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                              CUstream handle) {
  Call call("cuMemcpyHtoDAsync", number(bytes));
  if (!call)
    return call.result;
  State &state = call.state;
  Stream *stream = state.stream(handle, "cuMemcpyHtoDAsync");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!state.resolve(to, bytes, "cuMemcpyHtoDAsync"))
    return CUDA_ERROR_INVALID_VALUE;
  if (!state.pinned(from, bytes))
    state.finding("cuMemcpyHtoDAsync from memory that is not pinned");
  return state.enqueue(*stream,
                       {"copy to device",
                        [&state, to, from, bytes] {
                          unsigned char *target =
                              state.resolve(to, bytes, "a copy to the device");
                          if (target && state.pinned(from, bytes))
                            std::memcpy(target, from, bytes);
                          else
                            state.finding("a copy to the device runs when its "
                                          "memory is gone");
                          return CUDA_SUCCESS;
                        },
                        nullptr,
                        {to}});
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                              CUstream handle) {
  Call call("cuMemcpyDtoHAsync", number(bytes));
  if (!call)
    return call.result;
  State &state = call.state;
  Stream *stream = state.stream(handle, "cuMemcpyDtoHAsync");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!state.resolve(from, bytes, "cuMemcpyDtoHAsync"))
    return CUDA_ERROR_INVALID_VALUE;
  if (!state.pinned(to, bytes))
    state.finding("cuMemcpyDtoHAsync to memory that is not pinned");
  return state.enqueue(*stream,
                       {"copy to host",
                        [&state, to, from, bytes] {
                          unsigned char *source =
                              state.resolve(from, bytes, "a copy to the host");
                          if (source && state.pinned(to, bytes))
                            std::memcpy(to, source, bytes);
                          else
                            state.finding("a copy to the host runs when its "
                                          "memory is gone");
                          return CUDA_SUCCESS;
                        },
                        nullptr,
                        {from}});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                         CUstream handle) {
  Call call("cuMemsetD8Async", number(bytes));
  if (!call)
    return call.result;
  State &state = call.state;
  Stream *stream = state.stream(handle, "cuMemsetD8Async");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!state.resolve(to, bytes, "cuMemsetD8Async"))
    return CUDA_ERROR_INVALID_VALUE;
  return state.enqueue(*stream, {"fill",
                                 [&state, to, value, bytes] {
                                   if (unsigned char *target =
                                           state.resolve(to, bytes, "a fill"))
                                     std::memset(target, value, bytes);
                                   return CUDA_SUCCESS;
                                 },
                                 nullptr,
                                 {to}});
}

// ---- Streams and events.

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  Call call("cuStreamCreate");
  if (!call)
    return call.result;
  if (flags != CU_STREAM_NON_BLOCKING)
    call.state.finding("a stream that waits for the default stream");
  *stream = reinterpret_cast<CUstream>(call.state.streams.make());
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  Call call("cuStreamDestroy");
  if (Stream *stream = call.state.stream(handle, "cuStreamDestroy")) {
    if (stream->capture)
      call.state.finding("a stream destroyed while it captures");
    call.state.drain(*stream, stream->enqueued);
    call.state.streams.destroy(handle);
  }
  return call.result;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Call call("cuStreamSynchronize");
  Stream *stream = call.state.stream(handle, "cuStreamSynchronize");
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) {
    stream->captureBroken = true;
    call.state.finding("cuStreamSynchronize during capture");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  CUresult drained = call.state.drain(*stream, stream->enqueued);
  return call ? drained : call.result;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  Call call("cuStreamBeginCapture");
  if (!call)
    return call.result;
  Stream *stream = call.state.stream(handle, "cuStreamBeginCapture");
  if (!stream || stream->capture)
    return CUDA_ERROR_INVALID_VALUE;
  if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    call.state.finding("capture that forbids other threads to allocate");
  stream->capture = std::make_unique<Graph>();
  stream->captureBroken = false;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  Call call("cuStreamEndCapture");
  Stream *stream = call.state.stream(handle, "cuStreamEndCapture");
  if (!stream || !stream->capture)
    return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<Graph> captured = std::move(stream->capture);
  if (stream->captureBroken || !call) {
    *graph = nullptr;
    return call ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : call.result;
  }
  Graph *made = call.state.graphs.make();
  *made = std::move(*captured);
  *graph = reinterpret_cast<CUgraph>(made);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  Call call("cuEventCreate");
  if (!call)
    return call.result;
  Event *made = call.state.events.make();
  made->timing = !(flags & CU_EVENT_DISABLE_TIMING);
  *event = reinterpret_cast<CUevent>(made);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  Call call("cuEventDestroy");
  if (!call.state.events.destroy(event))
    call.state.finding("cuEventDestroy of what is no event");
  return call.result;
}

CUresult cuEventRecord(CUevent handle, CUstream streamHandle) {
  Call call("cuEventRecord");
  if (!call)
    return call.result;
  Event *event = call.state.events.find(handle);
  Stream *stream = call.state.stream(streamHandle, "cuEventRecord");
  if (!event || !stream)
    return CUDA_ERROR_INVALID_HANDLE;
  event->stream = stream;
  event->position = stream->enqueued;
  event->milliseconds = stream->milliseconds;
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
  Call call("cuEventSynchronize");
  if (!call)
    return call.result;
  Event *event = call.state.events.find(handle);
  if (!event)
    return CUDA_ERROR_INVALID_HANDLE;
  if (event->stream && call.state.streams.find(event->stream))
    return call.state.drain(*event->stream, event->position);
  return CUDA_SUCCESS;
}

// A millisecond for each operation, and what the settings say for a block.
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) {
  Call call("cuEventElapsedTime");
  if (!call)
    return call.result;
  Event *start = call.state.events.find(first),
        *end = call.state.events.find(last);
  if (!start || !end || !start->timing || !end->timing || !start->stream ||
      start->stream != end->stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (end->stream->executed < end->position)
    return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(end->milliseconds - start->milliseconds);
  return CUDA_SUCCESS;
}
