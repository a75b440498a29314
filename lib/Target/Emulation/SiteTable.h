//===- SiteTable.h - the operations that the emulator watches ---*- C++ -*-===//
#ifndef PREFILL_LIB_TARGET_EMULATION_SITETABLE_H
#define PREFILL_LIB_TARGET_EMULATION_SITETABLE_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "prefill/emulation/Abi.h"
#include "llvm/ADT/DenseMap.h"
#include <string>
#include <vector>

namespace mlir::prefill::emulation {

using namespace ::prefill::rt::emulation;

/// One entry of the manifest's list of sites.
struct Site {
  std::string name; ///< from the operation's location
  std::string op;   ///< for example "nvvm.shfl.sync"
  SiteKind kind = SiteKind::load;
  AddressSpace space = AddressSpace::generic;
  int64_t bytes = 0;     ///< of one thread's access
  int64_t alignment = 0; ///< that the access promises
  /// Groups that may stay open; matrices | transposed << 8; MmaType; kinds.
  int64_t parameter = 0;
  /// Control flow or an address depends on the data.
  bool steersControl = false;
};

/// One entry of the manifest's list of kernels.
struct Kernel {
  std::string name;
  int64_t threads = 0;
  int64_t sharedBytes = 0;
  int64_t words = 0;
  int64_t firstSite = 0, numSites = 0; ///< its part of the list of sites
  /// Why the kernel cannot be counted without its arithmetic; empty when it
  /// can.
  std::string needsArithmetic;
};

struct Manifest {
  std::vector<Kernel> kernels;
  std::vector<Site> sites;
  llvm::DenseMap<Operation *, uint32_t> siteOf;

  std::string toJson() const;
};

/// Enters the sites of `kernel`. Emits an error for an operation or a type that
/// the emulator does not know (Vocabulary.cpp).
LogicalResult addSites(LLVM::LLVMFuncOp kernel, Manifest &manifest);

/// Marks the sites whose data decides where control goes or which address is
/// accessed, and says when that data comes out of a matrix instruction.
void markControlDependence(LLVM::LLVMFuncOp kernel, Manifest &manifest,
                           Kernel &entry);

/// Replaces what addSites entered by calls into the emulator, moves all
/// pointers to address space 0 and adds the entries.
LogicalResult instrumentKernels(ModuleOp module, const Manifest &manifest);

/// x86-64-v3 has no conversion f32 -> bf16 and libgcc before 13 no function for
/// it: integer arithmetic, nearest even, NaN to 0x7fff as on the device.
Value roundToBFloat16(OpBuilder &builder, Location loc, Value value);

/// "gemm.mainloop.load_a" for a NameLoc, "file:line" for a file's location.
/// Without either, `op` and the number of the site.
std::string siteName(Location loc, StringRef op, size_t number);

} // namespace mlir::prefill::emulation

#endif // PREFILL_LIB_TARGET_EMULATION_SITETABLE_H
