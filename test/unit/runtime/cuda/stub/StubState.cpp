#include "StubState.h"
#include "StubControl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

using namespace prefill::test::stub;

namespace {

constexpr uint64_t guardBytes = 256;
constexpr unsigned char guardPattern = 0xa5, freshPattern = 0xff;

std::string hex(uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return text.str();
}

} // namespace

Settings Settings::parse(const std::string &text) {
  Settings settings;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    size_t equals = part.find('=');
    std::string name = part.substr(0, equals),
                value =
                    equals == std::string::npos ? "" : part.substr(equals + 1);
    if (name == "devices") {
      settings.devices = std::stoi(value);
    } else if (name == "chip") {
      settings.chip = std::stoi(value);
    } else if (name == "memory") {
      settings.memory = std::stoull(value);
    } else if (name == "kernels") {
      settings.kernels = value;
    } else if (name == "emulate") {
      settings.emulate = value;
    } else if (name == "fail") {
      size_t colon = value.find(':');
      settings.failName = value.substr(0, colon);
      settings.failCall = std::stoull(value.substr(colon + 1));
    } else if (name == "jit-log") {
      settings.jitLog = value;
    } else if (name == "no-update") {
      settings.refuseUpdates = value == "1";
    } else if (name == "block-us") {
      settings.blockMicroseconds = std::stod(value);
    } else if (name == "log") {
      settings.log = value;
    } else if (!name.empty()) {
      std::cerr << "error: PREFILL_CUDA_STUB has the unknown setting '" << name
                << "'\n";
      std::abort();
    }
  }
  return settings;
}

std::vector<CUcontext> &prefill::test::stub::contextStack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

State &State::instance() {
  static State state;
  return state;
}

State::State() {
  const char *text = std::getenv("PREFILL_CUDA_STUB");
  reset(text ? text : "");
}

State::~State() {
  if (settings.log.empty())
    return;
  std::ofstream file(settings.log);
  file << calls << "-- report\n" << report();
}

void State::reset(const std::string &text) {
  streams.clear();
  events.clear();
  modules.clear();
  graphs.clear();
  executables.clear();
  functions.clear();
  blocks.clear();
  freed.clear();
  pinnedBlocks.clear();
  allocatedBytes = 0;
  primaryContexts = 0;
  sticky = CUDA_SUCCESS;
  initialized = false;
  findings.clear();
  calls.clear();
  counts.clear();
  contextStack().clear();
  settings = Settings::parse(text);
  kernelLibrary = nullptr;
  if (!settings.kernels.empty()) {
    kernelLibrary = ::dlopen(settings.kernels.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!kernelLibrary)
      finding(std::string("kernels: ") + ::dlerror());
  }
}

void State::finding(const std::string &text) {
  // Once is enough: a broken rule tends to be broken in every launch.
  if (std::find(findings.begin(), findings.end(), text) == findings.end())
    findings.push_back(text);
}

std::string State::report() {
  std::string text;
  for (const std::string &line : findings)
    text += "finding: " + line + "\n";
  auto leak = [&](size_t count, const char *what) {
    if (count)
      text += "leak: " + std::to_string(count) + " " + what + "\n";
  };
  streams.forEach([&](Stream &stream) {
    if (!stream.pending.empty())
      text += "leak: a stream with " + std::to_string(stream.pending.size()) +
              " operations that nobody waited for\n";
  });
  leak(streams.alive(), "streams");
  leak(events.alive(), "events");
  leak(modules.alive(), "modules");
  leak(graphs.alive(), "graphs");
  leak(executables.alive(), "executable graphs");
  leak(blocks.size(), "device allocations");
  leak(pinnedBlocks.size(), "pinned allocations");
  leak(primaryContexts, "retained contexts");
  leak(contextStack().size(), "contexts left current");
  return text;
}

CUresult State::begin(const char *name, const std::string &arguments,
                      bool needsContext) {
  uint64_t call = ++counts[name];
  calls +=
      std::string(name) + (arguments.empty() ? "" : " ") + arguments + "\n";
  if (!initialized && std::string(name) != "cuInit") {
    finding(std::string(name) + " before cuInit");
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (needsContext && contextStack().empty()) {
    finding(std::string(name) + " without a current context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (settings.failName == name && settings.failCall == call)
    return std::strstr(name, "Alloc") ? CUDA_ERROR_OUT_OF_MEMORY
                                      : CUDA_ERROR_LAUNCH_FAILED;
  if (needsContext && sticky != CUDA_SUCCESS)
    return sticky;
  return CUDA_SUCCESS;
}

CUresult State::allocate(uint64_t bytes, CUdeviceptr *address) {
  if (bytes == 0) {
    finding("cuMemAllocAsync of 0 bytes");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > settings.memory - allocatedBytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t size = (bytes + guardBytes + 255) / 256 * 256;
  auto *memory = static_cast<unsigned char *>(std::aligned_alloc(256, size));
  std::memset(memory, freshPattern, bytes);
  std::memset(memory + bytes, guardPattern, size - bytes);
  *address = reinterpret_cast<uintptr_t>(memory);
  Block &block = blocks[*address];
  block.bytes = bytes;
  block.memory = {memory, std::free};
  allocatedBytes += bytes;
  // The address is in use again.
  freed.erase(freed.lower_bound(*address), freed.lower_bound(*address + bytes));
  return CUDA_SUCCESS;
}

void State::finishFree(uint64_t address) {
  auto found = blocks.find(address);
  if (found == blocks.end())
    return;
  Block &block = found->second;
  const unsigned char *guard = block.memory.get() + block.bytes;
  if (std::any_of(guard, guard + guardBytes,
                  [](unsigned char c) { return c != guardPattern; }))
    finding("somebody wrote behind a device allocation of " +
            std::to_string(block.bytes) + " bytes");
  freed[address] = block.bytes;
  allocatedBytes -= block.bytes;
  blocks.erase(found);
}

CUresult State::enqueueFree(Stream &stream, CUdeviceptr address) {
  auto found = blocks.find(address);
  if (found == blocks.end() || found->second.freeing) {
    finding("cuMemFreeAsync of " + std::string(found == blocks.end()
                                                   ? "what is no allocation"
                                                   : "what is freed already"));
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.freeing = true;
  // Work of other streams that nobody waited for may come after the free.
  uint64_t end = address + found->second.bytes;
  streams.forEach([&](Stream &other) {
    if (&other == &stream)
      return;
    for (const Operation &operation : other.pending)
      for (uint64_t word : operation.words)
        if (word >= address && word < end)
          finding("memory freed while " + operation.name +
                  " of another stream uses it");
  });
  return enqueue(stream, {"free",
                          [this, address] {
                            finishFree(address);
                            return CUDA_SUCCESS;
                          },
                          nullptr,
                          {}});
}

unsigned char *State::resolve(uint64_t address, uint64_t bytes,
                              const std::string &what) {
  auto after = blocks.upper_bound(address);
  if (after != blocks.begin()) {
    auto block = std::prev(after);
    if (address - block->first <= block->second.bytes &&
        bytes <= block->second.bytes - (address - block->first))
      return block->second.memory.get() + (address - block->first);
  }
  finding(what + ": " + std::to_string(bytes) +
          " bytes that are not in one allocation");
  return nullptr;
}

bool State::pinned(const void *address, uint64_t bytes) const {
  uint64_t at = reinterpret_cast<uintptr_t>(address);
  auto after = pinnedBlocks.upper_bound(at);
  if (after == pinnedBlocks.begin())
    return false;
  auto block = std::prev(after);
  return at - block->first + bytes <= block->second.bytes;
}

Stream *State::stream(const void *handle, const char *call) {
  if (!handle) {
    finding(std::string(call) + " on the default stream");
    return nullptr;
  }
  Stream *found = streams.find(handle);
  if (!found)
    finding(std::string(call) + " on what is no stream, or is destroyed");
  return found;
}

CUresult State::enqueue(Stream &stream, Operation operation) {
  if (stream.capture) {
    stream.capture->operations.push_back(std::move(operation));
    return CUDA_SUCCESS;
  }
  ++stream.enqueued;
  stream.milliseconds += operation.milliseconds;
  stream.pending.push_back(std::move(operation));
  return CUDA_SUCCESS;
}

void State::checkWords(const Operation &operation) {
  for (size_t i = 0; i < operation.words.size(); ++i) {
    uint64_t word = operation.words[i];
    // Sizes and strides are below; addresses of this process above.
    if (word < uint64_t(1) << 32)
      continue;
    auto after = blocks.upper_bound(word);
    if (after != blocks.begin()) {
      auto block = std::prev(after);
      if (word - block->first <= block->second.bytes)
        continue;
    }
    auto gone = freed.upper_bound(word);
    bool wasFreed = gone != freed.begin() &&
                    word - std::prev(gone)->first < std::prev(gone)->second;
    if (word == UINT64_MAX)
      continue;
    finding(operation.name + ": word " + std::to_string(i) + " is " +
            (wasFreed ? "in memory that was freed"
                      : "no address of the device, " + hex(word)));
  }
}

CUresult State::drain(Stream &stream, uint64_t until) {
  while (stream.executed < until && !stream.pending.empty()) {
    Operation operation = std::move(stream.pending.front());
    stream.pending.pop_front();
    ++stream.executed;
    // After an error nothing runs, but memory comes back.
    if (sticky != CUDA_SUCCESS && operation.name != "free")
      continue;
    checkWords(operation);
    if (operation.function && settings.failName == "execute" &&
        settings.failCall == ++counts["execute"])
      sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    else if (CUresult result = operation.run(); result != CUDA_SUCCESS)
      sticky = result;
  }
  return sticky;
}

CUresult State::runKernel(const Function &function,
                          const std::vector<uint64_t> &words, unsigned blocks) {
  if (function.emulated) {
    std::string problem =
        function.emulated->launch(function.name, words, blocks, this->blocks);
    if (problem.empty())
      return CUDA_SUCCESS;
    finding("emulator: " + problem);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (!kernelLibrary)
    return CUDA_SUCCESS;
  using Kernel = void (*)(const uint64_t *, int64_t, int64_t, void *);
  auto kernel =
      reinterpret_cast<Kernel>(::dlsym(kernelLibrary, function.name.c_str()));
  if (!kernel)
    return CUDA_SUCCESS;
  std::vector<uint64_t> scratch(1 << 13);
  kernel(words.data(), 0, blocks, scratch.data());
  return CUDA_SUCCESS;
}

// ---- The control functions.

void prefill_stub_reset(const char *settings) {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  state.reset(settings ? settings : "");
}

const char *prefill_stub_report() {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  static std::string text;
  text = state.report();
  return text.c_str();
}

const char *prefill_stub_calls() {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  static std::string text;
  text = state.calls;
  return text.c_str();
}

uint64_t prefill_stub_count(const char *name) {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  return state.counts[name];
}

int prefill_stub_enqueue(void *stream, const char *name, void (*work)(void *),
                         void (*release)(void *), void *data,
                         const uint64_t *addresses, uint64_t numAddresses) {
  State &state = State::instance();
  std::lock_guard lock(state.mutex);
  std::shared_ptr<void> owned(data, release);
  if (CUresult result = state.begin(name, ""); result != CUDA_SUCCESS)
    return result;
  Stream *target = state.stream(stream, name);
  if (!target)
    return CUDA_ERROR_INVALID_HANDLE;
  return state.enqueue(*target, {name,
                                 [owned, work] {
                                   work(owned.get());
                                   return CUDA_SUCCESS;
                                 },
                                 reinterpret_cast<const void *>(work),
                                 {addresses, addresses + numAddresses}});
}
