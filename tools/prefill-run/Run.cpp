#include "Run.h"
#include "CountersTable.h"
#include "Describe.h"
#include "ExtractCode.h"
#include "NpyFile.h"
#include "Progress.h"
#include "StandardStreams.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace prefill::run;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;
using prefill::rt::Result;

namespace {

Result<void> checked(prefill_status status) {
  if (status == PREFILL_OK)
    return {};
  return Error{static_cast<ErrorCode>(status), prefill_last_error()};
}

Error invalidArgument(const std::string &message) {
  return Error{ErrorCode::invalidArgument, message};
}

int32_t argmax(const float *row, int64_t count) {
  return static_cast<int32_t>(std::max_element(row, row + count) - row);
}

} // namespace

Result<void> Run::execute() {
  Result<void> loaded = loadModule();
  if (options.describe || options.extractCode)
    return printModule(std::move(loaded));
  if (!loaded)
    return loaded;
  for (auto step :
       {&Run::readPrompt, &Run::openOutputs, &Run::loadWeights, &Run::prefill,
        &Run::decode, &Run::writeOutputs, &Run::saveWeightsCache})
    if (Result<void> ok = (this->*step)(); !ok)
      return ok;
  return {};
}

Result<void> Run::loadModule() {
  prefill_device *newDevice = nullptr;
  std::string name = options.isa ? "cpu:" + *options.isa : options.device();
  if (auto ok = checked(
          prefill_device_create(name.c_str(), options.threads, &newDevice));
      !ok)
    return ok;
  device.reset(newDevice);
  if (options.emulationSeed || options.countOnly)
    if (auto ok = checked(prefill_device_set_emulation(
            device.get(), options.emulationSeed, options.countOnly));
        !ok)
      return ok;
  prefill_module *newModule = nullptr;
  if (auto ok = checked(prefill_module_load_file(
          device.get(), options.module.c_str(), &newModule));
      !ok)
    return ok;
  module.reset(newModule);
  record.variant = prefill_module_variant(module.get());
  return checked(prefill_module_get_info(module.get(), &record.info));
}

Result<void> Run::printModule(Result<void> loaded) {
  std::string chosen;
  if (loaded)
    chosen = options.device().substr(0, options.device().find(':')) + ":" +
             record.variant;
  // A module without code for this machine can be looked into all the same,
  // unless a device was asked for: the code is looked for once everything else
  // has been verified.
  else if (!device || options.deviceName || options.isa ||
           loaded.error().code != ErrorCode::unsupported)
    return loaded;
  Result<std::string> text =
      options.describe ? describe(options.module, chosen)
                       : extractCode(options.module, *options.extractCode);
  if (!text)
    return text.takeError();
  return print(*text);
}

Result<void> Run::readPrompt() {
  const prefill_module_info &info = record.info;
  std::string what = options.text     ? "--text"
                     : options.tokens ? "--tokens"
                                      : quote(*options.tokensFile);
  if (Result<void> ok = readTokens(what); !ok)
    return ok;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= info.vocab_size)
      return invalidArgument(what + ": token " + std::to_string(i) + " is " +
                             std::to_string(tokens[i]) +
                             ", expected 0 to vocab_size - 1 = " +
                             std::to_string(info.vocab_size - 1));
  // The last token that is decoded is never fed back: it needs no slot.
  record.numTokens = static_cast<int64_t>(tokens.size());
  capacity = record.numTokens + std::max<int64_t>(0, options.decode - 1);
  if (capacity > info.max_seq)
    return invalidArgument(
        "the prompt of " + std::to_string(tokens.size()) + " tokens" +
        (options.decode
             ? " and " + std::to_string(options.decode) + " to decode exceed"
             : " exceeds") +
        " the module's maximum length " + std::to_string(info.max_seq));
  return {};
}

Result<void> Run::readTokens(const std::string &what) {
  if (options.text) {
    if (record.info.vocab_size != 256)
      return invalidArgument(
          "--text needs a byte-level model with a vocabulary of 256, and this "
          "one has " +
          std::to_string(record.info.vocab_size) +
          ": expected --tokens or --tokens-file");
    if (options.text->empty())
      return invalidArgument("--text is empty, expected at least 1 character");
    for (unsigned char byte : *options.text)
      tokens.push_back(byte);
    return {};
  }
  std::string text = options.tokens.value_or("");
  if (options.tokensFile) {
    // Read, not mapped: it may be a pipe.
    std::FILE *file = std::fopen(options.tokensFile->c_str(), "rbe");
    char piece[65536];
    size_t count = 0;
    while (file && (count = std::fread(piece, 1, sizeof piece, file)) > 0)
      text.append(piece, count);
    bool failed = !file || std::ferror(file);
    Error error{ErrorCode::io, "cannot read " + quote(*options.tokensFile) +
                                   ": " + std::strerror(errno)};
    if (file)
      std::fclose(file);
    if (failed)
      return error;
  }
  Result<std::vector<int32_t>> parsed = parseTokens(what, text);
  if (!parsed)
    return parsed.takeError();
  tokens = std::move(*parsed);
  return {};
}

Result<void> Run::openOutputs() {
  for (auto [path, file] : {std::pair{&options.logitsOut, &logitsFile},
                            {&options.saveKV, &kvFile},
                            {&options.profile, &profileFile}}) {
    if (!*path)
      continue;
    Result<OutputFile> opened = OutputFile::create(**path);
    if (!opened)
      return opened.takeError();
    file->emplace(std::move(*opened));
  }
  return {};
}

Result<void> Run::loadWeights() {
  // The cache first: when it does not fit, nobody has to wait to hear so.
  prefill_kv_cache *newCache = nullptr;
  if (auto ok = checked(
          prefill_kv_cache_create(module.get(), 1, capacity, &newCache));
      !ok)
    return ok;
  cache.reset(newCache);
  prefill_weights *newWeights = nullptr;
  if (options.weights && !options.poison && options.weightsCache != "off") {
    if (auto ok = loadCachedWeights(&newWeights); !ok)
      return ok;
  } else {
    Progress progress;
    prefill_status status =
        options.weights
            ? prefill_weights_load(module.get(), options.weights->c_str(),
                                   Progress::report, &progress, &newWeights)
            : prefill_weights_random(module.get(), *options.randomWeights,
                                     Progress::report, &progress, &newWeights);
    if (auto ok = checked(status); !ok)
      return ok;
  }
  weights.reset(newWeights);
  prefill_session *newSession = nullptr;
  if (auto ok = checked(prefill_session_create(module.get(), weights.get(),
                                               cache.get(), &newSession));
      !ok)
    return ok;
  session.reset(newSession);
  if (options.poison)
    if (auto ok = checked(prefill_session_set_poison(session.get(), 1)); !ok)
      return ok;
  if (profileFile)
    if (auto ok = checked(prefill_session_set_timing(session.get(), 1)); !ok)
      return ok;
  record.startMs =
      std::chrono::duration<double, std::milli>(Clock::now() - created).count();
  return {};
}

Result<void> Run::loadCachedWeights(prefill_weights **out) {
  {
    Progress progress;
    if (auto ok = checked(prefill_weights_load_cached(
            module.get(), options.weights->c_str(),
            options.weightsCache ? options.weightsCache->c_str() : nullptr,
            options.verifyWeightsCache, Progress::report, &progress, out));
        !ok)
      return ok;
  }
  prefill_weights_cache cache;
  if (auto ok = checked(prefill_weights_get_cache(*out, &cache)); !ok)
    return ok;
  record.weightsCache = cache.used ? cache.file : "";
  if (!cache.used && *cache.rejected)
    std::fprintf(stderr, "warning: %s: packing the weights again\n",
                 cache.rejected);
  return {};
}

Result<void> Run::saveWeightsCache() {
  if (!options.weights || options.poison || options.weightsCache == "off")
    return {};
  prefill_status status;
  {
    Progress progress;
    status =
        prefill_weights_write_cache(weights.get(), Progress::report, &progress);
  }
  if (status == PREFILL_OK)
    return {};
  // At a place that somebody named it is an output like any other.
  if (options.weightsCache)
    return checked(status);
  std::fprintf(stderr,
               "warning: %s: the next start has to pack the weights again\n",
               prefill_last_error());
  return {};
}

uint64_t Run::now() const {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start)
          .count());
}

Result<void> Run::call(const std::string &name, const int32_t *first,
                       int64_t count, bool allLogits, float *out) {
  if (options.poison)
    if (auto ok = checked(prefill_kv_cache_poison_unused(cache.get())); !ok)
      return ok;
  uint64_t begin = now();
  if (auto ok = checked(
          prefill_session_prefill(session.get(), first, count, allLogits, out));
      !ok)
    return ok;
  CallRecord entry{name,
                   begin,
                   now() - begin,
                   prefill_session_kernels_per_layer(session.get()),
                   {},
                   ""};
  int64_t launches = prefill_session_num_launches(session.get());
  for (int64_t i = 0; i < launches; ++i) {
    LaunchRecord launch{};
    if (auto ok =
            checked(prefill_session_get_launch(session.get(), i, &launch.info));
        !ok)
      return ok;
    if (profileFile)
      if (auto ok = checked(prefill_session_launch_time(
              session.get(), i, &launch.startNs, &launch.durationNs));
          !ok)
        return ok;
    launch.startNs += begin;
    entry.launches.push_back(launch);
  }
  if (options.counters || options.countOnly) {
    const char *json = nullptr;
    if (auto ok = checked(prefill_session_counters(session.get(), &json)); !ok)
      return ok;
    entry.counters = json;
  }
  record.calls.push_back(std::move(entry));
  if (options.countOnly)
    return {}; // logits mean nothing
  int64_t values = (allLogits ? count : 1) * record.info.vocab_size;
  if (std::any_of(out, out + values, [](float x) { return std::isnan(x); }))
    return Error{ErrorCode::invalidWeights,
                 name + ": the logits hold NaN, expected numbers"};
  return {};
}

Result<void> Run::prefill() {
  int64_t vocab = record.info.vocab_size;
  int64_t count = record.numTokens;
  logits.resize((options.allLogits ? count : 1) * vocab);
  int64_t chunk = options.chunk ? options.chunk : count;
  start = Clock::now();
  for (int64_t first = 0; first < count; first += chunk) {
    int64_t last = std::min(count, first + chunk);
    if (auto ok = call("prefill " + std::to_string(first) + ".." +
                           std::to_string(last),
                       tokens.data() + first, last - first, options.allLogits,
                       logits.data() + (options.allLogits ? first * vocab : 0));
        !ok)
      return ok;
    record.flops += prefill_session_flops(session.get());
  }
  record.ttftMs = double(now()) / 1e6;
  return {};
}

Result<void> Run::decode() {
  int64_t vocab = record.info.vocab_size;
  std::vector<float> row(logits.end() - vocab, logits.end());
  uint64_t begin = now();
  for (int64_t i = 0; i < options.decode; ++i) {
    int32_t next = argmax(row.data(), vocab);
    record.generated.push_back(next);
    if (i + 1 == options.decode)
      break;
    if (auto ok = call("decode " + std::to_string(record.numTokens + i), &next,
                       1, false, row.data());
        !ok)
      return ok;
  }
  record.decodeMs = double(now() - begin) / 1e6;
  return checked(prefill_session_memory(session.get(), &record.memory));
}

Result<void> Run::writeOutputs() {
  int64_t vocab = record.info.vocab_size;
  if (logitsFile)
    if (auto ok = writeNpy(*logitsFile,
                           {static_cast<int64_t>(logits.size()) / vocab, vocab},
                           logits);
        !ok)
      return ok;
  if (kvFile)
    if (Result<void> ok = writeCache(); !ok)
      return ok;
  if (profileFile) {
    if (Result<void> ok = profileFile->write(chromeTrace(record)); !ok)
      return ok;
    if (Result<void> ok = profileFile->commit(); !ok)
      return ok;
  }
  if (options.statsJson)
    return print(statsJson(record));
  std::string text = options.countOnly ? "" : continuation();
  text += summary(record);
  if (options.counters || options.countOnly)
    text += countersTable(record);
  return print(text);
}

Result<void> Run::writeCache() {
  const prefill_module_info &info = record.info;
  int64_t length = prefill_kv_cache_length(cache.get(), 0);
  int64_t part = length * info.num_kv_heads * info.head_dim;
  std::vector<float> values(info.num_layers * 2 * part);
  for (int64_t layer = 0; layer < info.num_layers; ++layer) {
    float *keys = values.data() + layer * 2 * part;
    if (auto ok = checked(
            prefill_kv_cache_read(cache.get(), layer, 0, keys, keys + part));
        !ok)
      return ok;
  }
  return writeNpy(
      *kvFile, {info.num_layers, 2, length, info.num_kv_heads, info.head_dim},
      values);
}

std::string Run::continuation() const {
  std::string text;
  int64_t vocab = record.info.vocab_size;
  if (!record.generated.empty()) {
    if (vocab == 256) {
      text += options.text.value_or("");
      for (int32_t token : record.generated) {
        bool control =
            (token < 0x20 && token != '\n' && token != '\t') || token == 0x7f;
        text += control ? '?' : static_cast<char>(token);
      }
      text += "\n\n";
    }
    text += "tokens               ";
    for (size_t i = 0; i < record.generated.size(); ++i)
      text += (i ? "," : "") + std::to_string(record.generated[i]);
    return text + "\n";
  }
  const float *row = logits.data() + logits.size() - vocab;
  std::vector<int32_t> order(vocab);
  for (int64_t i = 0; i < vocab; ++i)
    order[i] = static_cast<int32_t>(i);
  int64_t shown = std::min<int64_t>(5, vocab);
  std::partial_sort(order.begin(), order.begin() + shown, order.end(),
                    [&](int32_t a, int32_t b) {
                      return row[a] != row[b] ? row[a] > row[b] : a < b;
                    });
  text += "next token (logit)   ";
  for (int64_t i = 0; i < shown; ++i) {
    char entry[64];
    std::snprintf(entry, sizeof entry, "%s%d (%.4f)", i ? ", " : "", order[i],
                  double(row[order[i]]));
    text += entry;
  }
  return text + "\n";
}
