//===- WriteOutput.cpp - a tool's output file -----------------------------===//
#include "WriteOutput.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"

using namespace llvm;

/// Flushes and takes over the stream's error, which would otherwise abort.
static Error finish(raw_fd_ostream &stream) {
  stream.flush();
  std::error_code code = stream.error();
  stream.clear_error();
  return errorCodeToError(code);
}

Error mlir::prefill::writeOutput(StringRef path,
                                 function_ref<void(raw_ostream &)> write) {
  if (path == "-") {
    write(outs());
    return finish(outs());
  }
  SmallString<256> target(path);
  if (sys::fs::exists(path))
    if (std::error_code code = sys::fs::real_path(path, target))
      return errorCodeToError(code);
  sys::fs::file_status status;
  if (!sys::fs::status(target, status) &&
      status.type() != sys::fs::file_type::regular_file) {
    std::error_code code;
    raw_fd_ostream stream(target, code, sys::fs::CD_OpenExisting);
    if (code)
      return errorCodeToError(code);
    write(stream);
    return finish(stream);
  }

  auto temporary = sys::fs::TempFile::create(target + ".%%%%%%%%");
  if (!temporary)
    return temporary.takeError();
  Error error = [&]() -> Error {
    raw_fd_ostream stream(temporary->FD, /*shouldClose=*/false);
    write(stream);
    return finish(stream);
  }();
  if (error)
    return joinErrors(std::move(error), temporary->discard());
  // The temporary file is private; the result has the mode of any new file.
  unsigned mask = sys::fs::getUmask();
  if (std::error_code code =
          sys::fs::setPermissions(temporary->FD, sys::fs::perms(0666 & ~mask)))
    return joinErrors(errorCodeToError(code), temporary->discard());
  return temporary->keep(target);
}
