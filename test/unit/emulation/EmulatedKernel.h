//===- EmulatedKernel.h - a kernel, compiled and emulated -------*- C++ -*-===//
#ifndef PREFILL_TEST_EMULATION_EMULATEDKERNEL_H
#define PREFILL_TEST_EMULATION_EMULATEDKERNEL_H

#include "KernelText.h"
#include "emulation/Emulator.h"
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace prefill_test {

using namespace prefill::rt::emulation;

/// An array that the kernel may touch, aligned to 256 bytes as on the device.
template <typename T> class DeviceArray {
public:
  explicit DeviceArray(size_t size, T value = T())
      : storage(size * sizeof(T) / 8 + 64), count(size) {
    auto address = reinterpret_cast<uintptr_t>(storage.data());
    begin = reinterpret_cast<T *>((address + 255) / 256 * 256);
    for (size_t i = 0; i < size; ++i)
      begin[i] = value;
  }
  DeviceArray(const DeviceArray &) = delete;
  T &operator[](size_t i) { return begin[i]; }
  const T &operator[](size_t i) const { return begin[i]; }
  size_t size() const { return count; }
  T *data() { return begin; }
  uint64_t word() const { return reinterpret_cast<uint64_t>(begin); }

private:
  std::vector<uint64_t> storage;
  T *begin;
  size_t count;
};

class EmulatedKernel {
public:
  /// Compiles a module; a diagnostic is a test failure.
  explicit EmulatedKernel(const std::string &module, int hostThreads = 2);

  template <typename T>
  EmulatedKernel &add(DeviceArray<T> &array, const std::string &name,
                      bool writable = true) {
    addMemory(array.data(), array.size() * sizeof(T), name, writable);
    return *this;
  }

  /// The first kernel. A refused launch is a test failure.
  LaunchOutcome run(const std::vector<uint64_t> &words, int64_t blocks,
                    const LaunchOptions &options = {});
  /// Runs and expects no report.
  LaunchCounters clean(const std::vector<uint64_t> &words, int64_t blocks,
                       const LaunchOptions &options = {});

  /// What the compiler says about a module that it refuses, "" when it does
  /// not.
  static std::string errorOf(const std::string &module);

  Emulator emulator;
  std::optional<Program> program;

private:
  void addMemory(void *begin, size_t bytes, const std::string &name,
                 bool writable);
};

/// nearest even
uint16_t toBF16(float value);
float fromBF16(uint16_t value);
uint16_t toF16(float value);
/// Numbers in [-0.5, 0.5), a function of i.
float randomValue(uint64_t i);

} // namespace prefill_test

#endif // PREFILL_TEST_EMULATION_EMULATEDKERNEL_H
