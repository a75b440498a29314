//===- CompiledKernels.h - kernels compiled, loaded and called in a test --===//
// The way of a real module: passes, object code, lld, dlopen, entry.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_UNIT_ATTENTION_COMPILEDKERNELS_H
#define PREFILL_TEST_UNIT_ATTENTION_COMPILEDKERNELS_H

#include "mlir/IR/BuiltinOps.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace prefill_test {

using KernelEntry = void (*)(const uint64_t *, int64_t, int64_t, void *);

/// Whether this machine runs code of the variant.
bool machineRuns(const mlir::prefill::CpuIsa &isa);

/// With all dialects and passes.
mlir::MLIRContext &kernelContext();

class CompiledKernels {
public:
  /// Runs `pipeline` (textual, with prefill passes) on `source`, and compiles
  /// the kernels for `isa`. Fails the test and returns null on an error.
  static std::unique_ptr<CompiledKernels>
  compile(const std::string &source, const std::string &pipeline,
          const mlir::prefill::CpuIsa &isa);
  /// The same for a module of level kernel.
  static std::unique_ptr<CompiledKernels>
  load(mlir::ModuleOp module, const mlir::prefill::CpuIsa &isa);
  ~CompiledKernels();

  KernelEntry entry(const std::string &name) const;
  int64_t scratchBytes() const { return scratch; }
  double compileSeconds() const { return seconds; }

private:
  void *library = nullptr;
  int64_t scratch = 0;
  double seconds = 0;
};

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_ATTENTION_COMPILEDKERNELS_H
