//===- EmulatedKernel.cpp - a kernel, compiled and emulated ---------------===//
#include "EmulatedKernel.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace prefill_test;

uint16_t prefill_test::toBF16(float value) {
  return ::prefill::rt::floatToBf16(value);
}
float prefill_test::fromBF16(uint16_t value) {
  return ::prefill::rt::bf16ToFloat(value);
}
uint16_t prefill_test::toF16(float value) {
  return ::prefill::rt::floatToF16(value);
}
float prefill_test::randomValue(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  return float((z >> 40) & 0xffff) / 65536.0f - 0.5f;
}

static MLIRContext &context() {
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registry.insert<LLVM::LLVMDialect, NVVM::NVVMDialect, gpu::GPUDialect>();
    registerAllToLLVMIRTranslations(registry);
    auto *context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *shared;
}

/// The module's gpu.module, or the module itself when it has none.
static Operation *kernelsOf(ModuleOp module) {
  auto inner = module.getOps<gpu::GPUModuleOp>();
  return inner.empty() ? module.getOperation()
                       : (*inner.begin()).getOperation();
}

EmulatedKernel::EmulatedKernel(const std::string &text, int hostThreads)
    : emulator(hostThreads) {
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    ADD_FAILURE() << diagnostic.str() << "\nin\n" << text;
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (!module)
    return;
  auto image = mlir::prefill::compileEmulation(kernelsOf(*module));
  if (failed(image))
    return;
  auto loaded = Program::load(reinterpret_cast<const uint8_t *>(image->data()),
                              image->size(), "test");
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return;
  }
  program.emplace(std::move(*loaded));
}

void EmulatedKernel::addMemory(void *begin, size_t bytes,
                               const std::string &name, bool writable) {
  auto added = emulator.memory().add(begin, bytes, name, writable);
  if (!added)
    ADD_FAILURE() << added.error().message;
}

LaunchOutcome EmulatedKernel::run(const std::vector<uint64_t> &words,
                                  int64_t blocks,
                                  const LaunchOptions &options) {
  if (!program)
    return {};
  auto outcome = emulator.launch(*program, program->kernels[0].name, words,
                                 blocks, options);
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    return {};
  }
  return std::move(*outcome);
}

LaunchCounters EmulatedKernel::clean(const std::vector<uint64_t> &words,
                                     int64_t blocks,
                                     const LaunchOptions &options) {
  LaunchOutcome outcome = run(words, blocks, options);
  if (outcome.report)
    ADD_FAILURE() << "seed " << options.seed << ": "
                  << outcome.report->message();
  return outcome.counters;
}

std::string EmulatedKernel::errorOf(const std::string &text) {
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (module && succeeded(mlir::prefill::compileEmulation(kernelsOf(*module))))
    return "";
  return message;
}
