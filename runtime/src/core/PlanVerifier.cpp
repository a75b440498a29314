// Everything that a module says of one device: buffers, kernels, launches,
// code.
#include "core/ModuleFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

using namespace prefill;
using namespace prefill::rt;

namespace {

// Limits far above any model and far below an overflow: with them, products of
// two extents fit in 64 bits.
constexpr int64_t maxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t maxExtent = int64_t(1) << 40;
constexpr int64_t maxScratchBytes = int64_t(1) << 32;
constexpr uint32_t maxArgs = 1024;
// Workgroups for each block of rows: column tiles or heads.
constexpr int64_t maxMultiplier = int64_t(1) << 20;

std::string indexed(const char *kind, uint32_t index,
                    const flatbuffers::String *name) {
  return std::string(kind) + " " + std::to_string(index) + " " +
         quote(name->string_view());
}

Result<void> verifyBuckets(const module::Plan &plan) {
  const auto &buckets = *plan.row_buckets();
  if (buckets.size() == 0)
    return invalidModule("row_buckets is empty");
  int64_t previous = 0;
  for (int32_t bucket : buckets) {
    if (bucket <= previous || bucket > 1 << 20)
      return invalidModule("row_buckets hold " + std::to_string(bucket) +
                           " after " + std::to_string(previous) +
                           ", expected increasing numbers of at most 2^20");
    previous = bucket;
  }
  return {};
}

Result<void> verifyBuffers(const module::Plan &plan, int64_t vocabSize) {
  const auto &buffers = *plan.buffers();
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    const module::Buffer &buffer = *buffers[i];
    std::string what = indexed("buffer", i, buffer.name());
    if (buffer.domain() > module::RowDomain::MAX ||
        buffer.domain() < module::RowDomain::MIN)
      return invalidModule(what + ": unknown row domain " +
                           std::to_string(int(buffer.domain())));
    if (byteSize(buffer.dtype()) == 0)
      return invalidModule(what + ": unknown dtype " +
                           std::to_string(int(buffer.dtype())));
    if (auto ok = checkRange(what + ": row_bytes", buffer.row_bytes(), 1,
                             maxExtent / 2);
        !ok)
      return ok;
    if (auto ok = checkRange(what + ": row_offset", buffer.row_offset(), 0,
                             maxExtent / 2);
        !ok)
      return ok;
  }
  if (plan.logits_buffer() >= buffers.size())
    return invalidModule("logits_buffer is " +
                         std::to_string(plan.logits_buffer()) + ", but only " +
                         std::to_string(buffers.size()) + " buffers exist");
  const module::Buffer &logits = *buffers[plan.logits_buffer()];
  if (logits.domain() != module::RowDomain::logits ||
      logits.dtype() != module::DType::f32 ||
      logits.row_bytes() != vocabSize * 4)
    return invalidModule(
        indexed("logits buffer", plan.logits_buffer(), logits.name()) +
        ": expected f32 rows of vocab_size " + std::to_string(vocabSize) +
        " in the logits domain");
  return {};
}

bool isCuda(const module::Plan &plan) {
  return plan.target()->string_view() == "cuda";
}

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
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    const module::Kernel &kernel = *kernels[i];
    std::string what = indexed("kernel", i, kernel.name());
    if (kernel.name()->size() == 0)
      return invalidModule(what + " has no name");
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
                             int64_t(maxArgs) * 16);
        !ok)
      return ok;
    if (auto ok = verifyResources(plan, kernel, what); !ok)
      return ok;
  }
  return {};
}

/// One argument of a launch; `what` starts the message.
Result<void> verifyArg(const module::Plan &plan, int64_t numLayers,
                       const module::Arg &arg, const std::string &what) {
  auto limit = [&](const char *kind, uint32_t size) -> Result<void> {
    if (arg.index() < size)
      return {};
    return invalidModule(what + ": " + kind + " " +
                         std::to_string(arg.index()) + ", but only " +
                         std::to_string(size) + " exist");
  };
  switch (arg.kind()) {
  case module::ArgKind::buffer:
    return limit("buffer", plan.buffers()->size());
  case module::ArgKind::weight: {
    if (auto ok = limit("weight", plan.weights()->size()); !ok)
      return ok;
    const module::Weight &weight = *plan.weights()->Get(arg.index());
    if (!weight.resident())
      return invalidModule(what + ": " +
                           indexed("weight", arg.index(), weight.name()) +
                           " is not resident");
    return {};
  }
  case module::ArgKind::batch:
    return {};
  case module::ArgKind::kv_cache:
    return limit("layer", static_cast<uint32_t>(numLayers));
  case module::ArgKind::score:
    return checkRange(what + ": score heads", arg.index(), 1, 1 << 20);
  }
  return invalidModule(what + ": unknown kind " +
                       std::to_string(int(arg.kind())));
}

/// Launches of one kernel pass the same kinds of arguments in the same order:
/// the sum of their words alone does not tell a pointer from a size.
Result<void> verifyKinds(const module::Plan &plan, uint32_t index,
                         uint32_t firstIndex) {
  const module::Launch &launch = *plan.launches()->Get(index);
  const module::Launch &first = *plan.launches()->Get(firstIndex);
  std::string what = "launch " + std::to_string(index);
  std::string other = " launch " + std::to_string(firstIndex) +
                      " of the same " +
                      indexed("kernel", launch.kernel(),
                              plan.kernels()->Get(launch.kernel())->name());
  if (launch.args()->size() != first.args()->size())
    return invalidModule(what + " has " +
                         std::to_string(launch.args()->size()) +
                         " arguments, but" + other + " has " +
                         std::to_string(first.args()->size()));
  for (uint32_t j = 0; j < launch.args()->size(); ++j) {
    module::ArgKind kind = launch.args()->Get(j)->kind();
    module::ArgKind expected = first.args()->Get(j)->kind();
    if (kind != expected)
      return invalidModule(what + ", argument " + std::to_string(j) +
                           ": kind " + module::EnumNameArgKind(kind) + ", but" +
                           other + " passes " +
                           module::EnumNameArgKind(expected));
  }
  return {};
}

/// A library would read and write what this table says: the shapes of weight
/// and buffers must agree. The launch's arguments are verified.
Result<void> verifyProduct(const module::Plan &plan,
                           const module::Launch &launch,
                           const std::string &what) {
  const module::MatrixProduct &product = *launch.product();
  if (!isCuda(plan))
    return invalidModule(what + ", expected none in a plan for " +
                         quote(plan.target()->str()));
  const struct {
    const char *name;
    uint32_t place;
    module::ArgKind kind;
  } operands[] = {
      {"input", product.input(), module::ArgKind::buffer},
      {"weight", product.weight(), module::ArgKind::weight},
      {"output", product.output(), module::ArgKind::buffer},
  };
  for (const auto &[name, place, kind] : operands)
    if (place >= launch.args()->size() ||
        launch.args()->Get(place)->kind() != kind)
      return invalidModule(what + ": " + name + " is argument " +
                           std::to_string(place) + ", which is no " +
                           module::EnumNameArgKind(kind));
  auto buffer = [&](uint32_t place) -> const module::Buffer & {
    return *plan.buffers()->Get(launch.args()->Get(place)->index());
  };
  const module::Weight &weight =
      *plan.weights()->Get(launch.args()->Get(product.weight())->index());
  const module::Buffer &input = buffer(product.input()),
                       &output = buffer(product.output());
  if (weight.shape()->size() != 2)
    return invalidModule(what + ": the weight has rank " +
                         std::to_string(weight.shape()->size()) +
                         ", expected 2");
  if (input.dtype() != weight.dtype() || input.domain() != output.domain())
    return invalidModule(what + ": the input has another " +
                         (input.dtype() != weight.dtype()
                              ? "dtype than the weight"
                              : "row domain than the output"));
  int64_t inputBytes = weight.shape()->Get(1) * byteSize(weight.dtype()),
          outputBytes = weight.shape()->Get(0) * byteSize(output.dtype());
  if (input.row_bytes() != inputBytes || output.row_bytes() != outputBytes)
    return invalidModule(
        what + ": rows of " + std::to_string(input.row_bytes()) + " and " +
        std::to_string(output.row_bytes()) +
        " bytes, but the weight's shape asks for " +
        std::to_string(inputBytes) + " and " + std::to_string(outputBytes));
  return {};
}

Result<void> verifyLaunches(const module::Plan &plan, int64_t numLayers) {
  const auto &launches = *plan.launches();
  std::vector<std::optional<uint32_t>> firstLaunch(plan.kernels()->size());
  for (uint32_t i = 0; i < launches.size(); ++i) {
    const module::Launch &launch = *launches[i];
    std::string what = "launch " + std::to_string(i);
    if (launch.kernel() >= plan.kernels()->size())
      return invalidModule(what + ": kernel " +
                           std::to_string(launch.kernel()) + ", but only " +
                           std::to_string(plan.kernels()->size()) + " exist");
    if (auto ok =
            checkRange(what + ": layer", launch.layer(), -1, numLayers - 1);
        !ok)
      return ok;
    if (launch.args()->size() > maxArgs)
      return invalidModule(
          what + " has " + std::to_string(launch.args()->size()) +
          " arguments, expected at most " + std::to_string(maxArgs));
    int words = 0;
    for (uint32_t j = 0; j < launch.args()->size(); ++j) {
      const module::Arg &arg = *launch.args()->Get(j);
      if (auto ok = verifyArg(plan, numLayers, arg,
                              what + ", argument " + std::to_string(j));
          !ok)
        return ok;
      words += numWords(arg.kind());
    }
    const module::Kernel &kernel = *plan.kernels()->Get(launch.kernel());
    if (words != kernel.num_words())
      return invalidModule(what + " passes " + std::to_string(words) +
                           " words, but " +
                           indexed("kernel", launch.kernel(), kernel.name()) +
                           " takes " + std::to_string(kernel.num_words()));
    std::optional<uint32_t> &first = firstLaunch[launch.kernel()];
    if (!first)
      first = i;
    if (auto ok = verifyKinds(plan, i, *first); !ok)
      return ok;
    if (launch.product())
      if (auto ok = verifyProduct(plan, launch, what + ", product"); !ok)
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

Result<void> prefill::rt::verifyPlan(const module::Module &file,
                                     uint32_t index) {
  const module::Plan &plan = *file.plans()->Get(index);
  if (auto ok = verifyTarget(file, index); !ok)
    return ok;
  if (auto ok = verifyBuckets(plan); !ok)
    return ok;
  if (auto ok = verifyWeightProgram(plan, file.max_seq()); !ok)
    return ok;
  if (auto ok = verifyBuffers(plan, file.vocab_size()); !ok)
    return ok;
  if (auto ok = verifyKernels(plan); !ok)
    return ok;
  if (auto ok = verifyLaunches(plan, file.num_layers()); !ok)
    return ok;
  return verifyCode(plan);
}
