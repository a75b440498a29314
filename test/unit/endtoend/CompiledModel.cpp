// A golden checkpoint compiled by the tools and loaded through the C ABI.
#include "CompiledModel.h"
#include "prefill/module_generated.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace prefill::test {

void check(prefill_status status, const char *what) {
  if (status != PREFILL_OK)
    throw std::runtime_error(std::string(what) + ": " + prefill_last_error());
}

/// Runs a command and returns what it printed; throws with that when it fails.
static std::string shell(const std::string &command) {
  FILE *pipe = popen((command + " 2>&1 < /dev/null").c_str(), "r");
  if (!pipe)
    throw std::runtime_error("cannot run " + command);
  std::string output;
  std::array<char, 4096> chunk;
  while (size_t count = fread(chunk.data(), 1, chunk.size(), pipe))
    output.append(chunk.data(), count);
  if (pclose(pipe) != 0)
    throw std::runtime_error(command + ": " + output);
  return output;
}

struct Compiled {
  std::string model, file, explanation;
};

/// The module's file, compiled at the first call for these arguments.
static const Compiled &compile(const std::string &name,
                               const std::string &dtype,
                               const std::string &layout,
                               const std::string &target, bool deterministic) {
  struct Scratch {
    std::string path;
    Scratch() {
      std::string pattern =
          (std::filesystem::temp_directory_path() / "prefill-XXXXXX").string();
      if (!mkdtemp(pattern.data()))
        throw std::runtime_error("cannot create " + pattern);
      path = pattern;
    }
    ~Scratch() { std::filesystem::remove_all(path); }
  };
  static Scratch scratch;
  static std::map<std::string, Compiled> compiled;
  size_t plus = dtype.find('+');
  std::string options =
      " --target=" + target + (target == "cpu" ? " --isa=native" : "") +
      " --dtype=" + dtype.substr(0, plus) +
      (plus == std::string::npos ? std::string()
                                 : " --weights=" + dtype.substr(plus + 1)) +
      " --kv-layout=" + layout + (deterministic ? " --deterministic" : "");
  Compiled &entry = compiled[name + options];
  if (!entry.file.empty())
    return entry;
  std::string stem = scratch.path + "/" + std::to_string(compiled.size());
  shell(std::string(PREFILL_TOOLS_DIR) + "/prefill-translate --import-hf " +
        PREFILL_GOLDEN_DIR + "/" + name + " -o " + stem + ".mlir");
  entry.model = stem + ".mlir";
  entry.explanation = shell(std::string(PREFILL_TOOLS_DIR) + "/prefill-opt " +
                            entry.model + " --compile --explain --max-seq=640" +
                            options + " -o " + stem + ".pfm");
  entry.file = stem + ".pfm";
  return entry;
}

CompiledModel::CompiledModel(const std::string &name, const std::string &dtype,
                             const std::string &layout,
                             const std::string &deviceName, int threads,
                             uint64_t emulationSeed, bool deterministic)
    : directory(std::string(PREFILL_GOLDEN_DIR) + "/" + name) {
  bool isCpu = deviceName.rfind("cpu", 0) == 0;
  const Compiled &compiled =
      compile(name, dtype, layout, isCpu ? "cpu" : deviceName, deterministic);
  const std::string &file = compiled.file;
  modelFile = compiled.model;
  moduleFile = compiled.file;
  explanation = compiled.explanation;
  prefill_device *newDevice = nullptr;
  check(prefill_device_create(deviceName.c_str(), threads, &newDevice),
        "device");
  device.reset(newDevice);
  if (emulationSeed)
    check(prefill_device_set_emulation(device.get(), emulationSeed, 0), "seed");
  prefill_module *newModule = nullptr;
  check(prefill_module_load_file(device.get(), file.c_str(), &newModule),
        "module");
  module.reset(newModule);
  prefill_weights *newWeights = nullptr;
  check(prefill_weights_load(module.get(), directory.c_str(), nullptr, nullptr,
                             &newWeights),
        "weights");
  weights.reset(newWeights);
  check(prefill_module_get_info(module.get(), &moduleInfo), "info");
}

std::vector<prefill_launch_info> CompiledModel::launches() const {
  std::vector<prefill_launch_info> all(moduleInfo.num_launches);
  for (size_t i = 0; i < all.size(); ++i)
    check(prefill_module_get_launch(module.get(), int64_t(i), &all[i]),
          "launch");
  return all;
}

PromptRun CompiledModel::run(int64_t sequences) const {
  PromptRun run;
  prefill_kv_cache *cache = nullptr;
  check(prefill_kv_cache_create(module.get(), sequences, 0, &cache), "cache");
  run.cache.reset(cache);
  prefill_session *session = nullptr;
  check(prefill_session_create(module.get(), weights.get(), cache, &session),
        "session");
  run.session.reset(session);
  run.vocab = moduleInfo.vocab_size;
  run.layers = moduleInfo.num_layers;
  run.tokenElements = moduleInfo.num_kv_heads * moduleInfo.head_dim;
  return run;
}

Logits PromptRun::prefill(const std::vector<int32_t> &tokens) {
  Logits logits(vocab);
  check(prefill_session_prefill(session.get(), tokens.data(), tokens.size(), 0,
                                logits.data()),
        "prefill");
  return logits;
}

Logits PromptRun::decode(int32_t token) {
  Logits logits(vocab);
  check(prefill_session_decode(session.get(), token, logits.data()), "decode");
  return logits;
}

std::vector<float> PromptRun::stored() const {
  int64_t size = prefill_kv_cache_length(cache.get(), 0) * tokenElements;
  std::vector<float> all(2 * size * layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    float *keys = all.data() + 2 * layer * size;
    check(prefill_kv_cache_read(cache.get(), layer, 0, keys, keys + size),
          "read");
  }
  return all;
}

std::vector<int32_t> CompiledModel::tokens(int64_t count) const {
  std::ifstream file(directory + "/tokens.json");
  auto all = nlohmann::json::parse(file).get<std::vector<int32_t>>();
  if (int64_t(all.size()) < count)
    throw std::runtime_error("fewer tokens than asked for");
  all.resize(count);
  return all;
}

/// The last `count` rows of a file of f32, whatever the header's padding
/// (version 1 of the .npy format: magic, header length, header, data).
static std::vector<Logits> lastRows(const std::string &path, int64_t count,
                                    int64_t columns) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  int64_t rowBytes = columns * int64_t(sizeof(float));
  int64_t start = int64_t(bytes.size()) - count * rowBytes;
  if (start < 10)
    throw std::runtime_error(path + " is too short");
  std::vector<Logits> rows(count, Logits(columns));
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(bytes.data() + start + i * rowBytes, rowBytes,
                reinterpret_cast<char *>(rows[i].data()));
  return rows;
}

std::vector<Logits> CompiledModel::referenceRows(int64_t count) const {
  std::string out = modelFile + "." + std::to_string(count) + ".npy", list;
  for (int32_t token : tokens(count))
    list += (list.empty() ? "" : ",") + std::to_string(token);
  shell(std::string(PREFILL_TOOLS_DIR) + "/prefill-translate --interpret " +
        modelFile + " --weights " + directory + " --tokens " + list +
        " --all-logits --logits-out " + out);
  return lastRows(out, count, moduleInfo.vocab_size);
}

std::set<int64_t> CompiledModel::attentionBlocks() const {
  std::ifstream file(moduleFile, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  const module::Plan &plan = *module::GetModule(bytes.data())->plans()->Get(0);
  std::set<int64_t> blocks;
  for (const module::Schedule *schedule : *plan.schedules())
    for (const module::Launch *launch : *schedule->launches())
      if (launch->name()->string_view() == "attention")
        blocks.insert(plan.kernels()->Get(launch->kernel())->grid()->block());
  return blocks;
}

constexpr int64_t kGoldenLengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 513};

static int64_t goldenRow(int64_t count) {
  const int64_t *found =
      std::find(std::begin(kGoldenLengths), std::end(kGoldenLengths), count);
  if (found == std::end(kGoldenLengths))
    throw std::runtime_error("no golden of that length");
  return found - kGoldenLengths;
}

double CompiledModel::goldenError(const std::string &dtype,
                                  int64_t count) const {
  std::ifstream file(directory + "/golden.json");
  nlohmann::json golden = nlohmann::json::parse(file);
  std::istringstream parts(dtype);
  double sum = 0;
  for (std::string part; std::getline(parts, part, '+');)
    if (part != "f32") {
      double error = golden.at(part + "_rel_error").at(goldenRow(count));
      sum += error * error;
    }
  return std::sqrt(sum);
}

Logits CompiledModel::golden(int64_t count) const {
  return lastRows(directory + "/logits_f32.npy", std::size(kGoldenLengths),
                  moduleInfo.vocab_size)[goldenRow(count)];
}

MemoryPrediction CompiledModel::predictedMemory() const {
  MemoryPrediction result;
  auto line = [&](const char *format, auto *...numbers) {
    std::string word =
        std::string(format).substr(0, std::string(format).find('%'));
    size_t at = explanation.find(word);
    if (at == std::string::npos ||
        std::sscanf(explanation.c_str() + at, format, numbers...) !=
            int(sizeof...(numbers)))
      throw std::runtime_error("--explain has no line '" + word + "'");
  };
  static_assert(sizeof(uint64_t) == sizeof(unsigned long));
  line("  weights %lu", &result.weights);
  line("  activation peak %lu * M_pad + %lu", &result.activationPerToken,
       &result.activationPerRow);
  line("  KV cache %lu", &result.kvPerToken);
  line("  temporaries %lu", &result.scratchPerThread);
  return result;
}

double relativeError(const Logits &actual, const Logits &expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(actual[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

} // namespace prefill::test
