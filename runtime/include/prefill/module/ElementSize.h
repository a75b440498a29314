// Bytes of an element of each dtype of the container.
#ifndef PREFILL_MODULE_ELEMENTSIZE_H
#define PREFILL_MODULE_ELEMENTSIZE_H

#include "prefill/module_generated.h"

#include <cstdint>

namespace prefill::module {

/// Bytes of one element; 0 for what is no dtype.
inline int64_t byteSize(DType dtype) {
  switch (dtype) {
  case DType::i8:
    return 1;
  case DType::bf16:
  case DType::f16:
    return 2;
  case DType::f32:
  case DType::i32:
    return 4;
  case DType::i64:
    return 8;
  }
  return 0;
}

} // namespace prefill::module

#endif // PREFILL_MODULE_ELEMENTSIZE_H
