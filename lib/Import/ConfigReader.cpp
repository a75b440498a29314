//===- ConfigReader.cpp - typed keys of a JSON object ---------------------===//
#include "ConfigReader.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

using namespace mlir::prefill;
using nlohmann::json;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;

static constexpr size_t maxQuoted = 80;

std::string mlir::prefill::quoteJson(const json &value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true,
                                json::error_handler_t::replace);
  if (text.size() > maxQuoted)
    text = text.substr(0, maxQuoted) + "...";
  return text;
}

std::string mlir::prefill::quoteName(const std::string &name) {
  std::string text = quoteJson(json(name));
  text.front() = '\'';
  if (text.back() == '"')
    text.back() = '\'';
  return text;
}

static std::string printNumber(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

const json *ConfigReader::find(const char *key) const {
  auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::isNull(const char *key) const {
  auto found = object.find(key);
  return found != object.end() && found->is_null();
}

void ConfigReader::fail(const std::string &message) {
  if (!problem)
    problem = Error{ErrorCode::invalidWeights, where + ": " + message};
}

/// The key itself, quoted if it is not a plain word.
static std::string showKey(const std::string &key) {
  bool plain = std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_';
  });
  return plain && key.size() <= maxQuoted ? key : quoteName(key);
}

void ConfigReader::refuse(const std::string &key, const std::string &expected) {
  auto found = object.find(key);
  fail(showKey(key) + " is " +
       (found == object.end() ? "missing" : quoteJson(*found)) + ", expected " +
       expected);
}

int64_t ConfigReader::integer(const char *key, int64_t low, int64_t high,
                              std::optional<int64_t> fallback) {
  const json *value = find(key);
  if (!value && fallback)
    return *fallback;
  if (value && value->is_number_integer()) {
    // Unsigned values above int64's range would wrap: compare as unsigned.
    bool tooBig =
        value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(high);
    int64_t number = tooBig ? high : value->get<int64_t>();
    if (!tooBig && number >= low && number <= high)
      return number;
  }
  refuse(key, "a whole number from " + std::to_string(low) + " to " +
                  std::to_string(high));
  return low;
}

double ConfigReader::positive(const char *key, double high,
                              std::optional<double> fallback) {
  const json *value = find(key);
  if (!value && fallback)
    return *fallback;
  if (value && value->is_number()) {
    double number = value->get<double>();
    if (number > 0 && number <= high)
      return number;
  }
  refuse(key, "a number above 0 and up to " + printNumber(high));
  return high;
}

bool ConfigReader::boolean(const char *key, bool fallback) {
  const json *value = find(key);
  if (!value)
    return fallback;
  if (!value->is_boolean()) {
    refuse(key, "true or false");
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::string(const char *key,
                                 std::optional<std::string> fallback) {
  const json *value = find(key);
  if (!value && fallback)
    return *fallback;
  if (!value || !value->is_string()) {
    refuse(key, "a string");
    return {};
  }
  return value->get<std::string>();
}
