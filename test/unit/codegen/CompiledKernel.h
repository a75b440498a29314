//===- CompiledKernel.h - a kernel, compiled and called ---------*- C++ -*-===//
// From a kernel function at level `config` to machine code in this process, by
// the compiler's own passes, code generator and linker.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_CODEGEN_COMPILEDKERNEL_H
#define PREFILL_TEST_CODEGEN_COMPILEDKERNEL_H

#include "prefill/Codegen/CPU/IsaTable.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace prefill_test {

/// bf16 as it lies in memory.
using BFloat16 = uint16_t;
BFloat16 toBF16(float value); // nearest even
float fromBF16(BFloat16 value);
/// `value` rounded to bf16.
inline double roundBF16(double value) { return fromBF16(toBF16(float(value))); }

/// The batch's arrays; sizes are those of the vectors.
struct Batch {
  int64_t rows = 0, numSeqs = 1, logitRows = 0;
  std::vector<int32_t> tokens, positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> cuSeqlens{0, 0}, kvLens{0}, blockTable{0};
  int64_t blockTableStride = 1;
  std::vector<int32_t> logitsIndices;

  /// `rows` rows with token = position = row and slot = row.
  static Batch ofRows(int64_t rows);
};

/// Arguments of an entry, in the ABI's order.
class Arguments {
public:
  Arguments &pointer(const void *data) {
    words.push_back(reinterpret_cast<uint64_t>(data));
    return *this;
  }
  template <typename T> Arguments &array(const std::vector<T> &data) {
    return pointer(data.data());
  }
  Arguments &size(int64_t value) {
    words.push_back(uint64_t(value));
    return *this;
  }
  Arguments &batch(const Batch &batch);
  std::vector<uint64_t> words;
};

/// Whether this machine runs the variant with that name.
bool hostRuns(llvm::StringRef isa);

class CompiledKernel {
public:
  /// Compiles the one kernel of `module`. A diagnostic is a test failure and
  /// leaves `ok` false.
  CompiledKernel(const std::string &module, llvm::StringRef isa,
                 bool plainTiles = false);
  ~CompiledKernel();
  CompiledKernel(const CompiledKernel &) = delete;

  bool ok() const { return entry != nullptr; }
  /// Runs all workgroups of the grid, in an order that isn't ascending, each
  /// with a scratch of its own filled with NaN.
  void run(const Arguments &arguments, const Batch &batch) const;
  /// The diagnostics of a kernel that must not compile.
  static std::string errorOf(const std::string &module, llvm::StringRef isa);

private:
  using Entry = void (*)(const uint64_t *, int64_t, int64_t, void *);
  void load(llvm::StringRef image, const std::string &name);

  void *library = nullptr;
  Entry entry = nullptr;
  int64_t scratchBytes = 0, block = 1, multiplier = 1;
  bool logits = false;
};

} // namespace prefill_test

#endif // PREFILL_TEST_CODEGEN_COMPILEDKERNEL_H
