//===- BF16Pairs.h - packed bf16 pairs as f32 -------------------*- C++ -*-===//
//
// Packed bf16 holds pairs of neighbouring k, for vdpbf16ps. Variants without
// that instruction multiply in f32.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_BF16PAIRS_H
#define PREFILL_LIB_CODEGEN_CPU_BF16PAIRS_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/Common/KernelBuilder.h"

namespace mlir::prefill {

/// The even and odd k of a vector of pairs as f32: a bf16 is the upper half of
/// an f32.
struct SplitPair {
  Value even, odd;
};

/// `pairs` is vector<2 * lanes x bf16>.
SplitPair splitPairs(KernelBuilder &b, Value pairs, int64_t lanes);

/// Copies `steps` pairs of k of a panel, bf16 [steps][kPanelN][2] from element
/// `from` of `source` on, to f32 [2 * steps][kPanelN] from element `to` of
/// `target` on. `next`: where what is copied afterwards begins in `source`,
/// which is prefetched; null: nothing is.
void widenPanel(KernelBuilder &b, const CpuIsa &isa, Value source, Value from,
                Value target, Value to, Value steps, Value next = {});

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_BF16PAIRS_H
