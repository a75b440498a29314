//===- ChipTable.h - what a CUDA chip offers --------------------*- C++ -*-===//
// Tiles, launch limits and occupancy are computed from these numbers.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_CODEGEN_CUDA_CHIPTABLE_H
#define PREFILL_CODEGEN_CUDA_CHIPTABLE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace mlir::prefill {

struct CudaChip {
  llvm::StringRef name;   // "sm_80"
  llvm::StringRef device; // the one whose figures these are
  int64_t sms;
  /// Shared memory that one block may ask for, and of an SM; a block takes
  /// `kReservedSharedBytes` more than it asks for.
  int64_t sharedPerBlock, sharedPerSM;
  int64_t registersPerSM;
  int64_t maxThreadsPerSM, maxBlocksPerSM;
  int64_t l2Bytes;
  double memoryBytesPerSecond;
  /// Of f16 or bf16 with f32 sums, dense.
  double tensorFlops;
  double clockHz; // boost
  /// The oldest PTX ISA version with all that kernels for it use: an older
  /// driver may then compile it. 80 is 8.0.
  int ptxVersion;
};

inline constexpr int64_t kWarpThreads = 32;
inline constexpr int64_t kMaxBlockThreads = 1024;
inline constexpr int64_t kMaxThreadRegisters = 255;
inline constexpr int64_t kReservedSharedBytes = 1024;

llvm::ArrayRef<CudaChip> cudaChips();
/// Null for an unknown name.
const CudaChip *lookupCudaChip(llvm::StringRef name);
/// "sm_80, sm_86, ..." for messages.
std::string cudaChipNames();

/// Blocks of a kernel that one SM can hold at once; 0 when not even one fits.
int64_t blocksPerSM(const CudaChip &chip, int64_t threads, int64_t sharedBytes,
                    int64_t registersPerThread);
/// Warps of those blocks over the warps that an SM can hold.
double occupancy(const CudaChip &chip, int64_t threads, int64_t sharedBytes,
                 int64_t registersPerThread);

} // namespace mlir::prefill

#endif // PREFILL_CODEGEN_CUDA_CHIPTABLE_H
