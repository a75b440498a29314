// What the warp-wide instructions compute, as the PTX ISA describes them.
#ifndef PREFILL_RUNTIME_EMULATION_WARPINSTRUCTIONS_H
#define PREFILL_RUNTIME_EMULATION_WARPINSTRUCTIONS_H

#include "prefill/emulation/Abi.h"

#include <cstdint>

namespace prefill::rt::emulation {

/// mma.sync m16n8k16, row.col, f32 sums. operands[lane]: A (4 words), B (2), C
/// (4 floats); results[lane]: 4 floats. Products are exact; they are added to C
/// in the order of k, in f32. (The device's order and width are not specified.)
void multiplyMatrices(const uint32_t *const operands[32],
                      uint32_t *const results[32], MmaType type);

/// ldmatrix: rows[8 * i + r] is row r of matrix i (16 bytes).
void distributeMatrices(const uint8_t *const rows[32], int matrices,
                        bool transposed, uint32_t *const results[32]);

/// The lane that `lane` reads in shfl.sync, and whether it is in range.
int shuffleSource(ShuffleKind kind, int lane, uint32_t offset, uint32_t clamp,
                  bool &inRange);

/// `values` of the lanes of `mask` (not empty).
uint32_t reduce(ReduxKind kind, const uint32_t values[32], uint32_t mask);

/// vote.sync for `lane`: `predicates` has a bit for each lane.
uint32_t vote(VoteKind kind, uint32_t predicates, uint32_t mask);

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_WARPINSTRUCTIONS_H
