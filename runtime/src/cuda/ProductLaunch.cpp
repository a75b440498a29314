#include "cuda/ProductLaunch.h"

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

std::optional<cudaDataType_t> blasType(module::DType type) {
  switch (type) {
  case module::DType::f32:
    return CUDA_R_32F;
  case module::DType::bf16:
    return CUDA_R_16BF;
  case module::DType::f16:
    return CUDA_R_16F;
  default:
    return std::nullopt;
  }
}

std::optional<ProductLaunch> asProduct(const module::Plan &plan,
                                       const module::Schedule &schedule,
                                       const module::Launch &launch) {
  const module::MatrixProduct *product = launch.product();
  if (!product)
    return std::nullopt;
  std::vector<size_t> firstWord; // of each argument
  size_t words = 0;
  for (const module::Arg *arg : *launch.args()) {
    firstWord.push_back(words);
    words += numWords(arg->kind());
  }
  auto arg = [&](uint32_t place) { return launch.args()->Get(place)->index(); };
  const module::Weight &weight = *plan.weights()->Get(arg(product->weight()));
  const module::Buffer &output =
      *schedule.buffers()->Get(arg(product->output()));
  std::optional<cudaDataType_t> in = blasType(weight.dtype()),
                                out = blasType(output.dtype());
  if (!in || !out)
    return std::nullopt;
  return ProductLaunch{{0, weight.shape()->Get(0), weight.shape()->Get(1), *in,
                        *out, /*bias=*/false},
                       output.domain(),
                       firstWord[product->input()],
                       firstWord[product->weight()],
                       firstWord[product->output()]};
}

} // namespace

std::vector<ScheduleProducts>
prefill::rt::cuda::findProducts(const module::Plan &plan) {
  std::vector<ScheduleProducts> products;
  for (const module::Schedule *schedule : *plan.schedules()) {
    ScheduleProducts &found = products.emplace_back();
    for (const module::Launch *launch : *schedule->launches())
      found.push_back(asProduct(plan, *schedule, *launch));
  }
  return products;
}
