//===- Import.cpp - --import-hf and --synthesize --------------------------===//
#include "prefill/Import/Import.h"
#include "Command.h"
#include "WriteModel.h"
#include "mlir/IR/MLIRContext.h"

using namespace mlir;
using namespace mlir::prefill;
using ::prefill::rt::Result;

static Result<void> write(Result<OwningOpRef<ModuleOp>> module,
                          const OptionValues &values) {
  if (!module)
    return module.takeError();
  auto path = values.find("-o");
  return writeModel(module->get(), path == values.end() ? "-" : path->second);
}

Result<void> mlir::prefill::runImportHuggingFace(const OptionValues &values) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  return write(importHuggingFace(&context, values.at("--import-hf")), values);
}

Result<void> mlir::prefill::runSynthesize(const OptionValues &values) {
  std::optional<int64_t> numbers[2];
  const char *names[2] = {"--layers", "--vocab"};
  for (int i = 0; i < 2; ++i) {
    auto given = values.find(names[i]);
    if (given == values.end())
      continue;
    Result<int64_t> number = parseInteger(names[i], given->second);
    if (!number)
      return number.takeError();
    numbers[i] = *number;
  }
  MLIRContext context(MLIRContext::Threading::DISABLED);
  return write(
      synthesize(&context, values.at("--synthesize"), numbers[0], numbers[1]),
      values);
}
