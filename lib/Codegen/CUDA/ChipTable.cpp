//===- ChipTable.cpp - what a CUDA chip offers ----------------------------===//
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t KiB = 1024, MiB = 1024 * KiB;

// Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability". Rates: NVIDIA's data sheets and architecture whitepapers.
static const CudaChip kChips[] = {
    {"sm_80", "A100 SXM 80GB", 108, 163 * KiB, 164 * KiB, 65536, 2048, 32,
     40 * MiB, 2.039e12, 312e12, 1.41e9, 70},
    {"sm_86", "GeForce RTX 3090", 82, 99 * KiB, 100 * KiB, 65536, 1536, 16,
     6 * MiB, 0.936e12, 71e12, 1.695e9, 71},
    {"sm_89", "GeForce RTX 4090", 128, 99 * KiB, 100 * KiB, 65536, 1536, 24,
     72 * MiB, 1.008e12, 165e12, 2.52e9, 78},
    {"sm_90", "H100 SXM", 132, 227 * KiB, 228 * KiB, 65536, 2048, 32, 50 * MiB,
     3.35e12, 989e12, 1.83e9, 78},
};

// Registers are given to warps in units of 256, shared memory to blocks in
// units of 128 bytes.
static constexpr int64_t kRegisterUnit = 256, kSharedUnit = 128;

llvm::ArrayRef<CudaChip> prefill::cudaChips() { return kChips; }

const CudaChip *prefill::lookupCudaChip(llvm::StringRef name) {
  auto chip = llvm::find_if(
      kChips, [&](const CudaChip &chip) { return chip.name == name; });
  return chip == std::end(kChips) ? nullptr : chip;
}

std::string prefill::cudaChipNames() {
  return llvm::join(
      llvm::map_range(kChips, [](const CudaChip &chip) { return chip.name; }),
      ", ");
}

int64_t prefill::blocksPerSM(const CudaChip &chip, int64_t threads,
                             int64_t sharedBytes, int64_t registersPerThread) {
  if (sharedBytes > chip.sharedPerBlock || threads > kMaxBlockThreads)
    return 0;
  int64_t warps = llvm::divideCeil(threads, kWarpThreads);
  int64_t warpRegisters =
      llvm::alignTo(registersPerThread * kWarpThreads, kRegisterUnit);
  int64_t byRegisters = warpRegisters
                            ? chip.registersPerSM / warpRegisters / warps
                            : chip.maxBlocksPerSM;
  int64_t byShared =
      chip.sharedPerSM /
      int64_t(llvm::alignTo(sharedBytes + kReservedSharedBytes, kSharedUnit));
  return std::min({chip.maxBlocksPerSM,
                   chip.maxThreadsPerSM / (warps * kWarpThreads), byRegisters,
                   byShared});
}

double prefill::occupancy(const CudaChip &chip, int64_t threads,
                          int64_t sharedBytes, int64_t registersPerThread) {
  int64_t blocks = blocksPerSM(chip, threads, sharedBytes, registersPerThread);
  int64_t warps = llvm::divideCeil(threads, kWarpThreads);
  return double(blocks * warps * kWarpThreads) / double(chip.maxThreadsPerSM);
}
