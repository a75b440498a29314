//===- PrefillPlugin.cpp - the dialect and its passes for mlir-opt --------===//
// Loaded by any program built on MLIR 22.1 that takes plugins, for example
//   mlir-opt-22 --load-dialect-plugin=prefill-plugin.so
//     --load-pass-plugin=prefill-plugin.so --pass-pipeline='builtin.module(…)'
//===----------------------------------------------------------------------===//

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"

using namespace mlir;

// The project is built with hidden visibility; these two are what the loader
// looks up by name.
extern "C" __attribute__((visibility("default"))) DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "Prefill", PREFILL_VERSION,
          [](DialectRegistry *registry) {
            registry->insert<prefill::PrefillDialect>();
          }};
}

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo
mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "PrefillPasses", PREFILL_VERSION, [] {
            prefill::registerPrefillPasses();
            prefill::registerPrefillConversionPasses();
          }};
}
