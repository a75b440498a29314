#include "CompiledKernels.h"
#include "cpu/IsaVariant.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "prefill/Conversion/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "gtest/gtest.h"
#include <chrono>
#include <dlfcn.h>
#include <fstream>

using namespace mlir;
using namespace mlir::prefill;

namespace prefill_test {

bool machineRuns(const CpuIsa &isa) {
  // The runtime's answer: for tiles it obtains the permission as well.
  return ::prefill::rt::hostSupports(
      *::prefill::rt::parseIsaVariant(isa.name.str()));
}

MLIRContext &kernelContext() {
  static MLIRContext *context = [] {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registerAllToLLVMIRTranslations(registry);
    registry.insert<PrefillDialect>();
    registerAllPasses();
    registerPrefillPasses();
    registerPrefillConversionPasses();
    registerPassManagerCLOptions(); // compileObject applies them
    return new MLIRContext(registry, MLIRContext::Threading::DISABLED);
  }();
  return *context;
}

std::unique_ptr<CompiledKernels>
CompiledKernels::compile(const std::string &source, const std::string &pipeline,
                         const CpuIsa &isa) {
  auto start = std::chrono::steady_clock::now();
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(source, &kernelContext());
  EXPECT_TRUE(module) << source;
  if (!module)
    return nullptr;
  PassManager pm(&kernelContext());
  std::string passes =
      pipeline + ",prefill-convert-to-cpu-kernels{isa=" + isa.name.str() + "}";
  if (failed(parsePassPipeline(passes, pm)) || failed(pm.run(*module))) {
    ADD_FAILURE() << "pipeline failed: " << passes << " on\n" << source;
    return nullptr;
  }
  auto kernels = load(*module, isa);
  if (kernels)
    kernels->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
  return kernels;
}

std::unique_ptr<CompiledKernels> CompiledKernels::load(ModuleOp module,
                                                       const CpuIsa &isa) {
  auto kernels = std::make_unique<CompiledKernels>();
  module.walk([&](func::FuncOp kernel) {
    if (auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
      kernels->scratch = std::max(kernels->scratch, bytes.getInt());
  });
  auto object = compileObject(module, {isa.cpu.str(), isa.features.str()});
  EXPECT_TRUE(succeeded(object));
  if (failed(object))
    return nullptr;
  auto library = linkSharedObject(*object, "test", module.getLoc());
  EXPECT_TRUE(succeeded(library));
  if (failed(library))
    return nullptr;
  char path[] = "prefill-kernel-XXXXXX";
  int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(write(fd, library->data(), library->size()),
            ssize_t(library->size()));
  close(fd);
  kernels->library =
      dlopen((std::string("./") + path).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(kernels->library) << dlerror();
  unlink(path);
  return kernels->library ? std::move(kernels) : nullptr;
}

CompiledKernels::~CompiledKernels() {
  if (library)
    dlclose(library);
}

KernelEntry CompiledKernels::entry(const std::string &name) const {
  return reinterpret_cast<KernelEntry>(dlsym(library, name.c_str()));
}

} // namespace prefill_test
