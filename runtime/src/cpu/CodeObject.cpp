#include "cpu/CodeObject.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace prefill::rt;

namespace {

/// What the dynamic linker would only find by faulting: a file that ends before
/// its segments do. nullptr when fine.
const char *elfProblem(const uint8_t *data, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header)
    return "is shorter than an ELF header";
  std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "is not an ELF file";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN)
    return "is not a 64-bit little-endian ELF shared object";
#if defined(__x86_64__)
  if (header.e_machine != EM_X86_64)
    return "is not for x86-64";
#endif
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phoff > size ||
      size_t(header.e_phnum) * sizeof(Elf64_Phdr) > size - header.e_phoff)
    return "has no program headers inside the file";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, data + header.e_phoff + i * sizeof segment,
                sizeof segment);
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
      return "is truncated: a segment reaches past its end";
  }
  return nullptr;
}

} // namespace

Result<CodeObject> CodeObject::load(const uint8_t *data, size_t size,
                                    const std::string &what) {
  auto fail = [&](const std::string &reason) {
    return Error{ErrorCode::invalidModule,
                 "invalid module: " + what + " " + reason};
  };
  if (const char *problem = elfProblem(data, size))
    return fail(problem);

  CodeObject object;
  unsigned flags = MFD_CLOEXEC;
#ifdef MFD_EXEC
  flags |= MFD_EXEC; // asked for explicitly where vm.memfd_noexec is set
#endif
  object.descriptor = ::memfd_create("prefill-module", flags);
#ifdef MFD_EXEC
  if (object.descriptor < 0 && errno == EINVAL) // a kernel before 6.3
    object.descriptor = ::memfd_create("prefill-module", MFD_CLOEXEC);
#endif
  if (object.descriptor < 0)
    return Error{ErrorCode::io,
                 std::string("memfd_create: ") + std::strerror(errno)};
  for (size_t written = 0; written < size;) {
    ssize_t count = ::write(object.descriptor, data + written, size - written);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return Error{ErrorCode::io,
                   "cannot write " + std::to_string(size) +
                       " bytes of code to memory: " + std::strerror(errno)};
    written += static_cast<size_t>(count);
  }
  // The descriptor stays open as long as the object is loaded: the linker
  // compares names, and a second module under a reused descriptor number would
  // be taken for the first.
  std::string path = "/proc/self/fd/" + std::to_string(object.descriptor);
  object.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object.handle)
    return fail(std::string("cannot be loaded: ") + quote(::dlerror()));
  return object;
}

KernelFunction CodeObject::kernel(const std::string &symbol) const {
  return reinterpret_cast<KernelFunction>(::dlsym(handle, symbol.c_str()));
}

void *CodeObject::symbol(const std::string &name) const {
  return ::dlsym(handle, name.c_str());
}

CodeObject::CodeObject(CodeObject &&other) noexcept
    : handle(std::exchange(other.handle, nullptr)),
      descriptor(std::exchange(other.descriptor, -1)) {}

CodeObject &CodeObject::operator=(CodeObject &&other) noexcept {
  std::swap(handle, other.handle);
  std::swap(descriptor, other.descriptor);
  return *this;
}

CodeObject::~CodeObject() {
  if (handle)
    ::dlclose(handle);
  if (descriptor >= 0)
    ::close(descriptor);
}
