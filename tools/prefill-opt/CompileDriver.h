//===- CompileDriver.h - `prefill-opt --compile` ----------------*- C++ -*-===//
#ifndef PREFILL_TOOLS_PREFILL_OPT_COMPILEDRIVER_H
#define PREFILL_TOOLS_PREFILL_OPT_COMPILEDRIVER_H

namespace mlir {
class DialectRegistry;
}

namespace mlir::prefill {

/// True when the command line asks for the whole pipeline rather than for
/// mlir-opt's behaviour.
bool wantsCompileDriver(int argc, char **argv);

/// What the driver's options are, for `--help`.
const char *compileDriverUsage();

/// Runs the pipeline; returns the process's exit code. Errors are one line on
/// stderr that starts with "error: ".
int compileDriverMain(int argc, char **argv, DialectRegistry &registry);

} // namespace mlir::prefill

#endif // PREFILL_TOOLS_PREFILL_OPT_COMPILEDRIVER_H
