#include "emulation/EmulationBackend.h"
#include "core/PlanChoice.h"
#include "emulation/CountersJson.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <utility>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::rt::emulation;

namespace {

class EmulatedCode : public LoadedCode {
public:
  EmulatedCode(EmulationBackend &backend, const module::Plan &plan,
               Program program)
      : LoadedCode(plan), backend(backend), program(std::move(program)) {}

  std::string variant() const override { return plan().chip()->str(); }
  Result<std::unique_ptr<Stream>> createStream(Allocator &) override;

  EmulationBackend &backend;
  const Program program;
};

/// A launch is done when it returns.
class EmulatedStream : public Stream {
public:
  explicit EmulatedStream(EmulatedCode &code) : code(code) {}

  Result<void> beginCall(const CallShape &shape) override {
    json.clear();
    schedule = code.plan().schedules()->Get(shape.schedule);
    return {};
  }

  Result<void> launch(const KernelLaunch &launch) override {
    const module::Launch &table = *schedule->launches()->Get(launch.launch);
    std::string kernel =
        code.plan().kernels()->Get(launch.kernel)->name()->str();
    Result<LaunchCounters> counters =
        code.backend.run(code.program, kernel, launch);
    if (!counters)
      return counters.takeError();
    json += (json.empty() ? "" : ",\n ") +
            countersJson({table.name() ? table.name()->str() : kernel, kernel,
                          table.layer(), launch.workgroups},
                         *counters);
    return {};
  }

  Result<void> synchronize() override { return {}; }
  std::string counters() const override { return "[" + json + "]"; }

private:
  EmulatedCode &code;
  const module::Schedule *schedule = nullptr; ///< of the call
  std::string json;                           ///< the objects of the call
};

Result<std::unique_ptr<Stream>> EmulatedCode::createStream(Allocator &) {
  return std::unique_ptr<Stream>(new EmulatedStream(*this));
}

/// The code was made for what the plan says of its kernels.
Result<void> checkKernels(const module::Plan &plan, const Program &program,
                          const std::string &what) {
  for (const module::Kernel *kernel : *plan.kernels()) {
    const Kernel *code = program.kernel(kernel->name()->str());
    std::string name = "kernel " + quote(kernel->name()->string_view());
    if (!code)
      return invalidModule(what + " does not define " + name);
    const module::CudaResources &cuda = *kernel->cuda();
    struct {
      const char *what;
      int64_t code, plan;
    } numbers[] = {
        {"words", code->words, kernel->num_words()},
        {"threads in a block", code->threads, cuda.block_threads()},
        {"bytes of shared memory", code->sharedBytes, cuda.shared_bytes()}};
    for (const auto &number : numbers)
      if (number.code != number.plan)
        return invalidModule(
            what + ": " + name + " has " + std::to_string(number.code) + " " +
            number.what + ", but its plan says " + std::to_string(number.plan));
  }
  return {};
}

} // namespace

Result<DeviceAddress> EmulatedMemory::take(uint64_t bytes) {
  if (!reserveOnly || bytes < ownPagesBytes)
    return HostMemory::take(bytes);
  void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return Error{ErrorCode::outOfMemory,
                 std::string("mmap: ") + std::strerror(errno)};
  return addressOf(memory);
}

Result<std::unique_ptr<LoadedCode>>
EmulationBackend::load(const module::Module &file) {
  const module::Plan *plan = findPlan(file, "cuda", chip);
  const module::Code *object =
      plan ? findCode(*plan, module::CodeFormat::emulation, chip) : nullptr;
  if (!object)
    return Error{ErrorCode::unsupported,
                 "the module has no code for cuda-emu:" + chip + ", it has " +
                     quote(listCode(file))};
  std::string what = "code cuda-emu:" + chip;
  Result<Program> program =
      Program::load(object->object()->data(), object->object()->size(), what);
  if (!program)
    return program.takeError();
  if (Result<void> ok = checkKernels(*plan, *program, what); !ok)
    return ok.takeError();
  return std::unique_ptr<LoadedCode>(
      new EmulatedCode(*this, *plan, std::move(*program)));
}

Result<void> EmulationBackend::configureEmulation(uint64_t seed,
                                                  bool countOnly) {
  std::lock_guard<std::mutex> lock(mutex);
  options.seed = seed;
  options.countOnly = countOnly;
  hostMemory.reserveOnly = countOnly;
  return {};
}

Result<LaunchCounters> EmulationBackend::run(const Program &program,
                                             const std::string &kernel,
                                             const KernelLaunch &launch) {
  // A launch may name a buffer twice.
  std::map<DeviceAddress, MemoryRange> ranges;
  for (const MemoryRange &range : launch.ranges) {
    if (range.bytes == 0)
      continue;
    auto [known, isNew] = ranges.try_emplace(range.address, range);
    if (!isNew && known->second.bytes == range.bytes)
      known->second.writable |= range.writable;
    else if (!isNew)
      return invalidModule("arguments " + quote(known->second.name) + " and " +
                           quote(range.name) + " begin at the same place");
  }
  std::lock_guard<std::mutex> lock(mutex);
  emulator.memory().clear();
  for (const auto &[address, range] : ranges)
    if (Result<void> ok = emulator.memory().add(
            hostPointer(address), range.bytes, range.name, range.writable);
        !ok)
      return invalidModule(ok.error().message);
  Result<LaunchOutcome> outcome = emulator.launch(program, kernel, launch.words,
                                                  launch.workgroups, options);
  if (!outcome)
    return outcome.takeError();
  if (outcome->report)
    return Error{ErrorCode::invalidModule, outcome->report->message()};
  return std::move(outcome->counters);
}
