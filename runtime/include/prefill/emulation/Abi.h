// The contract between an emulated kernel's machine code, which
// lib/Target/Emulation makes, and the emulator that runs it
// (runtime/src/emulation).
//
// A code object exports
//   uint64-word entry   void NAME(const uint64_t *words)    one for each kernel
//   prefill_emulation_api       a pointer to `Api`, set by the loader
//   prefill_emulation_manifest  JSON text, NUL-terminated: kernels and sites
//
// A site is one operation of the kernel that the emulator watches. Its number
// is its index in the manifest's list. One call of a kernel's entry executes
// one CUDA thread.
#ifndef PREFILL_EMULATION_ABI_H
#define PREFILL_EMULATION_ABI_H

#include <cstdint>

namespace prefill::rt::emulation {

inline constexpr int abiVersion = 2;
inline constexpr const char *apiSymbol = "prefill_emulation_api";
inline constexpr const char *manifestSymbol = "prefill_emulation_manifest";

/// Where kernels see their shared memory. Not a host address: an access is
/// translated. It fits 32 bits, as on the device, and is aligned to what is
/// promised (128) and no more.
inline constexpr uint64_t sharedWindow = 0x10000080;

enum class SiteKind : int {
  load,
  store,
  asyncCopy,
  loadMatrix,
  mma,
  barrier,
  syncWarp,
  shuffle,
  vote,
  redux,
  commitGroup,
  waitGroup,
  gridDependency,
};

enum class AddressSpace : int { generic = 0, global = 1, shared = 3 };

enum class ShuffleKind : int { butterfly, up, down, index };
enum class VoteKind : int { any, all, ballot, uniform };
enum class ReduxKind : int { add, bitAnd, max, min, bitOr, umax, umin, bitXor };
enum class MmaType : int { f16, bf16 };

/// Functions that kernels call, in this order. `site` comes first.
struct Api {
  /// One of `SpecialRegister`.
  uint32_t (*specialRegister)(uint32_t which);
  /// Checks a load or store; returns where the bytes are.
  void *(*access)(uint32_t site, uint64_t address);
  /// `threads` 0: all of the block.
  void (*barrier)(uint32_t site, uint32_t id, uint32_t threads);
  void (*syncWarp)(uint32_t site, uint32_t mask);
  /// The value in the lower half, the predicate in bit 32.
  uint64_t (*shuffle)(uint32_t site, uint32_t mask, uint32_t value,
                      uint32_t offset, uint32_t clamp);
  uint32_t (*vote)(uint32_t site, uint32_t mask, uint32_t predicate);
  uint32_t (*redux)(uint32_t site, uint32_t mask, uint32_t value);
  /// `result`: one word for each matrix.
  void (*loadMatrix)(uint32_t site, uint64_t address, uint32_t *result);
  /// `operands`: A (4 words), B (2 words), C (4 floats). `result`: 4 floats.
  void (*mma)(uint32_t site, const uint32_t *operands, uint32_t *result);
  void (*asyncCopy)(uint32_t site, uint64_t destination, uint64_t source,
                    uint32_t sourceBytes);
  void (*commitGroup)(uint32_t site);
  void (*waitGroup)(uint32_t site);
  void (*gridDependency)(uint32_t site);
  float (*exp2Approx)(float value);
  float (*reciprocalApprox)(float value);
  float (*reciprocalSqrtApprox)(float value);
  float (*log2Approx)(float value);
};

/// Index of a function in `Api`.
enum class ApiFunction : int {
  specialRegister,
  access,
  barrier,
  syncWarp,
  shuffle,
  vote,
  redux,
  loadMatrix,
  mma,
  asyncCopy,
  commitGroup,
  waitGroup,
  gridDependency,
  exp2Approx,
  reciprocalApprox,
  reciprocalSqrtApprox,
  log2Approx,
  count,
};
static_assert(sizeof(Api) == static_cast<int>(ApiFunction::count) * 8);

/// `tid.x` and its like; y and z are always 0 and 1.
enum class SpecialRegister : int { tid, ntid, ctaid, nctaid, laneid };

} // namespace prefill::rt::emulation

#endif // PREFILL_EMULATION_ABI_H
