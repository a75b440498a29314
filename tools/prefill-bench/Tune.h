// --tune: block sizes of GEMM and attention on this machine.
#ifndef PREFILL_TOOLS_PREFILLBENCH_TUNE_H
#define PREFILL_TOOLS_PREFILLBENCH_TUNE_H

#include "ModuleStore.h"
#include "PeakProbe.h"

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace prefill::bench {

/// One choice of block sizes, measured beside the table's own.
struct TuneCandidate {
  std::string section; ///< "gemm" or "attention"
  /// block_m, block_n or block_q, block_kv; 0, 0: what the table says.
  int64_t first = 0, second = 0;
  std::vector<double> ratios; ///< to the peak, one for each round
  std::string refused;        ///< what the compiler said against it

  bool isTable() const { return first == 0; }
  /// "tune/gemm/64x128", "tune/gemm/table".
  std::string name() const;
};

/// All that are tried; a filter leaves those out whose name it does not match,
/// but never the table's of a section that has others. Empty: nothing matches.
std::vector<TuneCandidate>
tuneCandidates(const std::optional<std::regex> &filter);

/// Compiles modules for each candidate (`prefill-opt --tuning=FILE`), one for
/// each of `shapes` (see tunedRows), and times them in turn, round by round. A
/// candidate that the compiler refuses is kept with the reason; when it refuses
/// all, its error is returned.
Result<void> measureCandidates(std::vector<TuneCandidate> &candidates,
                               const std::vector<std::string> &shapes,
                               int rounds, ModuleStore &store,
                               PeakProbe &probe);

/// The median over the rounds of candidate / table.
double gainOverTable(const TuneCandidate &candidate,
                     const TuneCandidate &table);

/// The best candidate of a section if it beats the table by more than
/// `threshold` per cent; nullptr: the table stands.
const TuneCandidate *winner(const std::vector<TuneCandidate> &candidates,
                            const std::string &section, double threshold);

/// One line for each candidate.
std::string tuneTable(const std::vector<TuneCandidate> &candidates);
/// Rows as --json has them, with `over_table`; a refused candidate has the
/// reason in `refused` and no ratio.
std::string tuneToJson(const std::vector<TuneCandidate> &candidates,
                       int threads);

/// $XDG_CACHE_HOME/prefill/tuning-CPU.json.
Result<std::string> tuningFile();

/// {"machine": ..., "gemm": {"block_m", "block_n"}, "attention": {"block_q",
/// "block_kv"}}, with those that are given.
std::string tuningJson(const TuneCandidate *gemm,
                       const TuneCandidate *attention);

/// What the file at `path` has to hold after a run: the winners of the sections
/// that were timed, and of the others what it holds already. Empty when that is
/// nothing.
std::string updatedTuning(const std::string &path,
                          const std::vector<TuneCandidate> &candidates,
                          const TuneCandidate *gemm,
                          const TuneCandidate *attention);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_TUNE_H
