#include "TuneChoice.h"
#include "Statistics.h"

#include <algorithm>
#include <optional>
#include <set>

using namespace prefill::bench;
using nlohmann::ordered_json;

namespace {

struct Best {
  Tile tile;
  double overTable;
};

/// The fastest measured tile of a class; of one width if that is given, where
/// the table's counts too.
std::optional<Best> fastest(const TunedClass &measured,
                            std::optional<int64_t> second) {
  std::optional<Best> best;
  if (!second || measured.tableTile.second == *second)
    best = {measured.tableTile, 1};
  for (const TunedClass::Candidate &candidate : measured.candidates) {
    double gain = candidate.overTable(measured);
    if ((!second || candidate.tile.second == *second) &&
        (!best || gain > best->overTable))
      best = {candidate.tile, gain};
  }
  return best;
}

/// What an op takes of one width where nothing was measured: the table's height
/// if it fits, else what is best by the estimate.
Tile unmeasured(const TunedClass &known, int64_t second) {
  Tile kept{known.tableTile.first, second};
  for (const Tile &tile : known.op.tiles)
    if (tile == kept)
      return kept;
  for (const Tile &tile : known.op.tiles)
    if (tile.second == second)
      return tile;
  return kept;
}

/// One tile for each class, in their order; empty: the table stands.
std::vector<Tile> chooseEach(std::span<const TunedClass> classes,
                             double least) {
  std::vector<Tile> tiles;
  bool any = false;
  for (const TunedClass &measured : classes) {
    Best best = *fastest(measured, std::nullopt);
    bool wins = best.overTable > least;
    any |= wins;
    tiles.push_back(wins ? best.tile : measured.tableTile);
  }
  return any ? tiles : std::vector<Tile>();
}

/// With the width that is fastest over all rows together.
std::vector<Tile> chooseOneSecond(std::span<const TunedClass> classes,
                                  double least) {
  std::set<int64_t> seconds;
  size_t numMeasured = 0;
  for (const TunedClass &measured : classes) {
    numMeasured += !measured.candidates.empty();
    for (const TunedClass::Candidate &candidate : measured.candidates)
      seconds.insert(candidate.tile.second);
  }
  std::vector<Tile> best;
  double bestTime = double(numMeasured) / least;
  for (int64_t second : seconds) {
    std::vector<Tile> tiles;
    double time = 0;
    for (const TunedClass &measured : classes) {
      if (measured.candidates.empty()) {
        tiles.push_back(unmeasured(measured, second));
        continue;
      }
      std::optional<Best> found = fastest(measured, second);
      if (!found)
        break;
      tiles.push_back(found->tile);
      time += 1 / found->overTable;
    }
    if (tiles.size() == classes.size() && time < bestTime) {
      best = tiles;
      bestTime = time;
    }
  }
  return best;
}

/// Whether an entry as a file has it is for an op of `ops`.
bool isFor(const ordered_json &entry, bool isGemm, const std::string &dtype,
           const std::vector<TunedOp> &ops) {
  auto number = [&](const char *key) {
    return entry.is_object() && entry.contains(key) &&
                   entry[key].is_number_integer()
               ? entry[key].get<int64_t>()
               : 0;
  };
  return std::any_of(ops.begin(), ops.end(), [&](const TunedOp &op) {
    return op.isGemm == isGemm && op.dtype == dtype &&
           (isGemm ? op.n == number("n") && op.k == number("k")
                   : op.group == number("group") &&
                         op.headDim == number("head_dim"));
  });
}

} // namespace

double TunedClass::Candidate::overTable(const TunedClass &measured) const {
  std::vector<double> gains;
  for (size_t round = 0; round < times.size(); ++round)
    gains.push_back(measured.table[round] / times[round]);
  return quantile(gains, 0.5);
}

std::vector<TunedEntry>
prefill::bench::chooseTiles(std::span<const TunedClass> classes,
                            double threshold) {
  if (classes.empty())
    return {};
  double least = 1 + threshold / 100;
  std::vector<Tile> tiles = classes.front().op.oneSecond
                                ? chooseOneSecond(classes, least)
                                : chooseEach(classes, least);
  std::vector<TunedEntry> entries;
  for (size_t i = 0; i < tiles.size(); ++i)
    if (i + 1 == tiles.size() || tiles[i] != tiles[i + 1])
      entries.push_back({classes[i].op,
                         i + 1 == tiles.size() ? 0 : classes[i].rows,
                         tiles[i]});
  return entries;
}

ordered_json
prefill::bench::tuningSection(const std::vector<TunedEntry> &entries) {
  ordered_json section = ordered_json::object();
  for (const TunedEntry &entry : entries) {
    const TunedOp &op = entry.op;
    ordered_json json;
    if (op.isGemm)
      json = {{"n", op.n}, {"k", op.k}};
    else
      json = {{"group", op.group}, {"head_dim", op.headDim}};
    if (entry.rows)
      json["rows"] = entry.rows;
    json[op.isGemm ? "block_m" : "block_q"] = entry.tile.first;
    json[op.isGemm ? "block_n" : "block_kv"] = entry.tile.second;
    section[op.dtype][op.isGemm ? "gemm" : "attention"].push_back(json);
  }
  return section;
}

std::string prefill::bench::updatedCudaTuning(
    const ordered_json &earlier, const std::string &machine,
    const std::string &chip, const std::vector<TunedOp> &measured,
    const std::vector<TunedEntry> &entries) {
  ordered_json chips = ordered_json::object();
  if (earlier.is_object() && earlier.contains("cuda") &&
      earlier["cuda"].is_object())
    chips = earlier["cuda"];
  ordered_json section = tuningSection(entries);
  if (chips.contains(chip) && chips[chip].is_object())
    for (const auto &[dtype, lists] : chips[chip].items())
      for (const char *list : {"gemm", "attention"})
        if (lists.is_object() && lists.contains(list) && lists[list].is_array())
          for (const ordered_json &entry : lists[list])
            if (!isFor(entry, list == std::string("gemm"), dtype, measured))
              section[dtype][list].push_back(entry);
  chips.erase(chip);
  if (!section.empty())
    chips[chip] = section;
  if (chips.empty())
    return "";
  ordered_json file = {{"machine", machine}, {"cuda", chips}};
  return file.dump(1) + "\n";
}
