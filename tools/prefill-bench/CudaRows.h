// --device cuda: the launches of compiled modules, timed where the plan has
// them.
#ifndef PREFILL_TOOLS_PREFILLBENCH_CUDAROWS_H
#define PREFILL_TOOLS_PREFILLBENCH_CUDAROWS_H

#include "Options.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace prefill::bench {

using rt::Result;

struct CudaRow {
  std::string name;   ///< "gemm/bf16/512x6144x4096", "attention/bf16/d128/s512"
  std::string module; ///< the file
  std::string launch; ///< of the plan
  int64_t layer = -1;
  double flops = 0;        ///< 0: bound by memory
  double microseconds = 0; ///< median
  double spread = 0;       ///< (75th - 25th percentile) / median
  /// FLOP/s over what the chip's tensor cores do at its highest clock; 0 where
  /// the chip is not in the table.
  double ratio = 0;
  /// cuBLASLt's plain product of the same size, its algorithm chosen by
  /// measuring; of gemm rows, where the library is there.
  std::optional<double> peerMicroseconds = {};
};

/// Every module of options.modules, at 512, 2048, 8192 and 16384 tokens where
/// its max_seq allows; `done` gets each row when it is measured.
Result<std::vector<CudaRow>>
measureCuda(const Options &options,
            const std::function<void(const CudaRow &)> &done);

std::string cudaTableHead();
std::string cudaTableLine(const CudaRow &row);
std::string cudaJson(const std::vector<CudaRow> &rows);

} // namespace prefill::bench

#endif // PREFILL_TOOLS_PREFILLBENCH_CUDAROWS_H
