//===- Pipelines.cpp - the order of passes
//----------------------------------===//
#include "prefill/Pipelines/Pipelines.h"
#include "mlir/Pass/PassRegistry.h"
#include "prefill/Pipelines/Compile.h"
#include "prefill/Target/CPU/CompileObject.h"
#include "prefill/Target/CUDA/KernelToNVVM.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// One pass of the pipeline, by its flag.
struct Step {
  Level level;
  const char *flag;
  /// Options when the pass is left out: it then runs in its plain form. Null:
  /// it does not run. Steps that are not optional cannot be left out.
  const char *plainOptions = nullptr;
  bool optional = true;
  /// Runs on each function of the module.
  bool nested = false;
  enum Targets { All, Cpu, Cuda } targets = All;
};
constexpr bool kRequired = false, kOptional = true, kNested = true,
               kWhole = false;

// The order of passes, from the importer's output to kernels.
constexpr Step kSteps[] = {
    {Level::Model, "prefill-specialize-model", nullptr, kRequired},
    {Level::Model, "canonicalize", nullptr, kRequired},
    {Level::Model, "prefill-verify-model", nullptr, kRequired},

    // Kernels for CUDA have no form that selects rows yet.
    {Level::Fused, "prefill-hoist-row-selection", nullptr, kOptional, kWhole,
     Step::Cpu},
    {Level::Fused, "prefill-fold-scale"},
    {Level::Fused, "prefill-fuse-qkv-projection"},
    {Level::Fused, "prefill-fuse-gate-up"},
    {Level::Fused, "prefill-fold-norm"},
    {Level::Fused, "prefill-fold-kv-append-into-epilogue"},
    {Level::Fused, "prefill-fold-residual-into-epilogue"},
    {Level::Fused, "prefill-fold-activation-into-epilogue"},
    // Where --weights=int8 asks for it; leaving that out is what disables it.
    {Level::Fused, "prefill-quantize-weights", nullptr, kRequired},
    {Level::Fused, "canonicalize", nullptr, kRequired},
    {Level::Fused, "prefill-erase-unused-weights", nullptr, kRequired},
    {Level::Fused, "prefill-verify-fused", nullptr, kRequired},

    {Level::Config, "prefill-select-lowering-strategy", "plain=true"},
    {Level::Config, "prefill-split-kv", nullptr, kOptional, kWhole, Step::Cuda},
    // Kernels for CUDA read weights as the checkpoint has them.
    {Level::Config, "prefill-pack-weights", nullptr, kRequired, kWhole,
     Step::Cpu},
    {Level::Config, "prefill-materialize-rope-tables", nullptr, kRequired},
    {Level::Config, "prefill-erase-unused-weights", nullptr, kRequired},
    {Level::Config, "prefill-pad-m"},
    {Level::Config, "prefill-plan-memory", "reuse=false"},
    {Level::Config, "prefill-verify-config", nullptr, kRequired},
    {Level::Config, "prefill-outline-kernels", nullptr, kRequired},

    {Level::Tiled, "prefill-convert-attention-to-online", nullptr, kOptional,
     kNested},
    {Level::Tiled, "prefill-tile", "plain=true"},
    {Level::Tiled, "prefill-specialize-causal-blocks", nullptr, kOptional,
     kNested},
    {Level::Tiled, "canonicalize", nullptr, kRequired},
    {Level::Tiled, "cse", nullptr, kRequired},
    {Level::Tiled, "prefill-verify-tiled", nullptr, kRequired},

    {Level::Kernel, "prefill-convert-to-cpu-kernels", nullptr, kRequired,
     kWhole, Step::Cpu},
    {Level::Kernel, "prefill-convert-to-cuda-kernels", nullptr, kRequired,
     kWhole, Step::Cuda},
    {Level::Kernel, "prefill-verify-kernel", nullptr, kRequired, kWhole,
     Step::Cpu},
};

constexpr const char *kLevelNames[] = {"model", "fused",  "config",
                                       "tiled", "kernel", "target"};

/// What was measured on the chip, as options of the pass.
std::string tunedTiles(const CompileOptions &options) {
  auto found = options.tuning.cuda.find(options.target.chip);
  if (found == options.tuning.cuda.end())
    return "";
  auto list = [](StringRef option, const auto &entries) {
    std::string text;
    for (const auto &entry : entries)
      text += (text.empty() ? " " + option.str() + "=" : ",") + toText(entry);
    return text;
  };
  return list("gemm-tiles", found->second.gemms) +
         list("attention-tiles", found->second.attentions);
}

/// Unfused attention has no splits, and without the table of tiles nothing is
/// chosen for the chip.
bool splitsKeys(const CompileOptions &options) {
  return !options.deterministic &&
         llvm::none_of(options.disabledPasses, [](StringRef flag) {
           return flag == "prefill-convert-attention-to-online" ||
                  flag == "prefill-select-lowering-strategy";
         });
}

/// Whether the pipeline for these options has the step at all.
bool hasStep(const Step &step, const CompileOptions &options) {
  StringRef flag = step.flag;
  bool quantizes = options.weights == "int8";
  if (flag == "prefill-quantize-weights")
    return quantizes;
  // The kernel that quantizes takes the norm instead: it has whole rows, and
  // gains stay with the activations, since in a weight they would widen the
  // range of values that one scale of an output channel has to serve.
  if (flag == "prefill-fold-norm")
    return !quantizes;
  return flag != "prefill-split-kv" || splitsKeys(options);
}

std::string requiredOptions(const Step &step, const CompileOptions &options) {
  StringRef flag = step.flag;
  if (flag == "prefill-split-kv")
    return "target=" + options.target.planName() +
           " max-rows=" + std::to_string(options.maxRows);
  if (flag == "prefill-specialize-model") {
    std::string text = "kv-layout=" + options.kvLayout +
                       " block-size=" + std::to_string(options.kvBlockSize) +
                       " max-seq=" + std::to_string(options.maxSeq);
    return options.dtype.empty() ? text : text + " dtype=" + options.dtype;
  }
  if (flag == "prefill-select-lowering-strategy" && options.target.isCuda())
    return "target=" + options.target.planName() +
           " max-rows=" + std::to_string(options.maxRows) + tunedTiles(options);
  if (flag == "prefill-pad-m" && options.target.isCuda())
    return "target=" + options.target.planName();
  if (flag == "prefill-select-lowering-strategy")
    return "l1=" + std::to_string(options.caches.l1) +
           " l2=" + std::to_string(options.caches.l2) +
           " l3=" + std::to_string(options.caches.l3) +
           " gemm-block-m=" + std::to_string(options.tuning.cpu.gemmBlockM) +
           " gemm-block-n=" + std::to_string(options.tuning.cpu.gemmBlockN) +
           " attention-block-q=" +
           std::to_string(options.tuning.cpu.attentionBlockQ) +
           " attention-block-kv=" +
           std::to_string(options.tuning.cpu.attentionBlockKv);
  // Kernels find it in the module (prefill.pad_rows).
  if (flag == "prefill-plan-memory" && !options.target.isCuda())
    return "pad-rows=true";
  if (flag == "prefill-convert-to-cpu-kernels")
    return "isa=" + options.isa;
  if (flag == "prefill-convert-to-cuda-kernels")
    return "chip=" + options.target.chip;
  return "";
}

} // namespace

std::optional<Level> mlir::prefill::parseLevel(StringRef name) {
  for (auto [index, known] : llvm::enumerate(kLevelNames))
    if (name == known)
      return Level(index);
  return std::nullopt;
}

StringRef mlir::prefill::levelName(Level level) {
  return kLevelNames[int(level)];
}

std::string mlir::prefill::allLevelNames() {
  return llvm::join(ArrayRef<const char *>(kLevelNames), ", ");
}

std::vector<std::string> mlir::prefill::optionalPassFlags() {
  std::vector<std::string> flags;
  for (const Step &step : kSteps)
    if (step.optional)
      flags.push_back(step.flag);
  return flags;
}

LogicalResult mlir::prefill::buildLevel(Level level,
                                        const CompileOptions &options,
                                        OpPassManager &pm) {
  if (level == Level::Target) {
    if (options.target.isCuda())
      buildKernelToNVVMPipeline(pm);
    else
      buildKernelToLLVMPipeline(pm);
    return success();
  }
  Step::Targets others = options.target.isCuda() ? Step::Cpu : Step::Cuda;
  for (const Step &step : kSteps) {
    if (step.level != level || step.targets == others ||
        !hasStep(step, options))
      continue;
    std::string passOptions = requiredOptions(step, options);
    if (step.optional &&
        llvm::is_contained(options.disabledPasses, step.flag)) {
      if (!step.plainOptions)
        continue;
      // Which device it is for is no optimisation.
      bool isNeeded = StringRef(passOptions).starts_with("target=");
      passOptions = isNeeded ? passOptions + " " : "";
      passOptions += step.plainOptions;
    }
    std::string text = step.flag;
    if (!passOptions.empty())
      text += "{" + passOptions + "}";
    if (step.nested)
      text = "func.func(" + text + ")";
    if (failed(parsePassPipeline(text, pm)))
      return failure();
  }
  return success();
}

LogicalResult mlir::prefill::runToLevel(
    ModuleOp module, Level last, const CompileOptions &options,
    llvm::function_ref<LogicalResult(PassManager &)> configure) {
  for (int level = 0; level <= int(last); ++level) {
    if (Level(level) == Level::Kernel)
      keepOnlyKernels(module);
    PassManager pm(module.getContext(), ModuleOp::getOperationName());
    if (failed(configure(pm)) ||
        failed(buildLevel(Level(level), options, pm)) || failed(pm.run(module)))
      return failure();
    // CUDA's launches give a kernel its words one by one.
    if (Level(level) == Level::Target && !options.target.isCuda() &&
        failed(addKernelEntries(module)))
      return failure();
  }
  return success();
}
