//===- PrefillDialect.cpp - the dialect's registration
//---------------------===//
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

#include "prefill/Dialect/Prefill/IR/PrefillDialect.cpp.inc"
#include "prefill/Dialect/Prefill/IR/PrefillEnums.cpp.inc"

void PrefillDialect::initialize() {
  registerTypes();
  registerAttrs();
  addOperations<
#define GET_OP_LIST
#include "prefill/Dialect/Prefill/IR/PrefillOps.cpp.inc"
      >();
}
