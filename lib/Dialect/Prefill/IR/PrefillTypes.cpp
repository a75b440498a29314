//===- PrefillTypes.cpp - types
//---------------------------------------------===//
#include "mlir/IR/DialectImplementation.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::prefill;

#define GET_TYPEDEF_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillTypes.cpp.inc"

void PrefillDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "prefill/Dialect/Prefill/IR/PrefillTypes.cpp.inc"
      >();
}

LogicalResult KVCacheType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  KVLayout layout, int64_t numKvHeads,
                                  int64_t headDimQk, int64_t headDimV,
                                  Type dtype, int64_t blockSize) {
  if (numKvHeads < 1)
    return emitError() << "kv_cache num_kv_heads is " << numKvHeads
                       << ", expected at least 1";
  if (headDimQk < 1 || headDimV < 1)
    return emitError() << "kv_cache head_dim_qk is " << headDimQk
                       << " and head_dim_v " << headDimV
                       << ", expected both at least 1";
  if (!isa<FloatType>(dtype))
    return emitError() << "kv_cache dtype is " << dtype
                       << ", expected a floating-point type";
  if (blockSize < 1)
    return emitError() << "kv_cache block_size is " << blockSize
                       << ", expected at least 1";
  return success();
}
