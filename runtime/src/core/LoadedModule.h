// A module in memory: verified tables and the kernels of the chosen variant.
#ifndef PREFILL_RUNTIME_CORE_LOADEDMODULE_H
#define PREFILL_RUNTIME_CORE_LOADEDMODULE_H

#include "core/Device.h"
#include "core/ModuleFile.h"
#include "cpu/CodeObject.h"
#include "prefill/checkpoint/MappedFile.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace prefill::rt {

class LoadedModule {
public:
  static Result<std::unique_ptr<LoadedModule>>
  loadFile(Device &device, const std::string &path);
  /// Copies `data`.
  static Result<std::unique_ptr<LoadedModule>>
  loadMemory(Device &device, const void *data, size_t size);

  Device &device() const { return owner; }
  const module::Module &file() const { return *table; }
  /// Empty for a module from memory.
  const std::string &path() const { return filePath; }
  IsaVariant variant() const { return chosen; }
  /// Indexed as file().kernels().
  KernelFunction kernel(uint32_t index) const { return functions[index]; }

  /// The largest number of launches that carry one layer's index.
  int64_t kernelsPerLayer() const;
  /// Rows that kernels see for `rows` rows of data: the smallest bucket that
  /// holds them, above the last bucket a multiple of it.
  int64_t padRows(int64_t rows) const;

private:
  explicit LoadedModule(Device &device) : owner(device) {}
  Result<void> initialize(const std::byte *data, uint64_t size);

  Device &owner;
  std::string filePath;
  std::optional<MappedFile> mapping;
  std::vector<uint64_t> copy; ///< of what the caller had in memory, aligned
  const module::Module *table = nullptr;
  IsaVariant chosen = IsaVariant::avx2;
  std::optional<CodeObject> code;
  std::vector<KernelFunction> functions;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_LOADEDMODULE_H
