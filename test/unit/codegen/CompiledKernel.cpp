//===- CompiledKernel.cpp - a kernel, compiled and called -----------------===//
#include "CompiledKernel.h"
#include "cpu/IsaVariant.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "gtest/gtest.h"
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <limits>
#include <unistd.h>

using namespace mlir;
using namespace prefill_test;

BFloat16 prefill_test::toBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float prefill_test::fromBF16(BFloat16 value) {
  uint32_t bits = uint32_t(value) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

Batch Batch::ofRows(int64_t rows) {
  Batch batch;
  batch.rows = rows;
  batch.logitRows = rows;
  for (int64_t i = 0; i < rows; ++i) {
    batch.tokens.push_back(int32_t(i));
    batch.positions.push_back(int32_t(i));
    batch.slots.push_back(i);
    batch.logitsIndices.push_back(int32_t(i));
  }
  batch.cuSeqlens = {0, int32_t(rows)};
  batch.kvLens = {int32_t(rows)};
  return batch;
}

Arguments &Arguments::batch(const Batch &batch) {
  size(batch.rows).size(batch.numSeqs).size(batch.logitRows);
  array(batch.tokens).array(batch.positions).array(batch.slots);
  array(batch.cuSeqlens).array(batch.kvLens).array(batch.blockTable);
  return size(batch.blockTableStride).array(batch.logitsIndices);
}

bool prefill_test::hostRuns(StringRef name) {
  // The runtime's answer: for tiles it obtains the permission as well.
  return ::prefill::rt::hostSupports(
      *::prefill::rt::parseIsaVariant({name.data(), name.size()}));
}

static MLIRContext &context() {
  static MLIRContext *shared = [] {
    // compileObject applies them, and fails where they aren't registered.
    registerPassManagerCLOptions();
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    registry.insert<mlir::prefill::PrefillDialect>();
    auto *context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *shared;
}

static LogicalResult toKernel(ModuleOp module, StringRef isa, bool plainTiles) {
  PassManager pm(module.getContext());
  mlir::prefill::TilePassOptions tile;
  tile.plain = plainTiles;
  pm.addPass(mlir::prefill::createTilePass(tile));
  mlir::prefill::ConvertToCPUKernelsPassOptions convert;
  convert.isa = isa.str();
  pm.addPass(mlir::prefill::createConvertToCPUKernelsPass(convert));
  return pm.run(module);
}

CompiledKernel::CompiledKernel(const std::string &text, StringRef isaName,
                               bool plainTiles) {
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    ADD_FAILURE() << diagnostic.str() << "\nin\n" << text;
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (!module || failed(toKernel(*module, isaName, plainTiles)))
    return;
  func::FuncOp kernel = *module->getOps<func::FuncOp>().begin();
  auto grid =
      kernel->getAttrOfType<mlir::prefill::GridAttr>(mlir::prefill::kGridAttr);
  block = grid.getBlock();
  multiplier = grid.getMultiplier();
  logits = grid.getDomain() == mlir::prefill::RowDomain::Logits;
  scratchBytes =
      kernel->getAttrOfType<IntegerAttr>(mlir::prefill::kScratchBytesAttr)
          .getInt();
  std::string name = kernel.getSymName().str();

  const mlir::prefill::CpuIsa *isa = mlir::prefill::lookupCpuIsa(isaName);
  auto object = mlir::prefill::compileObject(
      *module, {isa->cpu.str(), isa->features.str()});
  if (failed(object))
    return;
  auto shared = mlir::prefill::linkSharedObject(*object, "kernel",
                                                UnknownLoc::get(&context()));
  if (failed(shared))
    return;
  load({shared->data(), shared->size()}, name);
}

void CompiledKernel::load(llvm::StringRef image, const std::string &name) {
  std::string path =
      (std::filesystem::temp_directory_path() / "prefill-kernel-XXXXXX")
          .string();
  int file = mkstemp(path.data());
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, image.data(), image.size()), ssize_t(image.size()));
  close(file);
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  ASSERT_NE(library, nullptr) << dlerror();
  entry = reinterpret_cast<Entry>(dlsym(library, name.c_str()));
  ASSERT_NE(entry, nullptr) << dlerror();
}

CompiledKernel::~CompiledKernel() {
  if (library)
    dlclose(library);
}

void CompiledKernel::run(const Arguments &arguments, const Batch &batch) const {
  int64_t rows = logits ? batch.logitRows : batch.rows;
  int64_t count = (rows + block - 1) / block * multiplier;
  size_t floats = size_t(scratchBytes) / 4 + 32;
  std::unique_ptr<float[]> scratch(new float[floats]);
  auto aligned = reinterpret_cast<void *>(
      (reinterpret_cast<uintptr_t>(scratch.get()) + 63) / 64 * 64);
  // Odd workgroups first, one at a time, then the even ones.
  for (int64_t first : {1, 0})
    for (int64_t workgroup = first; workgroup < count; workgroup += 2) {
      std::fill_n(scratch.get(), floats,
                  std::numeric_limits<float>::quiet_NaN());
      entry(arguments.words.data(), workgroup, workgroup + 1, aligned);
    }
}

std::string CompiledKernel::errorOf(const std::string &text, StringRef isa) {
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (!module || succeeded(toKernel(*module, isa, false)))
    return "";
  return message;
}
