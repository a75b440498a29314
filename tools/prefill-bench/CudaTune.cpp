#include "CudaTune.h"
#include "../prefill-run/OutputFile.h"
#include "CublasPeer.h"
#include "LoadedModel.h"
#include "Machine.h"
#include "Statistics.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::run::OutputFile;

namespace {

/// Those that the compiler has tiles for. A newer one runs the plan of the
/// newest before it.
constexpr int chips[] = {80, 86, 89, 90};
constexpr const char *dtype = "bf16";
/// The last layer's kernels differ: what is timed is in the one before.
constexpr int64_t layers = 2;
constexpr int64_t smallVocab = 1024;
/// Rows of logits that kernels are run with.
constexpr int64_t logitRows[] = {16, 32, 64, 128};

std::string targetOf(int chip) { return "cuda:sm_" + std::to_string(chip); }

std::vector<std::string> allTargets() {
  std::vector<std::string> targets;
  for (int chip : chips)
    targets.push_back(targetOf(chip));
  return targets;
}

std::vector<const ModelShape *> shapesOf(const Options &options) {
  if (options.shapes.empty())
    return {&llama32_1b, &llama3_8b, &llama3_70b};
  std::vector<const ModelShape *> shapes;
  for (const std::string &name : options.shapes)
    shapes.push_back(findShape(name));
  return shapes;
}

/// The modules of a shape: candidate -1 has the table's tiles, candidate i of
/// each op the i-th best by the compiler's estimate.
class TuneModules {
public:
  TuneModules(const ModelShape &shape, ModuleStore &store)
      : shape(shape), store(store) {}

  Result<TileList> list(const std::string &target) {
    Result<std::string> path = store.listTiles(plain({target}));
    return path ? readTileList(*path) : Result<TileList>(path.takeError());
  }

  /// With code for all chips if somebody has made that, else for `chip`.
  Result<std::string> get(int candidate, int chip) {
    ModuleSpec all = named(candidate, allTargets());
    if (store.isFresh(all.fileName()))
      return store.place(all.fileName());
    return make(candidate, {targetOf(chip)});
  }

  Result<std::string> make(int candidate,
                           const std::vector<std::string> &targets) {
    ModuleSpec spec = named(candidate, targets);
    if (candidate >= 0 && !store.isFresh(spec.fileName())) {
      Result<std::string> file = writeTuning(candidate, targets);
      if (!file)
        return file.takeError();
      spec.options.push_back("--tuning=" + *file);
    }
    return store.get(spec);
  }

private:
  ModuleSpec plain(const std::vector<std::string> &targets) const {
    ModuleSpec spec{&shape, layers,       smallVocab,
                    dtype,  "contiguous", shape.maxSeq};
    spec.targets = targets;
    // Tiles are those of whole attention, as --list-tiles has them.
    spec.options = {"--deterministic"};
    return spec;
  }
  ModuleSpec named(int candidate,
                   const std::vector<std::string> &targets) const {
    ModuleSpec spec = plain(targets);
    spec.optionsName =
        candidate < 0 ? "table" : "tune" + std::to_string(candidate);
    return spec;
  }

  Result<std::string> writeTuning(int candidate,
                                  const std::vector<std::string> &targets) {
    nlohmann::ordered_json sections = nlohmann::ordered_json::object();
    for (const std::string &target : targets) {
      Result<TileList> tiles = list(target);
      if (!tiles)
        return tiles.takeError();
      std::vector<TunedEntry> entries;
      for (const TunedOp &op : tiles->ops)
        if (size_t(candidate) < op.tiles.size())
          entries.push_back({op, 0, op.tiles[candidate]});
      sections[target.substr(target.find(':') + 1)] = tuningSection(entries);
    }
    std::string path =
        store.place(named(candidate, targets).fileName() + ".tuning.json");
    Result<OutputFile> file = OutputFile::create(path);
    if (!file)
      return file.takeError();
    nlohmann::ordered_json json = {{"cuda", sections}};
    if (Result<void> ok = file->write(json.dump(1) + "\n"); !ok)
      return ok.takeError();
    if (Result<void> ok = file->commit(); !ok)
      return ok.takeError();
    return path;
  }

  const ModelShape &shape;
  ModuleStore &store;
};

/// A name as --filter sees it.
std::string nameOf(const TunedOp &op, int64_t rows, const std::string &tile) {
  return "tune/" + op.className(rows) + "/" + tile;
}

/// What is to be measured of a shape: for each op and row count the candidates.
struct ShapePlan {
  TileList list;
  /// [op][rows]: candidates by their number.
  std::vector<std::vector<std::vector<int>>> wanted;

  bool wants(int candidate, size_t rows) const {
    for (const auto &ofOp : wanted)
      if (std::count(ofOp[rows].begin(), ofOp[rows].end(), candidate))
        return true;
    return false;
  }
  bool wants(int candidate) const {
    for (size_t rows = 0; rows < list.rows.size(); ++rows)
      if (wants(candidate, rows))
        return true;
    return false;
  }
};

ShapePlan planShape(TileList list, int64_t maxSeq, int candidates,
                    const std::optional<std::regex> &filter) {
  ShapePlan plan;
  for (const TunedOp &op : list.ops) {
    auto &ofOp = plan.wanted.emplace_back(list.rows.size());
    for (size_t rows = 0; rows < list.rows.size(); ++rows)
      for (int i = 0; i < candidates && size_t(i) < op.tiles.size() &&
                      list.rows[rows] <= maxSeq;
           ++i)
        if (!filter ||
            std::regex_search(nameOf(op, list.rows[rows], op.tiles[i].name()),
                              *filter))
          ofOp[rows].push_back(i);
  }
  plan.list = std::move(list);
  return plan;
}

/// The launches of the first kernel that an op has: the last layer's differs.
std::vector<uint32_t> launchesOf(const LoadedModel &model, const TunedOp &op,
                                 int64_t rows) {
  const auto &launches = *model.schedule(rows).launches();
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < launches.size(); ++i)
    if (launches[i]->layer() >= 0 &&
        model.launchName(*launches[i]) == op.launch &&
        (found.empty() ||
         launches[i]->kernel() == launches[found[0]]->kernel()))
      found.push_back(i);
  return found;
}

/// One compiled candidate and a call of a row count.
class Subject {
public:
  static Result<std::unique_ptr<Subject>> create(LoadedModel &model,
                                                 int64_t rows) {
    std::unique_ptr<Subject> subject(new Subject(model));
    Result<LoadedModel::Run> made = model.makeRun(rows);
    if (!made)
      return made.takeError();
    subject->run = std::move(*made);
    subject->run.session->setTiming(true);
    subject->tokens = makeTokens(rows, model.file().vocab_size());
    subject->logits.resize(model.file().vocab_size());
    return subject;
  }

  Result<void> call() {
    int32_t cuSeqlens[] = {0, static_cast<int32_t>(tokens.size())},
            sequence = 0;
    if (Result<void> ok = run.session->run(tokens.data(), cuSeqlens, &sequence,
                                           1, false, logits.data());
        !ok)
      return ok;
    return run.cache->truncate(0, 0);
  }

  /// Microseconds of an op's launches in the last call, their mean.
  double timeOf(const TunedOp &op) const {
    std::vector<uint32_t> launches =
        launchesOf(model, op, int64_t(tokens.size()));
    double sum = 0;
    for (uint32_t launch : launches)
      sum += double(run.session->launchTimes()[launch].durationNs) * 1e-3;
    return sum / double(launches.size());
  }

private:
  explicit Subject(LoadedModel &model) : model(model) {}

  LoadedModel &model;
  LoadedModel::Run run;
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

class ShapeTuner {
public:
  ShapeTuner(const Options &options, int chip, TuneModules &modules,
             const ShapePlan &plan)
      : options(options), chip(chip), modules(modules), plan(plan) {}

  Result<void> load() {
    Result<std::string> path = modules.get(-1, chip);
    if (!path)
      return path.takeError();
    auto loaded = LoadedModel::loadOn(options.device, *path, options.threads);
    if (!loaded)
      return loaded.takeError();
    table = std::move(*loaded);
    for (const TunedOp &op : plan.list.ops)
      for (int64_t rows : plan.list.rows)
        if (launchesOf(*table, op, rows).empty())
          return Error{ErrorCode::invalidModule,
                       "the module has no launch " + rt::quote(op.launch) +
                           " in a layer for " + std::to_string(rows) + " rows"};
    for (int i = 0; i < options.candidates; ++i) {
      if (!plan.wants(i))
        continue;
      Result<std::string> tuned = modules.get(i, chip);
      if (!tuned)
        return tuned.takeError();
      auto beside = LoadedModel::loadBeside(*table, *tuned);
      if (!beside)
        return beside.takeError();
      candidates[i] = std::move(*beside);
    }
    return {};
  }

  /// Classes of all ops at the `rows`-th row count.
  Result<std::vector<TunedClass>> measure(size_t rows) {
    int64_t count = plan.list.rows[rows];
    std::vector<TunedClass> classes;
    for (size_t op = 0; op < plan.list.ops.size(); ++op) {
      const TunedOp &known = plan.list.ops[op];
      classes.push_back({known, count, known.table[rows], {}, {}});
      for (int i : plan.wanted[op][rows])
        classes.back().candidates.push_back({known.tiles[i], {}});
    }
    std::map<int, std::unique_ptr<Subject>> subjects;
    for (auto &[i, model] : candidates)
      if (plan.wants(i, rows))
        if (Result<void> ok = add(subjects, i, *model, count); !ok)
          return ok.takeError();
    if (subjects.empty())
      return classes;
    if (Result<void> ok = add(subjects, -1, *table, count); !ok)
      return ok.takeError();
    for (int round = 0; round <= options.rounds; ++round) // the first warms up
      for (auto &[i, subject] : subjects) {
        if (Result<void> ok = subject->call(); !ok)
          return ok.takeError();
        if (round)
          keep(i, *subject, rows, classes);
      }
    return classes;
  }

private:
  static Result<void> add(std::map<int, std::unique_ptr<Subject>> &subjects,
                          int candidate, LoadedModel &model, int64_t rows) {
    auto subject = Subject::create(model, rows);
    if (!subject)
      return subject.takeError();
    subjects[candidate] = std::move(*subject);
    return {};
  }

  void keep(int candidate, const Subject &subject, size_t rows,
            std::vector<TunedClass> &classes) const {
    for (size_t op = 0; op < classes.size(); ++op) {
      TunedClass &measured = classes[op];
      const std::vector<int> &wanted = plan.wanted[op][rows];
      if (wanted.empty())
        continue;
      double time = subject.timeOf(measured.op);
      if (candidate < 0)
        measured.table.push_back(time);
      for (size_t i = 0; i < wanted.size(); ++i)
        if (wanted[i] == candidate)
          measured.candidates[i].times.push_back(time);
    }
  }

  const Options &options;
  int chip;
  TuneModules &modules;
  const ShapePlan &plan;
  std::unique_ptr<LoadedModel> table; // before those that share its weights
  std::map<int, std::unique_ptr<LoadedModel>> candidates;
};

/// The GPU, and the chip whose plan it runs.
struct Gpu {
  std::unique_ptr<rt::Device> device;
  const rt::cuda::CudaDevice *cuda;
  int chip;
};

Result<Gpu> openGpu(const Options &options) {
  auto device = rt::Device::create(options.device, 1);
  if (!device)
    return device.takeError();
  const rt::cuda::CudaDevice &cuda =
      static_cast<rt::cuda::CudaBackend &>((*device)->backend()).device();
  int best = 0;
  for (int chip : chips)
    if (chip <= cuda.properties().chip)
      best = chip;
  if (!best)
    return Error{ErrorCode::unsupported,
                 "device " + rt::quote(options.device) + " is " +
                     cuda.properties().name + " of sm_" +
                     std::to_string(cuda.properties().chip) +
                     ", expected sm_80 or newer"};
  return Gpu{std::move(*device), &cuda, best};
}

/// cuBLASLt's candidates for the LM head of a shape; the fastest is kept. No
/// library, no products.
Result<void> tuneProducts(const Options &options, const Gpu &gpu,
                          const ModelShape &shape,
                          const std::optional<std::regex> &filter,
                          std::vector<TunedProduct> &products) {
  std::unique_ptr<CublasPeer> peer;
  for (int64_t rows : logitRows) {
    rt::cuda::MatmulProblem problem{rows,
                                    shape.vocab,
                                    shape.hidden,
                                    rt::cuda::CUDA_R_16BF,
                                    rt::cuda::CUDA_R_32F,
                                    /*bias=*/false};
    std::string name =
        std::string("tune/cublaslt/") + dtype + "/" + std::to_string(rows) +
        "x" + std::to_string(shape.vocab) + "x" + std::to_string(shape.hidden);
    if (filter && !std::regex_search(name, *filter))
      continue;
    if (!peer) {
      auto made = CublasPeer::create(
          *gpu.cuda, rt::cuda::BlasAlgorithmCache::defaultPath());
      if (!made)
        return {};
      peer = std::move(*made);
    }
    Result<double> time = peer->measure(problem, options.rounds);
    if (!time)
      return time.takeError();
    products.push_back({name, *time});
  }
  return {};
}

} // namespace

std::vector<TunedEntry> CudaTuning::entries(double threshold) const {
  std::vector<TunedEntry> all;
  for (size_t first = 0, end = 0; first < classes.size(); first = end) {
    while (end < classes.size() && classes[end].op.sameOp(classes[first].op))
      ++end;
    std::vector<TunedEntry> ofOp =
        chooseTiles(std::span(classes).subspan(first, end - first), threshold);
    all.insert(all.end(), ofOp.begin(), ofOp.end());
  }
  return all;
}

std::vector<TunedOp> CudaTuning::measuredOps() const {
  std::vector<TunedOp> ops;
  for (const TunedClass &measured : classes)
    if (!measured.candidates.empty())
      ops.push_back(measured.op);
  return ops;
}

Result<void> prefill::bench::compileForTuning(const Options &options,
                                              ModuleStore &store) {
  for (const ModelShape *shape : shapesOf(options)) {
    TuneModules modules(*shape, store);
    size_t most = 0;
    for (const std::string &target : allTargets()) {
      Result<TileList> list = modules.list(target);
      if (!list)
        return list.takeError();
      for (const TunedOp &op : list->ops)
        most = std::max(most, op.tiles.size());
    }
    for (int i = -1; i < options.candidates && i < int(most); ++i)
      if (Result<std::string> made = modules.make(i, allTargets()); !made)
        return made.takeError();
  }
  return {};
}

Result<std::vector<std::string>>
prefill::bench::listTuning(const Options &options,
                           const std::optional<std::regex> &filter,
                           ModuleStore &store) {
  Result<Gpu> gpu = openGpu(options);
  if (!gpu)
    return gpu.takeError();
  std::vector<std::string> names;
  for (const ModelShape *shape : shapesOf(options)) {
    Result<TileList> list =
        TuneModules(*shape, store).list(targetOf(gpu->chip));
    if (!list)
      return list.takeError();
    ShapePlan plan =
        planShape(std::move(*list), shape->maxSeq, options.candidates, filter);
    for (size_t op = 0; op < plan.wanted.size(); ++op)
      for (size_t rows = 0; rows < plan.list.rows.size(); ++rows) {
        const TunedOp &known = plan.list.ops[op];
        if (!plan.wanted[op][rows].empty())
          names.push_back(nameOf(known, plan.list.rows[rows], "table"));
        for (int i : plan.wanted[op][rows])
          names.push_back(
              nameOf(known, plan.list.rows[rows], known.tiles[i].name()));
      }
  }
  return names;
}

Result<CudaTuning> prefill::bench::measureTiles(
    const Options &options, const std::optional<std::regex> &filter,
    ModuleStore &store, const std::function<void(const TunedClass &)> &done) {
  Result<Gpu> gpu = openGpu(options);
  if (!gpu)
    return gpu.takeError();
  CudaTuning tuning;
  tuning.machine = slugOf(gpu->cuda->properties().name);
  tuning.chip = "sm_" + std::to_string(gpu->chip);
  for (const ModelShape *shape : shapesOf(options)) {
    TuneModules modules(*shape, store);
    Result<TileList> list = modules.list(targetOf(gpu->chip));
    if (!list)
      return list.takeError();
    ShapePlan plan =
        planShape(std::move(*list), shape->maxSeq, options.candidates, filter);
    // Two shapes may have an op in common.
    for (size_t op = 0; op < plan.wanted.size(); ++op)
      for (const TunedOp &known : tuning.measuredOps())
        if (known.sameOp(plan.list.ops[op]))
          plan.wanted[op].assign(plan.list.rows.size(), {});
    bool any = false;
    for (int i = 0; i < options.candidates; ++i)
      any |= plan.wants(i);
    if (any) {
      ShapeTuner tuner(options, gpu->chip, modules, plan);
      if (Result<void> ok = tuner.load(); !ok)
        return ok.takeError();
      std::vector<std::vector<TunedClass>> byRows;
      for (size_t rows = 0; rows < plan.list.rows.size(); ++rows) {
        auto classes = tuner.measure(rows);
        if (!classes)
          return classes.takeError();
        for (const TunedClass &measured : *classes)
          if (!measured.candidates.empty())
            done(measured);
        byRows.push_back(std::move(*classes));
      }
      for (size_t op = 0; op < plan.list.ops.size(); ++op)
        for (const auto &classes : byRows)
          tuning.classes.push_back(classes[op]);
    }
    if (Result<void> ok =
            tuneProducts(options, *gpu, *shape, filter, tuning.products);
        !ok)
      return ok.takeError();
  }
  if (tuning.measuredOps().empty() && tuning.products.empty())
    return Error{ErrorCode::invalidArgument,
                 "--filter matches no name, expected one that matches a name "
                 "of prefill-bench --tune --device cuda --list"};
  return tuning;
}

std::string prefill::bench::cudaTuneHead() {
  char line[128];
  std::snprintf(line, sizeof line, "%-52s %10s %7s %11s\n", "candidate", "us",
                "spread", "over table");
  return line;
}

std::string prefill::bench::cudaTuneLines(const TunedClass &measured) {
  std::string text;
  auto add = [&](const std::string &tile, const std::vector<double> &times,
                 double overTable) {
    char line[256];
    Summary summary = summarize(times);
    std::snprintf(line, sizeof line, "%-52s %10.1f %6.1f%% %10.3fx\n",
                  nameOf(measured.op, measured.rows, tile).c_str(),
                  summary.median, 100 * summary.spread, overTable);
    text += line;
  };
  add("table", measured.table, 1);
  for (const TunedClass::Candidate &candidate : measured.candidates)
    add(candidate.tile.name(), candidate.times, candidate.overTable(measured));
  return text;
}

std::string prefill::bench::cudaTuneJson(const CudaTuning &tuning) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const TunedClass &measured : tuning.classes) {
    auto add = [&](const std::string &tile, const std::vector<double> &times,
                   double overTable) {
      Summary summary = summarize(times);
      rows.push_back({{"name", nameOf(measured.op, measured.rows, tile)},
                      {"launch", measured.op.launch},
                      {"us", summary.median},
                      {"spread", summary.spread},
                      {"over_table", overTable},
                      {"rounds", times.size()}});
    };
    if (measured.candidates.empty())
      continue;
    add("table", measured.table, 1);
    rows.back()["tile"] = measured.tableTile.name();
    for (const TunedClass::Candidate &candidate : measured.candidates)
      add(candidate.tile.name(), candidate.times,
          candidate.overTable(measured));
  }
  for (const TunedProduct &product : tuning.products)
    rows.push_back({{"name", product.name}, {"us", product.microseconds}});
  return rows.dump(1) + "\n";
}

Result<std::string> prefill::bench::cudaTuningFile(const std::string &machine) {
  Result<std::string> cache = userCacheDirectory();
  if (!cache)
    return cache.takeError();
  return *cache + "/tuning-" + machine + ".json";
}
