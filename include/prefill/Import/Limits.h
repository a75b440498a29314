//===- Limits.h - sizes that an importer believes ---------------*- C++ -*-===//
// Far above any model, and small enough that no product of the sizes of one
// tensor leaves int64: a number beyond them is a broken or hostile file.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_IMPORT_LIMITS_H
#define PREFILL_IMPORT_LIMITS_H

#include <cstdint>

namespace mlir::prefill {

inline constexpr int64_t maxNumLayers = 4096;
inline constexpr int64_t maxVocabSize = int64_t(1) << 24;
inline constexpr int64_t maxHiddenSize = int64_t(1) << 20;
inline constexpr int64_t maxIntermediateSize = int64_t(1) << 22;
inline constexpr int64_t maxNumHeads = int64_t(1) << 14;
inline constexpr int64_t maxHeadDim = int64_t(1) << 12;
/// Positions are i32 in the batch.
inline constexpr int64_t maxPositions = (int64_t(1) << 31) - 1;

} // namespace mlir::prefill

#endif // PREFILL_IMPORT_LIMITS_H
