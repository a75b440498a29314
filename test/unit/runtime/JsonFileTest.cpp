#include "prefill/checkpoint/JsonFile.h"

#include <gtest/gtest.h>

using namespace prefill::rt;

namespace {

TEST(JsonFile, ReadsNestedValues) {
  auto document = parseJson(R"({"a": [1, {"b": true}], "c": -3})", "t");
  ASSERT_TRUE(document);
  EXPECT_EQ((*document)["a"][1]["b"], true);
  EXPECT_EQ((*document)["c"], -3);
}

TEST(JsonFile, NamesTheByteOfASyntaxError) {
  auto document = parseJson(R"({"a": 1,})", "t");
  ASSERT_FALSE(document);
  EXPECT_EQ(document.error().message,
            "t: invalid JSON: syntax error at byte 9");
}

TEST(JsonFile, RefusesARepeatedKeyInOneObjectOnly) {
  EXPECT_TRUE(parseJson(R"({"a": {"x": 1}, "b": {"x": 1}})", "t"));
  auto document = parseJson(R"({"a": {"x": 1, "x": 2}})", "t");
  ASSERT_FALSE(document);
  EXPECT_EQ(document.error().message, "t: invalid JSON: key 'x' appears twice");
}

TEST(JsonFile, RefusesDeepNesting) {
  auto nested = [](int depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parseJson(nested(64), "t"));
  auto document = parseJson(nested(65), "t");
  ASSERT_FALSE(document);
  EXPECT_EQ(document.error().message, "t: invalid JSON: nested deeper than 64");
  EXPECT_FALSE(parseJson(std::string(1000000, '['), "t"));
}

TEST(JsonFile, RefusesTrailingTextAndEmptyInput) {
  EXPECT_FALSE(parseJson("{} x", "t"));
  EXPECT_FALSE(parseJson("", "t"));
  for (const char *rest : {"", "x", "{}"}) {
    auto document = parseJson(std::string("{}\0", 3) + rest, "t");
    ASSERT_FALSE(document);
    EXPECT_EQ(document.error().message, "t: invalid JSON: NUL at byte 3");
  }
}

TEST(JsonFile, NamesAMissingFile) {
  auto document = readJsonFile("/nonexistent/config.json");
  ASSERT_FALSE(document);
  EXPECT_EQ(
      document.error().message,
      "cannot open '/nonexistent/config.json': No such file or directory");
}

} // namespace
