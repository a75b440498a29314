// The model shapes that rows are made from.
#ifndef PREFILL_TOOLS_PREFILLBENCH_MODELSHAPES_H
#define PREFILL_TOOLS_PREFILLBENCH_MODELSHAPES_H

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::bench {

/// The sizes that name rows and count their work. The compiler is the one that
/// knows a shape's model; GemmGroup checks these against the module.
struct ModelShape {
  const char *name; ///< as `prefill-translate --synthesize` takes it
  int64_t hidden, qHeads, kvHeads, headDim, intermediate;
  int64_t layers, vocab, maxSeq; ///< maxSeq: of the modules made here
};

/// Bytes of an element of a weight; f32, bf16, f16 or int8.
int64_t byteSize(const std::string &dtype);

/// A fused projection: C[M, n] = A[M, k] * B[k, n] and its epilogue.
struct Projection {
  const char *launch; ///< its name in plans
  int64_t n, k;
};
/// qkv_proj, o_proj, gate_up_proj, down_proj.
std::vector<Projection> projections(const ModelShape &shape);

/// Parameters of the GEMMs of one layer.
int64_t layerParameters(const ModelShape &shape);

extern const ModelShape llama32_1b, llama3_8b, llama3_70b, qwen25_05b;
/// Null for another name.
const ModelShape *findShape(const std::string &name);
/// All of them.
std::vector<const ModelShape *> modelShapes();

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_MODELSHAPES_H
