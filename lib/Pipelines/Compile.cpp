//===- Compile.cpp - a model to the bytes of a module
//-----------------------===//
#include "prefill/Pipelines/Compile.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "prefill/Target/Module/WriteModule.h"

using namespace mlir;
using namespace mlir::prefill;

void mlir::prefill::keepOnlyKernels(ModuleOp module) {
  for (Operation &op :
       llvm::make_early_inc_range(module.getBody()->getOperations()))
    if (!op.hasAttr(kKernelAttr))
      op.erase();
}

FailureOr<llvm::SmallVector<char, 0>> mlir::prefill::compileForCpu(
    ModuleOp module, const CompileOptions &options,
    llvm::function_ref<LogicalResult(PassManager &)> configure) {
  auto runLevel = [&](ModuleOp op, Level level,
                      const CompileOptions &levelOptions) -> LogicalResult {
    PassManager pm(op.getContext(), ModuleOp::getOperationName());
    if (failed(configure(pm)) || failed(buildLevel(level, levelOptions, pm)))
      return failure();
    return pm.run(op);
  };
  if (failed(runToLevel(module, Level::Config, options, configure)))
    return failure();
  OwningOpRef<ModuleOp> tiled(module.clone());
  if (failed(runLevel(*tiled, Level::Tiled, options)))
    return failure();

  std::vector<OwningOpRef<ModuleOp>> kernels;
  ModulePlan plan;
  plan.target = "cpu";
  plan.config = module;
  plan.tiled = *tiled;
  for (const CpuIsa &isa : cpuIsas()) {
    CompileOptions variantOptions = options;
    variantOptions.isa = isa.name.str();
    OwningOpRef<ModuleOp> variant(tiled->clone());
    keepOnlyKernels(*variant);
    if (failed(runLevel(*variant, Level::Kernel, variantOptions)))
      return failure();
    auto object =
        compileObject(*variant, CpuTarget{isa.cpu.str(), isa.features.str()});
    if (failed(object))
      return failure();
    auto shared = linkSharedObject(*object, "prefill_cpu_" + isa.name.str(),
                                   module.getLoc());
    if (failed(shared))
      return failure();
    plan.code.push_back({CodeFormat::Elf, isa.name.str(), std::move(*shared)});
    plan.kernels.push_back(*variant);
    kernels.push_back(std::move(variant));
  }
  return writeModule(plan);
}
