//===- Compile.cpp - a model to the bytes of a module ---------------------===//
#include "prefill/Pipelines/Compile.h"
#include "mlir/IR/Threading.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Dialect/Prefill/Transforms/KernelMerging.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "prefill/Target/Emulation/CompileEmulation.h"
#include "prefill/Target/Module/WriteModule.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::prefill;

using ConfigurePasses = llvm::function_ref<LogicalResult(PassManager &)>;

void mlir::prefill::keepOnlyKernels(ModuleOp module) {
  for (Operation &op :
       llvm::make_early_inc_range(module.getBody()->getOperations()))
    if (!op.hasAttr(kKernelAttr))
      op.erase();
}

/// All variants that are of use for a module.
static SmallVector<const CpuIsa *> usefulIsas(ModuleOp tiled) {
  bool multipliesBf16 = false, multipliesInt8 = false;
  tiled.walk([&](Operation *op) {
    if (!isa<GemmOp, AttentionOp, OnlineAttentionOp>(op))
      return;
    Type element = getElementTypeOrSelf(op->getOperand(0));
    multipliesBf16 |= element.isBF16();
    multipliesInt8 |= element.isSignlessInteger(8);
  });
  SmallVector<const CpuIsa *> isas;
  for (const CpuIsa &isa : cpuIsas())
    if ((!isa.hasTiles || multipliesBf16) && (!isa.onlyInt8 || multipliesInt8))
      isas.push_back(&isa);
  return isas;
}

FailureOr<SmallVector<const CpuIsa *>>
mlir::prefill::cpuIsasOf(ModuleOp tiled, ArrayRef<std::string> wanted) {
  SmallVector<const CpuIsa *> useful = usefulIsas(tiled), isas;
  llvm::copy_if(useful, std::back_inserter(isas), [&](const CpuIsa *isa) {
    return wanted.empty() || llvm::is_contained(wanted, isa->name);
  });
  if (isas.empty())
    return emitError(tiled.getLoc())
           << "no code is left for the CPU: of " << llvm::join(wanted, ", ")
           << " none is of use for this model, expected one of "
           << llvm::join(llvm::map_range(
                             useful,
                             [](const CpuIsa *isa) { return isa->name.str(); }),
                         ", ");
  return isas;
}

namespace {

/// Makes one plan. Owns the IR that the plan refers to.
class PlanCompiler {
public:
  PlanCompiler(ModuleOp model, const CompileOptions &options,
               ConfigurePasses configure)
      : options(options), configure(configure), fused(model.clone()) {}

  /// Levels config, for each schedule, and tiled, for the kernels of all.
  LogicalResult lower() {
    plan.target = options.target.isCuda() ? "cuda" : "cpu";
    plan.chip = options.target.chip;
    plan.deterministic = options.deterministic;
    if (options.target.isCuda())
      plan.multiprocessors = lookupCudaChip(plan.chip)->sms;
    if (failed(runToLevel(*fused, Level::Fused, options, configure)))
      return failure();
    SmallVector<int64_t> limits = {0};
    if (options.target.isCuda())
      limits = llvm::map_to_vector(
          cudaSchedules(),
          [](const CudaSchedule &schedule) { return schedule.maxRows; });
    // From the longest calls on: theirs are the kernels' names.
    for (int64_t maxRows : llvm::reverse(limits))
      if (failed(addSchedule(maxRows)))
        return failure();
    for (auto &[maxRows, config] : llvm::reverse(schedules))
      plan.schedules.push_back({maxRows, *config});
    if (failed(runLevel(*tiled, Level::Tiled, options)))
      return failure();
    plan.tiled = *tiled;
    return success();
  }

  /// Variants are compiled at the same time from level kernel on, which takes
  /// nearly all of the time.
  LogicalResult addCpuCode() {
    FailureOr<SmallVector<const CpuIsa *>> chosen =
        cpuIsasOf(*tiled, options.moduleIsas);
    if (failed(chosen))
      return failure();
    SmallVector<const CpuIsa *> &isas = *chosen;
    SmallVector<ModuleOp> lowered;
    for (const CpuIsa *isa : isas) {
      CompileOptions variant = options;
      variant.isa = isa->name.str();
      auto module = lowerKernels(variant);
      if (failed(module))
        return failure();
      lowered.push_back(*module);
    }
    MLIRContext *context = fused->getContext();
    loadDialectsOfObjects(*context);
    SmallVector<FailureOr<llvm::SmallVector<char, 0>>> objects(isas.size(),
                                                               failure());
    // None ends for another's failure, so that errors are the same each time;
    // they come in the order of the variants.
    (void)failableParallelForEachN(context, 0, isas.size(), [&](size_t i) {
      objects[i] = compileObject(
          lowered[i], CpuTarget{isas[i]->cpu.str(), isas[i]->features.str()});
      return success();
    });
    for (auto [isa, object] : llvm::zip_equal(isas, objects)) {
      if (failed(object))
        return failure();
      auto shared = linkSharedObject(*object, "prefill_cpu_" + isa->name.str(),
                                     fused->getLoc());
      if (failed(shared))
        return failure();
      plan.code.push_back(
          {CodeFormat::Elf, isa->name.str(), std::move(*shared)});
    }
    return success();
  }

  LogicalResult addCudaCode(bool device, bool emulation,
                            const std::optional<std::string> &assembler,
                            std::vector<std::string> &warnings) {
    FailureOr<OwningOpRef<ModuleOp>> nvvm = lowerToTarget();
    if (failed(nvvm))
      return failure();
    if (device && failed(addDeviceCode(**nvvm, assembler, warnings)))
      return failure();
    if (!emulation)
      return success();
    auto image = compileEmulation(**nvvm);
    if (failed(image))
      return failure();
    plan.code.push_back({CodeFormat::Emulation, plan.chip, std::move(*image)});
    return success();
  }

  /// Level target of a chip's kernels.
  FailureOr<OwningOpRef<ModuleOp>> lowerToTarget() {
    auto lowered = lowerKernels(options);
    if (failed(lowered))
      return failure();
    OwningOpRef<ModuleOp> nvvm(lowered->clone());
    if (failed(runLevel(*nvvm, Level::Target, options)))
      return failure();
    return nvvm;
  }

  ModulePlan plan;

private:
  /// `maxRows` is less than that of the schedules before. One that launches
  /// what the next longer calls do is left to them.
  LogicalResult addSchedule(int64_t maxRows) {
    OwningOpRef<ModuleOp> config = fused->clone();
    CompileOptions own = options;
    own.maxRows = maxRows;
    if (failed(runLevel(*config, Level::Config, own)))
      return failure();
    if (schedules.empty()) {
      tiled = config->clone();
    } else {
      mergeKernels(*tiled, *config, "_upto" + std::to_string(maxRows));
      if (haveSameLaunches(*config, *schedules.back().second))
        return success();
    }
    schedules.emplace_back(maxRows, std::move(config));
    return success();
  }

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
                                     kernel.residentBlocks, kernel.occupancy};
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
  OwningOpRef<ModuleOp> fused, tiled;
  /// Level config by the most rows of a call, the longest calls first.
  std::vector<std::pair<int64_t, OwningOpRef<ModuleOp>>> schedules;
  std::vector<OwningOpRef<ModuleOp>> kernels;
};

/// The targets of one plan.
struct PlanTargets {
  CompileTarget target;
  bool device = false, emulation = false;
};

} // namespace

FailureOr<OwningOpRef<ModuleOp>>
mlir::prefill::lowerCudaKernels(ModuleOp model, const CompileOptions &options,
                                ConfigurePasses configure) {
  PlanCompiler compiler(model, options, configure);
  if (failed(compiler.lower()))
    return failure();
  return compiler.lowerToTarget();
}

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
  // What one target refuses is known before code for another takes its time.
  std::vector<std::unique_ptr<PlanCompiler>> compilers;
  for (const PlanTargets &plan : wanted) {
    CompileOptions planOptions = options;
    planOptions.target = plan.target;
    compilers.push_back(
        std::make_unique<PlanCompiler>(model, planOptions, configure));
    if (failed(compilers.back()->lower()))
      return failure();
  }
  CompiledModule compiled;
  std::vector<ModulePlan> plans;
  for (auto [plan, compiler] : llvm::zip_equal(wanted, compilers)) {
    if (failed(plan.target.isCuda()
                   ? compiler->addCudaCode(plan.device, plan.emulation,
                                           assembler, compiled.warnings)
                   : compiler->addCpuCode()))
      return failure();
    plans.push_back(std::move(compiler->plan));
  }
  auto bytes = writeModule(plans);
  if (failed(bytes))
    return failure();
  compiled.bytes = std::move(*bytes);
  return compiled;
}
