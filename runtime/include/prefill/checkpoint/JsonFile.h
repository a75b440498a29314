// Strict JSON: what a hostile or truncated config.json, index or safetensors
// header can get wrong is an error.
#ifndef PREFILL_CHECKPOINT_JSONFILE_H
#define PREFILL_CHECKPOINT_JSONFILE_H

#include "prefill/checkpoint/Result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace prefill::rt {

/// Parses `text`. Refused, with `what` and the byte offset where known: bad
/// syntax, anything after the value, a key that appears twice in an object,
/// nesting deeper than 64.
Result<nlohmann::json> parseJson(std::string_view text,
                                 const std::string &what);

/// Reads and parses a file of at most 100 MB.
Result<nlohmann::json> readJsonFile(const std::string &path);

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_JSONFILE_H
