#include "Tune.h"
#include "../prefill-run/OutputFile.h"
#include "LoadedModel.h"
#include "Machine.h"
#include "Report.h"
#include "Rows.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::run::OutputFile;

namespace {

constexpr int64_t blockMs[] = {64, 128, 192, 256}, blockNs[] = {64, 128, 256};
constexpr int64_t blockQs[] = {32, 64, 128}, blockKvs[] = {128, 256, 512, 1024};
constexpr int64_t smallVocab = 1024;

/// What is timed of a module.
struct Work {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<PlanWalk> walk;
  struct Launch {
    std::string name;
    double flops;
  };
  std::vector<Launch> launches; ///< in the order of the plan
  Peak peak;
};

class Subject {
public:
  Subject(TuneCandidate &candidate) : candidate(candidate) {}

  Result<void> load(const std::vector<std::string> &shapes, ModuleStore &store,
                    PeakProbe &probe) {
    std::vector<Row> rows = tunedRows(candidate.section, shapes);
    for (auto begin = rows.begin(); begin != rows.end();) {
      auto end = std::find_if(begin, rows.end(), [&](const Row &row) {
        return row.shape != begin->shape;
      });
      // The last layer selects rows: what is timed is in the one before. Code
      // for what this machine takes is enough.
      ModuleSpec spec{begin->shape,  2,   smallVocab, begin->dtype,
                      begin->layout, 4096};
      std::string isa = prefill::rt::stringify(bestVariant());
      spec.options = {"--isa=" + isa};
      spec.optionsName = isa;
      if (!candidate.isTable()) {
        Result<std::string> file = writeTuning(store);
        if (!file)
          return file.takeError();
        spec.options.push_back("--tuning=" + *file);
        spec.optionsName += "-" + candidate.name();
      }
      Result<std::string> path = store.get(spec);
      if (!path)
        return path.takeError();
      if (Result<void> ok = add({begin, end}, *path, probe); !ok)
        return ok;
      begin = end;
    }
    return {};
  }

  /// One run of each launch. Sets `ratio` to all FLOPs over what the peak
  /// would have done in their time.
  Result<void> run(PeakProbe &probe, double &ratio) {
    double flops = 0, possible = 0;
    for (Work &work : all)
      for (const Work::Launch &launch : work.launches) {
        Result<uint32_t> found = work.walk->seek(launch.name);
        if (!found)
          return found.takeError();
        PeakProbe::Timing timing =
            probe.time(work.peak, [&] { work.walk->runHere(); });
        if (candidate.section == "gemm")
          work.walk->advance(); // attention runs again where it stands
        flops += launch.flops;
        possible += timing.seconds * timing.peak;
      }
    ratio = flops / possible;
    return {};
  }

  TuneCandidate &candidate;

private:
  Result<std::string> writeTuning(ModuleStore &store) {
    bool gemm = candidate.section == "gemm";
    std::string path =
        store.place(candidate.section + "-" + std::to_string(candidate.first) +
                    "x" + std::to_string(candidate.second) + ".json");
    Result<OutputFile> file = OutputFile::create(path);
    if (!file)
      return file.takeError();
    if (Result<void> ok = file->write(tuningJson(gemm ? &candidate : nullptr,
                                                 gemm ? nullptr : &candidate));
        !ok)
      return ok.takeError();
    if (Result<void> ok = file->commit(); !ok)
      return ok.takeError();
    return path;
  }

  Result<void> add(std::span<const Row> rows, const std::string &path,
                   PeakProbe &probe) {
    Work work;
    auto model = LoadedModel::load(path, "", probe.threads());
    if (!model)
      return model.takeError();
    work.model = std::move(*model);
    work.peak = arithmeticPeak(rows[0].dtype, work.model->variant());
    auto walk = PlanWalk::create(*work.model, rows[0].tokens);
    if (!walk)
      return walk.takeError();
    work.walk = std::move(*walk);
    for (const Row &row : rows)
      work.launches.push_back(
          {row.kind == RowKind::gemm ? row.projection.launch : "attention",
           row.flops()});
    all.push_back(std::move(work));
    return {};
  }

  std::vector<Work> all;
};

/// Those of one section, so that no more modules are in memory at a time.
Result<void> measureSection(std::vector<TuneCandidate *> candidates,
                            const std::vector<std::string> &shapes, int rounds,
                            ModuleStore &store, PeakProbe &probe) {
  std::vector<std::unique_ptr<Subject>> subjects;
  std::optional<Error> refusal;
  size_t tuned = 0;
  for (TuneCandidate *candidate : candidates) {
    auto subject = std::make_unique<Subject>(*candidate);
    double unused = 0;
    Result<void> ok = subject->load(shapes, store, probe);
    if (ok) // the first run maps memory
      ok = subject->run(probe, unused);
    if (ok) {
      tuned += !candidate->isTable();
      subjects.push_back(std::move(subject));
      continue;
    }
    if (candidate->isTable())
      return ok;
    candidate->refused = ok.error().message;
    refusal = ok.takeError();
  }
  if (tuned == 0 && refusal)
    return *refusal;
  for (int round = 0; round < rounds; ++round)
    for (std::unique_ptr<Subject> &subject : subjects) {
      double ratio = 0;
      if (Result<void> ok = subject->run(probe, ratio); !ok)
        return ok;
      subject->candidate.ratios.push_back(ratio);
    }
  return {};
}

} // namespace

std::string TuneCandidate::name() const {
  return "tune/" + section + "/" +
         (isTable() ? "table"
                    : std::to_string(first) + "x" + std::to_string(second));
}

std::vector<TuneCandidate>
prefill::bench::tuneCandidates(const std::optional<std::regex> &filter) {
  std::vector<TuneCandidate> all;
  auto add = [&](const char *section, auto &firsts, auto &seconds) {
    std::vector<TuneCandidate> chosen;
    for (int64_t first : firsts)
      for (int64_t second : seconds) {
        TuneCandidate candidate{section, first, second, {}, ""};
        if (!filter || std::regex_search(candidate.name(), *filter))
          chosen.push_back(candidate);
      }
    if (chosen.empty())
      return;
    all.push_back({section, 0, 0, {}, ""});
    all.insert(all.end(), chosen.begin(), chosen.end());
  };
  add("gemm", blockMs, blockNs);
  add("attention", blockQs, blockKvs);
  return all;
}

Result<void>
prefill::bench::measureCandidates(std::vector<TuneCandidate> &candidates,
                                  const std::vector<std::string> &shapes,
                                  int rounds, ModuleStore &store,
                                  PeakProbe &probe) {
  for (const char *section : {"gemm", "attention"}) {
    std::vector<TuneCandidate *> chosen;
    chosen.reserve(candidates.size());
    for (TuneCandidate &candidate : candidates)
      if (candidate.section == section)
        chosen.push_back(&candidate);
    if (Result<void> ok = measureSection(chosen, shapes, rounds, store, probe);
        !ok)
      return ok;
  }
  return {};
}

double prefill::bench::gainOverTable(const TuneCandidate &candidate,
                                     const TuneCandidate &table) {
  std::vector<double> gains;
  gains.reserve(candidate.ratios.size());
  for (size_t round = 0; round < candidate.ratios.size(); ++round)
    gains.push_back(candidate.ratios[round] / table.ratios[round]);
  return quantile(gains, 0.5);
}

const TuneCandidate *
prefill::bench::winner(const std::vector<TuneCandidate> &candidates,
                       const std::string &section, double threshold) {
  const TuneCandidate *table = nullptr, *best = nullptr;
  double bestGain = 1 + threshold / 100;
  for (const TuneCandidate &candidate : candidates) {
    if (candidate.section != section)
      continue;
    if (candidate.isTable()) { // comes first in its section
      table = &candidate;
    } else if (!candidate.ratios.empty()) {
      double gain = gainOverTable(candidate, *table);
      if (gain > bestGain) {
        best = &candidate;
        bestGain = gain;
      }
    }
  }
  return best;
}

Result<std::string> prefill::bench::tuningFile() {
  Result<std::string> cache = userCacheDirectory();
  if (!cache)
    return cache.takeError();
  return *cache + "/tuning-" + cpuSlug() + ".json";
}

std::string prefill::bench::tuningJson(const TuneCandidate *gemm,
                                       const TuneCandidate *attention) {
  nlohmann::ordered_json json;
  json["machine"] = cpuSlug();
  if (gemm)
    json["gemm"] = {{"block_m", gemm->first}, {"block_n", gemm->second}};
  if (attention)
    json["attention"] = {{"block_q", attention->first},
                         {"block_kv", attention->second}};
  return json.dump(1) + "\n";
}

std::string prefill::bench::updatedTuning(
    const std::string &path, const std::vector<TuneCandidate> &candidates,
    const TuneCandidate *gemm, const TuneCandidate *attention) {
  nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(tuningJson(gemm, attention));
  std::ifstream file(path);
  nlohmann::ordered_json earlier = nlohmann::ordered_json::parse(
      file, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (earlier.is_object() && earlier.contains("machine") &&
      earlier["machine"] == cpuSlug())
    for (const char *section : {"gemm", "attention"}) {
      bool timed = std::any_of(
          candidates.begin(), candidates.end(),
          [&](const TuneCandidate &c) { return c.section == section; });
      if (!timed && earlier.contains(section))
        json[section] = earlier[section];
    }
  return json.size() > 1 ? json.dump(1) + "\n" : ""; // more than the machine
}

std::string
prefill::bench::tuneTable(const std::vector<TuneCandidate> &candidates) {
  char line[400];
  std::snprintf(line, sizeof line, "%-32s %6s %7s %11s\n", "candidate", "ratio",
                "spread", "over table");
  std::string text = line;
  const TuneCandidate *table = nullptr;
  for (const TuneCandidate &candidate : candidates) {
    if (candidate.isTable())
      table = &candidate;
    if (candidate.ratios.empty()) {
      text += candidate.name() + ": refused: " + candidate.refused + "\n";
      continue;
    }
    Summary ratio = summarize(candidate.ratios);
    std::snprintf(line, sizeof line, "%-32s %6.3f %6.1f%% %10.3fx\n",
                  candidate.name().c_str(), ratio.median, 100 * ratio.spread,
                  gainOverTable(candidate, *table));
    text += line;
  }
  return text;
}

std::string
prefill::bench::tuneToJson(const std::vector<TuneCandidate> &candidates,
                           int threads) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const TuneCandidate *table = nullptr;
  for (const TuneCandidate &candidate : candidates) {
    if (candidate.isTable())
      table = &candidate;
    nlohmann::ordered_json row = {{"name", candidate.name()}};
    if (candidate.ratios.empty()) {
      row["refused"] = candidate.refused;
    } else {
      Summary ratio = summarize(candidate.ratios);
      row["ratio"] = ratio.median;
      row["spread"] = ratio.spread;
      row["over_table"] = gainOverTable(candidate, *table);
    }
    row["rounds"] = candidate.ratios.size();
    row["threads"] = threads;
    rows.push_back(std::move(row));
  }
  return rows.dump(1) + "\n";
}
