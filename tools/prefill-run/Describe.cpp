#include "Describe.h"
#include "Report.h"
#include "prefill/checkpoint/MappedFile.h"
#include "prefill/module/ElementSize.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <utility>

using namespace prefill;
using namespace prefill::run;
using prefill::rt::MappedFile;
using prefill::rt::Result;

namespace {

const char *sourceName(module::WeightSource source) {
  switch (source) {
  case module::WeightSource::CheckpointSource:
    return "as in the checkpoint";
  case module::WeightSource::ConcatSource:
    return "concatenated";
  case module::WeightSource::InterleaveSource:
    return "interleaved";
  case module::WeightSource::ScaleColumnsSource:
    return "scaled";
  case module::WeightSource::PackSource:
    return "packed";
  case module::WeightSource::RopeTableSource:
    return "rope table";
  case module::WeightSource::QuantizeSource:
    return "quantized";
  case module::WeightSource::QuantizeScaleSource:
    return "scales of quantized rows";
  case module::WeightSource::NONE:
    break;
  }
  return "?";
}

/// What is printed of a schedule for calls of any length.
constexpr int64_t longPrompt = 8192;

/// One line that scripts read; "?" for what only the assembler knows and
/// none was at hand when the module was compiled.
std::string resourcesLine(const module::Kernel &kernel,
                          const std::string &chip) {
  const module::CudaResources &cuda = *kernel.cuda();
  bool assembled = cuda.registers() > 0;
  auto number = [&](int64_t value) {
    return assembled ? std::to_string(value) : "?";
  };
  char occupancy[32] = "?";
  if (assembled)
    std::snprintf(occupancy, sizeof occupancy, "%.3g",
                  double(cuda.occupancy()));
  return "kernel=" + kernel.name()->str() + " chip=" + chip +
         " registers=" + number(cuda.registers()) +
         " spill_bytes=" + number(cuda.spill_bytes()) +
         " shared_bytes=" + std::to_string(cuda.shared_bytes()) +
         " occupancy=" + occupancy + "\n";
}

/// What a module's text says of one plan.
class PlanPrinter {
public:
  PlanPrinter(const module::Plan &plan, const std::string &chosen,
              std::ostringstream &out)
      : plan(plan), chosen(chosen), out(out) {}

  void print() {
    printCode();
    printDeterminism();
    printWeights();
    printKernels();
    for (const module::Schedule *schedule : *plan.schedules())
      printSchedule(*schedule);
  }

private:
  void printCode() {
    out << "target     " << plan.target()->str();
    if (plan.chip())
      out << ":" << plan.chip()->str();
    out << "\n";
    for (const module::Code *code : *plan.code()) {
      bool emulated = code->format() == module::CodeFormat::emulation;
      std::string device = (emulated ? "cuda-emu" : plan.target()->str()) +
                           ":" + code->variant()->str();
      out << "code       " << device;
      if (plan.chip() && !emulated)
        out << " " << module::EnumNameCodeFormat(code->format());
      out << ", " << formatBytes(double(code->object()->size()))
          << (device == chosen ? ", chosen here" : "") << "\n";
    }
  }

  /// A row's bits depend on what is computed beside it where attention is
  /// split along the keys, and where a library may multiply. Kernels are asked
  /// for their names since a launch need not have one.
  void printDeterminism() {
    bool same = true;
    for (const module::Schedule *schedule : *plan.schedules())
      for (const module::Launch *launch : *schedule->launches()) {
        const module::Kernel &kernel = *plan.kernels()->Get(launch->kernel());
        same &= !launch->product() &&
                kernel.name()->str().rfind("combine_splits", 0) != 0;
      }
    out << "deterministic " << (same ? "yes" : "no") << "\n";
  }

  void printWeights() {
    std::map<std::string, std::pair<int64_t, double>> resident;
    int64_t intermediate = 0;
    double total = 0;
    for (const module::Weight *weight : *plan.weights()) {
      if (!weight->resident()) {
        ++intermediate;
        continue;
      }
      double bytes = double(byteSize(weight->dtype()));
      for (int64_t extent : *weight->shape())
        bytes *= double(extent);
      auto &[count, sum] = resident[sourceName(weight->source_type())];
      ++count;
      sum += bytes;
      total += bytes;
    }
    out << "weights    " << formatBytes(total) << " resident; " << intermediate
        << " others are only read while loading\n";
    for (const auto &[name, entry] : resident)
      out << "           " << entry.first << " " << name << ", "
          << formatBytes(entry.second) << "\n";
  }

  void printSchedule(const module::Schedule &schedule) {
    out << "schedule   calls of "
        << (schedule.max_rows()
                ? "at most " + std::to_string(schedule.max_rows())
                : std::string("any number of"))
        << " tokens, " << schedule.launches()->size()
        << " launches\nrows       padded to";
    for (int32_t bucket : *schedule.row_buckets())
      out << ' ' << bucket;
    out << " and multiples of the last\n";
    printBuffers(schedule);
    printWaves(schedule);
    printLaunches(schedule);
  }

  /// How the tiles of the schedule's longest call fill the GPU that they were
  /// chosen for; where the assembler told how many share a multiprocessor.
  void printWaves(const module::Schedule &schedule) {
    int64_t sms = plan.multiprocessors();
    if (sms == 0)
      return;
    int64_t rows = schedule.max_rows() ? schedule.max_rows() : longPrompt;
    out << "waves      " << rows << " tokens, a row of logits, " << sms
        << " SMs\n";
    std::set<uint32_t> printed;
    for (const module::Launch *launch : *schedule.launches()) {
      const module::Kernel &kernel = *plan.kernels()->Get(launch->kernel());
      int64_t places = sms * kernel.cuda()->resident_blocks();
      if (places == 0 || !printed.insert(launch->kernel()).second)
        continue;
      const module::Grid &grid = *kernel.grid();
      int64_t data = grid.domain() == module::RowDomain::tokens ? rows : 1;
      int64_t tiles =
          (data + grid.block() - 1) / grid.block() * grid.multiplier();
      int64_t tail = tiles % places;
      char waves[32];
      std::snprintf(waves, sizeof waves, "%.2f",
                    double(tiles) / double(places));
      out << "  " << kernel.name()->str() << ": " << tiles << " tiles, "
          << waves << " waves of " << places << ", "
          << (tail ? std::max<int64_t>(0, sms - tail) : 0)
          << " SMs idle in the last\n";
    }
  }

  void printBuffers(const module::Schedule &schedule) {
    std::map<module::RowDomain, int64_t> rowBytes;
    for (const module::Buffer *buffer : *schedule.buffers()) {
      int64_t &bytes = rowBytes[buffer->domain()];
      bytes = std::max(bytes, buffer->row_offset() + buffer->row_bytes());
    }
    out << "arena      " << rowBytes[module::RowDomain::tokens]
        << " bytes a padded token, " << rowBytes[module::RowDomain::logits]
        << " a padded row of logits, " << schedule.buffers()->size()
        << " buffers\n";
  }

  void printKernels() {
    out << "kernels\n";
    for (const module::Kernel *kernel : *plan.kernels()) {
      const module::Grid &grid = *kernel->grid();
      const char *rows = grid.domain() == module::RowDomain::tokens ? "M" : "R";
      out << "  " << kernel->name()->str() << ": workgroups (ceil(" << rows
          << " / " << grid.block() << ")"
          << (grid.plus_sequences() ? " + sequences" : "") << ") * "
          << grid.multiplier();
      if (const module::CudaResources *cuda = kernel->cuda())
        out << ", " << cuda->block_threads() << " threads\n";
      else
        out << ", scratch " << formatBytes(double(kernel->scratch_bytes()))
            << "\n";
    }
    if (plan.chip())
      for (const module::Kernel *kernel : *plan.kernels())
        out << resourcesLine(*kernel, plan.chip()->str());
  }

  void printLaunches(const module::Schedule &schedule) {
    out << "launches   (buffer@row_offset+row_bytes, %weight)\n";
    for (uint32_t i = 0; i < schedule.launches()->size(); ++i) {
      const module::Launch &launch = *schedule.launches()->Get(i);
      out << "  " << i << " ";
      if (launch.layer() >= 0)
        out << "layer " << launch.layer() << " ";
      out << plan.kernels()->Get(launch.kernel())->name()->str() << "(";
      for (uint32_t j = 0; j < launch.args()->size(); ++j) {
        out << (j ? ", " : "");
        printArg(schedule, *launch.args()->Get(j));
      }
      out << ")\n";
    }
  }

  void printArg(const module::Schedule &schedule, const module::Arg &arg) {
    switch (arg.kind()) {
    case module::ArgKind::buffer: {
      const module::Buffer &buffer = *schedule.buffers()->Get(arg.index());
      out << buffer.name()->str() << "@" << buffer.row_offset() << "+"
          << buffer.row_bytes();
      return;
    }
    case module::ArgKind::weight:
      out << "%" << plan.weights()->Get(arg.index())->name()->str();
      return;
    case module::ArgKind::batch:
      out << "batch";
      return;
    case module::ArgKind::kv_cache:
      out << "kv" << arg.index();
      return;
    case module::ArgKind::score:
      out << "score";
      return;
    }
  }

  const module::Plan &plan;
  const std::string &chosen;
  std::ostringstream &out;
};

void printModel(const module::Module &file, std::ostringstream &out) {
  const module::KVCacheSpec &cache = *file.kv_cache();
  out << "model      " << file.model_type()->str() << ", "
      << module::EnumNameDType(file.dtype()) << ", " << file.num_layers()
      << " layers, hidden " << file.hidden_size() << ", " << file.num_q_heads()
      << " query heads, " << cache.num_kv_heads() << " KV heads, head_dim "
      << cache.head_dim_qk() << ", vocabulary " << file.vocab_size()
      << ", max_seq " << file.max_seq();
  if (file.sliding_window())
    out << ", sliding window " << file.sliding_window();
  out << "\nproducer   "
      << (file.producer() ? file.producer()->str() : "unknown") << ", format "
      << file.format_version() << "\nkv cache   "
      << module::EnumNameKVLayout(cache.layout()) << ", "
      << module::EnumNameDType(cache.dtype()) << ", blocks of "
      << cache.block_size() << " tokens, "
      << formatBytes(double(cache.num_kv_heads()) *
                     (cache.head_dim_qk() + cache.head_dim_v()) *
                     byteSize(cache.dtype()) * file.num_layers())
      << " a token\n";
}

} // namespace

Result<std::string> prefill::run::describe(const std::string &path,
                                           const std::string &chosenCode) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.takeError();
  const module::Module &file = *module::GetModule(mapped->data());
  std::ostringstream out;
  printModel(file, out);
  for (const module::Plan *plan : *file.plans())
    PlanPrinter(*plan, chosenCode, out).print();
  return out.str();
}
