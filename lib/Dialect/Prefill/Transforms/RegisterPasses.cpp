//===- RegisterPasses.cpp - keeps the library non-empty and the registration in
// one object ===//
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
