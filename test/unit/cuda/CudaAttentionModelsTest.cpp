// Attention kernels of target cuda with the heads of known models and the tiles
// that their chips have for them, in the emulator, with arithmetic.
#include "CudaAttention.h"
#include "prefill/Codegen/CUDA/AttentionTileTable.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "gtest/gtest.h"

using namespace prefill_test;
using namespace mlir::prefill;

namespace {

struct ModelHeads {
  const char *name;
  int64_t headDim, group;
  const char *chip;
  Dtype dtype = Dtype::BF16;
};

class CudaAttentionModels : public testing::TestWithParam<ModelHeads> {};

TEST_P(CudaAttentionModels, WholeTilesRemaindersAndDecode) {
  const ModelHeads &model = GetParam();
  AttentionHeads heads;
  heads.headDimQk = heads.headDimV = model.headDim;
  heads.group = model.group;
  heads.numKvHeads = 8;
  auto tile = cudaAttentionTile(*lookupCudaChip(model.chip), heads,
                                AttentionCall(2048));
  ASSERT_TRUE(bool(tile));
  AttentionProblem p;
  p.dtype = model.dtype;
  p.headDimQk = p.headDimV = model.headDim;
  p.group = model.group;
  p.kvHeads = 1;
  p.blockQ = tile->blockQ;
  p.blockKv = tile->blockKv;
  p.scale = 0.125;
  p.setLayout("paged_nhd");
  CudaAttention attention(p, model.chip);
  // One tile, two of them and a row more; a chunk and a token on a past.
  attention.check({{p.blockQ, p.blockQ}});
  attention.check({{2 * p.blockQ + 1, 2 * p.blockQ + 1},
                   {3, p.blockKv + 3, 2},
                   {1, 3 * p.blockKv, 3}},
                  5, 3);
}

// Splits of 128 keys; the last with keys has a KV block and a key more. Those
// behind it are empty.
TEST(CudaSplitAttentionModels, ShortCalls) {
  const CudaChip &chip = *lookupCudaChip("sm_80");
  for (const CudaSchedule &schedule : cudaSchedules().take_front(2)) {
    SCOPED_TRACE("up to " + std::to_string(schedule.maxRows));
    AttentionHeads heads;
    heads.headDimQk = heads.headDimV = 128;
    heads.group = 4;
    heads.numKvHeads = 8;
    llvm::SmallVector<AttentionCall> calls = schedule.attentionCalls();
    CudaAttentionTile whole =
        llvm::cantFail(cudaAttentionTile(chip, heads, calls));
    SplitAttention split =
        llvm::cantFail(splitAttention(chip, heads, whole, calls));
    ASSERT_GT(split.splits, 1);
    AttentionProblem p;
    p.headDimQk = p.headDimV = 128;
    p.group = 4;
    p.kvHeads = 1;
    p.blockQ = split.tile.blockQ;
    p.blockKv = split.tile.blockKv;
    p.numSplits = split.splits;
    p.scale = 0.125;
    p.setLayout("paged_nhd");
    CudaAttention attention(p, "sm_80");
    attention.check({{1, 257 + p.blockKv}, {p.blockQ + 1, 300, 2}}, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaAttentionModels,
    testing::Values(ModelHeads{"llama_3_8b_sm_80", 128, 4, "sm_80"},
                    ModelHeads{"llama_3_8b_sm_86", 128, 4, "sm_86"},
                    ModelHeads{"llama_3_8b_f16_sm_90", 128, 4, "sm_90",
                               Dtype::F16},
                    ModelHeads{"llama_3_70b_sm_80", 128, 8, "sm_80"},
                    ModelHeads{"llama_2_7b_sm_80", 128, 1, "sm_80"},
                    ModelHeads{"qwen2_5_0_5b_sm_80", 64, 7, "sm_80"}),
    [](const auto &info) { return info.param.name; });

} // namespace
