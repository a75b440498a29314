#include "prefill/checkpoint/JsonFile.h"
#include "prefill/checkpoint/MappedFile.h"
#include "prefill/checkpoint/Quote.h"

#include <optional>
#include <set>
#include <vector>

using namespace prefill::rt;
using nlohmann::json;

namespace {

constexpr size_t maxDepth = 64;
constexpr uint64_t maxFileBytes = 100'000'000;

/// Builds the document as nlohmann's own parser does, and watches depth and
/// keys on the way: the DOM keeps only the last of two equal keys, so it cannot
/// be asked afterwards.
class StrictBuilder : public nlohmann::detail::json_sax_dom_parser<json> {
  using Base = nlohmann::detail::json_sax_dom_parser<json>;

public:
  explicit StrictBuilder(json &root)
      : Base(root, /*allow_exceptions_=*/false) {}

  bool start_object(size_t elements) {
    keys.emplace_back();
    return checkDepth() && Base::start_object(elements);
  }
  bool end_object() {
    keys.pop_back();
    return Base::end_object();
  }
  bool start_array(size_t elements) {
    keys.emplace_back();
    return checkDepth() && Base::start_array(elements);
  }
  bool end_array() {
    keys.pop_back();
    return Base::end_array();
  }
  bool key(std::string &name) {
    if (!keys.back().insert(name).second) {
      problem = "key " + quote(name) + " appears twice";
      return false;
    }
    return Base::key(name);
  }
  template <typename Exception>
  bool parse_error(size_t position, const std::string &token,
                   const Exception &error) {
    if (!problem)
      problem = "syntax error at byte " + std::to_string(position);
    return Base::parse_error(position, token, error);
  }

  std::optional<std::string> problem;

private:
  bool checkDepth() {
    if (keys.size() <= maxDepth)
      return true;
    problem = "nested deeper than " + std::to_string(maxDepth);
    return false;
  }

  std::vector<std::set<std::string>> keys;
};

} // namespace

Result<json> prefill::rt::parseJson(std::string_view text,
                                    const std::string &what) {
  // nlohmann's lexer takes a NUL for the end of the text.
  if (size_t at = text.find('\0'); at != text.npos)
    return Error{ErrorCode::invalidWeights, what +
                                                ": invalid JSON: NUL at byte " +
                                                std::to_string(at + 1)};
  json root;
  StrictBuilder builder(root);
  bool parsed = json::sax_parse(text.begin(), text.end(), &builder);
  if (!parsed || builder.problem || builder.is_errored())
    return Error{
        ErrorCode::invalidWeights,
        what + ": invalid JSON: " + builder.problem.value_or("unreadable")};
  return root;
}

Result<json> prefill::rt::readJsonFile(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  if (file->size() > maxFileBytes)
    return Error{ErrorCode::invalidWeights,
                 quote(path) + " has " + std::to_string(file->size()) +
                     " bytes, expected a JSON file of at most " +
                     std::to_string(maxFileBytes)};
  std::string_view text(reinterpret_cast<const char *>(file->data()),
                        file->size());
  return parseJson(text, quote(path));
}
