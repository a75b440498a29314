//===- VNNIPage.h - keys and values in pages that kernels multiply with ---===//
//
// A page of the KV layout `paged_vnni` holds 32 tokens of one head in the order
// that the microkernel reads its right operand, so that attention needs no
// packing pass; without vdpbf16ps, many rows share an f32 copy. k_pack is 2 for
// bf16 and 1 for f32:
//
//   keys    [depth / k_pack, 32 tokens, k_pack features]
//   values  [columns / 32, 32 / k_pack, 32 features, k_pack tokens]
//
// depth is head_dim_qk rounded up to k_pack, with zeros in the padding of every
// stored token; columns is head_dim_v rounded up to 32, with anything in the
// padding. Keys and values of a page share one stride between heads, that of
// the larger. Offsets are in elements.
//
//===----------------------------------------------------------------------===//
#ifndef PREFILL_LIB_CODEGEN_CPU_VNNIPAGE_H
#define PREFILL_LIB_CODEGEN_CPU_VNNIPAGE_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CPU/KernelABI.h"

namespace mlir::prefill {

/// One token of one head. `keyPage` and `valuePage` differ in their base
/// pointer alone.
struct VNNIToken {
  Value page;  ///< where the page of the head begins
  Value token; ///< within the page
};

/// Writes the features [feature, feature + count) of a key; `vector` is
/// vector<lanes x f32>, `feature` a multiple of its lanes.
void storeVNNIKey(KernelBuilder &b, const CpuIsa &isa, Value vector, Value keys,
                  VNNIToken at, Value feature, int64_t count);
/// The same for a value; lanes behind head_dim_v go to the padding. Does not
/// touch the other token of a pair, which another thread may be writing.
void storeVNNIValue(KernelBuilder &b, const CpuIsa &isa, Value vector,
                    Value values, VNNIToken at, Value feature);

/// vector<lanes x T>: `count` features of a key from `feature` on, then zeros.
Value loadVNNIKey(KernelBuilder &b, Value keys, VNNIToken at, int64_t feature,
                  int64_t count, int64_t lanes);
/// vector<lanes x T>: features of a value, padding included.
Value loadVNNIValue(KernelBuilder &b, Value values, VNNIToken at,
                    int64_t feature, int64_t lanes);

/// Copies `columns` features of a page of values to the start of `target`, with
/// zeros for the tokens from `numTokens` on: their slots may hold NaN, and a
/// probability of 0 would not keep that out of a product.
void copyVNNIValues(KernelBuilder &b, const CpuIsa &isa, Value values,
                    Value page, int64_t columns, Value numTokens, Value target);

} // namespace mlir::prefill

#endif // PREFILL_LIB_CODEGEN_CPU_VNNIPAGE_H
