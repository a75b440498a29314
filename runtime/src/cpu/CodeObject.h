// Machine code of a module in this process.
#ifndef PREFILL_RUNTIME_CPU_CODEOBJECT_H
#define PREFILL_RUNTIME_CPU_CODEOBJECT_H

#include "prefill/checkpoint/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace prefill::rt {

/// A kernel processes workgroups [begin, end) of its grid. `args` is described
/// in module.fbs; `scratch` belongs to the calling thread for the call.
using KernelFunction = void (*)(const uint64_t *args, int64_t begin,
                                int64_t end, void *scratch);

/// An ELF shared object loaded from memory. Its symbols stay its own.
class CodeObject {
public:
  /// `what` names it in messages. Refused: what is not a complete shared object
  /// for this machine, or has undefined symbols that this process lacks.
  static Result<CodeObject> load(const uint8_t *data, size_t size,
                                 const std::string &what);

  CodeObject(CodeObject &&other) noexcept;
  CodeObject &operator=(CodeObject &&other) noexcept;
  CodeObject(const CodeObject &) = delete;
  CodeObject &operator=(const CodeObject &) = delete;
  ~CodeObject();

  /// nullptr when the object does not define it.
  KernelFunction kernel(const std::string &symbol) const;
  /// The address of any symbol, nullptr when the object does not define it.
  void *symbol(const std::string &name) const;

private:
  CodeObject() = default;
  void *handle = nullptr;
  int descriptor = -1;
};

} // namespace prefill::rt

#endif // PREFILL_RUNTIME_CPU_CODEOBJECT_H
