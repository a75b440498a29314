// --tune --device cuda: tiles of gemms and attention on a GPU, and cuBLASLt's
// algorithms.
#ifndef PREFILL_TOOLS_PREFILLBENCH_CUDATUNE_H
#define PREFILL_TOOLS_PREFILLBENCH_CUDATUNE_H

#include "ModuleStore.h"
#include "Options.h"
#include "TuneChoice.h"

#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace prefill::bench {

/// A product that cuBLASLt does in a plan, its algorithm chosen by measuring
/// and kept where the runtime looks for it.
struct TunedProduct {
  std::string name; ///< "tune/cublaslt/bf16/16x128256x4096"
  double microseconds;
};

struct CudaTuning {
  std::string machine;             ///< a part of the file's name
  std::string chip;                ///< whose tiles were measured: "sm_80"
  std::vector<TunedClass> classes; ///< those of an op side by side
  std::vector<TunedProduct> products;

  /// The entries of all ops that were measured.
  std::vector<TunedEntry> entries(double threshold) const;
  std::vector<TunedOp> measuredOps() const;
};

/// Makes the modules that tuning needs, for every chip that there are tiles
/// for, and the lists of tiles. No GPU is asked for.
Result<void> compileForTuning(const Options &options, ModuleStore &store);

/// The names of what measureTiles() would measure: "tune/gemm/bf16/
/// 512x6144x4096/128x128", with "table" for the compiler's choice.
Result<std::vector<std::string>>
listTuning(const Options &options, const std::optional<std::regex> &filter,
           ModuleStore &store);

/// Times candidates in turn, round by round, beside the compiler's own choice.
/// `done` gets a class when it is measured. A GPU is the first thing asked for.
Result<CudaTuning>
measureTiles(const Options &options, const std::optional<std::regex> &filter,
             ModuleStore &store,
             const std::function<void(const TunedClass &)> &done);

/// Lines of a table.
std::string cudaTuneHead();
std::string cudaTuneLines(const TunedClass &measured);
std::string cudaTuneJson(const CudaTuning &tuning);

/// $XDG_CACHE_HOME/prefill/tuning-GPU.json.
Result<std::string> cudaTuningFile(const std::string &machine);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_CUDATUNE_H
