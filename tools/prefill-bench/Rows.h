// The rows that this tool can measure.
#ifndef PREFILL_TOOLS_PREFILLBENCH_ROWS_H
#define PREFILL_TOOLS_PREFILLBENCH_ROWS_H

#include "ModelShapes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace prefill::bench {

enum class RowKind {
  gemm,      ///< one fused projection inside a model of few layers
  attention, ///< one attention inside a model of one layer
  model,     ///< prefill of a whole model, the logits of the last row included
  decode,    ///< one step with M = 1 after a prompt
  startup,   ///< from files on disk to the logits of one token
};

struct Row {
  std::string name;
  RowKind kind;
  const ModelShape *shape;
  std::string dtype;          ///< "int8": bf16 with --weights=int8
  std::string isa;            ///< forced; empty: the best of host and module
  std::string layout;         ///< of the KV cache
  int64_t tokens = 0;         ///< M of a GEMM, the length of a prompt
  Projection projection = {}; ///< of a GEMM
  bool onlyWhenNamed = false; ///< left out when there is no --filter
  bool peer = false;          ///< oneDNN's matmul runs beside it

  /// FLOPs of a gemm or attention row; other kinds count elsewhere.
  double flops() const;
  /// Rows of one group share weights and, unless they are attention over
  /// several layouts of the cache, a module, and are interleaved.
  std::string group() const;
};

/// Forces what is not forced yet. Rows whose module has no code of that variant
/// get what they could use of it: f32 and f16 avx512_bf16 for amx_bf16, all but
/// int8 avx2 for avx_vnni and avx512 for avx512_vnni.
void forceIsa(std::vector<Row> &rows, const std::string &isa);

/// Rows that would take long are onlyWhenNamed. Names are unique.
std::vector<Row> allRows();

/// Those whose launches --tune times for a section of a CPU's tuning file,
/// "gemm" or "attention", of the shapes with these names; without, of
/// Llama-3.2-1B and Llama-3-8B.
std::vector<Row> tunedRows(const std::string &section,
                           const std::vector<std::string> &shapes = {});

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_ROWS_H
