//===- LinkSharedObject.cpp - lld as a library
//------------------------------===//
#include "lld/Common/Driver.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace mlir;

FailureOr<llvm::SmallVector<char, 0>>
mlir::prefill::linkSharedObject(llvm::ArrayRef<char> object,
                                llvm::StringRef name, Location loc) {
  llvm::SmallString<128> objectPath, outputPath;
  int fd = -1;
  if (std::error_code ec =
          llvm::sys::fs::createTemporaryFile("prefill", "o", fd, objectPath))
    return emitError(loc, "cannot create a temporary object file: ")
               << ec.message(),
           failure();
  llvm::FileRemover removeObject(objectPath);
  {
    llvm::raw_fd_ostream stream(fd, /*shouldClose=*/true);
    stream.write(object.data(), object.size());
    if (stream.has_error()) {
      std::string message = stream.error().message();
      stream.clear_error();
      return emitError(loc, "cannot write ") << objectPath << ": " << message,
             failure();
    }
  }
  if (std::error_code ec =
          llvm::sys::fs::createTemporaryFile("prefill", "so", outputPath))
    return emitError(loc, "cannot create a temporary shared object: ")
               << ec.message(),
           failure();
  llvm::FileRemover removeOutput(outputPath);

  std::string messages;
  llvm::raw_string_ostream diagnostics(messages);
  std::string soname = (name + ".so").str();
  // No default libraries: what LLVM calls by itself (memcpy, memset) is found
  // in the process that loads the object.
  const char *args[] = {"ld.lld", "-shared",          "-z",
                        "now",    "--hash-style=gnu", "--build-id=none",
                        "-s",     "-soname",          soname.c_str(),
                        "-o",     outputPath.c_str(), objectPath.c_str()};
  lld::Result result = lld::lldMain(args, diagnostics, diagnostics,
                                    {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0)
    return emitError(loc, "linking ") << name << " failed: " << messages,
           failure();

  auto buffer = llvm::MemoryBuffer::getFile(outputPath, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return emitError(loc, "cannot read ")
               << outputPath << ": " << buffer.getError().message(),
           failure();
  return llvm::SmallVector<char, 0>((*buffer)->getBufferStart(),
                                    (*buffer)->getBufferEnd());
}
