#include "Options.h"
#include "ModelShapes.h"
#include "ModuleStore.h"
#include "core/ThreadPool.h"
#include "cpu/IsaVariant.h"
#include "prefill/checkpoint/Quote.h"

#include <charconv>
#include <functional>
#include <sstream>
#include <vector>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;

namespace {

Error usageError(const std::string &message) {
  return Error{ErrorCode::invalidArgument, message};
}

enum class Value {
  none,
  required,
  afterEquals, ///< may be left out; only `--option=value` gives one
};

struct OptionRow {
  const char *name;
  Value value;
  /// Gets "" where there is no value.
  std::function<Result<void>(Options &, const std::string &)> apply;
};

OptionRow flag(const char *name, bool Options::*field) {
  return {name, Value::none,
          [=](Options &options, const std::string &) -> Result<void> {
            options.*field = true;
            return {};
          }};
}

template <typename Field>
OptionRow textOption(const char *name, Field Options::*field,
                     const char *expected) {
  return {name, Value::required,
          [=](Options &options, const std::string &value) -> Result<void> {
            if (value.empty())
              return usageError(std::string(name) + " is '', expected " +
                                expected);
            options.*field = value;
            return {};
          }};
}

OptionRow integerOption(const char *name, int Options::*field, int low,
                        int high, const char *what) {
  return {name, Value::required,
          [=](Options &options, const std::string &value) -> Result<void> {
            int number = 0;
            auto [end, error] = std::from_chars(
                value.data(), value.data() + value.size(), number);
            if (error != std::errc() || end != value.data() + value.size() ||
                number < low || number > high)
              return usageError(std::string(name) + " is " + quote(value) +
                                ", expected an integer from " +
                                std::to_string(low) + " to " +
                                std::to_string(high) + what);
            options.*field = number;
            return {};
          }};
}

Result<void> parseShapes(const std::string &value,
                         std::vector<std::string> &shapes) {
  std::string valid;
  for (const ModelShape *shape : modelShapes())
    valid += (valid.empty() ? "" : ", ") + std::string(shape->name);
  std::istringstream names(value + ",");
  for (std::string name; std::getline(names, name, ',');) {
    if (!findShape(name))
      return usageError("--shapes is " + quote(value) +
                        ", expected names out of " + valid);
    shapes.push_back(name);
  }
  return {};
}

const std::vector<OptionRow> &optionTable() {
  static const std::vector<OptionRow> table = {
      textOption("--filter", &Options::filter,
                 "a regular expression over the names of rows"),
      integerOption("--threads", &Options::threads, 1,
                    prefill::rt::ThreadPool::availableProcessors(),
                    ", the processors that this process may use"),
      integerOption("--rounds", &Options::rounds, 1, 10000, ""),
      textOption("--json", &Options::json, "the name of a file"),
      textOption("--device", &Options::device, "cpu, cuda or cuda:N"),
      {"--isa", Value::required,
       [](Options &options, const std::string &value) -> Result<void> {
         if (!prefill::rt::parseIsaVariant(value))
           return usageError("--isa is " + quote(value) +
                             ", expected avx2, avx_vnni, avx512, "
                             "avx512_vnni, avx512_bf16 or amx_bf16");
         options.isa = value;
         return {};
       }},
      flag("--tune", &Options::tune),
      {"--tune-threshold", Value::afterEquals,
       [](Options &options, const std::string &value) -> Result<void> {
         if (value.empty())
           return {};
         double percent = 0;
         auto [end, error] = std::from_chars(
             value.data(), value.data() + value.size(), percent);
         if (error != std::errc() || end != value.data() + value.size() ||
             !(percent >= 0 && percent <= 100))
           return usageError("--tune-threshold is " + quote(value) +
                             ", expected per cent from 0 to 100");
         options.tuneThreshold = percent;
         return {};
       }},
      {"--shapes", Value::required,
       [](Options &options, const std::string &value) -> Result<void> {
         return parseShapes(value, options.shapes);
       }},
      integerOption("--candidates", &Options::candidates, 1, 64, ""),
      flag("--compile-only", &Options::compileOnly),
      flag("--measure-machine", &Options::measureMachine),
      textOption("--bin", &Options::binaries, "a directory"),
      textOption("--modules", &Options::modules, "a directory"),
      flag("--list", &Options::list),
      flag("--help", &Options::help),
      flag("--version", &Options::version),
  };
  return table;
}

std::string validOptions() {
  std::string list;
  for (const OptionRow &row : optionTable())
    list += (list.empty() ? "" : ", ") + std::string(row.name);
  return list;
}

Result<void> checkCombination(const Options &options) {
  if (options.tune && options.measureMachine)
    return usageError("both --tune and --measure-machine are given, expected "
                      "one");
  bool onGpu = options.device == "cuda" || options.device.starts_with("cuda:");
  if (options.compileOnly && !(options.tune && onGpu))
    return usageError("--compile-only is for --tune --device cuda");
  if (!options.shapes.empty() && !options.tune)
    return usageError("--shapes is for --tune");
  for (const std::string &name : options.shapes)
    if (!onGpu && name != llama32_1b.name && name != llama3_8b.name)
      return usageError("--shapes has " + quote(name) + ", expected " +
                        llama32_1b.name + " or " + llama3_8b.name +
                        " where --tune is for a CPU");
  if (!options.isa.empty() && (options.tune || options.measureMachine || onGpu))
    return usageError("--isa is for rows of a CPU, but " +
                      (options.tune ? "--tune"
                       : options.measureMachine
                           ? "--measure-machine"
                           : "--device " + options.device) +
                      " is given");
  if (options.list && options.measureMachine)
    return usageError("--list names rows, and --measure-machine runs none, "
                      "expected one of them");
  if (options.filter && options.measureMachine)
    return usageError("--filter chooses rows, and --measure-machine runs none, "
                      "expected one of them");
  return {};
}

} // namespace

std::string prefill::bench::usage() {
  return R"(usage: prefill-bench [options]

Times kernels and whole models beside what the machine can do at best, and prints how near they come.

rows
  --filter=REGEX        rows whose name the expression (ECMAScript) finds a match in; without it all but the slow ones
  --list                print the names, with what is left out without a filter, and end; with --tune the candidates
  --threads=N           threads of the kernels and of the probe (default 1). None is pinned: the process's affinity
                        holds, so use taskset to choose processors
  --rounds=N            timed runs of each row (default 9)
  --isa=NAME            avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16 or amx_bf16, for every row (default: what
                        prefill-run takes on this CPU; rows like gemm-avx2/ have their own). The probe follows, and
                        oneDNN is kept from anything better. f32 and f16 have no code of amx_bf16: there it means
                        avx512_bf16; int8 alone has code of avx_vnni and avx512_vnni, for others avx2 and avx512
  --json=FILE           write the rows as a JSON list as well
  --device=D            cpu (default), or cuda or cuda:N: the launches of every module in --modules, compiled for the GPU,
                        at 512, 2048, 8192 and 16384 tokens; `of peak` is of the tensor cores' peak at the highest clock, cuBLASLt
                        the plain product of the same size
machine
  --measure-machine     peak FLOP/s for each instruction set and number of threads, bandwidth of memory and caches, as
                        JSON to standard output or to --json=FILE
  --tune                try block sizes of GEMM and attention on this machine beside those of the compiler's table
                        (names for --filter: tune/gemm/64x128 as block_m x block_n, tune/attention/64x256 as block_q x
                        block_kv); the best goes to $XDG_CACHE_HOME/prefill/tuning-CPU.json, for prefill-opt --tuning,
                        when it beats the table by more than the threshold; --json holds every candidate
                        with --device cuda: the tiles that fit the chip, for each gemm and attention of a model at several
                        row counts (tune/gemm/bf16/512x6144x4096/128x128), in place of the table's where they beat it by
                        more than the threshold, and cuBLASLt's algorithms for the LM head
  --tune-threshold[=P]  per cent (default 2)
  --shapes=A,B          models to tune for: llama-3.2-1b,llama-3-8b (default: both), on a GPU llama-3-70b as well
                        (default: all three) and qwen2.5-0.5b
  --candidates=N        tiles of each op beside the table's, the best by the compiler's estimate (default 8)
  --compile-only        make the modules that tuning needs, for every chip, and end: no GPU is asked for
modules
  --bin=DIR             where prefill-translate and prefill-opt lie (default: beside this program)
  --modules=DIR         where compiled modules are kept and found (default: $XDG_CACHE_HOME/prefill/bench-modules);
                        one that is there is used unless prefill-opt is newer
  --help, --version

ratio   median over the rounds of (work a second / peak). The peak is the larger of two probes, right before and right
        after each timed run, on as many threads: a loop over registers of tdpbf16ps (bf16 with AMX), vdpbf16ps
        (bf16 with AVX-512-BF16) or vfmadd231ps (also bf16 where that is the faster of the two); for decode/ rows a streaming read of a buffer eight times the last cache. For startup/ rows: the time of
        the first start over that of the second, which finds the packed weights. Where bf16 has something faster than vdpbf16ps,
        the JSON has vdpbf16ps_ratio too: the same work over what vdpbf16ps does in the same rounds.
        int8/ rows are of bf16 models with prefill-opt --weights=int8, and the loop is of vpdpbusd (with AVX-VNNI on 256 bits,
        with AVX-512-VNNI on 512; without either of vfmadd231ps, which may be exceeded), attention's FLOPs, which stay bf16's,
        included. A gemm row times the product alone; the launch before, which makes integers of its input, is in the JSON as
        quantize_seconds, and vfmadd231ps_ratio, vdpbf16ps_ratio or tdpbf16ps_ratio is the same work over what multiplies bf16.
spread  (75th - 25th percentile) / median of these ratios.
oneDNN  our ratio over that of oneDNN's plain matmul (no epilogue) of the same size, run right after, median.
Rows of one module are interleaved: a round runs each once.
)";
}

Result<Options> prefill::bench::parseOptions(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    const OptionRow *found = nullptr;
    for (const OptionRow &row : optionTable())
      if (name == row.name)
        found = &row;
    if (!found)
      return usageError("unknown option " + quote(argument) +
                        ", expected one of " + validOptions());
    std::string value;
    if (equals != std::string::npos) {
      if (found->value == Value::none)
        return usageError(name + " takes no value, found " + quote(argument));
      value = argument.substr(equals + 1);
      if (found->value == Value::afterEquals && value.empty())
        return usageError(name + " is '', expected a number after the '='");
    } else if (found->value == Value::required) {
      if (i + 1 == argc)
        return usageError(name + " needs a value");
      value = argv[++i];
    }
    if (Result<void> ok = found->apply(options, value); !ok)
      return ok.takeError();
  }
  if (options.help || options.version)
    return options;
  if (Result<void> ok = checkCombination(options); !ok)
    return ok.takeError();
  if (options.binaries.empty())
    options.binaries = executableDirectory();
  return options;
}
