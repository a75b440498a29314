#include "cpu/CpuBackend.h"
#include "core/Canary.h"
#include "core/PlanChoice.h"
#include "cpu/CodeObject.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace prefill;
using namespace prefill::rt;

namespace {

/// Calls into machine code that carries no type information for UBSan.
#if defined(__clang__)
__attribute__((no_sanitize("function")))
#endif
void callKernel(KernelFunction kernel, const uint64_t *args, int64_t begin,
                int64_t end, void *scratch) {
  kernel(args, begin, end, scratch);
}

class CpuCode : public LoadedCode {
public:
  static Result<std::unique_ptr<LoadedCode>> load(const module::Plan &plan,
                                                  const module::Code &code,
                                                  IsaVariant variant,
                                                  ThreadPool &threads) {
    std::string what = std::string("code cpu:") + stringify(variant);
    Result<CodeObject> object =
        CodeObject::load(code.object()->data(), code.object()->size(), what);
    if (!object)
      return object.takeError();
    std::vector<KernelFunction> functions;
    for (const module::Kernel *kernel : *plan.kernels()) {
      KernelFunction function = object->kernel(kernel->name()->str());
      if (!function)
        return invalidModule(what + " does not define kernel " +
                             quote(kernel->name()->string_view()));
      functions.push_back(function);
    }
    return std::unique_ptr<LoadedCode>(new CpuCode(
        plan, std::move(*object), variant, std::move(functions), threads));
  }

  std::string variant() const override { return stringify(isa); }
  Result<std::unique_ptr<Stream>> createStream(Allocator &allocator) override;

  ThreadPool &threads;
  const std::vector<KernelFunction> functions; ///< as the plan's kernels

private:
  CpuCode(const module::Plan &plan, CodeObject object, IsaVariant isa,
          std::vector<KernelFunction> functions, ThreadPool &threads)
      : LoadedCode(plan), threads(threads), functions(std::move(functions)),
        object(std::move(object)), isa(isa) {}

  CodeObject object;
  IsaVariant isa;
};

/// A launch is done when it returns. Threads have scratch of their own.
class CpuStream : public Stream {
public:
  CpuStream(CpuCode &code, Allocator &allocator)
      : code(code), allocator(allocator) {}

  Result<void> beginCall(const CallShape &) override {
    uint64_t bytes = 0;
    for (const module::Kernel *kernel : *code.plan().kernels())
      bytes = std::max<uint64_t>(bytes, kernel->scratch_bytes());
    scratchStride = (bytes + 63) / 64 * 64 + (poison ? canaryBytes : 0);
    uint64_t total = scratchStride * code.threads.size();
    if (total <= scratch.size())
      return {};
    scratch = Allocation();
    Result<Allocation> grown =
        allocator.allocate(MemoryClass::temporaries, total, "kernel scratch");
    if (!grown)
      return grown.takeError();
    scratch = std::move(*grown);
    return {};
  }

  Result<void> launch(const KernelLaunch &launch) override {
    if (poison) {
      uint64_t bytes =
          code.plan().kernels()->Get(launch.kernel)->scratch_bytes();
      for (int thread = 0; thread < code.threads.size(); ++thread) {
        std::memset(scratchOf(thread), canaryPattern, scratchStride);
        std::memset(scratchOf(thread), nanPattern, bytes);
      }
    }
    KernelFunction function = code.functions[launch.kernel];
    code.threads.run(
        launch.workgroups,
        [&](int thread, int64_t begin, int64_t end) {
          callKernel(function, launch.words.data(), begin, end,
                     scratchOf(thread));
        },
        launch.grain);
    return {};
  }

  Result<void> synchronize() override { return {}; }

  void setPoison(bool enabled) override {
    poison = enabled;
    scratch = Allocation(); // what a mode has laid out means nothing to the
                            // other
  }

  std::string damage(const module::Kernel &kernel) const override {
    for (int thread = 0; thread < code.threads.size(); ++thread) {
      const std::byte *own = scratch.data() + thread * scratchStride;
      if (std::any_of(
              own + kernel.scratch_bytes(), own + scratchStride,
              [](std::byte b) { return b != std::byte(canaryPattern); }))
        return "behind the scratch of thread " + std::to_string(thread);
    }
    return "";
  }

private:
  std::byte *scratchOf(int thread) {
    return scratch.data() + thread * scratchStride;
  }

  CpuCode &code;
  Allocator &allocator;
  Allocation scratch; ///< scratchStride bytes for each thread
  uint64_t scratchStride = 0;
  bool poison = false;
};

Result<std::unique_ptr<Stream>> CpuCode::createStream(Allocator &allocator) {
  return std::unique_ptr<Stream>(new CpuStream(*this, allocator));
}

} // namespace

Result<std::unique_ptr<LoadedCode>>
CpuBackend::load(const module::Module &file) {
  const module::Plan *plan = findPlan(file, "cpu", "");
  auto find = [&](IsaVariant variant) {
    return plan ? findCode(*plan, module::CodeFormat::elf, stringify(variant))
                : nullptr;
  };
  const module::Code *best = nullptr;
  IsaVariant chosen = IsaVariant::avx2;
  if (forced) {
    chosen = *forced;
    best = find(chosen);
    if (!best)
      return Error{ErrorCode::unsupported,
                   std::string("the module has no code for cpu:") +
                       stringify(chosen) + ", it has " + quote(listCode(file))};
  } else {
    if (std::optional<IsaVariant> variant = chooseVariant(
            [&](IsaVariant variant) { return find(variant) != nullptr; })) {
      chosen = *variant;
      best = find(chosen);
    }
    if (!best)
      return Error{ErrorCode::unsupported,
                   "the module has no code for this CPU: it has " +
                       quote(listCode(file)) + ", this CPU supports " +
                       hostVariants()};
  }
  return CpuCode::load(*plan, *best, chosen, threads);
}
