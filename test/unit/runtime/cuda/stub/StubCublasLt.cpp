// The recording cuBLASLt, above the recording driver: checks what it is told
// and multiplies on the host, in the stream, when somebody waits for it.
#include "StubCublasLt.h"
#include "StubControl.h"
#include "cuda/BlasAbi.h"
#include "prefill/checkpoint/FloatConversion.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

#define PREFILL_BLAS_FUNCTION(member, symbol, result, parameters)              \
  PREFILL_STUB_API result symbol parameters;
#include "cuda/BlasFunctions.def"

namespace prefill::rt::cuda {
struct BlasMatmulDesc {
  std::map<int, uint64_t> attributes;
};
struct BlasMatrixLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
};
struct BlasMatmulPreference {
  std::map<int, uint64_t> attributes;
};
} // namespace prefill::rt::cuda

namespace {

struct BlasState {
  std::set<const void *> handles, descriptors;
  std::vector<std::string> findings;
  std::string calls;
  uint64_t refusedColumns = 0; ///< n of problems that have no algorithm
  bool refuseChecks = false, refuseMatmul = false;

  void finding(const std::string &text) {
    if (std::find(findings.begin(), findings.end(), text) == findings.end())
      findings.push_back(text);
  }
} state;

cublasStatus_t broken(const std::string &text) {
  state.finding(text);
  return CUBLAS_STATUS_INVALID_VALUE;
}

template <typename T> cublasStatus_t destroyDescriptor(T *descriptor) {
  if (!state.descriptors.erase(descriptor))
    return broken("a descriptor destroyed that is none");
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t elementBytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

double load(const unsigned char *base, uint64_t index, cudaDataType_t type) {
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, base + index * 2, 2);
  return type == CUDA_R_16BF ? bf16ToFloat(bits) : f16ToFloat(bits);
}

struct Product {
  BlasMatrixLayout a, b, d;
  const unsigned char *aData, *bData, *bias;
  unsigned char *dData;
  cudaDataType_t biasType;

  void run() const {
    // Those of benchmarks are checked but not computed.
    constexpr uint64_t mostProducts = uint64_t(1) << 26;
    if (d.rows * d.columns * a.rows > mostProducts)
      return;
    for (uint64_t column = 0; column < d.columns; ++column)
      for (uint64_t row = 0; row < d.rows; ++row) {
        double sum = bias ? load(bias, row, biasType) : 0;
        for (uint64_t k = 0; k < a.rows; ++k)
          sum += load(aData, row * a.leading + k, a.type) *
                 load(bData, column * b.leading + k, b.type);
        uint64_t at = column * d.leading + row;
        float value = static_cast<float>(sum);
        if (d.type == CUDA_R_32F) {
          std::memcpy(dData + at * 4, &value, 4);
        } else {
          uint16_t bits =
              d.type == CUDA_R_16BF ? floatToBf16(value) : floatToF16(value);
          std::memcpy(dData + at * 2, &bits, 2);
        }
      }
  }
};

/// Algorithm 2 is the fastest: the driver's stub counts operations as time.
constexpr int operationsOf[] = {0, 3, 1, 2};
constexpr int numAlgorithms = 3;

cublasStatus_t checkShapes(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
  if (desc->attributes[CUBLASLT_MATMUL_DESC_TRANSA] != CUBLAS_OP_T ||
      desc->attributes[CUBLASLT_MATMUL_DESC_TRANSB] != CUBLAS_OP_N)
    return broken("transposition that the stub does not multiply");
  if (a->rows != b->rows || a->columns != d->rows || b->columns != d->columns)
    return broken("matrices that do not fit");
  for (const BlasMatrixLayout *layout : {a, b, d})
    if (layout->leading < static_cast<int64_t>(layout->rows))
      return broken("a leading dimension that is too small");
  if (a->type != b->type)
    return broken("operands of two types");
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace

void prefill_blas_stub_reset(const char *settings) {
  state.findings.clear();
  state.calls.clear();
  std::istringstream parts(settings);
  state.refusedColumns = 0;
  state.refuseChecks = state.refuseMatmul = false;
  for (std::string part; std::getline(parts, part, ';');) {
    if (part.starts_with("refuse-n="))
      state.refusedColumns = std::stoull(part.substr(9));
    else if (part == "refuse-checks")
      state.refuseChecks = true;
    else if (part == "refuse-matmul")
      state.refuseMatmul = true;
    else if (!part.empty())
      state.finding("unknown setting " + part);
  }
}

const char *prefill_blas_stub_report() {
  static std::string text;
  text.clear();
  for (const std::string &line : state.findings)
    text += "finding: " + line + "\n";
  if (!state.handles.empty())
    text += "leak: " + std::to_string(state.handles.size()) + " handles\n";
  if (!state.descriptors.empty())
    text +=
        "leak: " + std::to_string(state.descriptors.size()) + " descriptors\n";
  return text.c_str();
}

const char *prefill_blas_stub_calls() { return state.calls.c_str(); }

size_t cublasLtGetVersion() { return 130100; }

const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  default:
    return "CUBLAS_STATUS";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  auto *made = new char;
  state.handles.insert(made);
  *handle = reinterpret_cast<cublasLtHandle_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!state.handles.erase(handle))
    return broken("a handle destroyed that is none");
  delete reinterpret_cast<char *>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
    return broken("sums that are not f32");
  *desc = new BlasMatmulDesc;
  (*desc)->attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] =
      CUBLASLT_EPILOGUE_DEFAULT;
  state.descriptors.insert(*desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroyDescriptor(desc);
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
  size_t expected = attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? 8 : 4;
  if (bytes != expected)
    return broken("a matmul attribute of " + std::to_string(bytes) + " bytes");
  uint64_t word = 0;
  std::memcpy(&word, value, bytes);
  desc->attributes[attribute] = word;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = new BlasMatrixLayout{type, rows, columns, leading};
  state.descriptors.insert(*layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroyDescriptor(layout);
}

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = new BlasMatmulPreference;
  state.descriptors.insert(*preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroyDescriptor(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  size_t expected =
      attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  if (bytes != expected)
    return broken("a preference of " + std::to_string(bytes) + " bytes");
  std::memcpy(&preference->attributes[attribute], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *found) {
  state.calls += "heuristic " + std::to_string(wanted) + "\n";
  if (!state.handles.contains(handle))
    return broken("no handle");
  if (cublasStatus_t status = checkShapes(desc, a, b, d);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (preference->attributes[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] > 64)
    state.finding("more alignment promised than activations have");
  *found = 0;
  if (d->rows == state.refusedColumns)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *found < std::min(wanted, numAlgorithms); ++*found) {
    results[*found] = {};
    results[*found].algo.data[0] = *found + 1;
    results[*found].workspaceSize = 1 << 20;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
  state.calls += "check " + std::to_string(algo->data[0]) + "\n";
  if (state.refuseChecks || algo->data[0] < 1 || algo->data[0] > numAlgorithms)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->workspaceSize = 1 << 20;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
               const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
               const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
               const void *c, cublasLtMatrixLayout_t cLayout, void *d,
               cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t workspaceBytes, CUstream stream) {
  uint64_t number = algo->data[0];
  state.calls += "matmul " + std::to_string(number) + "\n";
  if (state.refuseMatmul)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!state.handles.contains(handle))
    return broken("no handle");
  if (*static_cast<const float *>(alpha) != 1 ||
      *static_cast<const float *>(beta) != 0 || c != d || cLayout != dLayout)
    return broken("more than a product");
  if (number < 1 || number > numAlgorithms)
    return broken("an algorithm that is none");
  if (!workspace || workspaceBytes < 1 << 20)
    return broken("too small a workspace");
  if (cublasStatus_t status = checkShapes(desc, aLayout, bLayout, dLayout);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  auto *product = new Product{*aLayout,
                              *bLayout,
                              *dLayout,
                              static_cast<const unsigned char *>(a),
                              static_cast<const unsigned char *>(b),
                              nullptr,
                              static_cast<unsigned char *>(d),
                              CUDA_R_32F};
  auto address = [](const void *pointer) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
  };
  auto end = [&](const void *pointer, const BlasMatrixLayout &layout) {
    return address(pointer) +
           ((layout.columns - 1) * layout.leading + layout.rows) *
               elementBytes(layout.type) -
           1;
  };
  std::vector<uint64_t> addresses = {
      address(a), end(a, *aLayout), address(b),        end(b, *bLayout),
      address(d), end(d, *dLayout), address(workspace)};
  if (desc->attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] ==
      CUBLASLT_EPILOGUE_BIAS) {
    uint64_t bias = desc->attributes[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
    product->bias = reinterpret_cast<const unsigned char *>(bias);
    product->biasType = static_cast<cudaDataType_t>(
        desc->attributes[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE]);
    addresses.push_back(bias);
  }
  int result = prefill_stub_enqueue(
      stream, "cublasLtMatmul",
      [](void *product) { static_cast<Product *>(product)->run(); },
      [](void *product) { delete static_cast<Product *>(product); }, product,
      addresses.data(), addresses.size());
  for (int i = 1; i < operationsOf[number] && result == 0; ++i)
    result = prefill_stub_enqueue(
        stream, "cublasLtMatmul", [](void *) {}, [](void *) {}, nullptr,
        nullptr, 0);
  return result == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
