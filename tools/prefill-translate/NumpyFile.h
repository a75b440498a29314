//===- NumpyFile.h - arrays for numpy.load ----------------------*- C++ -*-===//
#ifndef PREFILL_TRANSLATE_NUMPYFILE_H
#define PREFILL_TRANSLATE_NUMPYFILE_H

#include "prefill/Reference/Tensor.h"
#include "prefill/checkpoint/Result.h"

namespace mlir::prefill {

/// Writes the values, rounded to f32, as a .npy file (format version 1.0). The
/// file appears whole or not at all.
::prefill::rt::Result<void> writeNumpyF32(llvm::StringRef path,
                                          const reference::Tensor &tensor);

} // namespace mlir::prefill

#endif // PREFILL_TRANSLATE_NUMPYFILE_H
