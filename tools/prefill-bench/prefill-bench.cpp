// prefill-bench: how near kernels and whole models come to the machine's peak.
// See --help.
#include "CudaRows.h"
#include "CudaTune.h"
#include "Interruption.h"
#include "Machine.h"
#include "MatmulPeer.h"
#include "Measure.h"
#include "MeasureMachine.h"
#include "ModuleStore.h"
#include "Options.h"
#include "Report.h"
#include "Rows.h"
#include "Tune.h"
#include "core/Device.h"
#include "prefill/checkpoint/Quote.h"

#include "../prefill-run/OutputFile.h"
#include "../prefill-run/StandardStreams.h"

#include <benchmark/benchmark.h>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <regex>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;
using prefill::run::OutputFile;
using prefill::run::print;

namespace {

Result<std::regex> parseFilter(const std::string &text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error &error) {
    return Error{
        ErrorCode::invalidArgument,
        "--filter is " + quote(text) +
            ", expected a regular expression (ECMAScript): " + error.what()};
  }
}

Error matchesNothing(const std::string &filter, const char *expected) {
  return Error{ErrorCode::invalidArgument,
               "--filter is " + quote(filter) +
                   ", and no name matches, expected one that matches " +
                   expected};
}

Result<std::vector<Row>> chooseRows(const std::optional<std::string> &filter) {
  Result<std::regex> expression = parseFilter(filter.value_or(""));
  if (!expression)
    return expression.takeError();
  std::vector<Row> chosen;
  for (Row &row : allRows())
    if (filter ? std::regex_search(row.name, *expression) : !row.onlyWhenNamed)
      chosen.push_back(std::move(row));
  if (chosen.empty())
    return matchesNothing(*filter, "a name of prefill-bench --list");
  return chosen;
}

Result<void> list(const std::vector<Row> &rows) {
  std::string text;
  for (const Row &row : rows)
    text += row.name +
            (row.onlyWhenNamed ? "   (only when a filter names it)\n" : "\n");
  return print(text);
}

bool isCuda(const std::string &device) {
  return device == "cuda" || device.starts_with("cuda:");
}

Result<void> list(const std::vector<TuneCandidate> &candidates) {
  std::string text;
  for (const TuneCandidate &candidate : candidates)
    text += candidate.name() + "\n";
  return print(text);
}

/// The device must be one that this build has.
Result<void> checkDevice(const std::string &name) {
  if (name == "cpu" || isCuda(name))
    return {};
  if (name.starts_with("cpu:"))
    return Error{ErrorCode::invalidArgument,
                 "--device is " + quote(name) +
                     ", expected cpu: --isa forces an instruction set"};
  return Error{ErrorCode::unsupported,
               "--device is " + quote(name) + ", expected cpu, cuda or cuda:N"};
}

Result<void> finish(std::optional<OutputFile> &file, const std::string &text) {
  if (!file)
    return {};
  if (Result<void> ok = file->write(text); !ok)
    return ok;
  return file->commit();
}

Result<void> runRows(const std::vector<Row> &rows, const Options &options,
                     ModuleStore &store, std::optional<OutputFile> &file) {
  if (Result<void> ok = print(tableHead()); !ok)
    return ok;
  PeakProbe probe(options.threads);
  Result<void> printed;
  auto all =
      measure(rows, options.rounds, store, probe, [&](const Series &series) {
        if (printed)
          printed = print(tableLine(series));
      });
  if (!all)
    return all.takeError();
  if (!printed)
    return printed;
  return finish(file, toJson(*all, options.threads));
}

/// Opened first: a long run does not end with a file that cannot be written.
Result<std::optional<OutputFile>> openJson(const Options &options) {
  std::optional<OutputFile> file;
  if (options.json) {
    Result<OutputFile> created = OutputFile::create(*options.json);
    if (!created)
      return created.takeError();
    file.emplace(std::move(*created));
  }
  return file;
}

Result<void> runCuda(const Options &options) {
  if (options.measureMachine || options.list)
    return Error{ErrorCode::unsupported,
                 "--device is " + quote(options.device) +
                     ", expected cpu with --measure-machine, or with --list "
                     "unless --tune is given"};
  auto file = openJson(options);
  if (!file)
    return file.takeError();
  Result<void> printed;
  bool begun = false;
  auto all = measureCuda(options, [&](const CudaRow &row) {
    if (printed && !begun)
      printed = print(cudaTableHead());
    begun = true;
    if (printed)
      printed = print(cudaTableLine(row));
  });
  if (!all)
    return all.takeError();
  if (!printed)
    return printed;
  return finish(*file, cudaJson(*all));
}

/// Puts the text into the file, or where there is none takes the file away.
/// Tells whether a file was written or removed.
Result<bool> replaceTuning(const std::string &path, const std::string &text) {
  namespace fs = std::filesystem;
  std::error_code failed;
  auto failure = [&](const char *what) {
    return Error{ErrorCode::io, std::string("cannot ") + what + " " +
                                    quote(path) + ": " + failed.message()};
  };
  if (text.empty()) {
    bool removed = fs::remove(path, failed);
    return failed ? Result<bool>(failure("remove")) : Result<bool>(removed);
  }
  fs::create_directories(fs::path(path).parent_path(), failed);
  if (failed)
    return failure("write");
  Result<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (Result<void> ok = file->write(text); !ok)
    return ok.takeError();
  if (Result<void> ok = file->commit(); !ok)
    return ok.takeError();
  return true;
}

/// What is said at the end: whether the table stands, and where `text` is.
std::string tuningVerdict(const Options &options, bool tableStands,
                          const std::string &text, bool changed,
                          const std::string &path) {
  std::string verdict;
  if (tableStands) {
    char threshold[32];
    std::snprintf(threshold, sizeof threshold, "%g", options.tuneThreshold);
    verdict = std::string("the compiler's table stands: nothing beats it by "
                          "more than ") +
              threshold + " %\n";
  }
  if (!text.empty())
    verdict += "written to " + path + ", for prefill-opt --tuning\n";
  else if (changed)
    verdict += "removed what an earlier run wrote to " + path + "\n";
  return verdict;
}

Result<void> tune(std::vector<TuneCandidate> &candidates,
                  const Options &options, ModuleStore &store,
                  std::optional<OutputFile> &file) {
  Result<std::string> path = tuningFile();
  if (!path)
    return path.takeError();
  PeakProbe probe(options.threads);
  if (Result<void> ok = measureCandidates(candidates, options.shapes,
                                          options.rounds, store, probe);
      !ok)
    return ok;
  if (Result<void> ok = print(tuneTable(candidates)); !ok)
    return ok;
  const TuneCandidate *gemm = winner(candidates, "gemm", options.tuneThreshold);
  const TuneCandidate *attention =
      winner(candidates, "attention", options.tuneThreshold);
  // What an earlier run wrote about a section that was not timed now stays.
  std::string text = updatedTuning(*path, candidates, gemm, attention);
  Result<bool> changed = replaceTuning(*path, text);
  if (!changed)
    return changed.takeError();
  if (Result<void> ok = print(
          tuningVerdict(options, !gemm && !attention, text, *changed, *path));
      !ok)
    return ok;
  return finish(file, tuneToJson(candidates, options.threads));
}

Result<std::optional<std::regex>>
filterOf(const std::optional<std::string> &text) {
  std::optional<std::regex> filter;
  if (text) {
    Result<std::regex> parsed = parseFilter(*text);
    if (!parsed)
      return parsed.takeError();
    filter = *parsed;
  }
  return filter;
}

/// What is known of the GPU already; null where nothing is.
nlohmann::ordered_json earlierTuning(const std::string &path) {
  std::ifstream file(path);
  return nlohmann::ordered_json::parse(file, /*callback=*/nullptr,
                                       /*allow_exceptions=*/false);
}

Result<void> tuneCuda(const Options &options) {
  auto filter = filterOf(options.filter);
  if (!filter)
    return filter.takeError();
  Result<ModuleStore> store =
      ModuleStore::open(options.binaries, options.modules);
  if (!store)
    return store.takeError();
  if (options.compileOnly)
    return compileForTuning(options, *store);
  if (options.list) {
    auto names = listTuning(options, *filter, *store);
    if (!names)
      return names.takeError();
    std::string text;
    for (const std::string &name : *names)
      text += name + "\n";
    return print(text);
  }
  auto file = openJson(options);
  if (!file)
    return file.takeError();
  Result<void> printed;
  bool begun = false;
  Result<CudaTuning> tuning =
      measureTiles(options, *filter, *store, [&](const TunedClass &measured) {
        if (printed)
          printed =
              print((begun ? "" : cudaTuneHead()) + cudaTuneLines(measured));
        begun = true;
      });
  if (!tuning)
    return tuning.takeError();
  if (!printed)
    return printed;
  std::string verdict;
  for (const TunedProduct &product : tuning->products) {
    char line[128];
    std::snprintf(line, sizeof line, "%-52s %10.1f\n", product.name.c_str(),
                  product.microseconds);
    verdict += line;
  }
  Result<std::string> path = cudaTuningFile(tuning->machine);
  if (!path)
    return path.takeError();
  std::vector<TunedEntry> entries = tuning->entries(options.tuneThreshold);
  std::string text =
      updatedCudaTuning(earlierTuning(*path), tuning->machine, tuning->chip,
                        tuning->measuredOps(), entries);
  Result<bool> changed = replaceTuning(*path, text);
  if (!changed)
    return changed.takeError();
  verdict += tuningVerdict(options, entries.empty(), text, *changed, *path);
  if (Result<void> ok = print(verdict); !ok)
    return ok;
  return finish(*file, cudaTuneJson(*tuning));
}

Result<void> execute(const Options &options) {
  if (Result<void> ok = checkDevice(options.device); !ok)
    return ok;
  if (isCuda(options.device))
    return options.tune ? tuneCuda(options) : runCuda(options);
  std::vector<Row> rows;
  std::vector<TuneCandidate> candidates;
  if (options.tune) {
    auto expression = filterOf(options.filter);
    if (!expression)
      return expression.takeError();
    candidates = tuneCandidates(*expression);
    if (candidates.empty())
      return matchesNothing(*options.filter,
                            "a candidate like tune/gemm/64x128");
    if (options.list)
      return list(candidates);
  } else if (!options.measureMachine) {
    Result<std::vector<Row>> chosen = chooseRows(
        options.list && !options.filter ? std::optional<std::string>(".")
                                        : options.filter);
    if (!chosen)
      return chosen.takeError();
    rows = std::move(*chosen);
    if (options.list)
      return list(rows);
    if (!options.isa.empty()) {
      forceIsa(rows, options.isa);
      if (*prefill::rt::parseIsaVariant(options.isa) < mostCapableVariant())
        MatmulPeer::limitIsa(options.isa);
    }
  }
  auto file = openJson(options);
  if (!file)
    return file.takeError();
  if (options.measureMachine) {
    std::string text = machineToJson(measureMachine(options.threads));
    return *file ? finish(*file, text) : print(text);
  }
  Result<ModuleStore> store =
      ModuleStore::open(options.binaries, options.modules);
  if (!store)
    return store.takeError();
  return options.tune ? tune(candidates, options, *store, *file)
                      : runRows(rows, options, *store, *file);
}

int fail(const Error &error) {
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  prefill::run::prepareStandardStreams();
  try {
    Result<Options> options = parseOptions(argc, argv);
    if (!options)
      return fail(options.error());
    // Google Benchmark's own flags are not ours: it gets none.
    watchForInterruption();
    int noArguments = 1;
    benchmark::Initialize(&noArguments, argv);
    Result<void> ok = options->help ? print(usage())
                      : options->version
                          ? print("prefill-bench " PREFILL_VERSION "\n")
                          : execute(*options);
    return ok ? 0 : fail(ok.error());
  } catch (const std::bad_alloc &) {
    return fail({ErrorCode::outOfMemory, "out of memory"});
  } catch (const std::exception &error) {
    return fail({ErrorCode::io, error.what()});
  }
}
