//===- CompileDriver.cpp - `prefill-opt --compile` ------------------------===//
#include "CompileDriver.h"
#include "../shared/WriteOutput.h"
#include "Explain.h"
#include "ListTiles.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "prefill/Pipelines/Compile.h"
#include "prefill/Target/CPU/HostIsa.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

struct DriverOptions {
  CompileOptions compile;
  std::string input = "-";
  std::string output = "-";
  std::vector<CompileTarget> targets;
  std::string ptxas;    ///< empty: the one that is found
  std::string givenIsa; ///< what --isa says
  int64_t rows = 0;     ///< 0: not given
  std::optional<Level> stopAt;
  bool compileModule = false;
  bool explain = false;
  bool listTiles = false;
  std::vector<const char *> mlirOptions; ///< --mlir-…, parsed by MLIR itself
};

constexpr const char *kOptionList =
    "--compile, --compile-to=LEVEL, --explain, --list-tiles, --target=T, "
    "--dtype=f32|bf16|f16, --weights=int8, --kv-layout=L[:block_size], "
    "--max-seq=N, --rows=N, "
    "--disable-pass=FLAG, --deterministic, --isa=NAME[,NAME…]|native, "
    "--cpu-caches=L1,L2,L3|host, "
    "--tuning=FILE, --ptxas=FILE|none, -o FILE, --mlir-…";

int fail(const llvm::Twine &message) {
  llvm::errs() << "error: " << message << "\n";
  return 1;
}

/// Prints the first error as one line; warnings, remarks and notes are dropped
/// unless they were asked for.
class OneLineDiagnostics {
public:
  OneLineDiagnostics(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
              message.empty())
            message = describe(diagnostic);
          return success();
        }) {}
  int report(const llvm::Twine &fallback) {
    return message.empty() ? fail(fallback) : fail(message);
  }

private:
  static std::string describe(Diagnostic &diagnostic) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (auto loc = dyn_cast<FileLineColLoc>(diagnostic.getLocation()))
      stream << loc.getFilename().getValue() << ":" << loc.getLine() << ":"
             << loc.getColumn() << ": ";
    stream << diagnostic;
    for (char &c : text)
      if (c == '\n')
        c = ' ';
    return text;
  }
  std::string message;
  ScopedDiagnosticHandler handler;
};

std::optional<int> parseKVLayout(StringRef value, CompileOptions &options) {
  auto [layout, blockSize] = value.split(':');
  std::optional<KVLayout> known = symbolizeKVLayout(layout);
  if (!known)
    return fail("--kv-layout is '" + value +
                "', expected contiguous, head_major, paged_nhd[:block_size] or "
                "paged_vnni");
  options.kvLayout = layout.str();
  if (!value.contains(':'))
    return std::nullopt;
  if (*known == KVLayout::PagedVNNI &&
      blockSize == std::to_string(KVCacheType::kVNNIPageTokens))
    return std::nullopt;
  if (*known == KVLayout::PagedVNNI)
    return fail("--kv-layout block size is '" + blockSize + "', expected " +
                Twine(KVCacheType::kVNNIPageTokens) +
                ", which is fixed for paged_vnni");
  if (*known != KVLayout::PagedNHD)
    return fail("--kv-layout is '" + value +
                "', but only paged_nhd has a block size");
  // Leading zeros are refused, as some read them as octal.
  if (blockSize.getAsInteger(10, options.kvBlockSize) ||
      blockSize.starts_with("0") || options.kvBlockSize < 1 ||
      options.kvBlockSize > 65536)
    return fail("--kv-layout block size is '" + blockSize +
                "', expected a number from 1 to 65536 without leading zeros");
  return std::nullopt;
}

std::optional<int> parseTarget(StringRef value, DriverOptions &options) {
  llvm::Expected<CompileTarget> target = parseCompileTarget(value);
  if (!target)
    return fail("--target is " + llvm::toString(target.takeError()));
  options.targets.push_back(*target);
  return std::nullopt;
}

/// What a target cannot do whatever the model is, and what only makes sense
/// together.
std::optional<int> checkTargets(DriverOptions &options) {
  if (options.targets.empty())
    options.targets.push_back({});
  for (const CompileTarget &target : options.targets) {
    if (!target.isCuda())
      continue;
    std::string on = " on target " + target.planName();
    if (!options.compile.weights.empty())
      return fail("--weights=" + options.compile.weights +
                  " is for target cpu, but --target is " + target.planName());
    if (options.compile.kvLayout == "paged_vnni")
      return fail("--kv-layout is paged_vnni, which is for a CPU, expected "
                  "contiguous, head_major or paged_nhd" +
                  on);
    if (options.compile.dtype == "f32")
      return fail("--dtype is f32, which has no tensor cores, expected bf16 or "
                  "f16" +
                  on);
  }
  if (options.stopAt && options.compile.moduleIsas.size() > 1)
    return fail("--isa is '" + options.givenIsa + "', " +
                llvm::Twine(options.compile.moduleIsas.size()) +
                " instruction sets, expected one for --compile-to");
  if (options.stopAt && options.targets.size() > 1)
    return fail("more than one --target is given, expected one for "
                "--compile-to");
  if (options.listTiles && options.targets.size() > 1)
    return fail("more than one --target is given, expected one for "
                "--list-tiles");
  options.compile.target = options.targets.front();
  if (options.rows && !(options.stopAt && options.compile.target.isCuda()))
    return fail("--rows is for --compile-to with a target cuda:CHIP, whose "
                "tiles depend on it");
  if (options.listTiles && !options.compile.target.isCuda())
    return fail("--list-tiles is for a target cuda:CHIP, but --target is " +
                options.compile.target.planName());
  if (!options.givenIsa.empty() &&
      llvm::all_of(options.targets,
                   [](const CompileTarget &t) { return t.isCuda(); }))
    return fail("--isa is for target cpu, but --target is " +
                options.compile.target.planName());
  return std::nullopt;
}

/// The variants that `--isa` names; empty: one of them is unknown, or this
/// machine runs none.
std::vector<std::string> parseIsas(StringRef value) {
  std::vector<std::string> names;
  if (value == "native") {
    for (const CpuIsa &isa : cpuIsas())
      if (hostRuns(isa))
        names.push_back(isa.name.str());
    return names;
  }
  for (StringRef name : llvm::split(value, ','))
    if (lookupCpuIsa(name))
      names.push_back(name.str());
    else
      return {};
  return names;
}

/// The assembler to use, or nothing.
std::optional<std::string> chooseAssembler(const DriverOptions &options) {
  if (options.ptxas == "none")
    return std::nullopt;
  return options.ptxas.empty() ? findAssembler() : options.ptxas;
}

std::optional<int> readTuning(StringRef path, CompileOptions &options) {
  if (path.empty())
    return fail("--tuning is '', expected the name of a file");
  llvm::Expected<Tuning> tuning = readTuningFile(path);
  if (!tuning)
    return fail("--tuning: " + llvm::toString(tuning.takeError()));
  options.tuning = std::move(*tuning);
  return std::nullopt;
}

/// What is wrong with the place of a file, before minutes go into it.
std::error_code cannotWrite(StringRef path) {
  namespace fs = llvm::sys::fs;
  if (path == "-")
    return {};
  if (fs::is_directory(path))
    return std::make_error_code(std::errc::is_a_directory);
  StringRef parent = llvm::sys::path::parent_path(path);
  return fs::access(parent.empty() ? "." : parent, fs::AccessMode::Write);
}

/// Fills `options`; returns an exit code when the command line is wrong.
std::optional<int> parseOptions(int argc, char **argv, DriverOptions &options) {
  bool haveInput = false;
  for (int i = 1; i < argc; ++i) {
    StringRef argument = argv[i];
    if (argument.starts_with("--mlir-")) {
      options.mlirOptions.push_back(argv[i]);
      continue;
    }
    if (!argument.starts_with("-") || argument == "-") {
      if (haveInput)
        return fail("more than one input file: '" + options.input + "' and '" +
                    argument + "'");
      options.input = argument.str();
      haveInput = true;
      continue;
    }
    StringRef name = argument, value;
    bool hasValue = argument.contains('=');
    if (hasValue)
      std::tie(name, value) = argument.split('=');
    name = name.drop_while([](char c) { return c == '-'; });
    if (name == "compile" || name == "explain" || name == "list-tiles" ||
        name == "deterministic") {
      if (hasValue)
        return fail("option --" + name + " takes no value, got '" + value +
                    "'");
      (name == "compile"         ? options.compileModule
       : name == "explain"       ? options.explain
       : name == "deterministic" ? options.compile.deterministic
                                 : options.listTiles) = true;
      continue;
    }
    static constexpr const char *valued[] = {
        "compile-to", "target",     "dtype",  "weights",
        "kv-layout",  "max-seq",    "rows",   "disable-pass",
        "isa",        "cpu-caches", "tuning", "ptxas",
        "o"};
    if (!llvm::is_contained(valued, name))
      return fail("unknown option '" + argument +
                  "', expected one of: " + kOptionList);
    if (!hasValue) {
      if (++i >= argc)
        return fail("option '" + argument + "' needs a value");
      value = argv[i];
    }
    std::optional<int> error;
    if (name == "compile-to") {
      options.stopAt = parseLevel(value);
      if (!options.stopAt)
        return fail("--compile-to is '" + value +
                    "', expected one of: " + allLevelNames());
    } else if (name == "target") {
      error = parseTarget(value, options);
    } else if (name == "dtype") {
      if (value != "f32" && value != "bf16" && value != "f16")
        return fail("--dtype is '" + value + "', expected f32, bf16 or f16");
      options.compile.dtype = value.str();
    } else if (name == "weights") {
      if (value != "int8")
        return fail("--weights is '" + value +
                    "', expected int8; without it weights have the model's "
                    "dtype");
      options.compile.weights = value.str();
    } else if (name == "kv-layout") {
      error = parseKVLayout(value, options.compile);
    } else if (name == "max-seq") {
      if (value.getAsInteger(10, options.compile.maxSeq) ||
          options.compile.maxSeq < 1)
        return fail("--max-seq is '" + value +
                    "', expected a number of at least 1");
    } else if (name == "rows") {
      if (value.getAsInteger(10, options.rows) || options.rows < 1)
        return fail("--rows is '" + value +
                    "', expected a number of at least 1");
      options.compile.maxRows = scheduleOfCall(options.rows).maxRows;
    } else if (name == "disable-pass") {
      std::vector<std::string> known = optionalPassFlags();
      // The short spelling without the dialect's prefix is accepted as well.
      std::string flag = value.starts_with("prefill-")
                             ? value.str()
                             : ("prefill-" + value).str();
      if (!llvm::is_contained(known, flag))
        return fail("--disable-pass is '" + value +
                    "', expected one of: " + llvm::join(known, ", "));
      options.compile.disabledPasses.push_back(flag);
    } else if (name == "cpu-caches") {
      llvm::Expected<CpuCaches> caches = parseCpuCaches(value);
      if (!caches)
        return fail("--cpu-caches is " + llvm::toString(caches.takeError()));
      options.compile.caches = *caches;
    } else if (name == "tuning") {
      error = readTuning(value, options.compile);
    } else if (name == "isa") {
      options.compile.moduleIsas = parseIsas(value);
      if (options.compile.moduleIsas.empty())
        return fail(
            value == "native"
                ? "--isa is 'native', but this machine runs none of: " +
                      cpuIsaNames()
                : "--isa is '" + value +
                      "', expected native or some of: " + cpuIsaNames());
      options.compile.isa = options.compile.moduleIsas.back();
      options.givenIsa = value.str();
    } else if (name == "ptxas") {
      if (value != "none" && !llvm::sys::fs::can_execute(value))
        return fail("--ptxas is '" + value + "', expected a program, or none");
      options.ptxas = value.str();
    } else {
      options.output = value.str();
    }
    if (error)
      return error;
  }
  if (!options.compileModule && !options.stopAt && !options.explain &&
      !options.listTiles)
    return fail(
        "expected --compile, --compile-to=LEVEL, --explain or --list-tiles");
  if (options.listTiles &&
      (options.compileModule || options.stopAt || options.explain))
    return fail("--list-tiles excludes --compile, --compile-to and --explain");
  if (options.compileModule && options.stopAt)
    return fail("--compile and --compile-to exclude each other");
  if (options.compileModule && options.output == "-" && !options.explain)
    return fail("--compile needs -o FILE.pfm");
  if (std::error_code error = cannotWrite(options.output))
    return fail("cannot write '" + options.output + "': " + error.message());
  return checkTargets(options);
}

/// Explains each plan; with several, under its name. False when a target
/// refuses the model, after all of them.
bool explainTargets(
    ModuleOp model, const DriverOptions &options,
    llvm::function_ref<LogicalResult(PassManager &)> configure) {
  std::vector<std::string> plans;
  bool succeeded = true;
  for (const CompileTarget &target : options.targets) {
    if (llvm::is_contained(plans, target.planName()))
      continue; // cuda and cuda-emu are one plan
    plans.push_back(target.planName());
    if (options.targets.size() > 1)
      llvm::outs() << "target " << target.planName() << ":\n";
    CompileOptions planOptions = options.compile;
    planOptions.target = target;
    succeeded &= !failed(explain(model, planOptions, configure, llvm::outs()));
  }
  return succeeded;
}

int write(StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> fill) {
  if (llvm::Error error = writeOutput(path, fill))
    return fail("cannot write '" + path +
                "': " + llvm::toString(std::move(error)));
  return 0;
}

} // namespace

// The driver's own options; those that it shares with nobody select it, so that
// `prefill-opt --dtype=f32` alone is told what is missing.
bool mlir::prefill::wantsCompileDriver(int argc, char **argv) {
  static constexpr const char *own[] = {
      "--compile",      "--compile-to", "--explain",       "--list-tiles",
      "--target",       "--dtype",      "--report",        "--kv-layout",
      "--disable-pass", "--isa",        "--max-seq",       "--tuning",
      "--cpu-caches",   "--ptxas",      "--deterministic", "--rows",
      "--weights"};
  return llvm::any_of(
      llvm::ArrayRef<char *>(argv + 1, argc - 1), [](StringRef argument) {
        return llvm::is_contained(own, argument.split('=').first);
      });
}

const char *mlir::prefill::compileDriverUsage() {
  return "Prefill compiler: everything of mlir-opt, and the whole pipeline:\n\n"
         "  prefill-opt MODEL.mlir --compile --target=cpu -o MODEL.pfm\n"
         "  prefill-opt MODEL.mlir "
         "--compile-to=model|fused|config|tiled|kernel|"
         "target [--isa=NAME]\n"
         "  prefill-opt MODEL.mlir --explain\n"
         "  prefill-opt MODEL.mlir --list-tiles --target=cuda:CHIP\n\n"
         "  --target=T             what to compile for (repeatable): cpu "
         "(default), cuda:CHIP, or\n"
         "                         cuda-emu:CHIP for the emulator; CHIP is "
         "sm_80, sm_86, sm_89 or sm_90\n"
         "  --dtype=f32|bf16|f16   default: the model's\n"
         "  --weights=int8         CPU: projections of the layers multiply "
         "8-bit integers, made of the weights at load\n"
         "                         and of each row of their inputs (default: "
         "weights have the model's dtype)\n"
         "  --kv-layout=L[:N]      contiguous (default), head_major, "
         "paged_nhd[:tokens a block],\n"
         "                         paged_vnni (pages of 32 tokens, the fastest "
         "on a CPU)\n"
         "  --max-seq=N            default: 4096 or the model's maximum, "
         "whichever is less\n"
         "  --rows=N               with --compile-to: what calls of N tokens "
         "launch on cuda:CHIP\n"
         "                         (default: calls of any length)\n"
         "  --isa=NAME[,NAME...]   CPU: instruction sets to make code for, of "
         "avx2, avx_vnni, avx512, avx512_vnni,\n"
         "                         avx512_bf16 and amx_bf16; native: those "
         "that this machine runs (default: all,\n"
         "                         of which a start takes the fastest)\n"
         "  --cpu-caches=L1,L2,L3  sizes that tiles are made for (default "
         "32K,1M,32M), or host for this machine's\n"
         "  --tuning=FILE          block sizes that prefill-bench --tune "
         "measured\n"
         "  --ptxas=FILE|none      CUDA's assembler (default: the one in PATH "
         "or /usr/local/cuda/bin);\n"
         "                         without it a module has PTX alone, which "
         "the driver compiles\n"
         "  --disable-pass=FLAG    leave a pass out (repeatable)\n"
         "  --deterministic        CUDA: a token has the same bits in any "
         "chunk and batch; without it they agree\n"
         "                         within rounding, short calls against "
         "long caches are faster, and cuBLASLt\n"
         "                         may compute the logits\n"
         "  --explain              what was refused or not folded and why, "
         "memory by class\n"
         "  --list-tiles           the tiles that fit each gemm and attention "
         "on a chip, as JSON\n"
         "  -o FILE\n";
}

int mlir::prefill::compileDriverMain(int argc, char **argv,
                                     DialectRegistry &registry) {
  DriverOptions options;
  for (StringRef argument : llvm::ArrayRef<char *>(argv + 1, argc - 1))
    if (argument == "--help" || argument == "-h") {
      llvm::outs() << compileDriverUsage();
      return 0;
    }
  if (std::optional<int> code = parseOptions(argc, argv, options))
    return *code;
  registerPassManagerCLOptions();
  registerAsmPrinterCLOptions();
  registerDefaultTimingManagerCLOptions();
  std::vector<const char *> mlirArguments = {argv[0]};
  mlirArguments.insert(mlirArguments.end(), options.mlirOptions.begin(),
                       options.mlirOptions.end());
  llvm::cl::ParseCommandLineOptions(mlirArguments.size(), mlirArguments.data(),
                                    "Prefill compiler\n");

  bool debugOutput = !options.mlirOptions.empty();
  MLIRContext context(registry, debugOutput ? MLIRContext::Threading::DISABLED
                                            : MLIRContext::Threading::ENABLED);
  OneLineDiagnostics diagnostics(context);
  auto buffer =
      llvm::MemoryBuffer::getFileOrSTDIN(options.input, /*IsText=*/true);
  if (!buffer)
    return fail("cannot read '" + options.input +
                "': " + buffer.getError().message());
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return diagnostics.report("cannot parse '" + options.input + "'");

  DefaultTimingManager timing;
  applyDefaultTimingManagerCLOptions(timing);
  TimingScope scope = timing.getRootScope();
  auto configure = [&](PassManager &pm) -> LogicalResult {
    pm.enableTiming(scope);
    return applyPassManagerCLOptions(pm);
  };

  if (options.explain && !explainTargets(*module, options, configure))
    return diagnostics.report("compilation failed");
  if (options.compileModule) {
    auto compiled = compileModule(*module, options.compile, options.targets,
                                  chooseAssembler(options), configure);
    if (failed(compiled))
      return diagnostics.report("compilation failed");
    for (const std::string &warning : compiled->warnings)
      llvm::errs() << "warning: " << warning << "\n";
    if (options.output == "-")
      return 0;
    return write(options.output, [&](llvm::raw_ostream &os) {
      os.write(compiled->bytes.data(), compiled->bytes.size());
    });
  }
  if (options.listTiles) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (failed(listTiles(*module, options.compile, configure, stream)))
      return diagnostics.report("compilation failed");
    return write(options.output, [&](llvm::raw_ostream &os) { os << text; });
  }
  if (!options.stopAt)
    return 0;
  if (failed(runToLevel(*module, *options.stopAt, options.compile, configure)))
    return diagnostics.report("compilation failed");
  return write(options.output, [&](llvm::raw_ostream &os) {
    module->print(os);
    os << "\n";
  });
}
