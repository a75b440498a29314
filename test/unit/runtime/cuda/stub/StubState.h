// What the recording driver knows.
#ifndef PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBSTATE_H
#define PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBSTATE_H

#include "StubEmulation.h"
#include "StubImage.h"
#include "cuda/DriverAbi.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace prefill::test::stub {

using namespace prefill::rt::cuda;

struct Settings {
  int devices = 1;
  int chip = 80;
  uint64_t memory = uint64_t(1) << 30;
  std::string kernels, emulate, failName, jitLog, log;
  uint64_t failCall = 0;
  bool refuseUpdates = false;
  double blockMicroseconds = 0;

  static Settings parse(const std::string &text);
};

/// Work in a stream. It runs as late as can be, when somebody waits for it:
/// what the host does too early is found out.
struct Operation {
  std::string name;
  std::function<CUresult()> run;
  /// A launch: what stands for the kernel in a comparison of graphs.
  const void *function = nullptr;
  /// Words that may be addresses of the device's memory.
  std::vector<uint64_t> words;
  /// That it is said to take.
  double milliseconds = 1;
};

struct Graph {
  std::vector<Operation> operations;
};

struct Stream {
  std::deque<Operation> pending;
  uint64_t enqueued = 0, executed = 0;
  double milliseconds = 0; ///< of all that was enqueued
  std::unique_ptr<Graph> capture;
  bool captureBroken = false;
};

struct Event {
  bool timing = false;
  Stream *stream = nullptr;
  uint64_t position = 0;
  double milliseconds = 0;
};

struct Module {
  Image image;
  std::shared_ptr<EmulatedImage> emulated;
};

struct Function {
  std::string name;
  std::shared_ptr<EmulatedImage> emulated;
  EntryPoint entry;
  int64_t dynamicSharedLimit = 48 << 10;
};

struct Block {
  uint64_t bytes = 0;
  std::unique_ptr<unsigned char, void (*)(void *)> memory{nullptr, nullptr};
  bool freeing = false; ///< a free is enqueued
};

/// Objects of one kind by their handles. A handle that was destroyed stays
/// known, so that its use is found out.
template <typename T> class Handles {
public:
  T *make() {
    all.push_back(std::make_unique<Entry>());
    return &all.back()->object;
  }
  T *find(const void *handle) {
    for (std::unique_ptr<Entry> &entry : all)
      if (&entry->object == handle && entry->alive)
        return &entry->object;
    return nullptr;
  }
  bool destroy(const void *handle) {
    for (std::unique_ptr<Entry> &entry : all)
      if (&entry->object == handle && entry->alive) {
        entry->alive = false;
        return true;
      }
    return false;
  }
  size_t alive() const {
    size_t count = 0;
    for (const std::unique_ptr<Entry> &entry : all)
      count += entry->alive;
    return count;
  }
  template <typename Body> void forEach(Body body) {
    for (std::unique_ptr<Entry> &entry : all)
      if (entry->alive)
        body(entry->object);
  }
  void clear() { all.clear(); }

private:
  struct Entry {
    T object;
    bool alive = true;
  };
  std::vector<std::unique_ptr<Entry>> all;
};

class State {
public:
  static State &instance();

  void reset(const std::string &settings);
  std::string report();
  void finding(const std::string &text);

  /// Every entry point begins with it: records the call, and answers with an
  /// error where one was asked for.
  CUresult begin(const char *name, const std::string &arguments,
                 bool needsContext = true);

  CUresult allocate(uint64_t bytes, CUdeviceptr *address);
  CUresult enqueueFree(Stream &stream, CUdeviceptr address);
  /// Null, and a finding, when the bytes are not all in one live block.
  unsigned char *resolve(uint64_t address, uint64_t bytes,
                         const std::string &what);
  bool pinned(const void *address, uint64_t bytes) const;

  /// The stream of a handle; null and a finding for the default stream and for
  /// what is none.
  Stream *stream(const void *handle, const char *call);
  CUresult enqueue(Stream &stream, Operation operation);
  CUresult drain(Stream &stream, uint64_t until);
  CUresult runKernel(const Function &function,
                     const std::vector<uint64_t> &words, unsigned blocks);

  std::recursive_mutex mutex;
  Settings settings;
  std::string calls;
  std::map<std::string, uint64_t> counts;
  int primaryContexts = 0;
  /// An error of asynchronous work: all calls fail from then on.
  CUresult sticky = CUDA_SUCCESS;
  bool initialized = false;

  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Graph> graphs, executables;
  std::map<const void *, std::unique_ptr<Function>> functions;
  std::map<uint64_t, Block> blocks;
  std::map<uint64_t, uint64_t> freed; ///< address to bytes
  std::map<uint64_t, Block> pinnedBlocks;
  uint64_t allocatedBytes = 0;

private:
  State();
  ~State();
  void checkWords(const Operation &operation);
  void finishFree(uint64_t address);

  std::vector<std::string> findings;
  void *kernelLibrary = nullptr;
};

/// Of this thread.
std::vector<CUcontext> &contextStack();

} // namespace prefill::test::stub

#endif // PREFILL_TEST_UNIT_RUNTIME_CUDA_STUB_STUBSTATE_H
