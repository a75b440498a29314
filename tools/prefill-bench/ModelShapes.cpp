#include "ModelShapes.h"

using namespace prefill::bench;

const ModelShape prefill::bench::llama32_1b = {
    "llama-3.2-1b", 2048, 32, 8, 64, 8192, 16, 128256, 16448};
const ModelShape prefill::bench::llama3_8b = {
    "llama-3-8b", 4096, 32, 8, 128, 14336, 32, 128256, 8192};
const ModelShape prefill::bench::llama3_70b = {
    "llama-3-70b", 8192, 64, 8, 128, 28672, 80, 128256, 8192};
const ModelShape prefill::bench::qwen25_05b = {
    "qwen2.5-0.5b", 896, 14, 2, 64, 4864, 24, 151936, 4096};

std::vector<const ModelShape *> prefill::bench::modelShapes() {
  return {&llama32_1b, &llama3_8b, &llama3_70b, &qwen25_05b};
}

const ModelShape *prefill::bench::findShape(const std::string &name) {
  for (const ModelShape *shape : modelShapes())
    if (name == shape->name)
      return shape;
  return nullptr;
}

int64_t prefill::bench::byteSize(const std::string &dtype) {
  return dtype == "f32" ? 4 : dtype == "int8" ? 1 : 2;
}

std::vector<Projection> prefill::bench::projections(const ModelShape &shape) {
  int64_t q = shape.qHeads * shape.headDim, kv = shape.kvHeads * shape.headDim;
  return {{"qkv_proj", q + 2 * kv, shape.hidden},
          {"o_proj", shape.hidden, q},
          {"gate_up_proj", 2 * shape.intermediate, shape.hidden},
          {"down_proj", shape.hidden, shape.intermediate}};
}

int64_t prefill::bench::layerParameters(const ModelShape &shape) {
  int64_t sum = 0;
  for (const Projection &projection : projections(shape))
    sum += projection.n * projection.k;
  return sum;
}
