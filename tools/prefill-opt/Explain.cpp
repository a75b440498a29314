//===- Explain.cpp - `prefill-opt --explain` ------------------------------===//
#include "Explain.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Pipelines/Compile.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace mlir;
using namespace mlir::prefill;

using ConfigurePasses = llvm::function_ref<LogicalResult(PassManager &)>;

/// A copy of the model at a level; null when a pass failed.
static OwningOpRef<ModuleOp> runCopy(ModuleOp model, Level level,
                                     const CompileOptions &options,
                                     ConfigurePasses configure) {
  OwningOpRef<ModuleOp> copy(model.clone());
  if (failed(runToLevel(*copy, level, options, configure)))
    return {};
  return copy;
}

namespace {

/// Takes errors until it is released, each text once.
class Refusals {
public:
  explicit Refusals(MLIRContext *context) {
    handler.emplace(context, [this](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
        return failure();
      std::string text = diagnostic.str();
      llvm::replace(text, '\n', ' ');
      auto [entry, isNew] =
          reasons.insert({text, Reason{diagnostic.getLocation(), 0}});
      ++entry->second.count;
      return success();
    });
  }

  void print(llvm::raw_ostream &os) const {
    for (const auto &[text, reason] : reasons) {
      os << "refused: ";
      if (auto loc = dyn_cast<FileLineColLoc>(reason.first))
        os << loc.getFilename().getValue() << ":" << loc.getLine() << ":"
           << loc.getColumn() << ": ";
      os << text;
      if (reason.count > 1)
        os << " (" << reason.count << " times)";
      os << "\n";
    }
  }

  /// Emits one error for all of them, with the text of the first.
  LogicalResult emit(Location unknown) const {
    if (reasons.empty())
      return emitError(unknown, "compilation failed");
    InFlightDiagnostic error =
        emitError(reasons.front().second.first, reasons.front().first);
    if (size_t others = reasons.size() - 1)
      error << " (and " << others << " more "
            << (others == 1 ? "reason" : "reasons") << ", see above)";
    return error;
  }

  /// Errors go to whoever took them before.
  void release() { handler.reset(); }

private:
  struct Reason {
    Location first;
    int64_t count;
  };
  llvm::MapVector<std::string, Reason, std::map<std::string, unsigned>> reasons;
  std::optional<ScopedDiagnosticHandler> handler;
};

} // namespace

/// The reasons stand on the ops of level fused.
static int64_t explainFolding(ModuleOp fused, llvm::raw_ostream &os) {
  int64_t notFolded = 0;
  fused.walk([&](Operation *op) {
    auto reason = op->getAttrOfType<StringAttr>("prefill.not_folded");
    if (!reason)
      return;
    ++notFolded;
    if (auto layer = op->getAttrOfType<IntegerAttr>(kLayerAttr))
      os << "layer " << layer.getInt() << ": ";
    auto name = op->getAttrOfType<StringAttr>(kNameAttr);
    os << (name ? name.getValue() : op->getName().getStringRef())
       << ": not folded: " << reason.getValue() << "\n";
  });
  return notFolded;
}

/// The largest number of launches that carry one layer's index.
static int64_t kernelsPerLayer(ModuleOp config) {
  llvm::MapVector<int64_t, int64_t> launches;
  config.walk([&](LaunchOp launch) {
    if (auto layer = launch->getAttrOfType<IntegerAttr>(kLayerAttr))
      ++launches[layer.getInt()];
  });
  int64_t most = 0;
  for (auto [layer, count] : launches)
    most = std::max(most, count);
  return most;
}

/// The largest scratch of a kernel in any of the module's ISA variants, 0 on a
/// GPU; nullopt on failure, which is also how the emitters refuse what they
/// cannot do.
static std::optional<int64_t> scratchBytes(ModuleOp model, ModuleOp tiled,
                                           CompileOptions options,
                                           ConfigurePasses configure) {
  int64_t most = 0;
  if (options.target.isCuda()) {
    bool emitted(runCopy(model, Level::Kernel, options, configure));
    return emitted ? std::optional<int64_t>(0) : std::nullopt;
  }
  FailureOr<SmallVector<const CpuIsa *>> isas =
      cpuIsasOf(tiled, options.moduleIsas);
  if (failed(isas))
    return std::nullopt;
  for (const CpuIsa *isa : *isas) {
    options.isa = isa->name.str();
    OwningOpRef<ModuleOp> kernels =
        runCopy(model, Level::Kernel, options, configure);
    if (!kernels)
      return std::nullopt;
    kernels->walk([&](func::FuncOp kernel) {
      if (auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
        most = std::max(most, bytes.getInt());
    });
  }
  return llvm::alignTo(most, 64);
}

/// Unfused attention keeps scores in memory: the heads whose matrix it is.
static int64_t scoreHeads(ModuleOp tiled) {
  bool found = false;
  tiled.walk([&](func::FuncOp kernel) {
    for (unsigned i = 0; i < kernel.getNumArguments(); ++i)
      found |= bool(kernel.getArgAttr(i, kScoreAttr));
  });
  auto model = tiled->getAttrOfType<DictionaryAttr>("prefill.model");
  auto heads = model ? model.getAs<IntegerAttr>("num_q_heads") : IntegerAttr();
  return found && heads ? heads.getInt() : 0;
}

/// What prefill-plan-memory found out about a plan.
static int64_t plannedBytes(ModuleOp config, StringRef name) {
  auto entry = config.lookupSymbol<func::FuncOp>(kEntryName);
  auto attr = entry ? entry->getAttrOfType<IntegerAttr>(name) : IntegerAttr();
  return attr ? attr.getInt() : 0;
}

static void explainMemory(ModuleOp config, int64_t scratch, int64_t heads,
                          llvm::raw_ostream &os) {
  auto bytes = [&](StringRef name) { return plannedBytes(config, name); };
  os << "memory in bytes, M_pad padded tokens, R_pad padded rows of logits, T "
        "threads:\n";
  os << "  weights " << bytes("prefill.weights_bytes") << "\n";
  os << "  activation peak " << bytes("prefill.activation_row_bytes")
     << " * M_pad + " << bytes("prefill.logits_row_bytes") << " * R_pad\n";
  os << "  KV cache " << bytes("prefill.kv_cache_bytes_per_token")
     << " * tokens of capacity\n";
  // The batch's integers: 16 bytes a token, 4 a row of logits, 4 a KV block,
  // each of the seven arrays rounded up to 64.
  os << "  temporaries " << scratch << " * T + 16 * M_pad + 4 * R_pad + 4 * KV "
     << "blocks + 512";
  if (heads)
    os << " + " << 4 * heads << " * M_pad * longest sequence";
  os << "\n";
}

/// Calls of few tokens that launch other kernels in other buffers than
/// `config`, the plan of long ones: attention over splits of the keys.
static LogicalResult explainShortCalls(ModuleOp model, ModuleOp config,
                                       CompileOptions options,
                                       ConfigurePasses configure,
                                       llvm::raw_ostream &os) {
  if (!options.target.isCuda())
    return success();
  for (const CudaSchedule &schedule : cudaSchedules()) {
    if (schedule.maxRows == 0)
      continue;
    options.maxRows = schedule.maxRows;
    OwningOpRef<ModuleOp> shorter =
        runCopy(model, Level::Config, options, configure);
    if (!shorter)
      return failure();
    int64_t kernels = kernelsPerLayer(*shorter);
    int64_t rowBytes = plannedBytes(*shorter, "prefill.activation_row_bytes");
    if (kernels != kernelsPerLayer(config) ||
        rowBytes != plannedBytes(config, "prefill.activation_row_bytes"))
      os << "calls of up to " << schedule.maxRows << " tokens: " << kernels
         << " kernels a layer, activation peak " << rowBytes << " * M_pad + "
         << plannedBytes(*shorter, "prefill.logits_row_bytes") << " * R_pad\n";
  }
  return success();
}

static void explainPadding(ModuleOp config, llvm::raw_ostream &os) {
  config.walk([&](GemmOp gemm) {
    if (std::optional<LoweringConfigAttr> tiles = gemm.getLoweringConfig()) {
      ArrayRef<int64_t> buckets = tiles->getRowBuckets();
      if (buckets == ArrayRef<int64_t>{1}) {
        os << "rows are not padded\n";
        return WalkResult::interrupt();
      }
      os << "rows are padded to ";
      llvm::interleaveComma(buckets, os);
      os << " or a multiple of " << buckets.back() << ": at most "
         << buckets.back() - 1 << " rows of padding above it\n";
    }
    return WalkResult::interrupt();
  });
}

LogicalResult mlir::prefill::explain(ModuleOp model,
                                     const CompileOptions &options,
                                     ConfigurePasses configure,
                                     llvm::raw_ostream &os) {
  Refusals refusals(model.getContext());
  OwningOpRef<ModuleOp> fused, config, tiled;
  std::optional<int64_t> scratch;
  // A level that fails would fail in the same way on the way to the next.
  if ((fused = runCopy(model, Level::Fused, options, configure)) &&
      (config = runCopy(model, Level::Config, options, configure)) &&
      (tiled = runCopy(model, Level::Tiled, options, configure)))
    scratch = scratchBytes(model, *tiled, options, configure);
  refusals.release();
  if (!scratch) {
    refusals.print(os);
    return refusals.emit(model.getLoc());
  }
  for (const std::string &flag : options.disabledPasses)
    os << flag << ": disabled on the command line\n";
  int64_t notFolded = explainFolding(*fused, os);
  os << notFolded << " not folded; " << kernelsPerLayer(*config)
     << " kernels a layer\n";
  explainMemory(*config, *scratch, scoreHeads(*tiled), os);
  if (failed(explainShortCalls(model, *config, options, configure, os)))
    return failure();
  explainPadding(*config, os);
  return success();
}
