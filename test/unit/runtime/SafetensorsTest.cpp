#include "SafetensorsFile.h"

#include "prefill/checkpoint/Safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

using namespace prefill::rt;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

/// The error of opening a directory whose model.safetensors is `header` and
/// `dataBytes` zeros.
std::string errorOf(const std::string &header, size_t dataBytes) {
  TemporaryDirectory directory;
  directory.write("model.safetensors",
                  safetensorsFile(header, std::string(dataBytes, '\0')));
  auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_FALSE(checkpoint) << header;
  return checkpoint ? "" : checkpoint.error().message;
}

std::string errorOfRaw(const std::string &content) {
  TemporaryDirectory directory;
  directory.write("model.safetensors", content);
  auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_FALSE(checkpoint);
  return checkpoint ? "" : checkpoint.error().message;
}

TEST(Safetensors, ReadsASingleFile) {
  TemporaryDirectory directory;
  float values[6] = {1, 2, 3, 4, 5, 6};
  std::string data(reinterpret_cast<char *>(values), sizeof values);
  directory.write(
      "model.safetensors",
      safetensorsFile(
          R"({"__metadata__":{"format":"pt"},)"
          R"("b":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},)"
          R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
          R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[24,25]},)"
          R"("none":{"dtype":"F16","shape":[0,3],"data_offsets":[0,0]}}   )",
          data + "\x07"));
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 4u);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  const TensorView *a = checkpoint->find("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(a->data, values, 16), 0);
  EXPECT_EQ(std::memcmp(checkpoint->find("b")->data, values + 4, 8), 0);
  EXPECT_EQ(checkpoint->find("none")->numElements(), 0u);
  EXPECT_EQ(checkpoint->find("scalar")->numElements(), 1u);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Safetensors, ReadsShards) {
  TemporaryDirectory directory;
  directory.write(
      "model-1.safetensors",
      safetensorsFile(tensorHeader("a", "BF16", "[2]", 0, 4), "\1\2\3\4"));
  directory.write(
      "model-2.safetensors",
      safetensorsFile(tensorHeader("b", "BF16", "[1]", 0, 2), "\5\6"));
  directory.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":6},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->find("b")->file, "model-2.safetensors");
  EXPECT_EQ(static_cast<int>(checkpoint->find("b")->data[1]), 6);
}

// ---- What a truncated or hostile file gets wrong.

TEST(SafetensorsHostile, Files) {
  EXPECT_THAT(Checkpoint::open("/nonexistent").error().message,
              HasSubstr("'/nonexistent' is not a directory with a checkpoint"));
  TemporaryDirectory empty;
  EXPECT_THAT(
      Checkpoint::open(empty.path()).error().message,
      HasSubstr(
          "holds neither model.safetensors nor model.safetensors.index.json"));
  TemporaryDirectory both;
  both.write("model.safetensors", safetensorsFile("{}", ""));
  both.write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Checkpoint::open(both.path()).error().message,
              HasSubstr("holds both"));
}

TEST(SafetensorsHostile, HeaderLength) {
  EXPECT_THAT(
      errorOfRaw(""),
      HasSubstr("has 0 bytes, expected a safetensors file of at least 8"));
  EXPECT_THAT(errorOfRaw("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(errorOfRaw(littleEndian(3) + "{}"),
              HasSubstr("header of 3 bytes, but the file has only 2"));
  EXPECT_THAT(errorOfRaw(littleEndian(100'000'001) + "{}"),
              HasSubstr("expected at most 100000000"));
  EXPECT_THAT(
      errorOfRaw(littleEndian(std::numeric_limits<uint64_t>::max()) + "{}"),
      HasSubstr("expected at most"));
  EXPECT_THAT(errorOfRaw(littleEndian(0)), HasSubstr("invalid JSON"));
}

TEST(SafetensorsHostile, HeaderJson) {
  EXPECT_THAT(errorOf("{\"a\":", 0),
              HasSubstr("invalid JSON: syntax error at byte"));
  EXPECT_THAT(errorOf("[]", 0), HasSubstr("the header is not a JSON object"));
  EXPECT_THAT(errorOf("{} {}", 0), HasSubstr("invalid JSON"));
  EXPECT_THAT(errorOf(std::string(100000, '['), 0),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(errorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                      1),
              HasSubstr("key 'a' appears twice"));
  EXPECT_THAT(
      errorOf(
          R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
          1),
      HasSubstr("key 'dtype' appears twice"));
  EXPECT_THAT(errorOf(R"({"a":7})", 0),
              HasSubstr("tensor 'a': expected an object"));
  EXPECT_THAT(errorOf(R"({"a":{"dtype":"U8","shape":[0]}})", 0),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})",
              0),
      HasSubstr("unknown key 'x'"));
  EXPECT_THAT(errorOf(R"({"__metadata__":{"a":1}})", 0),
              HasSubstr("__metadata__ is not a map"));
  EXPECT_THAT(errorOf("{\"a\xff\":{}}", 0), HasSubstr("invalid JSON"));
}

TEST(SafetensorsHostile, Dtype) {
  EXPECT_THAT(errorOf(tensorHeader("a", "F7", "[1]", 0, 1), 1),
              HasSubstr("tensor 'a': unknown dtype \"F7\""));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,1]}})", 1),
      HasSubstr("unknown dtype 3"));
}

TEST(SafetensorsHostile, Shape) {
  EXPECT_THAT(errorOf(tensorHeader("a", "F32", "4", 0, 16), 16),
              HasSubstr("shape is not a list"));
  EXPECT_THAT(errorOf(tensorHeader("a", "F32", "[-4]", 0, 16), 16),
              HasSubstr("shape holds -4"));
  EXPECT_THAT(errorOf(tensorHeader("a", "F32", "[4.0]", 0, 16), 16),
              HasSubstr("shape holds 4.0"));
  EXPECT_THAT(
      errorOf(tensorHeader("a", "F32", "[18446744073709551615]", 0, 16), 16),
      HasSubstr("shape holds 18446744073709551615"));
  EXPECT_THAT(
      errorOf(tensorHeader("a", "F32", "[4294967296, 4294967296]", 0, 16), 16),
      HasSubstr(
          "the size of shape [4294967296, 4294967296] overflows 64 bits"));
  // 2^62 elements of 4 bytes: the element count fits, the byte count wraps to
  // 0.
  EXPECT_THAT(
      errorOf(tensorHeader("a", "F32", "[4611686018427387904]", 0, 0), 0),
      HasSubstr("overflows 64 bits"));
}

TEST(SafetensorsHostile, Offsets) {
  EXPECT_THAT(errorOf(tensorHeader("a", "U8", "[4]", 4, 0), 4),
              HasSubstr("[4, 0] end before they begin"));
  EXPECT_THAT(errorOf(tensorHeader("a", "U8", "[8]", 0, 8), 4),
              HasSubstr("[0, 8] reach past the file's 4 bytes of data"));
  EXPECT_THAT(errorOf(tensorHeader("a", "F32", "[2]", 0, 4), 4),
              HasSubstr("hold 4 bytes, expected 8 for F32 [2]"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1),
      HasSubstr("not a pair of integers"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1),
      HasSubstr("not a pair of integers"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":"01"}})", 1),
      HasSubstr("not a pair of integers"));
}

TEST(SafetensorsHostile, OverlapsAndHoles) {
  EXPECT_THAT(errorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                      6),
              HasSubstr("tensor 'b' at byte 2 overlaps tensor 'a'"));
  EXPECT_THAT(errorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                      4),
              HasSubstr("overlaps"));
  EXPECT_THAT(
      errorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
              10),
      HasSubstr("bytes 4 to 6 of the data belong to no tensor"));
  EXPECT_THAT(errorOf(tensorHeader("a", "U8", "[4]", 2, 6), 6),
              HasSubstr("bytes 0 to 2"));
  EXPECT_THAT(errorOf(tensorHeader("a", "U8", "[4]", 0, 4), 7),
              HasSubstr("the last 3 bytes"));
}

/// A directory with shard model-1 that holds tensor `a`, and the given index.
std::string errorOfIndex(const std::string &index) {
  TemporaryDirectory directory;
  directory.write("model-1.safetensors",
                  safetensorsFile(tensorHeader("a", "U8", "[1]", 0, 1), "x"));
  directory.write("model-2.safetensors",
                  safetensorsFile(tensorHeader("a", "U8", "[1]", 0, 1), "x"));
  directory.write("model.safetensors.index.json", index);
  auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_FALSE(checkpoint) << index;
  return checkpoint ? "" : checkpoint.error().message;
}

TEST(SafetensorsHostile, Index) {
  EXPECT_THAT(errorOfIndex("{"), HasSubstr("invalid JSON"));
  EXPECT_THAT(errorOfIndex("{}"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":[]})"), HasSubstr("not an object"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":{"a":1}})"),
              HasSubstr("the shard of tensor 'a' is not a string"));
  for (const char *name : {"../model-1.safetensors", "/etc/x.safetensors",
                           "sub/x.safetensors", "..", "sub\\\\x.safetensors"})
    EXPECT_THAT(
        errorOfIndex(R"({"weight_map":{"a":")" + std::string(name) + R"("}})"),
        HasSubstr("of tensor 'a' is a path, expected a file name inside the "
                  "directory"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":{"a":"x\u0000.safetensors"}})"),
              HasSubstr("is a path"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":{"a":"model-1.bin"}})"),
              HasSubstr("does not end in .safetensors"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":{"a":"model-9.safetensors"}})"),
              HasSubstr("cannot open"));
  EXPECT_THAT(
      errorOfIndex(
          R"({"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})"),
      HasSubstr(
          "tensor 'b', which model.safetensors.index.json names, is missing"));
  EXPECT_THAT(errorOfIndex(R"({"weight_map":{"b":"model-1.safetensors"}})"),
              HasSubstr("tensor 'a' is not in model.safetensors.index.json"));
  EXPECT_THAT(
      errorOfIndex(
          R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"),
      HasSubstr("belongs to 'model-1.safetensors'"));
}

TEST(SafetensorsHostile, SurvivesRandomBytes) {
  std::string valid = safetensorsFile(
      R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})",
      std::string(24, 'x'));
  std::mt19937 random(1);
  int refused = 0;
  TemporaryDirectory directory;
  for (int round = 0; round < 2000; ++round) {
    std::string mutated = valid;
    for (int flips = 1 + random() % 4; flips > 0; --flips)
      mutated[random() % mutated.size()] = static_cast<char>(random());
    if (random() % 4 == 0)
      mutated.resize(random() % mutated.size());
    directory.write("model.safetensors", mutated);
    auto checkpoint = Checkpoint::open(directory.path());
    if (!checkpoint) {
      ++refused;
      continue;
    }
    unsigned sum = 0; // every byte that a view claims can be read
    for (const TensorView &tensor : checkpoint->tensors())
      for (uint64_t i = 0; i < tensor.size; ++i)
        sum += static_cast<unsigned>(tensor.data[i]);
    EXPECT_GT(sum, 0u);
  }
  EXPECT_GT(refused, 1000);
}

} // namespace
