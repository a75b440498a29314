//===- TuningFile.cpp - block sizes that were measured --------------------===//
#include "prefill/Pipelines/TuningFile.h"
#include "prefill/Codegen/CPU/IsaTable.h"
#include "prefill/Codegen/CUDA/ChipTable.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr int64_t kMaxBlock = 4096;
constexpr int64_t kMaxSize = int64_t(1) << 31;
/// The parser recurses: entries of a chip's dtype nest six deep.
constexpr int kMaxDepth = 16;

/// A number of an object.
template <typename Fields> struct Key {
  const char *name;
  int64_t Fields::*field;
  int64_t multiple, most;
  bool optional = false;
};

constexpr Key<CpuTuning> kCpuGemm[] = {
    {"block_m", &CpuTuning::gemmBlockM, 1, kMaxBlock, true},
    {"block_n", &CpuTuning::gemmBlockN, kPanelN, kMaxBlock, true},
};
constexpr Key<CpuTuning> kCpuAttention[] = {
    {"block_q", &CpuTuning::attentionBlockQ, 1, kMaxBlock, true},
    {"block_kv", &CpuTuning::attentionBlockKv, kPanelN, kMaxBlock, true},
};
// Whether a tile fits the chip and the op is the op's to say.
constexpr Key<CudaGemmTuning> kCudaGemm[] = {
    {"n", &CudaGemmTuning::n, 1, kMaxSize},
    {"k", &CudaGemmTuning::k, 1, kMaxSize},
    {"rows", &CudaGemmTuning::rows, 1, kMaxSize, true},
    {"block_m", &CudaGemmTuning::blockM, 16, kMaxBlock},
    {"block_n", &CudaGemmTuning::blockN, 8, kMaxBlock},
};
constexpr Key<CudaAttentionTuning> kCudaAttention[] = {
    {"group", &CudaAttentionTuning::group, 1, kMaxBlock},
    {"head_dim", &CudaAttentionTuning::headDim, 1, kMaxBlock},
    {"rows", &CudaAttentionTuning::rows, 1, kMaxSize, true},
    {"block_q", &CudaAttentionTuning::blockQ, 1, kMaxBlock},
    {"block_kv", &CudaAttentionTuning::blockKv, 16, kMaxBlock},
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

/// The value as an object; `where` names it.
llvm::Expected<const llvm::json::Object *>
objectOf(const llvm::json::Value &value, const std::string &where) {
  if (const llvm::json::Object *object = value.getAsObject())
    return object;
  return invalid(quoted(where) + " is " + printed(value) +
                 ", expected an object");
}

template <typename Fields>
llvm::Error readNumber(Fields &fields, const Key<Fields> &key,
                       const llvm::json::Value &value,
                       const std::string &where) {
  std::optional<int64_t> number = value.getAsInteger();
  if (!number || *number < 1 || *number > key.most ||
      *number % key.multiple != 0)
    return invalid(
        quoted(where + "." + key.name) + " is " + printed(value) +
        ", expected " +
        (key.multiple == 1 ? std::string("an integer")
                           : "a multiple of " + std::to_string(key.multiple)) +
        " from " + llvm::Twine(key.multiple) + " to " + llvm::Twine(key.most));
  fields.*key.field = *number;
  return llvm::Error::success();
}

/// Reads all keys of an object.
template <typename Fields>
llvm::Error readKeys(Fields &fields, llvm::ArrayRef<Key<Fields>> keys,
                     const llvm::json::Value &value, const std::string &where) {
  llvm::Expected<const llvm::json::Object *> object = objectOf(value, where);
  if (!object)
    return object.takeError();
  for (const auto &[name, number] : **object) {
    llvm::StringRef text = name;
    const auto *key = llvm::find_if(
        keys, [&](const Key<Fields> &known) { return text == known.name; });
    if (key == keys.end())
      return invalid(
          quoted(where + "." + text) + " is unknown, expected one of: " +
          llvm::join(llvm::map_range(
                         keys, [](const auto &known) { return known.name; }),
                     ", "));
    if (llvm::Error error = readNumber(fields, *key, number, where))
      return error;
  }
  for (const Key<Fields> &key : keys)
    if (!key.optional && !(*object)->get(key.name))
      return invalid(quoted(where) + " has no '" + key.name +
                     "', expected a number");
  return llvm::Error::success();
}

/// Reads a list of entries of one dtype.
template <typename Entry>
llvm::Error readEntries(std::vector<Entry> &entries, llvm::StringRef dtype,
                        llvm::ArrayRef<Key<Entry>> keys,
                        const llvm::json::Value &value,
                        const std::string &where) {
  const llvm::json::Array *list = value.getAsArray();
  if (!list)
    return invalid(quoted(where) + " is " + printed(value) +
                   ", expected a list");
  for (const auto &[index, element] : llvm::enumerate(*list)) {
    std::string here = where + "[" + std::to_string(index) + "]";
    Entry entry;
    entry.dtype = dtype.str();
    if (llvm::Error error = readKeys(entry, keys, element, here))
      return error;
    if (llvm::any_of(entries, [&](const Entry &other) {
          return other.sameClass(entry);
        }))
      return invalid(quoted(here) + " is " + printed(element) +
                     ", expected a shape and rows that no earlier entry has");
    entries.push_back(entry);
  }
  return llvm::Error::success();
}

/// Keys of a step decide a row's bits, which must not depend on the number of
/// rows of a call.
llvm::Error checkKeys(const std::vector<CudaAttentionTuning> &entries,
                      const std::string &where) {
  for (const CudaAttentionTuning &entry : entries)
    for (const CudaAttentionTuning &other : entries)
      if (entry.dtype == other.dtype && entry.group == other.group &&
          entry.headDim == other.headDim && entry.blockKv != other.blockKv)
        return invalid(
            quoted(where) + " has block_kv " + llvm::Twine(entry.blockKv) +
            " and " + llvm::Twine(other.blockKv) + " for group " +
            llvm::Twine(entry.group) + " and head_dim " +
            llvm::Twine(entry.headDim) + ", expected one for all rows");
  return llvm::Error::success();
}

llvm::Error readCuda(std::map<std::string, CudaTuning> &cuda,
                     const llvm::json::Value &value) {
  llvm::Expected<const llvm::json::Object *> chips = objectOf(value, "cuda");
  if (!chips)
    return chips.takeError();
  for (const auto &[chip, dtypes] : **chips) {
    std::string where = "cuda." + chip.str();
    if (!lookupCudaChip(chip))
      return invalid(quoted(where) +
                     " is unknown, expected one of: " + cudaChipNames());
    CudaTuning &tuning = cuda[chip.str()];
    llvm::Expected<const llvm::json::Object *> byDtype =
        objectOf(dtypes, where);
    if (!byDtype)
      return byDtype.takeError();
    for (const auto &[dtype, sections] : **byDtype) {
      std::string here = where + "." + dtype.str();
      if (dtype != "bf16" && dtype != "f16")
        return invalid(quoted(here) +
                       " is unknown, expected one of: bf16, f16");
      llvm::Expected<const llvm::json::Object *> bySection =
          objectOf(sections, here);
      if (!bySection)
        return bySection.takeError();
      for (const auto &[section, list] : **bySection) {
        std::string there = here + "." + section.str();
        llvm::Error error =
            section == "gemm" ? readEntries<CudaGemmTuning>(
                                    tuning.gemms, dtype, kCudaGemm, list, there)
            : section == "attention"
                ? readEntries<CudaAttentionTuning>(tuning.attentions, dtype,
                                                   kCudaAttention, list, there)
                : invalid(quoted(there) +
                          " is unknown, expected one of: gemm, attention");
        if (error)
          return error;
        if (llvm::Error differ = checkKeys(tuning.attentions, there))
          return differ;
      }
    }
  }
  return llvm::Error::success();
}

llvm::Expected<Tuning> parse(llvm::StringRef json) {
  if (nestsTooDeep(json))
    return invalid("nests deeper than " + llvm::Twine(kMaxDepth) +
                   " brackets, expected sections of keys");
  llvm::Expected<llvm::json::Value> root = llvm::json::parse(json);
  if (!root)
    return invalid("is no JSON: " + llvm::toString(root.takeError()));
  const llvm::json::Object *sections = root->getAsObject();
  if (!sections)
    return invalid("is " + printed(*root) + ", expected an object");
  Tuning tuning;
  for (const auto &[section, value] : *sections) {
    llvm::StringRef name = section;
    if (name == "machine" && !value.getAsString())
      return invalid("'machine' is " + printed(value) + ", expected a string");
    llvm::Error error =
        name == "machine" ? llvm::Error::success()
        : name == "gemm"
            ? readKeys<CpuTuning>(tuning.cpu, kCpuGemm, value, "gemm")
        : name == "attention"
            ? readKeys<CpuTuning>(tuning.cpu, kCpuAttention, value, "attention")
        : name == "cuda"
            ? readCuda(tuning.cuda, value)
            : invalid(quoted(name) + " is unknown, expected one of: machine, "
                                     "gemm, attention, cuda");
    if (error)
      return error;
  }
  return tuning;
}

} // namespace

llvm::Expected<Tuning> prefill::readTuningFile(llvm::StringRef path) {
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
  llvm::Expected<Tuning> tuning = parse((*file)->getBuffer());
  if (!tuning)
    return invalid(name + ": " + llvm::toString(tuning.takeError()));
  return tuning;
}
