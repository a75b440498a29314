// Which tiles of a GPU a tuning file names, from what was measured.
#ifndef PREFILL_TOOLS_PREFILLBENCH_TUNECHOICE_H
#define PREFILL_TOOLS_PREFILLBENCH_TUNECHOICE_H

#include "TileList.h"

#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <vector>

namespace prefill::bench {

/// One op at one row count.
struct TunedClass {
  TunedOp op;
  int64_t rows;
  Tile tableTile;
  std::vector<double> table; ///< microseconds, one for each round
  struct Candidate {
    Tile tile;
    std::vector<double> times;
    /// The median over the rounds of the table's time over this one's.
    double overTable(const TunedClass &measured) const;
  };
  std::vector<Candidate> candidates; ///< empty: not measured
};

/// An entry of a tuning file.
struct TunedEntry {
  TunedOp op;
  int64_t rows; ///< 0: of all calls that no other entry is for
  Tile tile;
};

/// The entries for one op, whose classes are in ascending order of rows and all
/// that the compiler tells apart. Where the table stands an entry says so, lest
/// that for more rows hold; empty where it stands everywhere. What wins, over
/// all rows where one width must serve them all, is faster by more than
/// `threshold` per cent.
std::vector<TunedEntry> chooseTiles(std::span<const TunedClass> classes,
                                    double threshold);

/// A chip's section of a tuning file.
nlohmann::ordered_json tuningSection(const std::vector<TunedEntry> &entries);

/// What the file has to hold after a run: in the section of the chip the
/// entries of `entries`, and what `earlier` (null where there was none) has of
/// other chips and of ops that were not measured. Empty where that is nothing.
std::string updatedCudaTuning(const nlohmann::ordered_json &earlier,
                              const std::string &machine,
                              const std::string &chip,
                              const std::vector<TunedOp> &measured,
                              const std::vector<TunedEntry> &entries);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_TUNECHOICE_H
