// Compiled modules: made by the compiler's tools when they are at hand, kept in
// a directory.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MODULESTORE_H
#define PREFILL_TOOLS_PREFILLBENCH_MODULESTORE_H

#include "ModelShapes.h"
#include "prefill/checkpoint/Result.h"

#include <string>
#include <vector>

namespace prefill::bench {

using rt::Result;

struct ModuleSpec {
  const ModelShape *shape;
  int64_t layers, vocab;
  std::string dtype;  ///< "int8": a model of bf16 with --weights=int8
  std::string layout; ///< of the KV cache, as --kv-layout takes it
  int64_t maxSeq;
  /// Further arguments of prefill-opt, and what names them in the file's name.
  std::vector<std::string> options = {};
  std::string optionsName = {};
  std::vector<std::string> targets = {"cpu"};

  /// "llama-3-8b-l2-v1024-bf16-contiguous-s8192.pfm"
  std::string fileName() const;
};

/// This process links no compiler: it starts prefill-translate and prefill-opt.
class ModuleStore {
public:
  /// binaries: where the compiler's tools lie. directory: where modules are
  /// kept; empty: prefill/bench-modules in the user's cache directory.
  static Result<ModuleStore> open(const std::string &binaries,
                                  const std::string &directory);

  /// The path of a module. A file that is there is used unless prefill-opt is
  /// newer; otherwise it is compiled, and a file appears complete or not at
  /// all. `seconds`, if given, is set to the time that prefill-opt took, 0
  /// when it did not run.
  Result<std::string> get(const ModuleSpec &spec, double *seconds = nullptr);
  /// Compiles whether or not there is a file.
  Result<std::string> compile(const ModuleSpec &spec, double *seconds);
  /// The path of what prefill-opt --list-tiles says of a module's model for its
  /// one target; made under the same condition.
  Result<std::string> listTiles(const ModuleSpec &spec);
  /// Whether a file of that name is there and need not be made again.
  bool isFresh(const std::string &name) const;

  /// Where a file of that name beside the modules lies.
  std::string place(const std::string &name) const {
    return directory + "/" + name;
  }

private:
  /// Runs prefill-translate and prefill-opt for a file of that name, which
  /// appears complete or not at all; `seconds` as get() has it.
  Result<void> make(const ModuleSpec &spec, const std::string &name,
                    const std::vector<std::string> &options, double *seconds);

  ModuleStore(std::string binaries, std::string directory)
      : binaries(std::move(binaries)), directory(std::move(directory)) {}

  std::string binaries, directory;
};

/// $XDG_CACHE_HOME/prefill or ~/.cache/prefill. Error: neither is set.
Result<std::string> userCacheDirectory();

/// The directory of the running executable.
std::string executableDirectory();

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MODULESTORE_H
