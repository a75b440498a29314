//===- Compile.cpp - a model to the bytes of a module ---------------------===//
#include "prefill/Pipelines/Compile.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "prefill/Target/Module/WriteModule.h"

using namespace mlir;
using namespace mlir::prefill;

using ConfigurePasses = llvm::function_ref<LogicalResult(PassManager &)>;

void mlir::prefill::keepOnlyKernels(ModuleOp module) {
  for (Operation &op :
       llvm::make_early_inc_range(module.getBody()->getOperations()))
    if (!op.hasAttr(kKernelAttr))
      op.erase();
}

namespace {

/// Makes one plan. Owns the IR that the plan refers to.
class PlanCompiler {
public:
  PlanCompiler(ModuleOp model, const CompileOptions &options,
               ConfigurePasses configure)
      : options(options), configure(configure), config(model.clone()) {}

  /// Levels config and tiled.
  LogicalResult lower() {
    plan.target = options.target.isCuda() ? "cuda" : "cpu";
    plan.chip = options.target.chip;
    if (failed(runToLevel(*config, Level::Config, options, configure)))
      return failure();
    tiled = config->clone();
    if (failed(runLevel(*tiled, Level::Tiled, options)))
      return failure();
    plan.schedules = {{/*maxRows=*/0, *config}};
    plan.tiled = *tiled;
    return success();
  }

  LogicalResult addCpuCode() {
    for (const CpuIsa &isa : cpuIsas()) {
      CompileOptions variant = options;
      variant.isa = isa.name.str();
      auto lowered = lowerKernels(variant);
      if (failed(lowered))
        return failure();
      auto object =
          compileObject(*lowered, CpuTarget{isa.cpu.str(), isa.features.str()});
      if (failed(object))
        return failure();
      auto shared = linkSharedObject(*object, "prefill_cpu_" + isa.name.str(),
                                     config->getLoc());
      if (failed(shared))
        return failure();
      plan.code.push_back(
          {CodeFormat::Elf, isa.name.str(), std::move(*shared)});
    }
    return success();
  }

  LogicalResult addCudaCode(bool device, bool emulation,
                            const std::optional<std::string> &assembler,
                            std::vector<std::string> &warnings) {
    auto lowered = lowerKernels(options);
    if (failed(lowered))
      return failure();
    OwningOpRef<ModuleOp> nvvm(lowered->clone());
    if (failed(runLevel(*nvvm, Level::Target, options)))
      return failure();
    if (device && failed(addDeviceCode(*nvvm, assembler, warnings)))
      return failure();
    if (!emulation)
      return success();
    auto image = compileEmulation(*nvvm);
    if (failed(image))
      return failure();
    plan.code.push_back({CodeFormat::Emulation, plan.chip, std::move(*image)});
    return success();
  }

  ModulePlan plan;

private:
  LogicalResult runLevel(ModuleOp op, Level level,
                         const CompileOptions &levelOptions) {
    PassManager pm(op.getContext(), ModuleOp::getOperationName());
    if (failed(configure(pm)) || failed(buildLevel(level, levelOptions, pm)))
      return failure();
    return pm.run(op);
  }

  /// Machine code where there is an assembler, PTX, and what the assembler says
  /// of the kernels.
  LogicalResult addDeviceCode(ModuleOp nvvm,
                              const std::optional<std::string> &assembler,
                              std::vector<std::string> &warnings) {
    auto object =
        compileCudaObject(nvvm, *lookupCudaChip(plan.chip), assembler);
    if (failed(object))
      return failure();
    for (const AssembledKernel &kernel : object->kernels) {
      plan.resources[kernel.name] = {kernel.registers, kernel.spillBytes,
                                     kernel.occupancy};
      if (kernel.spillBytes)
        warnings.push_back("kernel " + kernel.name + " spills " +
                           std::to_string(kernel.spillBytes) +
                           " bytes of registers on " + plan.chip);
    }
    if (!object->cubin.empty())
      plan.code.push_back(
          {CodeFormat::Cubin, plan.chip, std::move(object->cubin)});
    plan.code.push_back(
        {CodeFormat::Ptx, plan.chip,
         llvm::SmallVector<char, 0>(object->ptx.begin(), object->ptx.end())});
    return success();
  }

  /// Level kernel; the plan refers to it.
  FailureOr<ModuleOp> lowerKernels(const CompileOptions &variant) {
    OwningOpRef<ModuleOp> lowered(tiled->clone());
    keepOnlyKernels(*lowered);
    if (failed(runLevel(*lowered, Level::Kernel, variant)))
      return failure();
    kernels.push_back(std::move(lowered));
    plan.kernels.push_back(*kernels.back());
    return *kernels.back();
  }

  CompileOptions options;
  ConfigurePasses configure;
  OwningOpRef<ModuleOp> config, tiled;
  std::vector<OwningOpRef<ModuleOp>> kernels;
};

/// The targets of one plan.
struct PlanTargets {
  CompileTarget target;
  bool device = false, emulation = false;
};

} // namespace

FailureOr<CompiledModule>
mlir::prefill::compileModule(ModuleOp model, const CompileOptions &options,
                             ArrayRef<CompileTarget> targets,
                             const std::optional<std::string> &assembler,
                             ConfigurePasses configure) {
  std::vector<PlanTargets> wanted;
  for (const CompileTarget &target : targets) {
    auto known = llvm::find_if(wanted, [&](const PlanTargets &plan) {
      return plan.target.planName() == target.planName();
    });
    if (known == wanted.end())
      known = wanted.insert(known, {target});
    (target.kind == CompileTarget::CudaEmulation ? known->emulation
                                                 : known->device) = true;
  }
  CompiledModule compiled;
  std::vector<std::unique_ptr<PlanCompiler>> compilers;
  std::vector<ModulePlan> plans;
  for (const PlanTargets &plan : wanted) {
    CompileOptions planOptions = options;
    planOptions.target = plan.target;
    compilers.push_back(
        std::make_unique<PlanCompiler>(model, planOptions, configure));
    PlanCompiler &compiler = *compilers.back();
    if (failed(compiler.lower()) ||
        failed(plan.target.isCuda()
                   ? compiler.addCudaCode(plan.device, plan.emulation,
                                          assembler, compiled.warnings)
                   : compiler.addCpuCode()))
      return failure();
    plans.push_back(std::move(compiler.plan));
  }
  auto bytes = writeModule(plans);
  if (failed(bytes))
    return failure();
  compiled.bytes = std::move(*bytes);
  return compiled;
}
