//===- CudaKernel.h - a kernel, compiled for CUDA and emulated --*- C++ -*-===//
// From a kernel function at level `config` (before tiling) by the compiler's
// own passes to its NVVM form, which the emulator executes.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_CUDA_CUDAKERNEL_H
#define PREFILL_TEST_CUDA_CUDAKERNEL_H

#include "DeviceMatrix.h"
#include "emulation/Emulator.h"
#include <functional>
#include <memory>
#include <optional>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace prefill_test {

using namespace prefill::rt::emulation;

/// The batch's arrays; sizes are those of the vectors.
struct Batch {
  int64_t rows = 0, numSeqs = 1, logitRows = 0;
  std::vector<int32_t> tokens, positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> cuSeqlens{0, 0}, kvLens{0}, blockTable{0};
  int64_t blockTableStride = 1;
  std::vector<int32_t> logitsIndices;

  /// `rows` rows with token = position = slot = row, one sequence.
  static Batch ofRows(int64_t rows);
};

/// The words of a launch, in the ABI's order, and the memory behind them.
class Arguments {
public:
  /// Uploads; what is not `writable` is registered as read-only.
  Arguments &matrix(DeviceMatrix &matrix, const std::string &name,
                    bool writable = false);
  /// A region of a matrix's memory that was given already, from byte `offset`.
  Arguments &inside(const DeviceMatrix &matrix, int64_t offset);
  /// Memory of the caller's, not looked at.
  Arguments &reserved(const void *begin, size_t size, const std::string &name,
                      bool writable);
  Arguments &word(int64_t value);
  Arguments &batch(const Batch &batch);

private:
  friend class CudaKernel;
  struct Range {
    const void *begin;
    size_t size;
    std::string name;
    bool writable;
  };
  void array(const void *data, size_t size, const std::string &name);
  std::vector<uint64_t> words;
  std::vector<Range> ranges;
  std::vector<std::shared_ptr<DeviceBytes>> owned;
};

struct KernelOptions {
  std::string chip = "sm_80";
  /// What leads from level config to level tiled.
  std::string tiling = "prefill-tile";
  /// Changes the NVVM form; false, after a failure of the test: could not.
  std::function<bool(mlir::ModuleOp)> edit;
};

class CudaKernel {
public:
  /// Compiles the one kernel of `module`. A diagnostic is a test failure and
  /// leaves `ok` false.
  explicit CudaKernel(const std::string &module,
                      const KernelOptions &options = {});

  bool ok() const { return program.has_value(); }
  const Program &code() const { return *program; }
  /// Launches the grid that the batch asks for, and two blocks more, which
  /// must do nothing. A finding of the emulator is a test failure.
  LaunchCounters run(const Arguments &arguments, const Batch &batch,
                     const LaunchOptions &options = {});
  /// The diagnostics of a kernel that must not compile.
  static std::string errorOf(const std::string &module,
                             const KernelOptions &options = {});

  /// Of the last run: the emulator's finding, and the counters, which are
  /// empty then.
  std::optional<Report> report;
  LaunchCounters counters;

  int64_t blockThreads = 0, sharedBytes = 0;
  /// The NVVM form, as text.
  std::string nvvm;

private:
  std::optional<Program> program;
  int64_t block = 1, multiplier = 1;
  bool logits = false, plusSequences = false;
};

/// Counters of all sites of that name.
SiteCounters siteCounters(const LaunchCounters &counters,
                          const std::string &name);

// Text of types and attributes.
std::string rowsType(int64_t columns, const std::string &element);
std::string matrixType(int64_t rows, int64_t columns,
                       const std::string &element);
std::string vectorType(int64_t columns, const std::string &element);
std::string config(int64_t blockM, int64_t blockN,
                   const std::string &domain = "tokens");

} // namespace prefill_test

#endif // PREFILL_TEST_CUDA_CUDAKERNEL_H
