//===- MutationTrial.cpp - whether a broken kernel is caught --------------===//
#include "MutationTrial.h"
#include "mlir/IR/Verifier.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include <iostream>
#include <map>

using namespace prefill::rt::emulation;

namespace prefill_test {

bool apply(const Mutation &mutation, mlir::ModuleOp module) {
  if (mutation(module) == 0) {
    ADD_FAILURE() << "the mutation finds no place in the kernel";
    return false;
  }
  bool valid = succeeded(mlir::verify(module));
  EXPECT_TRUE(valid) << "the mutation leaves an invalid kernel";
  return valid;
}

namespace {

struct Verdict {
  std::string caughtBy, message;
};

/// What tests pin by formulas: bytes and bank conflicts by site, matrix
/// instructions.
std::map<std::string, uint64_t> pinned(const LaunchCounters &counters) {
  std::map<std::string, uint64_t> numbers;
  for (const NamedCounters &site : counters.sites) {
    numbers[site.name + ": bytes"] += site.counters.globalBytes;
    numbers[site.name + ": bank conflicts"] += site.counters.bankConflicts;
  }
  numbers["matrix instructions"] = counters.matrixInstructions;
  return numbers;
}

Verdict judge(Subject &subject, uint64_t seed,
              const LaunchCounters &expectedCounters) {
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::
            INTERCEPT_ONLY_CURRENT_THREAD,
        &failures);
    subject.check(seed);
  }
  if (std::optional<Report> report = subject.report())
    return {findingName(report->finding), report->message()};
  if (failures.size())
    return {"result", failures.GetTestPartResult(0).message()};
  std::map<std::string, uint64_t> got = pinned(subject.counters());
  for (const auto &[name, expected] : pinned(expectedCounters))
    if (got[name] != expected)
      return {"counters", name + ": " + std::to_string(got[name]) +
                              ", of the right kernel " +
                              std::to_string(expected)};
  return {"", "survived"};
}

bool isOneOf(const std::string &name, const std::string &names) {
  return (" or " + names + " or ").find(" or " + name + " or ") !=
         std::string::npos;
}

} // namespace

void expectCaught(Subject &subject, const std::vector<Mutant> &mutants) {
  const std::vector<uint64_t> seeds{0, 3};
  std::vector<LaunchCounters> counters;
  ASSERT_TRUE(subject.compile([](mlir::ModuleOp) { return true; }));
  for (uint64_t seed : seeds) {
    subject.check(seed);
    counters.push_back(subject.counters());
    ASSERT_FALSE(testing::Test::HasFailure()) << "without a mutation";
  }
  for (const Mutant &mutant : mutants) {
    SCOPED_TRACE(mutant.name);
    bool compiled = subject.compile(
        [&](mlir::ModuleOp module) { return apply(mutant.mutation, module); });
    EXPECT_TRUE(compiled);
    for (size_t i = 0; compiled && i < seeds.size(); ++i) {
      Verdict verdict = judge(subject, seeds[i], counters[i]);
      EXPECT_TRUE(isOneOf(verdict.caughtBy, mutant.caughtBy))
          << "expected " << mutant.caughtBy << ", seed " << seeds[i] << ": "
          << verdict.caughtBy << ": " << verdict.message;
      if (i == 0)
        std::cout << "mutant: " << mutant.name << " | "
                  << (verdict.caughtBy.empty() ? "survived" : verdict.caughtBy)
                  << " | " << verdict.message.substr(0, 160) << "\n";
    }
  }
}

} // namespace prefill_test
