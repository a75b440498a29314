// A code object with emulated kernels, loaded.
#ifndef PREFILL_RUNTIME_EMULATION_PROGRAM_H
#define PREFILL_RUNTIME_EMULATION_PROGRAM_H

#include "cpu/CodeObject.h"
#include "prefill/checkpoint/Result.h"
#include "prefill/emulation/Abi.h"

#include <string>
#include <vector>

namespace prefill::rt::emulation {

/// See lib/Target/Emulation/SiteTable.h.
struct Site {
  std::string name, op;
  SiteKind kind = SiteKind::load;
  AddressSpace space = AddressSpace::generic;
  int bytes = 0, alignment = 0;
  int parameter = 0;
  bool steersControl = false;

  /// Width of the instructions that the access becomes: as wide as the
  /// alignment allows, 16 bytes at most.
  int chunk() const {
    int width = alignment < bytes ? alignment : bytes;
    return width < 16 ? width : 16;
  }
};

/// Executes one CUDA thread.
using KernelEntry = void (*)(const uint64_t *words);

struct Kernel {
  std::string name;
  int threads = 0;
  int64_t sharedBytes = 0;
  int words = 0;
  /// Its part of the program's sites.
  int firstSite = 0, numSites = 0;
  /// The site whose result steers control flow, so that arithmetic cannot be
  /// left out; empty when none does.
  std::string needsArithmetic;
  KernelEntry entry = nullptr;
};

class Program {
public:
  /// `image` as lib/Target/Emulation made it; `what` names it in messages.
  /// Refused: what is not such an object, and machines without AVX2.
  static Result<Program> load(const uint8_t *image, size_t size,
                              const std::string &what);

  const Kernel *kernel(const std::string &name) const;

  std::vector<Kernel> kernels;
  std::vector<Site> sites;

private:
  explicit Program(CodeObject &&code) : code(std::move(code)) {}
  Result<void> readManifest(const char *text, const std::string &what);

  CodeObject code;
};

} // namespace prefill::rt::emulation

#endif // PREFILL_RUNTIME_EMULATION_PROGRAM_H
