//===- CpuTuning.cpp - block sizes that were measured ---------------------===//
#include "prefill/Codegen/CPU/CpuTuning.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr int64_t kMaxBlock = 4096;
/// The parser recurses: sections of keys nest twice.
constexpr int kMaxDepth = 16;

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

/// A key as it may stand in a line.
std::string quoted(const llvm::Twine &key) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "'";
  llvm::printEscapedString(key.str(), stream);
  stream << "'";
  return text;
}

/// Whether brackets outside of strings nest deeper than kMaxDepth.
bool nestsTooDeep(llvm::StringRef json) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < json.size(); ++i) {
    char c = json[i];
    if (inString && c == '\\')
      ++i;
    else if (c == '"')
      inString = !inString;
    else if (!inString && (c == '[' || c == '{') && ++depth > kMaxDepth)
      return true;
    else if (!inString && (c == ']' || c == '}'))
      --depth;
  }
  return false;
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
        return invalid(
            quoted(section + "." + key) + " is " + printed(value) +
            ", expected " +
            (setting.multiple == 1
                 ? std::string("an integer")
                 : "a multiple of " + std::to_string(setting.multiple)) +
            " from " + llvm::Twine(setting.multiple) + " to " +
            llvm::Twine(kMaxBlock));
      tuning.*setting.field = *number;
      return llvm::Error::success();
    }
    valid += (valid.empty() ? "" : ", ") + std::string(setting.key);
  }
  return invalid(quoted(section + "." + key) +
                 " is unknown, expected one of: " + valid);
}

llvm::Expected<CpuTuning> parse(llvm::StringRef json) {
  if (nestsTooDeep(json))
    return invalid("nests deeper than " + llvm::Twine(kMaxDepth) +
                   " brackets, expected sections of keys");
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
      return invalid(quoted(name) +
                     " is unknown, expected one of: machine, gemm, attention");
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

} // namespace

llvm::Expected<CpuTuning> prefill::readCpuTuning(llvm::StringRef path) {
  std::string name = quoted(path);
  auto unreadable = [&](const llvm::Twine &reason) {
    return invalid("cannot read " + name + ": " + reason);
  };
  llvm::sys::fs::file_status status;
  if (std::error_code error = llvm::sys::fs::status(path, status))
    return unreadable(error.message());
  // A pipe would be waited for.
  if (status.type() != llvm::sys::fs::file_type::regular_file)
    return unreadable("it is no regular file");
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!file)
    return unreadable(file.getError().message());
  llvm::Expected<CpuTuning> tuning = parse((*file)->getBuffer());
  if (!tuning)
    return invalid(name + ": " + llvm::toString(tuning.takeError()));
  return tuning;
}
