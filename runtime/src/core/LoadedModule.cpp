#include "core/LoadedModule.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

namespace {

const module::Code *findCode(const module::Module &file, IsaVariant variant) {
  for (const module::Code *code : *file.code())
    if (code->target()->string_view() == "cpu" &&
        code->variant()->string_view() == stringify(variant))
      return code;
  return nullptr;
}

/// "cpu:avx2, cpu:avx512": everything that the module has code for.
std::string listCode(const module::Module &file) {
  std::string list;
  for (const module::Code *code : *file.code())
    list += (list.empty() ? "" : ", ") + code->target()->str() + ":" +
            code->variant()->str();
  return list.empty() ? "nothing" : list;
}

} // namespace

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

  const module::Code *best = nullptr;
  if (owner.forcedVariant()) {
    chosen = *owner.forcedVariant();
    best = findCode(*table, chosen);
    if (!best)
      return Error{ErrorCode::unsupported,
                   std::string("the module has no code for cpu:") +
                       stringify(chosen) + ", it has " +
                       quote(listCode(*table))};
  } else {
    for (IsaVariant variant : isaVariants)
      if (const module::Code *candidate =
              hostSupports(variant) ? findCode(*table, variant) : nullptr) {
        best = candidate;
        chosen = variant;
      }
    if (!best)
      return Error{ErrorCode::unsupported,
                   "the module has no code for this CPU: it has " +
                       quote(listCode(*table)) + ", this CPU supports " +
                       hostVariants()};
  }

  std::string what = std::string("code cpu:") + stringify(chosen);
  Result<CodeObject> object =
      CodeObject::load(best->object()->data(), best->object()->size(), what);
  if (!object)
    return object.takeError();
  for (const module::Kernel *kernel : *table->kernels()) {
    KernelFunction function = object->kernel(kernel->name()->str());
    if (!function)
      return invalidModule(what + " does not define kernel " +
                           quote(kernel->name()->string_view()));
    functions.push_back(function);
  }
  code = std::move(*object);
  return {};
}

int64_t LoadedModule::kernelsPerLayer() const {
  std::vector<int64_t> counts(table->num_layers());
  for (const module::Launch *launch : *table->launches())
    if (launch->layer() >= 0)
      ++counts[launch->layer()];
  return *std::max_element(counts.begin(), counts.end());
}

int64_t LoadedModule::padRows(int64_t rows) const {
  const auto &buckets = *table->row_buckets();
  for (int32_t bucket : buckets)
    if (rows <= bucket)
      return bucket;
  int64_t last = buckets[buckets.size() - 1];
  return (rows + last - 1) / last * last;
}
