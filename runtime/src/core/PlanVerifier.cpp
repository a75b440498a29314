// Everything that a module says of one device: kernels, schedules, code.
#include "core/PlanVerifier.h"
#include "core/ModuleFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_set>

using namespace prefill;
using namespace prefill::rt;

namespace {

// Limits far above any model and far below an overflow.
constexpr int64_t maxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t maxScratchBytes = int64_t(1) << 32;
// Workgroups for each block of rows: column tiles or heads.
constexpr int64_t maxMultiplier = int64_t(1) << 20;

/// Threads of a block, scratch and the like fit the plan's target.
Result<void> verifyResources(const module::Plan &plan,
                             const module::Kernel &kernel,
                             const std::string &what) {
  const module::CudaResources *cuda = kernel.cuda();
  if (!cuda != !isCuda(plan))
    return invalidModule(what + (cuda ? " has" : " lacks") +
                         " CUDA resources, but the plan is for " +
                         quote(plan.target()->string_view()));
  if (!cuda)
    return {};
  if (kernel.scratch_bytes() != 0)
    return invalidModule(what + ": scratch_bytes is " +
                         std::to_string(kernel.scratch_bytes()) +
                         ", expected 0 for cuda");
  struct {
    const char *name;
    int64_t value, high;
  } ranges[] = {
      {"block_threads", cuda->block_threads(), 1024},
      {"shared_bytes", cuda->shared_bytes(), 227 << 10},
      {"registers", cuda->registers(), 255},
      {"spill_bytes", cuda->spill_bytes(), 1 << 20},
      {"resident_blocks", cuda->resident_blocks(), 64},
  };
  for (const auto &range : ranges)
    if (auto ok = checkRange(what + ": " + range.name, range.value,
                             &range == ranges ? 1 : 0, range.high);
        !ok)
      return ok;
  // Written so that NaN is refused.
  if (!(cuda->occupancy() >= 0 && cuda->occupancy() <= 1))
    return invalidModule(what + ": occupancy is " +
                         std::to_string(cuda->occupancy()) +
                         ", expected 0 to 1");
  return {};
}

Result<void> verifyKernels(const module::Plan &plan) {
  const auto &kernels = *plan.kernels();
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    const module::Kernel &kernel = *kernels[i];
    std::string what = indexed("kernel", i, kernel.name());
    if (kernel.name()->size() == 0)
      return invalidModule(what + " has no name");
    if (!names.insert(kernel.name()->string_view()).second)
      return invalidModule(what + ": an earlier kernel has the same name");
    const module::Grid &grid = *kernel.grid();
    if (grid.domain() > module::RowDomain::MAX ||
        grid.domain() < module::RowDomain::MIN)
      return invalidModule(what + ": unknown row domain " +
                           std::to_string(int(grid.domain())));
    if (auto ok = checkRange(what + ": block", grid.block(), 1, maxInt32); !ok)
      return ok;
    if (auto ok = checkRange(what + ": multiplier", grid.multiplier(), 1,
                             maxMultiplier);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": scratch_bytes", kernel.scratch_bytes(),
                             0, maxScratchBytes);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": num_words", kernel.num_words(), 0,
                             int64_t(maxLaunchArgs) * 16);
        !ok)
      return ok;
    if (auto ok = verifyResources(plan, kernel, what); !ok)
      return ok;
  }
  return {};
}

bool isChipName(std::string_view name) {
  if (name.substr(0, 3) != "sm_" || name.size() < 5 || name.size() > 8)
    return false;
  return std::all_of(name.begin() + 3, name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
  });
}

Result<void> verifyCode(const module::Plan &plan) {
  using module::CodeFormat;
  const auto &codes = *plan.code();
  constexpr uint32_t maxCodes = 64;
  if (codes.size() > maxCodes)
    return invalidModule("the plan for " + quote(plan.target()->string_view()) +
                         " has " + std::to_string(codes.size()) +
                         " code objects, expected at most " +
                         std::to_string(maxCodes));
  for (uint32_t i = 0; i < codes.size(); ++i) {
    const module::Code &code = *codes[i];
    std::string variant = code.variant()->str();
    std::string what =
        "code " + quote(plan.target()->string_view()) + ":" + quote(variant);
    if (code.format() < CodeFormat::MIN || code.format() > CodeFormat::MAX)
      return invalidModule(what + ": unknown format " +
                           std::to_string(int(code.format())));
    what += std::string(" (") + module::EnumNameCodeFormat(code.format()) + ")";
    if ((code.format() == CodeFormat::elf) == isCuda(plan))
      return invalidModule(what + ": the format is not one for " +
                           quote(plan.target()->string_view()));
    if (isCuda(plan) && variant != plan.chip()->str())
      return invalidModule(what + " is in the plan for " +
                           quote(plan.chip()->string_view()));
    if (code.object()->size() == 0)
      return invalidModule(what + " is empty");
    for (uint32_t j = 0; j < i; ++j)
      if (codes[j]->format() == code.format() &&
          codes[j]->variant()->string_view() == variant)
        return invalidModule(what + " appears twice");
  }
  return {};
}

Result<void> verifyTarget(const module::Module &file, uint32_t index) {
  const module::Plan &plan = *file.plans()->Get(index);
  std::string_view target = plan.target()->string_view();
  std::string_view chip = plan.chip() ? plan.chip()->string_view() : "";
  if (target != "cpu" && target != "cuda")
    return invalidModule("plan " + std::to_string(index) + " is for " +
                         quote(target) + ", expected cpu or cuda");
  if (isCuda(plan) ? !isChipName(chip) : !chip.empty())
    return invalidModule("plan " + std::to_string(index) + " for " +
                         quote(target) + ": chip is " + quote(chip) +
                         ", expected " + (isCuda(plan) ? "sm_XX" : "none"));
  if (auto ok = checkRange("plan " + std::to_string(index) + " for " +
                               quote(target) + ": multiprocessors",
                           plan.multiprocessors(), 0, isCuda(plan) ? 4096 : 0);
      !ok)
    return ok;
  if (isCuda(plan) && file.kv_cache()->layout() == module::KVLayout::paged_vnni)
    return invalidModule("plan " + std::to_string(index) + " for " +
                         quote(target) +
                         ": kv_cache layout is paged_vnni, expected "
                         "contiguous, head_major or paged_nhd");
  for (uint32_t other = 0; other < index; ++other) {
    const module::Plan &earlier = *file.plans()->Get(other);
    if (earlier.target()->string_view() == target &&
        (earlier.chip() ? earlier.chip()->string_view() : "") == chip)
      return invalidModule("plans " + std::to_string(other) + " and " +
                           std::to_string(index) + " are both for " +
                           quote(target) +
                           (chip.empty() ? "" : ":" + std::string(chip)));
  }
  return {};
}

} // namespace

std::string prefill::rt::indexed(const char *kind, uint32_t index,
                                 const flatbuffers::String *name) {
  return std::string(kind) + " " + std::to_string(index) + " " +
         quote(name->string_view());
}

bool prefill::rt::isCuda(const module::Plan &plan) {
  return plan.target()->string_view() == "cuda";
}

Result<void> prefill::rt::verifyPlan(const module::Module &file,
                                     uint32_t index) {
  const module::Plan &plan = *file.plans()->Get(index);
  if (auto ok = verifyTarget(file, index); !ok)
    return ok;
  if (auto ok = verifyWeightProgram(plan, file.max_seq()); !ok)
    return ok;
  if (auto ok = verifyKernels(plan); !ok)
    return ok;
  if (auto ok = verifySchedules(file, plan); !ok)
    return ok;
  return verifyCode(plan);
}
