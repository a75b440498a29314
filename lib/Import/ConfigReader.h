//===- ConfigReader.h - typed keys of a JSON object -------------*- C++ -*-===//
#ifndef PREFILL_LIB_IMPORT_CONFIGREADER_H
#define PREFILL_LIB_IMPORT_CONFIGREADER_H

#include "prefill/checkpoint/Result.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace mlir::prefill {

/// JSON as one line of printable ASCII, cut after 80 characters: a file's own
/// text cannot break the message that quotes it.
std::string quoteJson(const nlohmann::json &value);
/// The same for a tensor's or file's name, in single quotes.
std::string quoteName(const std::string &name);

/// Reads keys of an object. The first problem is kept and everything after it
/// reads as some value in range, so that a caller may look once at the end.
class ConfigReader {
public:
  /// `where` names the object in messages: the file, or "FILE: rope_scaling".
  ConfigReader(const nlohmann::json &object, std::string where)
      : object(object), where(std::move(where)) {}

  /// The value, or nullptr for a key that is absent or null.
  const nlohmann::json *find(const char *key) const;
  bool isNull(const char *key) const;

  /// A whole number from `low` to `high`. Without `fallback` the key must be
  /// there; null counts as absent.
  int64_t integer(const char *key, int64_t low, int64_t high,
                  std::optional<int64_t> fallback = std::nullopt);
  /// A number above 0 and up to `high`.
  double positive(const char *key, double high,
                  std::optional<double> fallback = std::nullopt);
  bool boolean(const char *key, bool fallback);
  std::string string(const char *key,
                     std::optional<std::string> fallback = std::nullopt);

  /// Records "where: key is VALUE, expected EXPECTED", unless there is a
  /// problem already.
  void refuse(const std::string &key, const std::string &expected);
  /// Records "where: message".
  void fail(const std::string &message);

  bool failed() const { return problem.has_value(); }
  ::prefill::rt::Error takeError() { return std::move(*problem); }

private:
  const nlohmann::json &object;
  std::string where;
  std::optional<::prefill::rt::Error> problem;
};

} // namespace mlir::prefill

#endif // PREFILL_LIB_IMPORT_CONFIGREADER_H
