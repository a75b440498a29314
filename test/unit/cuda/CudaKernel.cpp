//===- CudaKernel.cpp - a kernel, compiled for CUDA and emulated ----------===//
#include "CudaKernel.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "mlir/Transforms/Passes.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Target/CUDA/KernelToNVVM.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace prefill_test;

Batch Batch::ofRows(int64_t rows) {
  Batch batch;
  batch.rows = batch.logitRows = rows;
  for (int64_t r = 0; r < rows; ++r) {
    batch.tokens.push_back(int32_t(r));
    batch.positions.push_back(int32_t(r));
    batch.slots.push_back(r);
    batch.logitsIndices.push_back(int32_t(r));
  }
  batch.cuSeqlens = {0, int32_t(rows)};
  batch.kvLens = {int32_t(rows)};
  return batch;
}

Arguments &Arguments::matrix(DeviceMatrix &matrix, const std::string &name,
                             bool writable) {
  matrix.upload();
  words.push_back(reinterpret_cast<uint64_t>(matrix.bytes.data()));
  ranges.push_back({matrix.bytes.data(), matrix.bytes.size(), name, writable});
  return *this;
}

Arguments &Arguments::inside(const DeviceMatrix &matrix, int64_t offset) {
  words.push_back(reinterpret_cast<uint64_t>(matrix.bytes.data()) +
                  uint64_t(offset));
  return *this;
}

Arguments &Arguments::reserved(const void *begin, size_t size,
                               const std::string &name, bool writable) {
  words.push_back(reinterpret_cast<uint64_t>(begin));
  ranges.push_back({begin, size, name, writable});
  return *this;
}

Arguments &Arguments::word(int64_t value) {
  words.push_back(uint64_t(value));
  return *this;
}

void Arguments::array(const void *data, size_t size, const std::string &name) {
  auto copy = std::make_shared<DeviceBytes>(size);
  if (size)
    std::memcpy(copy->data(), data, size);
  words.push_back(reinterpret_cast<uint64_t>(copy->data()));
  ranges.push_back({copy->data(), copy->size(), name, false});
  owned.push_back(copy);
}

Arguments &Arguments::batch(const Batch &batch) {
  auto add = [&](const auto &data, const char *name) {
    array(data.data(), data.size() * sizeof(data[0]), name);
  };
  word(batch.rows).word(batch.numSeqs).word(batch.logitRows);
  add(batch.tokens, "tokens");
  add(batch.positions, "positions");
  add(batch.slots, "slot_mapping");
  add(batch.cuSeqlens, "cu_seqlens");
  add(batch.kvLens, "kv_lens");
  add(batch.blockTable, "block_table");
  word(batch.blockTableStride);
  add(batch.logitsIndices, "logits_indices");
  return *this;
}

static MLIRContext &context() {
  static MLIRContext *shared = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    registry.insert<mlir::prefill::PrefillDialect>();
    mlir::prefill::registerPrefillPasses();
    mlir::prefill::registerPrefillConversionPasses();
    registerTransformsPasses();
    auto *context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *shared;
}

static LogicalResult toNVVM(ModuleOp module, const KernelOptions &options) {
  PassManager pm(module.getContext());
  if (failed(parsePassPipeline(
          options.tiling +
              ",prefill-convert-to-cuda-kernels{chip=" + options.chip + "}",
          pm)))
    return failure();
  mlir::prefill::buildKernelToNVVMPipeline(pm);
  return pm.run(module);
}

CudaKernel::CudaKernel(const std::string &text, const KernelOptions &options) {
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    ADD_FAILURE() << diagnostic.str() << "\nin\n" << text;
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (!module || failed(toNVVM(*module, options)))
    return;
  if (options.edit && !options.edit(*module))
    return;
  LLVM::LLVMFuncOp kernel = *module->getOps<LLVM::LLVMFuncOp>().begin();
  auto grid =
      kernel->getAttrOfType<mlir::prefill::GridAttr>(mlir::prefill::kGridAttr);
  block = grid.getBlock();
  multiplier = grid.getMultiplier();
  plusSequences = grid.getPlusSequences();
  logits = grid.getDomain() == mlir::prefill::RowDomain::Logits;
  auto integer = [&](StringRef name) {
    return kernel->getAttrOfType<IntegerAttr>(name).getInt();
  };
  blockThreads = integer(mlir::prefill::kBlockThreadsAttr);
  sharedBytes = integer(mlir::prefill::kSharedBytesAttr);
  llvm::raw_string_ostream stream(nvvm);
  module->print(stream);

  auto image = mlir::prefill::compileEmulation(*module);
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

LaunchCounters CudaKernel::run(const Arguments &arguments, const Batch &batch,
                               const LaunchOptions &options) {
  Emulator emulator(1);
  for (const Arguments::Range &range : arguments.ranges) {
    auto added = emulator.memory().add(range.begin, range.size, range.name,
                                       range.writable);
    if (!added)
      ADD_FAILURE() << added.error().message;
  }
  int64_t rows = logits ? batch.logitRows : batch.rows;
  int64_t groups =
      ((rows + block - 1) / block + (plusSequences ? batch.numSeqs : 0)) *
          multiplier +
      2;
  report.reset();
  counters = {};
  auto outcome = emulator.launch(*program, program->kernels[0].name,
                                 arguments.words, groups, options);
  if (!outcome) {
    ADD_FAILURE() << outcome.error().message;
    return {};
  }
  if (outcome->report)
    ADD_FAILURE() << "seed " << options.seed << ": "
                  << outcome->report->message();
  report = outcome->report;
  counters = outcome->counters;
  return counters;
}

std::string CudaKernel::errorOf(const std::string &text,
                                const KernelOptions &options) {
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context());
  if (!module || succeeded(toNVVM(*module, options)))
    return "";
  return message;
}

SiteCounters prefill_test::siteCounters(const LaunchCounters &counters,
                                        const std::string &name) {
  SiteCounters total;
  for (const NamedCounters &site : counters.sites)
    if (site.name == name)
      total.add(site.counters);
  return total;
}

std::string prefill_test::rowsType(int64_t columns,
                                   const std::string &element) {
  return "tensor<?x" + std::to_string(columns) + "x" + element + ">";
}
std::string prefill_test::matrixType(int64_t rows, int64_t columns,
                                     const std::string &element) {
  return "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) +
         "x" + element + ">";
}
std::string prefill_test::vectorType(int64_t columns,
                                     const std::string &element) {
  return "tensor<" + std::to_string(columns) + "x" + element + ">";
}
std::string prefill_test::config(int64_t blockM, int64_t blockN,
                                 const std::string &domain) {
  return "lowering_config = #prefill.lowering_config<" + domain +
         ", block_m = " + std::to_string(blockM) +
         ", block_n = " + std::to_string(blockN) +
         ", block_kv = 0, panel_n = 32, row_buckets = [1]>";
}
