//===- HuggingFaceRope.cpp - the RoPE part of config.json -----------------===//
#include "HuggingFaceRope.h"
#include "prefill/Import/Limits.h"

#include <algorithm>
#include <set>

using namespace mlir::prefill;
using nlohmann::json;
using ::prefill::rt::Error;
using ::prefill::rt::ErrorCode;
using ::prefill::rt::Result;

namespace {

constexpr double maxTheta = 1e18;
constexpr double maxFactor = 1e9;

/// A value that may stand at the top level, in the RoPE object, or in both if
/// they agree.
double eitherPlace(ConfigReader &top, ConfigReader &inner, const char *key,
                   double high, double fallback) {
  bool hasTop = top.find(key), hasInner = inner.find(key);
  double outerValue = top.positive(key, high, fallback);
  double innerValue = inner.positive(key, high, fallback);
  if (hasTop && hasInner && outerValue != innerValue && !inner.failed())
    top.refuse(key, "the same as in the RoPE parameters (" +
                        quoteJson(*inner.find(key)) + ")");
  return hasInner ? innerValue : outerValue;
}

/// The `rope_scaling` or `rope_parameters` object; an empty one if there is
/// none.
Result<json> ropeObject(ConfigReader &top, std::string &name) {
  for (const char *key : {"rope_scaling", "rope_parameters"})
    if (top.find(key) && !top.find(key)->is_object())
      top.refuse(key, "an object or null");
  auto nonEmpty = [&](const char *key) {
    const json *value = top.find(key);
    return value && !value->empty() ? value : nullptr;
  };
  const json *scaling = nonEmpty("rope_scaling");
  const json *parameters = nonEmpty("rope_parameters");
  name = parameters ? "rope_parameters" : "rope_scaling";
  if (scaling && parameters && *scaling != *parameters)
    top.refuse("rope_scaling",
               "the same as rope_parameters (" + quoteJson(*parameters) + ")");
  if (top.failed())
    return top.takeError();
  if (parameters)
    return *parameters;
  return scaling ? *scaling : json::object();
}

void parseLlama3(ConfigReader &reader, RopeConfig &rope) {
  rope.scaling = RopeConfig::Scaling::llama3;
  rope.factor = reader.positive("factor", maxFactor);
  rope.lowFreqFactor = reader.positive("low_freq_factor", maxFactor);
  rope.highFreqFactor = reader.positive("high_freq_factor", maxFactor);
  rope.originalMaxPosition =
      reader.integer("original_max_position_embeddings", 1, maxPositions);
  if (!reader.failed() && rope.highFreqFactor <= rope.lowFreqFactor)
    reader.refuse("high_freq_factor",
                  "more than low_freq_factor (" +
                      quoteJson(*reader.find("low_freq_factor")) + ")");
}

/// Refuses keys that the type does not use: each of them changes the
/// frequencies or the magnitudes of some other type.
void refuseForeignKeys(ConfigReader &reader, const json &object,
                       const std::string &type) {
  std::set<std::string> known{"rope_type", "type", "rope_theta",
                              "partial_rotary_factor",
                              "original_max_position_embeddings"};
  if (type != "default")
    known.insert("factor");
  if (type == "llama3")
    known.insert({"low_freq_factor", "high_freq_factor"});
  for (const auto &[key, value] : object.items()) {
    if (known.count(key) || value.is_null())
      continue;
    if (key == "factor" && value == 1)
      continue;
    if (key == "full_attention" || key == "sliding_attention")
      return reader.fail(key + " is present: RoPE parameters for each kind "
                               "of layer are not supported");
    return reader.fail("key " + quoteName(key) + " is " + quoteJson(value) +
                       ", expected no such key with RoPE type " + type);
  }
}

} // namespace

Result<RopeConfig>
mlir::prefill::parseHuggingFaceRope(const json &root, int64_t headDim,
                                    const std::string &path) {
  ConfigReader top(root, path);
  std::string name;
  Result<json> object = ropeObject(top, name);
  if (!object)
    return object.takeError();
  ConfigReader reader(*object, path + ": " + name);

  // transformers wrote `type` before 4.43 and `rope_type` since.
  for (const char *key : {"rope_type", "type"})
    reader.string(key, "default");
  const json *current = reader.find("rope_type"), *old = reader.find("type");
  if (current && old && *current != *old)
    reader.refuse("type",
                  "the same as rope_type (" + quoteJson(*current) + ")");
  std::string type =
      reader.string("rope_type", reader.string("type", "default"));

  RopeConfig rope;
  rope.theta = eitherPlace(top, reader, "rope_theta", maxTheta, 10000.0);
  double partial = eitherPlace(top, reader, "partial_rotary_factor", 1.0, 1.0);
  if (top.failed())
    return top.takeError();
  if (reader.failed())
    return reader.takeError();

  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::linear;
    rope.factor = reader.positive("factor", maxFactor);
  } else if (type == "llama3") {
    parseLlama3(reader, rope);
  } else if (type != "default") {
    reader.refuse(current ? "rope_type" : "type",
                  "\"default\", \"linear\" or \"llama3\"");
  }
  refuseForeignKeys(reader, *object, type);
  if (reader.failed())
    return reader.takeError();
  // Some configurations keep the trained length at the top level, and
  // transformers then prefers it.
  if (type == "llama3" && top.find("original_max_position_embeddings") &&
      top.integer("original_max_position_embeddings", 1, maxPositions) !=
          rope.originalMaxPosition)
    top.refuse("original_max_position_embeddings",
               "the same as in " + name + " (" +
                   std::to_string(rope.originalMaxPosition) + ")");

  rope.rotaryDim = int64_t(double(headDim) * partial);
  if (rope.rotaryDim < 2 || rope.rotaryDim % 2)
    top.fail("head_dim " + std::to_string(headDim) +
             " and partial_rotary_factor give " +
             std::to_string(rope.rotaryDim) +
             " rotated channels, expected an even number of at least 2");
  if (top.failed())
    return top.takeError();
  return rope;
}
