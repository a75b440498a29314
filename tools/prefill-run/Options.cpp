#include "Options.h"
#include "OutputFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <strings.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::followLinks;
using prefill::rt::quote;
using prefill::rt::Result;

namespace {

Error usageError(const std::string &message) {
  return Error{ErrorCode::invalidArgument, message};
}

/// One option: a flag has no value.
struct OptionRow {
  const char *name;
  bool hasValue;
  std::function<Result<void>(Options &, const std::string &)> apply;
};

/// An option that stores its text.
OptionRow textOption(const char *name,
                     std::optional<std::string> Options::*field) {
  return {name, true,
          [=](Options &options, const std::string &value) -> Result<void> {
            options.*field = value;
            return {};
          }};
}

/// An option that names a file to write.
OptionRow outputOption(const char *name,
                       std::optional<std::string> Options::*field) {
  return {name, true,
          [=](Options &options, const std::string &value) -> Result<void> {
            if (value.empty())
              return usageError(std::string(name) +
                                " is '', expected the name of a file");
            options.*field = value;
            return {};
          }};
}

OptionRow flag(const char *name, bool Options::*field) {
  return {name, false,
          [=](Options &options, const std::string &) -> Result<void> {
            options.*field = true;
            return {};
          }};
}

OptionRow integerOption(const char *name, int64_t Options::*field, int64_t low,
                        int64_t high) {
  return {name, true,
          [=](Options &options, const std::string &value) -> Result<void> {
            Result<int64_t> number = parseInteger(name, value, low, high);
            if (!number)
              return number.takeError();
            options.*field = *number;
            return {};
          }};
}

Result<uint64_t> parseSeed(const char *name, const std::string &value) {
  uint64_t seed = 0;
  auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), seed);
  if (error != std::errc() || end != value.data() + value.size())
    return usageError(std::string(name) + " is " + quote(value) +
                      ", expected a seed from 0 to 2^64 - 1");
  return seed;
}

/// Somebody who writes OFF does not mean a file.
bool isOff(const std::string &value) {
  return value.size() == 3 && ::strcasecmp(value.c_str(), "off") == 0;
}

const std::vector<OptionRow> &optionTable() {
  constexpr int64_t maxTokens = std::numeric_limits<int32_t>::max();
  static const std::vector<OptionRow> table = {
      textOption("--weights", &Options::weights),
      {"--random-weights", true,
       [](Options &options, const std::string &value) -> Result<void> {
         Result<uint64_t> seed = parseSeed("--random-weights", value);
         if (!seed)
           return seed.takeError();
         options.randomWeights = *seed;
         return {};
       }},
      {"--weights-cache", true,
       [](Options &options, const std::string &value) -> Result<void> {
         if (value.empty())
           return usageError(
               "--weights-cache is '', expected the name of a file, or off");
         options.weightsCache = isOff(value) ? "off" : value;
         return {};
       }},
      flag("--verify-weights-cache", &Options::verifyWeightsCache),
      textOption("--tokens", &Options::tokens),
      textOption("--tokens-file", &Options::tokensFile),
      textOption("--text", &Options::text),
      integerOption("--decode", &Options::decode, 0, maxTokens),
      integerOption("--chunk", &Options::chunk, 1, maxTokens),
      {"--threads", true,
       [](Options &options, const std::string &value) -> Result<void> {
         Result<int64_t> number = parseInteger("--threads", value, 1, 1024);
         if (!number)
           return number.takeError();
         options.threads = static_cast<int>(*number);
         return {};
       }},
      {"--device", true,
       [](Options &options, const std::string &value) -> Result<void> {
         options.deviceName = value; // the runtime knows the devices
         return {};
       }},
      {"--emulation-seed", true,
       [](Options &options, const std::string &value) -> Result<void> {
         Result<uint64_t> seed = parseSeed("--emulation-seed", value);
         if (!seed)
           return seed.takeError();
         options.emulationSeed = *seed;
         return {};
       }},
      {"--isa", true,
       [](Options &options, const std::string &value) -> Result<void> {
         constexpr std::string_view known[] = {"avx2",        "avx_vnni",
                                               "avx512",      "avx512_vnni",
                                               "avx512_bf16", "amx_bf16"};
         if (std::find(std::begin(known), std::end(known), value) ==
             std::end(known))
           return usageError("--isa is " + quote(value) +
                             ", expected avx2, avx_vnni, avx512, avx512_vnni, "
                             "avx512_bf16 or amx_bf16");
         options.isa = value;
         return {};
       }},
      outputOption("--logits-out", &Options::logitsOut),
      flag("--all-logits", &Options::allLogits),
      {"--stats", true,
       [](Options &options, const std::string &value) -> Result<void> {
         if (value != "json")
           return usageError("--stats is " + quote(value) + ", expected json");
         options.statsJson = true;
         return {};
       }},
      outputOption("--profile", &Options::profile),
      outputOption("--save-kv", &Options::saveKV),
      flag("--describe", &Options::describe),
      {"--extract-code", true,
       [](Options &options, const std::string &value) -> Result<void> {
         if (value.empty())
           return usageError(
               "--extract-code is '', expected the name of a directory");
         options.extractCode = value;
         return {};
       }},
      flag("--poison", &Options::poison),
      flag("--counters", &Options::counters),
      flag("--count-only", &Options::countOnly),
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

/// Whether writing one path would replace the other. A device or a pipe is not
/// replaced and may be named twice.
bool sameFile(const std::string &first, const std::string &second) {
  std::error_code ignored;
  std::filesystem::file_status status = std::filesystem::status(first, ignored);
  if (std::filesystem::exists(status))
    return std::filesystem::is_regular_file(status) &&
           std::filesystem::equivalent(first, second, ignored);
  auto canonical = [&](const std::string &path) {
    return std::filesystem::weakly_canonical(
        std::filesystem::absolute(followLinks(path), ignored), ignored);
  };
  std::filesystem::path canonicalFirst = canonical(first);
  return !canonicalFirst.empty() && canonicalFirst == canonical(second);
}

/// A cache that somebody names is there or can be made.
Result<void> checkWeightsCache(const std::string &path) {
  auto refuse = [&](const std::string &reason) {
    return usageError("--weights-cache is " + quote(path) + ": " + reason);
  };
  std::error_code ignored;
  std::filesystem::path target = followLinks(path);
  std::filesystem::file_status status =
      std::filesystem::status(target, ignored);
  if (std::filesystem::is_regular_file(status))
    return {};
  if (std::filesystem::exists(status))
    return refuse("it is not a regular file, expected one or a new name");
  std::string directory = target.parent_path().string();
  if (directory.empty())
    directory = ".";
  if (::access((directory + "/.").c_str(), W_OK | X_OK) != 0)
    return refuse("cannot make a file in directory " + quote(directory) + ": " +
                  std::strerror(errno));
  return {};
}

/// No output may replace another one or what the run reads.
Result<void> checkOutputs(const Options &options) {
  std::vector<std::pair<std::string, std::string>> files = {
      {"the module", options.module}};
  if (options.tokensFile)
    files.emplace_back("--tokens-file", *options.tokensFile);
  if (options.weightsCache && *options.weightsCache != "off") {
    if (sameFile(*options.weightsCache, options.module))
      return usageError("the module " + quote(options.module) +
                        " and --weights-cache name the same file, expected "
                        "two");
    if (Result<void> ok = checkWeightsCache(*options.weightsCache); !ok)
      return ok;
    files.emplace_back("--weights-cache", *options.weightsCache);
  } else if (options.weights && !options.weightsCache) {
    // Where the packed weights go when nobody says (weightsCachePlaces).
    std::error_code failed;
    std::filesystem::path module =
        std::filesystem::canonical(options.module, failed);
    bool cpu = options.device().rfind("cpu", 0) == 0;
    files.emplace_back("the weights cache",
                       (failed ? options.module : module.string()) +
                           (cpu ? ".weights" : ".cuda.weights"));
  }
  for (auto [name, path] : {std::pair{"--logits-out", &options.logitsOut},
                            {"--save-kv", &options.saveKV},
                            {"--profile", &options.profile}}) {
    if (!*path)
      continue;
    for (const auto &[otherName, other] : files)
      if (sameFile(**path, other))
        return usageError(otherName + " " + quote(other) + " and " + name +
                          " " + quote(**path) +
                          " name the same file, expected two");
    files.emplace_back(name, **path);
  }
  return {};
}

/// Options of the emulator.
Result<void> checkEmulation(const Options &options) {
  bool emulated = options.device().rfind("cuda-emu", 0) == 0;
  for (auto [name, given] : {std::pair{"--counters", options.counters},
                             {"--count-only", options.countOnly},
                             {"--emulation-seed", options.emulationSeed != 0}})
    if (given && !emulated)
      return usageError(std::string(name) +
                        " is for emulated devices, but "
                        "--device is " +
                        quote(options.device()) + ", expected cuda-emu:sm_XX");
  if (options.countOnly &&
      (!options.randomWeights || options.poison || options.decode ||
       options.logitsOut || options.saveKV))
    return usageError("--count-only computes nothing, expected "
                      "--random-weights, and none of --poison, --decode, "
                      "--logits-out and --save-kv beside it");
  return {};
}

/// What only makes sense together, or only alone.
Result<void> checkCombination(const Options &options) {
  if (options.module.empty())
    return usageError("no module is given, expected prefill-run MODEL.pfm");
  int prompts = options.tokens.has_value() + options.tokensFile.has_value() +
                options.text.has_value();
  bool anyWeights = options.weights || options.randomWeights;
  bool anyCache = options.weightsCache || options.verifyWeightsCache;
  if (options.isa && options.device() != "cpu")
    return usageError("both --isa and --device " + quote(options.device()) +
                      " are given, expected --isa with --device cpu only");
  if (options.describe || options.extractCode) {
    const char *name = options.describe ? "--describe" : "--extract-code";
    if (options.describe && options.extractCode)
      return usageError(
          "both --describe and --extract-code are given, expected one");
    if (prompts || anyWeights || anyCache || options.decode || options.chunk ||
        options.logitsOut || options.saveKV || options.profile ||
        options.allLogits || options.poison || options.statsJson ||
        options.counters || options.countOnly || options.emulationSeed)
      return usageError(std::string(name) +
                        " runs nothing, expected only --device, --isa and "
                        "--threads beside it");
    return {};
  }
  if (Result<void> ok = checkEmulation(options); !ok)
    return ok;
  if (options.weights && options.randomWeights)
    return usageError(
        "both --weights and --random-weights are given, expected one");
  if (!anyWeights)
    return usageError("no weights are given, expected --weights DIR or "
                      "--random-weights SEED");
  if (anyCache && !options.weights)
    return usageError("a cache of packed weights is named, but --weights is "
                      "not: random weights have none");
  if (options.verifyWeightsCache && options.weightsCache == "off")
    return usageError("--verify-weights-cache is given with --weights-cache "
                      "off, expected a cache to verify");
  if (options.poison && anyCache && options.weightsCache != "off")
    return usageError(
        "--poison guards the memory of the weights, which a cache "
        "replaces: expected --weights-cache off or none");
  if (prompts != 1)
    return usageError(
        std::string(prompts ? "more than one prompt" : "no prompt") +
        " is given, expected one of --tokens, --tokens-file, --text");
  return checkOutputs(options);
}

} // namespace

const char *prefill::run::usage() {
  return R"(usage: prefill-run MODEL.pfm [options]

Loads a compiled module, fills its KV cache from a prompt and prints what comes next.

weights, one of
  --weights DIR         a Hugging Face directory: config.json and *.safetensors
  --weights-cache FILE  where packed weights are kept for the next start; off: nowhere
                        (default: MODEL.pfm.weights, else the user's cache directory)
  --verify-weights-cache  compare the packed weights with their checksums first
  --random-weights N    numbers from a seed, for models without a checkpoint
prompt, one of
  --tokens 1,2,3        token ids
  --tokens-file FILE    token ids separated by white space or commas; may be a pipe
  --text STRING         for byte-level models (a vocabulary of 256): one byte is one token
run
  --decode N            continue greedily for N tokens
  --chunk N             prefill the prompt in chunks of N tokens (default: in one call)
  --threads N           default: one for each processor that the process may use (SMT siblings are processors),
                        but no more than a container's CPU quota is good for; N itself is not limited
  --device NAME         cpu (default), cpu:ISA (--isa), cuda, cuda:N, or cuda-emu:sm_XX: the CUDA kernels
                        executed and checked on the CPU (slow)
  --emulation-seed N    on cuda-emu: the order in which threads run (default 0: ascending)
  --isa NAME            avx2, avx512, avx512_bf16 or amx_bf16, of a module with int8 weights avx_vnni and
                        avx512_vnni as well: short for --device cpu:NAME (default: the best that the CPU and the
                        module have; avx512_vnni or avx512 in place of avx512_bf16 where a start measures that
                        the CPU multiplies bf16 faster that way)
  --poison              fill unused memory with NaN, guard every buffer, fail on a stray write
output
  --logits-out F.npy    f32 [rows, vocab_size]: logits of the prompt's last token
  --all-logits          logits of every prompt token
  --save-kv F.npy       f32 [num_layers, 2, tokens, num_kv_heads, head_dim]: keys, then values
  --stats=json          standard output holds measurements as JSON and nothing else
  --profile FILE        every launch in Chrome's trace format (chrome://tracing, Perfetto)
  --counters            on cuda-emu: traffic, sectors, bank conflicts of every launch, by kernel
  --count-only          on cuda-emu: counters without arithmetic, for models too large to emulate
  --describe            print the module: kernels, weights, buffers, plan; runs nothing
  --extract-code DIR    write the kernels' code to DIR/TARGET-VARIANT.so, .cubin or .ptx; runs nothing
  --help, --version
)";
}

Result<int64_t> prefill::run::parseInteger(const std::string &what,
                                           const std::string &text, int64_t low,
                                           int64_t high) {
  int64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low ||
      value > high)
    return usageError(what + " is " + quote(text) +
                      ", expected an integer from " + std::to_string(low) +
                      " to " + std::to_string(high));
  return value;
}

Result<std::vector<int32_t>>
prefill::run::parseTokens(const std::string &what, const std::string &text) {
  auto isSpace = [](char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
  };
  std::vector<int32_t> tokens;
  auto missingToken = [&](size_t at) {
    return usageError(what + ": token " + std::to_string(tokens.size()) +
                      " is missing at character " + std::to_string(at + 1) +
                      ", expected a number before and after every comma");
  };
  bool afterToken = false; // no comma since the last token
  bool afterComma = false; // no token since the last comma
  for (size_t begin = 0; begin < text.size();) {
    if (isSpace(text[begin])) {
      ++begin;
      continue;
    }
    if (text[begin] == ',') {
      if (!afterToken)
        return missingToken(begin);
      afterToken = false;
      afterComma = true;
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && text[end] != ',' && !isSpace(text[end]))
      ++end;
    Result<int64_t> token =
        parseInteger(what + ": token " + std::to_string(tokens.size()),
                     text.substr(begin, end - begin), 0,
                     std::numeric_limits<int32_t>::max());
    if (!token)
      return token.takeError();
    tokens.push_back(static_cast<int32_t>(*token));
    afterToken = true;
    afterComma = false;
    begin = end;
  }
  if (afterComma)
    return missingToken(text.size());
  if (tokens.empty())
    return usageError(what +
                      ": the prompt is empty, expected at least 1 token");
  return tokens;
}

Result<Options> prefill::run::parseOptions(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-') {
      if (!options.module.empty())
        return usageError("a second module " + quote(argument) +
                          " is given after " + quote(options.module));
      options.module = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    const OptionRow *row = nullptr;
    for (const OptionRow &candidate : optionTable())
      if (name == candidate.name)
        row = &candidate;
    if (!row)
      return usageError("unknown option " + quote(name) + ", expected one of " +
                        validOptions());
    std::string value;
    if (row->hasValue) {
      if (equals != std::string::npos)
        value = argument.substr(equals + 1);
      else if (i + 1 < argc)
        value = argv[++i];
      else
        return usageError("option " + name + " needs a value");
    } else if (equals != std::string::npos) {
      return usageError("option " + name + " takes no value");
    }
    if (Result<void> ok = row->apply(options, value); !ok)
      return ok.takeError();
  }
  if (options.help || options.version)
    return options;
  if (Result<void> ok = checkCombination(options); !ok)
    return ok.takeError();
  return options;
}
