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
