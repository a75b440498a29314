//===- CpuTuning.cpp - block sizes that were measured ---------------------===//
#include "prefill/Codegen/CPU/CpuTuning.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr int64_t kMaxBlock = 4096;

struct Setting {
  const char *section, *key;
  int64_t CpuTuning::*field;
  int64_t multiple;
};
constexpr Setting kSettings[] = {
    {"gemm", "block_m", &CpuTuning::gemmBlockM, 1},
    {"gemm", "block_n", &CpuTuning::gemmBlockN, kPanelN},
    {"attention", "block_q", &CpuTuning::attentionBlockQ, 1},
    {"attention", "block_kv", &CpuTuning::attentionBlockKv, kPanelN},
};

llvm::Error invalid(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

std::string printed(const llvm::json::Value &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

llvm::Error setKey(CpuTuning &tuning, llvm::StringRef section,
                   llvm::StringRef key, const llvm::json::Value &value) {
  std::string valid;
  for (const Setting &setting : kSettings) {
    if (section != setting.section)
      continue;
    if (key == setting.key) {
      std::optional<int64_t> number = value.getAsInteger();
      if (!number || *number < 1 || *number > kMaxBlock ||
          *number % setting.multiple != 0)
        return invalid("'" + section + "." + key + "' is " + printed(value) +
                       ", expected a multiple of " +
                       llvm::Twine(setting.multiple) + " up to " +
                       llvm::Twine(kMaxBlock));
      tuning.*setting.field = *number;
      return llvm::Error::success();
    }
    valid += (valid.empty() ? "" : ", ") + std::string(setting.key);
  }
  return invalid("'" + section + "." + key +
                 "' is unknown, expected one of: " + valid);
}

} // namespace

llvm::Expected<CpuTuning> prefill::parseCpuTuning(llvm::StringRef json) {
  llvm::Expected<llvm::json::Value> root = llvm::json::parse(json);
  if (!root)
    return invalid("is no JSON: " + llvm::toString(root.takeError()));
  const llvm::json::Object *sections = root->getAsObject();
  if (!sections)
    return invalid("is " + printed(*root) + ", expected an object");
  CpuTuning tuning;
  for (const auto &[section, value] : *sections) {
    llvm::StringRef name = section;
    if (name == "machine") {
      if (!value.getAsString())
        return invalid("'machine' is " + printed(value) +
                       ", expected a string");
      continue;
    }
    if (name != "gemm" && name != "attention")
      return invalid("'" + name +
                     "' is unknown, expected one of: machine, gemm, attention");
    const llvm::json::Object *keys = value.getAsObject();
    if (!keys)
      return invalid("'" + name + "' is " + printed(value) +
                     ", expected an object");
    for (const auto &[key, number] : *keys)
      if (llvm::Error error = setKey(tuning, name, key, number))
        return error;
  }
  return tuning;
}
