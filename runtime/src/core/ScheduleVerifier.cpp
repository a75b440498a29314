// What a plan launches for calls of how many rows.
#include "core/ModuleFile.h"
#include "core/PlanVerifier.h"
#include "prefill/checkpoint/Quote.h"

#include <limits>
#include <vector>

using namespace prefill;
using namespace prefill::rt;

namespace {

// Far above any model and far below an overflow: products of two extents fit
// in 64 bits.
constexpr int64_t maxExtent = int64_t(1) << 40;

/// A launch of a plan, for the sake of its kernel's other launches.
struct Place {
  const module::Launch *launch = nullptr;
  uint32_t schedule = 0, index = 0;
};

/// Verifies one schedule; every message names it.
class ScheduleVerifier {
public:
  ScheduleVerifier(const module::Module &file, const module::Plan &plan,
                   uint32_t index, std::vector<Place> &firstLaunches)
      : file(file), plan(plan), schedule(*plan.schedules()->Get(index)),
        index(index), firstLaunches(firstLaunches) {}

  Result<void> verify();

private:
  std::string named(const std::string &what) const {
    return "schedule " + std::to_string(index) + ": " + what;
  }
  Error invalid(const std::string &message) const {
    return invalidModule(named(message));
  }
  Result<void> verifyMaxRows() const;
  Result<void> verifyBuckets() const;
  Result<void> verifyBuffers() const;
  Result<void> verifyArg(const module::Arg &arg, const std::string &what) const;
  Result<void> verifyKinds(uint32_t launchIndex, const Place &first) const;
  Result<void> verifyProduct(const module::Launch &launch,
                             const std::string &what) const;
  Result<void> verifyLaunches();

  const module::Module &file;
  const module::Plan &plan;
  const module::Schedule &schedule;
  uint32_t index;
  std::vector<Place> &firstLaunches; ///< of each kernel of the plan
};

/// Calls of every length have a schedule, and every schedule has calls.
Result<void> ScheduleVerifier::verifyMaxRows() const {
  int64_t previous =
      index ? plan.schedules()->Get(index - 1)->max_rows() : int64_t(0);
  if (index + 1 == plan.schedules()->size()) {
    if (schedule.max_rows() != 0)
      return invalid("max_rows is " + std::to_string(schedule.max_rows()) +
                     ", expected 0, any number, of the last schedule");
    return {};
  }
  return checkRange(named("max_rows"), schedule.max_rows(), previous + 1,
                    std::numeric_limits<int32_t>::max());
}

Result<void> ScheduleVerifier::verifyBuckets() const {
  const auto &buckets = *schedule.row_buckets();
  if (buckets.size() == 0)
    return invalid("row_buckets is empty");
  int64_t previous = 0;
  for (int32_t bucket : buckets) {
    if (bucket <= previous || bucket > 1 << 20)
      return invalid("row_buckets hold " + std::to_string(bucket) + " after " +
                     std::to_string(previous) +
                     ", expected increasing numbers of at most 2^20");
    previous = bucket;
  }
  return {};
}

Result<void> ScheduleVerifier::verifyBuffers() const {
  const auto &buffers = *schedule.buffers();
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    const module::Buffer &buffer = *buffers[i];
    std::string what = indexed("buffer", i, buffer.name());
    if (buffer.domain() > module::RowDomain::MAX ||
        buffer.domain() < module::RowDomain::MIN)
      return invalid(what + ": unknown row domain " +
                     std::to_string(int(buffer.domain())));
    if (byteSize(buffer.dtype()) == 0)
      return invalid(what + ": unknown dtype " +
                     std::to_string(int(buffer.dtype())));
    if (auto ok = checkRange(named(what + ": row_bytes"), buffer.row_bytes(), 1,
                             maxExtent / 2);
        !ok)
      return ok;
    if (auto ok = checkRange(named(what + ": row_offset"), buffer.row_offset(),
                             0, maxExtent / 2);
        !ok)
      return ok;
  }
  if (schedule.logits_buffer() >= buffers.size())
    return invalid("logits_buffer is " +
                   std::to_string(schedule.logits_buffer()) + ", but only " +
                   std::to_string(buffers.size()) + " buffers exist");
  const module::Buffer &logits = *buffers[schedule.logits_buffer()];
  const int64_t dense = file.vocab_size() * 4;
  if (logits.domain() != module::RowDomain::logits ||
      logits.dtype() != module::DType::f32 || logits.row_bytes() < dense ||
      (isCuda(plan) && logits.row_bytes() != dense))
    return invalid(
        indexed("logits buffer", schedule.logits_buffer(), logits.name()) +
        ": expected rows of " + (isCuda(plan) ? "" : "at least ") +
        std::to_string(file.vocab_size()) +
        " f32 (vocab_size) in the logits domain");
  return {};
}

/// One argument of a launch; `what` starts the message.
Result<void> ScheduleVerifier::verifyArg(const module::Arg &arg,
                                         const std::string &what) const {
  auto limit = [&](const char *kind, uint32_t size) -> Result<void> {
    if (arg.index() < size)
      return {};
    return invalid(what + ": " + kind + " " + std::to_string(arg.index()) +
                   ", but only " + std::to_string(size) + " exist");
  };
  switch (arg.kind()) {
  case module::ArgKind::buffer:
    return limit("buffer", schedule.buffers()->size());
  case module::ArgKind::weight: {
    if (auto ok = limit("weight", plan.weights()->size()); !ok)
      return ok;
    const module::Weight &weight = *plan.weights()->Get(arg.index());
    if (!weight.resident())
      return invalid(what + ": " +
                     indexed("weight", arg.index(), weight.name()) +
                     " is not resident");
    return {};
  }
  case module::ArgKind::batch:
    return {};
  case module::ArgKind::kv_cache:
    return limit("layer", static_cast<uint32_t>(file.num_layers()));
  case module::ArgKind::score:
    return checkRange(named(what + ": score heads"), arg.index(), 1, 1 << 20);
  }
  return invalid(what + ": unknown kind " + std::to_string(int(arg.kind())));
}

/// Launches of one kernel pass the same kinds of arguments in the same order:
/// the sum of their words alone does not tell a pointer from a size.
Result<void> ScheduleVerifier::verifyKinds(uint32_t launchIndex,
                                           const Place &first) const {
  const module::Launch &launch = *schedule.launches()->Get(launchIndex);
  std::string what = "launch " + std::to_string(launchIndex);
  std::string other = " launch " + std::to_string(first.index) +
                      (first.schedule == index
                           ? ""
                           : " of schedule " + std::to_string(first.schedule)) +
                      " of the same " +
                      indexed("kernel", launch.kernel(),
                              plan.kernels()->Get(launch.kernel())->name());
  if (launch.args()->size() != first.launch->args()->size())
    return invalid(what + " has " + std::to_string(launch.args()->size()) +
                   " arguments, but" + other + " has " +
                   std::to_string(first.launch->args()->size()));
  for (uint32_t j = 0; j < launch.args()->size(); ++j) {
    module::ArgKind kind = launch.args()->Get(j)->kind();
    module::ArgKind expected = first.launch->args()->Get(j)->kind();
    if (kind != expected)
      return invalid(what + ", argument " + std::to_string(j) + ": kind " +
                     module::EnumNameArgKind(kind) + ", but" + other +
                     " passes " + module::EnumNameArgKind(expected));
  }
  return {};
}

/// A library would read and write what this table says: the shapes of weight
/// and buffers must agree. The launch's arguments are verified.
Result<void> ScheduleVerifier::verifyProduct(const module::Launch &launch,
                                             const std::string &what) const {
  const module::MatrixProduct &product = *launch.product();
  if (!isCuda(plan))
    return invalid(what + ", expected none in a plan for " +
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
      return invalid(what + ": " + name + " is argument " +
                     std::to_string(place) + ", which is no " +
                     module::EnumNameArgKind(kind));
  auto buffer = [&](uint32_t place) -> const module::Buffer & {
    return *schedule.buffers()->Get(launch.args()->Get(place)->index());
  };
  const module::Weight &weight =
      *plan.weights()->Get(launch.args()->Get(product.weight())->index());
  const module::Buffer &input = buffer(product.input()),
                       &output = buffer(product.output());
  if (weight.shape()->size() != 2)
    return invalid(what + ": the weight has rank " +
                   std::to_string(weight.shape()->size()) + ", expected 2");
  if (input.dtype() != weight.dtype() || input.domain() != output.domain())
    return invalid(what + ": the input has another " +
                   (input.dtype() != weight.dtype()
                        ? "dtype than the weight"
                        : "row domain than the output"));
  int64_t inputBytes = weight.shape()->Get(1) * byteSize(weight.dtype()),
          outputBytes = weight.shape()->Get(0) * byteSize(output.dtype());
  if (input.row_bytes() != inputBytes || output.row_bytes() != outputBytes)
    return invalid(what + ": rows of " + std::to_string(input.row_bytes()) +
                   " and " + std::to_string(output.row_bytes()) +
                   " bytes, but the weight's shape asks for " +
                   std::to_string(inputBytes) + " and " +
                   std::to_string(outputBytes));
  return {};
}

Result<void> ScheduleVerifier::verifyLaunches() {
  const auto &launches = *schedule.launches();
  for (uint32_t i = 0; i < launches.size(); ++i) {
    const module::Launch &launch = *launches[i];
    std::string what = "launch " + std::to_string(i);
    if (launch.kernel() >= plan.kernels()->size())
      return invalid(what + ": kernel " + std::to_string(launch.kernel()) +
                     ", but only " + std::to_string(plan.kernels()->size()) +
                     " exist");
    if (auto ok = checkRange(named(what + ": layer"), launch.layer(), -1,
                             file.num_layers() - 1);
        !ok)
      return ok;
    if (launch.args()->size() > maxLaunchArgs)
      return invalid(what + " has " + std::to_string(launch.args()->size()) +
                     " arguments, expected at most " +
                     std::to_string(maxLaunchArgs));
    int words = 0;
    for (uint32_t j = 0; j < launch.args()->size(); ++j) {
      const module::Arg &arg = *launch.args()->Get(j);
      if (auto ok = verifyArg(arg, what + ", argument " + std::to_string(j));
          !ok)
        return ok;
      words += numWords(arg.kind());
    }
    const module::Kernel &kernel = *plan.kernels()->Get(launch.kernel());
    if (words != kernel.num_words())
      return invalid(what + " passes " + std::to_string(words) +
                     " words, but " +
                     indexed("kernel", launch.kernel(), kernel.name()) +
                     " takes " + std::to_string(kernel.num_words()));
    Place &first = firstLaunches[launch.kernel()];
    if (!first.launch)
      first = {&launch, index, i};
    if (auto ok = verifyKinds(i, first); !ok)
      return ok;
    if (launch.read_only())
      for (uint32_t place : *launch.read_only()) {
        if (place >= launch.args()->size())
          return invalid(what + ": read_only argument " +
                         std::to_string(place) + ", but only " +
                         std::to_string(launch.args()->size()) + " exist");
        module::ArgKind kind = launch.args()->Get(place)->kind();
        if (kind != module::ArgKind::buffer &&
            kind != module::ArgKind::kv_cache)
          return invalid(what + ": read_only argument " +
                         std::to_string(place) + " is a " +
                         module::EnumNameArgKind(kind) +
                         ", expected a buffer or kv_cache");
      }
    if (launch.product())
      if (auto ok = verifyProduct(launch, what + ", product"); !ok)
        return ok;
  }
  return {};
}

Result<void> ScheduleVerifier::verify() {
  if (auto ok = verifyMaxRows(); !ok)
    return ok;
  if (auto ok = verifyBuckets(); !ok)
    return ok;
  if (auto ok = verifyBuffers(); !ok)
    return ok;
  return verifyLaunches();
}

} // namespace

Result<void> prefill::rt::verifySchedules(const module::Module &file,
                                          const module::Plan &plan) {
  constexpr uint32_t maxSchedules = 64;
  uint32_t count = plan.schedules()->size();
  if (count < 1 || count > maxSchedules)
    return invalidModule("the plan for " + quote(plan.target()->string_view()) +
                         " has " + std::to_string(count) +
                         " schedules, expected 1 to " +
                         std::to_string(maxSchedules));
  std::vector<Place> firstLaunches(plan.kernels()->size());
  for (uint32_t i = 0; i < count; ++i)
    if (auto ok = ScheduleVerifier(file, plan, i, firstLaunches).verify(); !ok)
      return ok;
  return {};
}
