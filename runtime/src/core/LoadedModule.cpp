#include "core/LoadedModule.h"
#include "prefill/checkpoint/Quote.h"

#include <cstring>

using namespace prefill;
using namespace prefill::rt;

Result<std::unique_ptr<LoadedModule>>
LoadedModule::loadFile(Device &device, const std::string &path) {
  Result<MappedFile> mapping = MappedFile::open(path);
  if (!mapping)
    return mapping.takeError();
  std::unique_ptr<LoadedModule> loaded(new LoadedModule(device));
  loaded->filePath = path;
  loaded->mapping = std::move(*mapping);
  if (Result<void> ok =
          loaded->initialize(loaded->mapping->data(), loaded->mapping->size());
      !ok) {
    Error error = ok.takeError();
    error.message = quote(path) + ": " + error.message;
    return error;
  }
  return loaded;
}

Result<std::unique_ptr<LoadedModule>>
LoadedModule::loadMemory(Device &device, const void *data, size_t size) {
  std::unique_ptr<LoadedModule> loaded(new LoadedModule(device));
  loaded->copy.resize((size + 7) / 8);
  if (size)
    std::memcpy(loaded->copy.data(), data, size);
  if (Result<void> ok = loaded->initialize(
          reinterpret_cast<const std::byte *>(loaded->copy.data()), size);
      !ok)
    return ok.takeError();
  return loaded;
}

Result<void> LoadedModule::initialize(const std::byte *data, uint64_t size) {
  Result<const module::Module *> verified = verifyModule(data, size);
  if (!verified)
    return verified.takeError();
  table = *verified;

  Result<std::unique_ptr<LoadedCode>> code = owner.backend().load(*table);
  if (!code)
    return code.takeError();
  loaded = std::move(*code);
  return {};
}
