//===- NumpyFile.cpp - arrays for numpy.load ------------------------------===//
// Format: numpy.lib.format, version 1.0.
//===----------------------------------------------------------------------===//
#include "NumpyFile.h"
#include "../shared/WriteOutput.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

/// Magic, length and the Python literal, padded so that the data are aligned to
/// 64 bytes.
static std::string makeHeader(ArrayRef<int64_t> shape) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int64_t extent : shape)
    text += std::to_string(extent) + ",";
  text += "), }";
  constexpr size_t kPreamble = 10;
  text.append(63 - (kPreamble + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

Result<void> mlir::prefill::writeNumpyF32(StringRef path,
                                          const reference::Tensor &tensor) {
  llvm::Error failure = writeOutput(path, [&](llvm::raw_ostream &stream) {
    stream << makeHeader(tensor.shape);
    for (double value : tensor.values) {
      char bytes[4];
      llvm::support::endian::write32le(
          bytes, llvm::bit_cast<uint32_t>(static_cast<float>(value)));
      stream.write(bytes, 4);
    }
  });
  if (failure)
    return Error{ErrorCode::io, "cannot write '" + path.str() +
                                    "': " + llvm::toString(std::move(failure))};
  return {};
}
