#include "cuda/BlasMatmul.h"
#include "cuda/Event.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

/// Activations lie at multiples of a row of 16 bytes at least.
constexpr uint32_t operandAlignment = 16;

const char *nameOf(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_32F:
    return "f32";
  case CUDA_R_16F:
    return "f16";
  case CUDA_R_16BF:
    return "bf16";
  }
  return "?";
}

} // namespace

std::string prefill::rt::cuda::describe(const MatmulProblem &problem) {
  return std::to_string(problem.m) + "x" + std::to_string(problem.n) + "x" +
         std::to_string(problem.k) + " " + nameOf(problem.inputType) + " -> " +
         nameOf(problem.outputType) + (problem.bias ? " with bias" : "");
}

/// The library counts columns where we count rows: our row-major [m, n] is its
/// column-major [n, m]. So the weight is its A, transposed, the input its B,
/// and the bias runs along the rows of its D.
struct BlasMatmul::Prepared {
  explicit Prepared(const BlasApi &api) : api(api) {}
  Prepared(const Prepared &) = delete;
  Prepared &operator=(const Prepared &) = delete;
  ~Prepared() {
    if (operation)
      api.matmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {weight, input, output})
      if (layout)
        api.matrixLayoutDestroy(layout);
  }

  const BlasApi &api;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, input = nullptr, output = nullptr;
  bool bias = false;
  cublasLtMatmulAlgo_t algorithm{};
};

BlasMatmul::BlasMatmul(std::shared_ptr<const BlasApi> api,
                       const CommandStream &commands, BlasAlgorithmCache &cache,
                       CUdeviceptr workspace)
    : api(std::move(api)), commands(commands), cache(cache),
      workspace(workspace) {}

Result<std::unique_ptr<BlasMatmul>>
BlasMatmul::create(std::shared_ptr<const BlasApi> api,
                   const CommandStream &commands, BlasAlgorithmCache &cache,
                   CUdeviceptr workspace) {
  std::unique_ptr<BlasMatmul> made(
      new BlasMatmul(std::move(api), commands, cache, workspace));
  CurrentContext current(commands.device());
  cublasLtHandle_t handle = nullptr;
  if (cublasStatus_t status = made->api->create(&handle);
      status != CUBLAS_STATUS_SUCCESS)
    return made->api->error(status, "cublasLtCreate");
  made->handle = handle;
  return made;
}

BlasMatmul::~BlasMatmul() {
  prepared.clear();
  if (!handle)
    return;
  CurrentContext current(commands.device());
  api->destroy(handle);
}

std::string BlasMatmul::keyOf(const MatmulProblem &problem) const {
  const DeviceProperties &device = commands.device().properties();
  return device.name + ", driver " + std::to_string(device.driverVersion) +
         ", cuBLASLt " + std::to_string(api->version) + ", " +
         describe(problem);
}

Result<std::unique_ptr<BlasMatmul::Prepared>>
BlasMatmul::describeToLibrary(const MatmulProblem &problem) {
  auto made = std::make_unique<Prepared>(*api);
  made->bias = problem.bias;
  cublasStatus_t status =
      api->matmulDescCreate(&made->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (status != CUBLAS_STATUS_SUCCESS)
    return api->error(status, "cublasLtMatmulDescCreate");
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, int value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = api->matmulDescSetAttribute(made->operation, attribute, &value,
                                           sizeof value);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  if (problem.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, problem.outputType);
  }
  if (status != CUBLAS_STATUS_SUCCESS)
    return api->error(status, "cublasLtMatmulDescSetAttribute");

  auto layout = [&](cublasLtMatrixLayout_t &target, cudaDataType_t type,
                    int64_t rows, int64_t columns) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status =
          api->matrixLayoutCreate(&target, type, static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows);
  };
  layout(made->weight, problem.inputType, problem.k, problem.n);
  layout(made->input, problem.inputType, problem.k, problem.m);
  layout(made->output, problem.outputType, problem.n, problem.m);
  if (status != CUBLAS_STATUS_SUCCESS)
    return api->error(status, "cublasLtMatrixLayoutCreate");
  return made;
}

Result<std::vector<cublasLtMatmulHeuristicResult_t>>
BlasMatmul::candidates(const MatmulProblem &problem, const Prepared &prepared,
                       int count) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (cublasStatus_t status = api->matmulPreferenceCreate(&preference);
      status != CUBLAS_STATUS_SUCCESS)
    return api->error(status, "cublasLtMatmulPreferenceCreate");
  cublasStatus_t status = api->matmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspaceBytes,
      sizeof workspaceBytes);
  for (cublasLtMatmulPreferenceAttributes_t attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    if (status == CUBLAS_STATUS_SUCCESS)
      status = api->matmulPreferenceSetAttribute(
          preference, attribute, &operandAlignment, sizeof operandAlignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(count);
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = api->matmulAlgoGetHeuristic(
        handle, prepared.operation, prepared.weight, prepared.input,
        prepared.output, prepared.output, preference, count, results.data(),
        &found);
  api->matmulPreferenceDestroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? found : 0);
  std::erase_if(results, [](const cublasLtMatmulHeuristicResult_t &result) {
    return result.state != CUBLAS_STATUS_SUCCESS ||
           result.workspaceSize > workspaceBytes;
  });
  if (status == CUBLAS_STATUS_SUCCESS && results.empty())
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (status != CUBLAS_STATUS_SUCCESS)
    return api->error(status,
                      "cuBLASLt has no algorithm for " + describe(problem));
  return results;
}

Result<void> BlasMatmul::prepare(const MatmulProblem &problem) {
  if (prepared.contains(problem))
    return {};
  if (auto known = refused.find(problem); known != refused.end())
    return Error{ErrorCode::unsupported, known->second};
  CurrentContext current(commands.device());
  Result<std::unique_ptr<Prepared>> made = describeToLibrary(problem);
  if (!made)
    return made.takeError();

  std::string key = keyOf(problem);
  std::optional<BlasAlgorithmCache::Entry> kept = cache.find(key);
  cublasLtMatmulHeuristicResult_t checked = {};
  if (kept &&
      api->matmulAlgoCheck(handle, (*made)->operation, (*made)->weight,
                           (*made)->input, (*made)->output, (*made)->output,
                           &kept->algorithm,
                           &checked) == CUBLAS_STATUS_SUCCESS &&
      checked.workspaceSize <= workspaceBytes) {
    (*made)->algorithm = kept->algorithm;
  } else {
    Result<std::vector<cublasLtMatmulHeuristicResult_t>> results =
        candidates(problem, **made, 1);
    if (!results) {
      refused[problem] = results.error().message;
      return results.takeError();
    }
    (*made)->algorithm = results->front().algo;
    // That the next process has to ask again is no reason to fail.
    (void)cache.add(key, {(*made)->algorithm, /*measured=*/false});
  }
  prepared[problem] = std::move(*made);
  return {};
}

Result<void> BlasMatmul::enqueue(const MatmulProblem &problem,
                                 const MatmulOperands &operands) {
  CurrentContext current(commands.device());
  const Prepared &ready = *prepared.at(problem);
  Result<void> done = enqueue(ready, ready.algorithm, operands);
  if (done)
    return done;
  Error error = done.takeError();
  error.message = describe(problem) + ": " + error.message;
  return error;
}

Result<void> BlasMatmul::enqueue(const Prepared &ready,
                                 const cublasLtMatmulAlgo_t &algorithm,
                                 const MatmulOperands &operands) {
  if (ready.bias)
    if (cublasStatus_t status = api->matmulDescSetAttribute(
            ready.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias,
            sizeof operands.bias);
        status != CUBLAS_STATUS_SUCCESS)
      return api->error(status, "cublasLtMatmulDescSetAttribute");
  const float one = 1, zero = 0;
  auto pointer = [](CUdeviceptr address) {
    return reinterpret_cast<void *>(address);
  };
  cublasStatus_t status = api->matmul(
      handle, ready.operation, &one, pointer(operands.weight), ready.weight,
      pointer(operands.in), ready.input, &zero, pointer(operands.out),
      ready.output, pointer(operands.out), ready.output, &algorithm,
      pointer(workspace), workspaceBytes, commands.handle());
  if (status != CUBLAS_STATUS_SUCCESS)
    return api->error(status, "cublasLtMatmul");
  return {};
}

Result<float> BlasMatmul::measure(const Prepared &ready,
                                  const cublasLtMatmulAlgo_t &algorithm,
                                  const MatmulOperands &operands) {
  constexpr int rounds = 5;
  Result<Event> start =
      Event::create(commands.device(), Event::Purpose::timing);
  if (!start)
    return start.takeError();
  Result<Event> end = Event::create(commands.device(), Event::Purpose::timing);
  if (!end)
    return end.takeError();
  std::vector<float> times;
  for (int round = 0; round <= rounds; ++round) { // the first warms up
    if (Result<void> ok = start->record(commands); !ok)
      return ok.takeError();
    if (Result<void> ok = enqueue(ready, algorithm, operands); !ok)
      return ok.takeError();
    if (Result<void> ok = end->record(commands); !ok)
      return ok.takeError();
    if (Result<void> ok = end->wait(); !ok)
      return ok.takeError();
    Result<float> time = end->millisecondsSince(*start);
    if (!time)
      return time.takeError();
    if (round)
      times.push_back(*time);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

Result<float> BlasMatmul::tune(const MatmulProblem &problem,
                               const MatmulOperands &operands) {
  constexpr int numCandidates = 8;
  if (Result<void> ok = prepare(problem); !ok)
    return ok.takeError();
  CurrentContext current(commands.device());
  Prepared &ready = *prepared.at(problem);
  Result<std::vector<cublasLtMatmulHeuristicResult_t>> results =
      candidates(problem, ready, numCandidates);
  if (!results)
    return results.takeError();
  std::optional<float> best;
  for (const cublasLtMatmulHeuristicResult_t &result : *results) {
    Result<float> time = measure(ready, result.algo, operands);
    if (!time)
      return time.takeError();
    if (best && *time >= *best)
      continue;
    best = *time;
    ready.algorithm = result.algo;
  }
  if (Result<void> ok =
          cache.add(keyOf(problem), {ready.algorithm, /*measured=*/true});
      !ok)
    return ok.takeError();
  return *best;
}
