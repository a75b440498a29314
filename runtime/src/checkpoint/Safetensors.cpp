#include "prefill/checkpoint/Safetensors.h"
#include "prefill/checkpoint/JsonFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

using namespace prefill::rt;
using nlohmann::json;

namespace {

constexpr uint64_t maxHeaderBytes = 100'000'000;
constexpr const char *singleFileName = "model.safetensors";
constexpr const char *indexFileName = "model.safetensors.index.json";

struct TypeRow {
  StoredType type;
  const char *name;
  uint64_t bytes;
};
constexpr std::array<TypeRow, 15> typeTable = {{
    {StoredType::BOOL, "BOOL", 1},
    {StoredType::U8, "U8", 1},
    {StoredType::I8, "I8", 1},
    {StoredType::F8_E5M2, "F8_E5M2", 1},
    {StoredType::F8_E4M3, "F8_E4M3", 1},
    {StoredType::I16, "I16", 2},
    {StoredType::U16, "U16", 2},
    {StoredType::F16, "F16", 2},
    {StoredType::BF16, "BF16", 2},
    {StoredType::I32, "I32", 4},
    {StoredType::U32, "U32", 4},
    {StoredType::F32, "F32", 4},
    {StoredType::F64, "F64", 8},
    {StoredType::I64, "I64", 8},
    {StoredType::U64, "U64", 8},
}};

const TypeRow &row(StoredType type) {
  return typeTable[static_cast<size_t>(type)];
}

Error invalid(const std::string &message) {
  return Error{ErrorCode::invalidWeights, message};
}

/// a * b, or nothing when it overflows.
std::optional<uint64_t> multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    return std::nullopt;
  return product;
}

/// One entry of the header. `where` starts its messages; `data` holds the bytes
/// behind the header.
Result<TensorView> parseTensor(const std::string &where,
                               const std::string &name, const json &entry,
                               const std::byte *data, uint64_t dataBytes) {
  if (!entry.is_object())
    return invalid(where +
                   ": expected an object with dtype, shape and data_offsets");
  for (const auto &[key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return invalid(where + ": unknown key " + quote(key) +
                     ", expected dtype, shape and data_offsets");
  for (const char *key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key))
      return invalid(where + ": " + key + " is missing");

  TensorView view;
  view.name = name;
  const json &dtype = entry["dtype"];
  const TypeRow *type = std::find_if(
      typeTable.begin(), typeTable.end(),
      [&](const TypeRow &candidate) { return dtype == candidate.name; });
  if (type == typeTable.end())
    return invalid(where + ": unknown dtype " +
                   dtype.dump(-1, ' ', true, json::error_handler_t::replace));
  view.dtype = type->type;

  const json &shape = entry["shape"];
  if (!shape.is_array())
    return invalid(where + ": shape is not a list");
  std::optional<uint64_t> elements = 1;
  for (const json &extent : shape) {
    if (!extent.is_number_unsigned() ||
        extent.get<uint64_t>() >
            static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return invalid(
          where + ": shape holds " +
          extent.dump(-1, ' ', true, json::error_handler_t::replace) +
          ", expected integers from 0 to 2^63 - 1");
    view.shape.push_back(extent.get<int64_t>());
    elements =
        elements ? multiply(*elements, extent.get<uint64_t>()) : std::nullopt;
  }
  std::optional<uint64_t> bytes =
      elements ? multiply(*elements, type->bytes) : std::nullopt;
  if (!bytes)
    return invalid(where + ": the size of shape " + stringifyShape(view.shape) +
                   " overflows 64 bits");

  const json &offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return invalid(where + ": data_offsets is not a pair of integers >= 0");
  uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  std::string range =
      "[" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end)
    return invalid(where + ": data_offsets " + range +
                   " end before they begin");
  if (end > dataBytes)
    return invalid(where + ": data_offsets " + range +
                   " reach past the file's " + std::to_string(dataBytes) +
                   " bytes of data");
  if (end - begin != *bytes)
    return invalid(where + ": data_offsets " + range + " hold " +
                   std::to_string(end - begin) + " bytes, expected " +
                   std::to_string(*bytes) + " for " + type->name + " " +
                   stringifyShape(view.shape));
  view.data = data + begin;
  view.size = end - begin;
  return view;
}

/// The tensors of one mapped file, in the order of their data.
Result<std::vector<TensorView>> parseFile(const MappedFile &file,
                                          const std::string &path,
                                          const std::string &name) {
  std::string quoted = quote(path);
  if (file.size() < 8)
    return invalid(quoted + " has " + std::to_string(file.size()) +
                   " bytes, expected a safetensors file of at least 8");
  uint64_t headerBytes = 0; // little endian, as every machine this runs on
  std::memcpy(&headerBytes, file.data(), 8);
  if (headerBytes > maxHeaderBytes)
    return invalid(quoted + ": header of " + std::to_string(headerBytes) +
                   " bytes, expected at most " +
                   std::to_string(maxHeaderBytes));
  if (headerBytes > file.size() - 8)
    return invalid(quoted + ": header of " + std::to_string(headerBytes) +
                   " bytes, but the file has only " +
                   std::to_string(file.size() - 8) +
                   " after the length: truncated");
  Result<json> header =
      parseJson({reinterpret_cast<const char *>(file.data()) + 8,
                 static_cast<size_t>(headerBytes)},
                quoted);
  if (!header)
    return header.takeError();
  if (!header->is_object())
    return invalid(quoted + ": the header is not a JSON object");

  const std::byte *data = file.data() + 8 + headerBytes;
  uint64_t dataBytes = file.size() - 8 - headerBytes;
  std::vector<TensorView> tensors;
  for (const auto &[key, entry] : header->items()) {
    if (key == "__metadata__") {
      if (!entry.is_object() ||
          !std::all_of(entry.begin(), entry.end(),
                       [](const json &value) { return value.is_string(); }))
        return invalid(quoted +
                       ": __metadata__ is not a map from string to string");
      continue;
    }
    Result<TensorView> view = parseTensor(quoted + ": tensor " + quote(key),
                                          key, entry, data, dataBytes);
    if (!view)
      return view.takeError();
    view->file = name;
    tensors.push_back(std::move(*view));
  }

  // The data are exactly tiled: an overlap would let one tensor alias another,
  // a hole could hide data.
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView &a, const TensorView &b) {
              return a.data != b.data ? a.data < b.data : a.size < b.size;
            });
  const std::byte *covered = data;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t begin = static_cast<uint64_t>(tensors[i].data - data);
    if (tensors[i].data < covered)
      return invalid(quoted + ": tensor " + quote(tensors[i].name) +
                     " at byte " + std::to_string(begin) + " overlaps tensor " +
                     quote(tensors[i - 1].name));
    if (tensors[i].data > covered)
      return invalid(quoted + ": bytes " + std::to_string(covered - data) +
                     " to " + std::to_string(begin) +
                     " of the data belong to no tensor");
    covered = tensors[i].data + tensors[i].size;
  }
  if (covered != data + dataBytes)
    return invalid(quoted + ": the last " +
                   std::to_string(data + dataBytes - covered) +
                   " bytes of the data belong to no tensor");
  return tensors;
}

/// Empty when `name` is a plain file name of the right kind, else what is wrong
/// with it.
const char *shardNameProblem(const std::string &name) {
  if (name.find('/') != std::string::npos ||
      name.find('\\') != std::string::npos ||
      name.find("..") != std::string::npos ||
      name.find('\0') != std::string::npos)
    return "is a path, expected a file name inside the directory";
  constexpr std::string_view suffix = ".safetensors";
  if (name.size() <= suffix.size() ||
      std::string_view(name).substr(name.size() - suffix.size()) != suffix)
    return "does not end in .safetensors";
  return nullptr;
}

} // namespace

const char *prefill::rt::stringify(StoredType type) { return row(type).name; }
uint64_t prefill::rt::byteSize(StoredType type) { return row(type).bytes; }

std::string prefill::rt::stringifyShape(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<Checkpoint> Checkpoint::open(const std::string &directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    return Error{ErrorCode::io,
                 quote(directory) + " is not a directory with a checkpoint"};
  bool hasSingle =
      std::filesystem::exists(directory + "/" + singleFileName, ignored);
  bool hasIndex =
      std::filesystem::exists(directory + "/" + indexFileName, ignored);
  if (hasSingle && hasIndex)
    return invalid(quote(directory) + " holds both " + singleFileName +
                   " and " + indexFileName + ", expected one");
  if (!hasSingle && !hasIndex)
    return Error{ErrorCode::io, quote(directory) + " holds neither " +
                                    singleFileName + " nor " +
                                    std::string(indexFileName)};

  Checkpoint checkpoint;
  Result<void> added = hasSingle
                           ? checkpoint.addFile(directory, singleFileName)
                           : checkpoint.addShards(directory, indexFileName);
  if (!added)
    return added.takeError();
  std::sort(
      checkpoint.views.begin(), checkpoint.views.end(),
      [](const TensorView &a, const TensorView &b) { return a.name < b.name; });
  return checkpoint;
}

Result<void> Checkpoint::addFile(const std::string &directory,
                                 const std::string &name) {
  std::string path = directory + "/" + name;
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  Result<std::vector<TensorView>> tensors = parseFile(*file, path, name);
  if (!tensors)
    return tensors.takeError();
  mappedFiles.push_back({name, std::move(*file)});
  for (TensorView &tensor : *tensors)
    views.push_back(std::move(tensor));
  return {};
}

Result<void> Checkpoint::addShards(const std::string &directory,
                                   const std::string &indexName) {
  std::string quoted = quote(directory + "/" + indexName);
  Result<json> index = readJsonFile(directory + "/" + indexName);
  if (!index)
    return index.takeError();
  if (!index->is_object() || !index->contains("weight_map") ||
      !(*index)["weight_map"].is_object())
    return invalid(quoted + ": weight_map is missing or not an object");

  std::map<std::string, std::string> shardOf; // tensor -> file
  std::map<std::string, int> shards;
  for (const auto &[tensor, value] : (*index)["weight_map"].items()) {
    if (!value.is_string())
      return invalid(quoted + ": the shard of tensor " + quote(tensor) +
                     " is not a string");
    std::string shard = value.get<std::string>();
    if (const char *problem = shardNameProblem(shard))
      return invalid(quoted + ": shard name " + quote(shard) + " of tensor " +
                     quote(tensor) + " " + problem);
    shardOf[tensor] = shard;
    shards[shard] = 0;
  }
  for (const auto &[shard, unused] : shards)
    if (Result<void> added = addFile(directory, shard); !added)
      return added;

  for (const TensorView &view : views) {
    auto entry = shardOf.find(view.name);
    if (entry == shardOf.end())
      return invalid(quote(directory + "/" + view.file) + ": tensor " +
                     quote(view.name) + " is not in " + indexName);
    if (entry->second != view.file)
      return invalid(quote(directory + "/" + view.file) + ": tensor " +
                     quote(view.name) + " belongs to " + quote(entry->second) +
                     " according to " + indexName);
  }
  if (views.size() != shardOf.size()) {
    for (const TensorView &view : views)
      shardOf.erase(view.name);
    return invalid(quote(directory + "/" + shardOf.begin()->second) +
                   ": tensor " + quote(shardOf.begin()->first) + ", which " +
                   indexName + " names, is missing");
  }
  return {};
}

const TensorView *Checkpoint::find(std::string_view name) const {
  auto position =
      std::lower_bound(views.begin(), views.end(), name,
                       [](const TensorView &view, std::string_view wanted) {
                         return view.name < wanted;
                       });
  return position != views.end() && position->name == name ? &*position
                                                           : nullptr;
}
