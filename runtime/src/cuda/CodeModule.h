// A compiled module's code on the device.
#ifndef PREFILL_RUNTIME_CUDA_CODEMODULE_H
#define PREFILL_RUNTIME_CUDA_CODEMODULE_H

#include "cuda/CudaDevice.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prefill::rt::cuda {

struct CodeImage {
  enum class Format { cubin, ptx };
  Format format;
  std::string_view chip; ///< "sm_80"; "sm_90a" fits that chip alone
  std::string_view bytes;
};

/// 80 of "sm_80" and "sm_80a"; nullopt where it is no chip.
std::optional<int> chipNumber(std::string_view chip);

/// "cubin sm_80, ptx sm_90".
std::string listImages(std::span<const CodeImage> images);

/// What may be run on a device of compute capability `chip` (80 for sm_80),
/// best first: the cubin of the very chip, then PTX of the newest chip that is
/// not newer (the driver compiles it), then cubins of older chips of the same
/// generation, which run unchanged.
std::vector<const CodeImage *> suitableImages(std::span<const CodeImage> images,
                                              int chip);

class CodeModule {
public:
  /// The first of the suitable images that the driver takes. An Error lists
  /// what there is, or holds the driver's words on the best image.
  static Result<CodeModule> load(const CudaDevice &device,
                                 std::span<const CodeImage> images);
  CodeModule(CodeModule &&other) noexcept;
  CodeModule &operator=(CodeModule &&other) noexcept;
  ~CodeModule();

  const CudaDevice &device() const { return *owner; }
  CUmodule handle() const { return module; }
  /// "cubin sm_80": what was loaded.
  const std::string &loaded() const { return name; }

private:
  CodeModule(const CudaDevice &owner, CUmodule module, std::string name)
      : owner(&owner), module(module), name(std::move(name)) {}

  const CudaDevice *owner;
  CUmodule module;
  std::string name;
};

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_CODEMODULE_H
