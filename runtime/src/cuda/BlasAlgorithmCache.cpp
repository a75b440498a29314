#include "cuda/BlasAlgorithmCache.h"
#include "prefill/checkpoint/JsonFile.h"
#include "prefill/checkpoint/Quote.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace prefill::rt;
using namespace prefill::rt::cuda;

namespace {

constexpr int fileVersion = 1;

std::string hexOf(const cublasLtMatmulAlgo_t &algorithm) {
  std::string text;
  char digits[17];
  for (uint64_t word : algorithm.data) {
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> parseHex(const std::string &text) {
  cublasLtMatmulAlgo_t algorithm;
  if (text.size() != 16 * std::size(algorithm.data))
    return std::nullopt;
  const char *at = text.data();
  for (uint64_t &word : algorithm.data) {
    auto [end, problem] = std::from_chars(at, at + 16, word, 16);
    if (problem != std::errc() || end != at + 16)
      return std::nullopt;
    at += 16;
  }
  return algorithm;
}

using Entries = std::map<std::string, BlasAlgorithmCache::Entry>;

Result<Entries> parse(const nlohmann::json &file) {
  auto damaged = [](const std::string &what) {
    return Error{ErrorCode::io, what};
  };
  if (!file.is_object() || !file.contains("version") ||
      file["version"] != fileVersion)
    return damaged("it has no \"version\": " + std::to_string(fileVersion));
  if (!file.contains("algorithms") || !file["algorithms"].is_object())
    return damaged("it has no object \"algorithms\"");
  Entries entries;
  for (const auto &[key, value] : file["algorithms"].items()) {
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (value.is_object() && value.contains("algorithm") &&
        value["algorithm"].is_string())
      algorithm = parseHex(value["algorithm"].get<std::string>());
    if (!algorithm || !value.contains("measured") ||
        !value["measured"].is_boolean())
      return damaged("the entry " + quote(key) +
                     " is no object with \"algorithm\" and \"measured\"");
    entries[key] = {*algorithm, value["measured"].get<bool>()};
  }
  return entries;
}

Result<Entries> readEntries(const std::string &path) {
  std::error_code failed;
  if (path.empty() || !std::filesystem::exists(path, failed))
    return Entries();
  Result<nlohmann::json> file = readJsonFile(path);
  if (!file)
    return file.takeError();
  return parse(*file);
}

} // namespace

std::string BlasAlgorithmCache::defaultPath() {
  auto absolute = [](const char *variable) -> std::filesystem::path {
    const char *value = std::getenv(variable);
    return value && value[0] == '/' ? value : "";
  };
  std::filesystem::path cache = absolute("XDG_CACHE_HOME");
  if (cache.empty() && !absolute("HOME").empty())
    cache = absolute("HOME") / ".cache";
  return cache.empty() ? "" : (cache / "prefill" / "cublaslt.json").string();
}

BlasAlgorithmCache BlasAlgorithmCache::read(const std::string &path,
                                            std::string &warning) {
  BlasAlgorithmCache cache;
  cache.path = path;
  Result<Entries> entries = readEntries(path);
  if (entries)
    cache.entries = std::move(*entries);
  else
    warning = "the cache of cuBLASLt's algorithms " + quote(path) +
              " is ignored: " + entries.error().message;
  return cache;
}

std::optional<BlasAlgorithmCache::Entry>
BlasAlgorithmCache::find(const std::string &key) const {
  std::lock_guard<std::mutex> lock(*mutex);
  auto found = entries.find(key);
  if (found == entries.end())
    return std::nullopt;
  return found->second;
}

Result<void> BlasAlgorithmCache::add(const std::string &key,
                                     const Entry &entry) {
  std::lock_guard<std::mutex> lock(*mutex);
  entries[key] = entry;
  if (path.empty())
    return {};
  Entries all = entries;
  if (Result<Entries> others = readEntries(path))
    all.merge(*others);
  nlohmann::json algorithms = nlohmann::json::object();
  for (const auto &[name, value] : all)
    algorithms[name] = {{"algorithm", hexOf(value.algorithm)},
                        {"measured", value.measured}};
  nlohmann::json file = {{"version", fileVersion}, {"algorithms", algorithms}};

  auto refused = [&](const std::string &reason) {
    return Error{ErrorCode::io, "cannot write " + quote(path) + ": " + reason};
  };
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      failed);
  if (failed)
    return refused(failed.message());
  std::string temporary = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(temporary);
    out << file.dump(1) << "\n";
    out.close();
    if (!out) {
      std::string reason = std::strerror(errno);
      std::filesystem::remove(temporary, failed);
      return refused(reason);
    }
  }
  std::filesystem::rename(temporary, path, failed);
  if (failed)
    return refused(failed.message());
  return {};
}
