//===- TuningFile.h - block sizes that were measured ------------*- C++ -*-===//
#ifndef PREFILL_PIPELINES_TUNINGFILE_H
#define PREFILL_PIPELINES_TUNINGFILE_H

#include "prefill/Codegen/CPU/CpuTuning.h"
#include "prefill/Codegen/CUDA/CudaTuning.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <map>
#include <string>

namespace mlir::prefill {

/// What overrules the tables of tiles.
struct Tuning {
  CpuTuning cpu;
  std::map<std::string, CudaTuning> cuda; ///< by chip
};

/// Reads what `prefill-bench --tune` writes, a regular file:
///
///   {"machine": "...",
///    "gemm": {"block_m": 64, "block_n": 128},
///    "attention": {"block_q": 64, "block_kv": 256},
///    "cuda": {"sm_80": {"bf16": {
///      "gemm": [{"n": 6144, "k": 4096, "rows": 512,
///                "block_m": 64, "block_n": 128}],
///      "attention": [{"group": 4, "head_dim": 128,
///                     "block_q": 32, "block_kv": 64}]}}}}
///
/// Every section may be absent, and of the CPU's sections every key; of an
/// entry of a list `rows` alone, which then holds for calls that no other entry
/// is for. The error is one line that names the file, the key, its value and
/// what was expected.
llvm::Expected<Tuning> readTuningFile(llvm::StringRef path);

} // namespace mlir::prefill

#endif // PREFILL_PIPELINES_TUNINGFILE_H
