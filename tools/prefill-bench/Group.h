// Rows that share a module and weights.
#ifndef PREFILL_TOOLS_PREFILLBENCH_GROUP_H
#define PREFILL_TOOLS_PREFILLBENCH_GROUP_H

#include "ModuleStore.h"
#include "PeakProbe.h"
#include "Rows.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace prefill::bench {

/// One timed run, with the probe beside it.
struct Sample {
  double seconds;
  double work; ///< FLOPs, or bytes that must be read
  double peak; ///< work a second, the larger of the probes before and after
  /// CPU time of this process over (seconds * threads): less than 1 where the
  /// system gave the processors to others, or threads waited for one another.
  double cpuShare;
  /// The same of the peer's run right after, over the same work.
  std::optional<double> peerSeconds = {}, peerPeak = {};
  /// That of secondPeak in the same round.
  std::optional<double> secondPeak = {};
  /// Of a gemm of int8: what the launch before took, which made its integers.
  std::optional<double> quantizeSeconds = {};
  /// Of a startup row: what prefill-opt took.
  std::optional<double> compileSeconds = {};

  double ratio() const { return work / seconds / peak; }
  double peerRatio() const { return work / *peerSeconds / *peerPeak; }
};

class Group {
public:
  virtual ~Group() = default;
  /// Times one run of a row of the group.
  virtual Result<Sample> run(const Row &row) = 0;
  virtual Peak peak(const Row &) const = 0;
  virtual const char *variant() const = 0;
  /// Why a row that could have a peer has none; empty when it has one.
  virtual std::string peerNote(const Row &) const { return ""; }

  /// Loads what the rows, all of one group, need and runs each once, so that
  /// memory is mapped.
  static Result<std::unique_ptr<Group>>
  create(const std::vector<Row> &rows, ModuleStore &store, PeakProbe &probe);
};

// Each kind of group has a file of its own; Group::create chooses.
Result<std::unique_ptr<Group>> createGemmGroup(const std::vector<Row> &rows,
                                               ModuleStore &store,
                                               PeakProbe &probe);
Result<std::unique_ptr<Group>>
createAttentionGroup(const std::vector<Row> &rows, ModuleStore &store,
                     PeakProbe &probe);
Result<std::unique_ptr<Group>> createModelGroup(const std::vector<Row> &rows,
                                                ModuleStore &store,
                                                PeakProbe &probe);
Result<std::unique_ptr<Group>> createStartupGroup(const std::vector<Row> &rows,
                                                  ModuleStore &store,
                                                  PeakProbe &probe);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_GROUP_H
