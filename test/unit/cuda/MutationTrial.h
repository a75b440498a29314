//===- MutationTrial.h - whether a broken kernel is caught ------*- C++ -*-===//
#ifndef PREFILL_TEST_UNIT_CUDA_MUTATIONTRIAL_H
#define PREFILL_TEST_UNIT_CUDA_MUTATIONTRIAL_H

#include "Mutations.h"
#include "emulation/Emulator.h"
#include "emulation/Report.h"
#include <optional>
#include <vector>

namespace prefill_test {

using prefill::rt::emulation::LaunchCounters;
using prefill::rt::emulation::Report;

/// A kernel with the data and the check of a test that it passes.
class Subject {
public:
  virtual ~Subject() = default;
  /// Compiles, with an edit of the NVVM form.
  virtual bool compile(const std::function<bool(mlir::ModuleOp)> &edit) = 0;
  /// Runs once and checks the results by gtest's assertions.
  virtual void check(uint64_t seed) = 0;
  /// Of that run; the counters are empty after a finding.
  virtual std::optional<Report> report() const = 0;
  virtual LaunchCounters counters() const = 0;
};

struct Mutant {
  std::string name;
  Mutation mutation;
  /// By what it is caught under every seed: the name of the emulator's finding,
  /// "result" for the test's own check, "counters" for numbers that differ from
  /// those of the kernel that is right (which other tests pin to formulas), ""
  /// for nothing. "A or B" where the order of threads decides.
  std::string caughtBy;
};

/// Runs the kernel as it is, which must pass, and every mutant, which must not.
void expectCaught(Subject &subject, const std::vector<Mutant> &mutants);

/// Fails the test where the mutation finds no place or leaves an invalid
/// module.
bool apply(const Mutation &mutation, mlir::ModuleOp module);

} // namespace prefill_test

#endif // PREFILL_TEST_UNIT_CUDA_MUTATIONTRIAL_H
