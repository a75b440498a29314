#include "../runtime/SafetensorsFile.h"
#include "ReferenceTesting.h"

using namespace mlir;
using namespace mlir::prefill::reference;
using ::prefill::rt::Checkpoint;
using ::prefill::test::safetensorsFile;
using ::prefill::test::TemporaryDirectory;
using ::prefill::test::tensorHeader;
using ::testing::HasSubstr;

namespace {

/// A checkpoint of one tensor "w" of shape [2].
struct CheckpointWeightsTest : ::testing::Test {
  CheckpointWeights open(const std::string &dtype, const std::string &data) {
    directory.write(
        "model.safetensors",
        safetensorsFile(tensorHeader("w", dtype, "[2]", 0, data.size()), data));
    auto checkpoint = Checkpoint::open(directory.path());
    if (!checkpoint) {
      ADD_FAILURE() << checkpoint.error().message;
      std::abort();
    }
    return CheckpointWeights(std::move(*checkpoint));
  }

  TemporaryDirectory directory;
};

TEST_F(CheckpointWeightsTest, ConvertsEveryFloat) {
  // 1.5 and -2
  expectValues(get(open("BF16", {"\xc0\x3f\x00\xc0", 4}).get("w", {2})),
               {1.5, -2}, 0);
  expectValues(get(open("F16", {"\x00\x3e\x00\xc0", 4}).get("w", {2})),
               {1.5, -2}, 0);
  expectValues(
      get(open("F32", {"\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8}).get("w", {2})),
      {1.5, -2}, 0);
  expectValues(get(open("F64", {"\0\0\0\0\0\0\xf8\x3f\0\0\0\0\0\0\0\xc0", 16})
                       .get("w", {2})),
               {1.5, -2}, 0);
}

TEST_F(CheckpointWeightsTest, RefusesByName) {
  EXPECT_EQ(messageOf(open("I16", std::string(4, '\0')).get("w", {2})),
            "tensor 'w' of the checkpoint has dtype I16, expected F64, F32, "
            "BF16 or F16");
  CheckpointWeights weights = open("BF16", std::string(4, '\0'));
  EXPECT_EQ(messageOf(weights.get("v", {2})),
            "the checkpoint has no tensor 'v'");
  EXPECT_EQ(messageOf(weights.get("w", {1, 2})),
            "tensor 'w' of the checkpoint has shape [2], expected [1, 2]");
}

} // namespace
