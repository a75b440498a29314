// A kernel of a code module, and its launch.
#ifndef PREFILL_RUNTIME_CUDA_KERNELFUNCTION_H
#define PREFILL_RUNTIME_CUDA_KERNELFUNCTION_H

#include "cuda/CodeModule.h"
#include "cuda/CommandStream.h"

#include <span>

namespace prefill::rt::cuda {

/// What a kernel was compiled for.
struct KernelShape {
  std::string name;
  int64_t numWords = 0; ///< parameters, 64 bits each
  int64_t blockThreads = 0;
  int64_t sharedBytes = 0; ///< the dynamic window of a block
};

struct LaunchOptions {
  /// Blocks that run together and see each other's shared memory (from sm_90);
  /// divides the grid.
  unsigned clusterBlocks = 1;
  /// The kernel may begin before the one before it has ended, and waits for it
  /// itself (griddepcontrol.wait, from sm_90).
  bool overlapsPrevious = false;
};

class KernelFunction {
public:
  /// Finds the kernel and compares what it was compiled for with what the
  /// device gives; opts in to more than 48 KiB of shared memory.
  static Result<KernelFunction> create(const CodeModule &code,
                                       const KernelShape &shape);

  const KernelShape &shape() const { return about; }
  CUfunction handle() const { return function; }

  /// Enqueues `blocks` blocks; none is no launch. The words are copied.
  Result<void> launch(const CommandStream &commands, uint64_t blocks,
                      std::span<const uint64_t> words,
                      const LaunchOptions &options = {}) const;

private:
  KernelFunction(KernelShape about, CUfunction function)
      : about(std::move(about)), function(function) {}

  KernelShape about;
  CUfunction function;
};

/// "kernel 'x', grid 4, block 128, 65536 bytes of shared memory, arguments
/// [0x7f.., 16]".
std::string describeLaunch(const KernelShape &shape, uint64_t blocks,
                           std::span<const uint64_t> words);

} // namespace prefill::rt::cuda

#endif // PREFILL_RUNTIME_CUDA_KERNELFUNCTION_H
