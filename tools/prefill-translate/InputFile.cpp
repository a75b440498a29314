//===- InputFile.cpp - files that a user names ----------------------------===//
#include "InputFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

static StringRef describe(llvm::sys::fs::file_type type) {
  using llvm::sys::fs::file_type;
  switch (type) {
  case file_type::directory_file:
    return "a directory";
  case file_type::fifo_file:
    return "a pipe";
  case file_type::character_file:
  case file_type::block_file:
    return "a device";
  case file_type::socket_file:
    return "a socket";
  default:
    return "no file";
  }
}

Result<void> mlir::prefill::checkInputFile(StringRef path) {
  if (path == "-")
    return {};
  llvm::sys::fs::file_status status;
  if (std::error_code code = llvm::sys::fs::status(path, status))
    return Error{ErrorCode::io,
                 ("cannot read '" + path + "': " + code.message()).str()};
  if (status.type() != llvm::sys::fs::file_type::regular_file)
    return Error{ErrorCode::io,
                 ("cannot read '" + path + "': it is " +
                  describe(status.type()) + ", expected a regular file")
                     .str()};
  return {};
}

std::string mlir::prefill::printable(StringRef text) {
  std::string result;
  for (unsigned char byte : text.bytes()) {
    if (llvm::isPrint(char(byte))) {
      result += char(byte);
      continue;
    }
    result += "\\x";
    result += llvm::hexdigit(byte >> 4);
    result += llvm::hexdigit(byte & 15);
  }
  return result;
}
