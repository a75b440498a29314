// A module in memory: verified tables and the code for a device.
#ifndef PREFILL_RUNTIME_CORE_LOADEDMODULE_H
#define PREFILL_RUNTIME_CORE_LOADEDMODULE_H

#include "core/Device.h"
#include "core/ModuleFile.h"
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
  /// The plan that the device runs.
  const module::Plan &plan() const { return loaded->plan(); }
  LoadedCode &code() const { return *loaded; }

private:
  explicit LoadedModule(Device &device) : owner(device) {}
  Result<void> initialize(const std::byte *data, uint64_t size);

  Device &owner;
  std::string filePath;
  std::optional<MappedFile> mapping;
  std::vector<uint64_t> copy; ///< of what the caller had in memory, aligned
  const module::Module *table = nullptr;
  std::unique_ptr<LoadedCode> loaded;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CORE_LOADEDMODULE_H
