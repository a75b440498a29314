#include "CudaRows.h"
#include "CublasPeer.h"
#include "LoadedModel.h"
#include "TensorCores.h"
#include "cuda/CudaBackend.h"
#include "prefill/checkpoint/Quote.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>

using namespace prefill;
using namespace prefill::bench;
using prefill::rt::byteSize;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;

namespace {

constexpr int64_t lengths[] = {512, 2048, 8192, 16384};

double peakFlops(const rt::cuda::CudaDevice &device) {
  int kilohertz = 0;
  device.api().deviceGetAttribute(&kilohertz,
                                  rt::cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
                                  device.properties().ordinal);
  for (const auto &[chip, flopsPerClock] : tensorCores)
    if (chip == device.properties().chip)
      return flopsPerClock * device.properties().multiprocessors * kilohertz *
             1e3;
  return 0;
}

std::optional<rt::cuda::cudaDataType_t> blasType(module::DType type) {
  switch (type) {
  case module::DType::bf16:
    return rt::cuda::CUDA_R_16BF;
  case module::DType::f16:
    return rt::cuda::CUDA_R_16F;
  default:
    return std::nullopt;
  }
}

/// The largest matrix that a launch multiplies with, if it does.
const module::Weight *matrixOf(const module::Plan &plan,
                               const module::Launch &launch) {
  const module::Weight *largest = nullptr;
  for (const module::Arg *arg : *launch.args()) {
    if (arg->kind() != module::ArgKind::weight)
      continue;
    const module::Weight &weight = *plan.weights()->Get(arg->index());
    // Tables of angles are matrices too, of f32.
    if (weight.shape()->size() == 2 && blasType(weight.dtype()) &&
        (!largest || byteSize(weight) > byteSize(*largest)))
      largest = &weight;
  }
  return largest;
}

bool readsCache(const module::Launch &launch) {
  return std::any_of(launch.args()->begin(), launch.args()->end(),
                     [](const module::Arg *arg) {
                       return arg->kind() == module::ArgKind::kv_cache;
                     });
}

/// What is known of a launch before it is timed.
struct Described {
  CudaRow row;
  std::optional<rt::cuda::MatmulProblem> product;
};

std::optional<Described> describe(const LoadedModel &model,
                                  const module::Launch &launch,
                                  int64_t tokens) {
  const module::Module &file = model.file();
  std::string dtype = module::EnumNameDType(file.dtype());
  Described described;
  CudaRow &row = described.row;
  row.launch = model.launchName(launch);
  row.layer = launch.layer();
  if (launch.layer() < 0)
    return std::nullopt; // one row of logits, not M
  if (const module::Weight *weight = matrixOf(model.plan(), launch)) {
    int64_t n = weight->shape()->Get(0), k = weight->shape()->Get(1);
    row.name = "gemm/" + dtype + "/" + std::to_string(tokens) + "x" +
               std::to_string(n) + "x" + std::to_string(k);
    row.flops = 2.0 * tokens * n * k;
    rt::cuda::cudaDataType_t type = *blasType(weight->dtype());
    described.product = {tokens, n, k, type, type, /*bias=*/false};
  } else if (readsCache(launch)) {
    row.name = "attention/" + dtype + "/d" +
               std::to_string(file.kv_cache()->head_dim_qk()) + "/s" +
               std::to_string(tokens);
    row.flops = double(file.attention_flops_per_pair() +
                       file.attention_flops_per_logit_pair()) /
                file.num_layers() * tokens * (tokens + 1) / 2;
  } else {
    row.name =
        "rowwise/" + dtype + "/" + row.launch + "/" + std::to_string(tokens);
  }
  return described;
}

/// Sorted samples to a median and a spread.
void summarize(std::vector<double> &samples, CudaRow &row) {
  std::sort(samples.begin(), samples.end());
  size_t last = samples.size() - 1;
  row.microseconds = samples[last / 2];
  row.spread =
      row.microseconds > 0
          ? (samples[last * 3 / 4] - samples[last / 4]) / row.microseconds
          : 0;
}

class ModuleRows {
public:
  ModuleRows(const Options &options, const std::regex &filter,
             const std::function<void(const CudaRow &)> &done)
      : options(options), filter(filter), done(done) {}

  Result<void> run(const std::filesystem::path &path) {
    auto loaded =
        LoadedModel::loadOn(options.device, path.string(), options.threads);
    if (!loaded)
      return loaded.takeError();
    model = std::move(*loaded);
    for (int64_t tokens : lengths)
      if (tokens <= model->file().max_seq())
        if (Result<void> ok = runLength(path.filename().string(), tokens); !ok)
          return ok;
    return {};
  }

  std::vector<CudaRow> rows;

private:
  const rt::cuda::CudaDevice &device() const {
    return static_cast<rt::cuda::CudaBackend &>(model->backend()).device();
  }

  Result<void> runLength(const std::string &file, int64_t tokens) {
    // Launches of one kernel in several layers are samples of one row.
    std::map<std::string, Described> described;
    const auto &launches = *model->schedule(tokens).launches();
    std::vector<std::string> keys(launches.size());
    for (uint32_t i = 0; i < keys.size(); ++i) {
      std::optional<Described> known = describe(*model, *launches[i], tokens);
      if (!known || !std::regex_search(known->row.name, filter))
        continue;
      known->row.module = file;
      keys[i] = known->row.launch + " " + known->row.name;
      described.try_emplace(keys[i], *known);
    }
    if (described.empty())
      return {};
    std::map<std::string, std::vector<double>> samples;
    if (Result<void> ok = sample(tokens, keys, samples); !ok)
      return ok;
    for (auto &[key, known] : described) {
      CudaRow &row = known.row;
      summarize(samples[key], row);
      double peak = peakFlops(device());
      if (peak > 0 && row.microseconds > 0)
        row.ratio = row.flops / (row.microseconds * 1e-6) / peak;
      if (known.product)
        if (Result<void> ok = comparePeer(*known.product, row); !ok)
          return ok;
      done(row);
      rows.push_back(row);
    }
    return {};
  }

  Result<void> sample(int64_t tokens, const std::vector<std::string> &keys,
                      std::map<std::string, std::vector<double>> &samples) {
    Result<LoadedModel::Run> run = model->makeRun(tokens);
    if (!run)
      return run.takeError();
    run->session->setTiming(true);
    std::vector<int32_t> prompt =
        makeTokens(tokens, model->file().vocab_size());
    int32_t cuSeqlens[] = {0, static_cast<int32_t>(tokens)}, sequence = 0;
    std::vector<float> logits(model->file().vocab_size());
    for (int round = 0; round <= options.rounds; ++round) { // first: warm-up
      if (Result<void> ok = run->session->run(
              prompt.data(), cuSeqlens, &sequence, 1, false, logits.data());
          !ok)
        return ok;
      if (Result<void> ok = run->cache->truncate(0, 0); !ok)
        return ok;
      for (size_t i = 0; round > 0 && i < keys.size(); ++i)
        if (!keys[i].empty())
          samples[keys[i]].push_back(run->session->launchTimes()[i].durationNs *
                                     1e-3);
    }
    return {};
  }

  /// Where the library is absent there is no peer; where it fails we say so.
  Result<void> comparePeer(const rt::cuda::MatmulProblem &problem,
                           CudaRow &row) {
    auto peer = CublasPeer::create(device());
    if (!peer)
      return {};
    Result<double> time = (*peer)->measure(problem, options.rounds);
    if (!time)
      return time.takeError();
    row.peerMicroseconds = *time;
    return {};
  }

  const Options &options;
  const std::regex &filter;
  const std::function<void(const CudaRow &)> &done;
  std::unique_ptr<LoadedModel> model;
};

} // namespace

Result<std::vector<CudaRow>>
prefill::bench::measureCuda(const Options &options,
                            const std::function<void(const CudaRow &)> &done) {
  // Before anything else: most machines have none.
  auto device = rt::Device::create(options.device, 1);
  if (!device)
    return device.takeError();
  if (options.modules.empty())
    return Error{ErrorCode::invalidArgument,
                 "--device is " + quote(options.device) +
                     ", expected --modules=DIR with modules compiled for it "
                     "(prefill-opt --compile --target=cuda:sm_XX)"};
  std::regex filter;
  try {
    filter = std::regex(options.filter.value_or(""));
  } catch (const std::regex_error &error) {
    return Error{
        ErrorCode::invalidArgument,
        "--filter is " + quote(*options.filter) +
            ", expected a regular expression (ECMAScript): " + error.what()};
  }
  std::vector<std::filesystem::path> paths;
  std::error_code failed;
  for (const auto &entry :
       std::filesystem::directory_iterator(options.modules, failed))
    if (entry.path().extension() == ".pfm")
      paths.push_back(entry.path());
  if (failed || paths.empty())
    return Error{ErrorCode::io, "--modules is " + quote(options.modules) +
                                    ", expected a directory with .pfm files" +
                                    (failed ? ": " + failed.message() : "")};
  std::sort(paths.begin(), paths.end());
  ModuleRows rows(options, filter, done);
  for (const std::filesystem::path &path : paths)
    if (Result<void> ok = rows.run(path); !ok)
      return ok.takeError();
  if (rows.rows.empty())
    return Error{ErrorCode::invalidArgument,
                 "--filter is " + quote(options.filter.value_or("")) +
                     ", and no row of the modules matches"};
  return std::move(rows.rows);
}

std::string prefill::bench::cudaTableHead() {
  return "name                                  launch             us "
         "     spread  TFLOP/s  of peak  cuBLASLt us  ratio\n";
}

std::string prefill::bench::cudaTableLine(const CudaRow &row) {
  char line[256];
  std::snprintf(
      line, sizeof line, "%-36s  %-14s  %8.1f  %6.1f %%  %7.1f  %6.1f %%",
      row.name.c_str(), row.launch.c_str(), row.microseconds, row.spread * 100,
      row.flops / row.microseconds * 1e-6, row.ratio * 100);
  std::string text = line;
  if (row.peerMicroseconds) {
    std::snprintf(line, sizeof line, "  %11.1f  %5.2f", *row.peerMicroseconds,
                  *row.peerMicroseconds / row.microseconds);
    text += line;
  }
  return text + "\n";
}

std::string prefill::bench::cudaJson(const std::vector<CudaRow> &rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const CudaRow &row : rows) {
    nlohmann::json entry = {{"name", row.name},     {"module", row.module},
                            {"launch", row.launch}, {"us", row.microseconds},
                            {"spread", row.spread}, {"flops", row.flops},
                            {"ratio", row.ratio}};
    if (row.peerMicroseconds)
      entry["cublaslt_us"] = *row.peerMicroseconds;
    list.push_back(entry);
  }
  return list.dump(1) + "\n";
}
