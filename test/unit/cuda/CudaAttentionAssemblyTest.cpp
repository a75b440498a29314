// Attention kernels of target cuda as PTX and machine code, with the tiles that
// the table chooses.
#include "CudaAttention.h"
#include "prefill/Codegen/CUDA/ScheduleTable.h"
#include "prefill/Target/CUDA/CompileCudaObject.h"
#include "llvm/Support/Error.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace prefill_test;

namespace {

AttentionHeads headsOf(const AttentionProblem &p) {
  AttentionHeads heads;
  heads.headDimQk = p.headDimQk;
  heads.headDimV = p.headDimV;
  heads.group = p.group;
  heads.numKvHeads = p.kvHeads;
  heads.slidingWindow = p.window;
  return heads;
}

/// 8 KV heads, as in Llama 3, with the tile of the table.
AttentionProblem shipped(const CudaChip &chip, int64_t headDim, int64_t group,
                         int64_t window, const std::string &layout) {
  AttentionProblem p;
  p.kvHeads = 8;
  p.group = group;
  p.headDimQk = p.headDimV = headDim;
  p.window = window;
  p.setLayout(layout);
  llvm::Expected<CudaAttentionTile> tile =
      cudaAttentionTile(chip, headsOf(p), AttentionCall(2048));
  if (!tile) {
    ADD_FAILURE() << llvm::toString(tile.takeError());
    return p;
  }
  p.blockQ = tile->blockQ;
  p.blockKv = tile->blockKv;
  return p;
}

class CudaAttentionAssembly : public testing::TestWithParam<const char *> {};

void expectNoSpills(const CudaChip &chip, const AttentionProblem &p) {
  SCOPED_TRACE(chip.name.str() + " " + p.describe());
  OwningOpRef<ModuleOp> module = nvvmAttention(p, chip.name.str());
  ASSERT_TRUE(module);
  std::optional<std::string> assembler = findAssembler();
  FailureOr<CudaObject> object = compileCudaObject(*module, chip, assembler);
  ASSERT_TRUE(succeeded(object));
  for (const char *instruction :
       {"ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "cp.async.cg.shared.global", "ex2.approx.ftz.f32"})
    EXPECT_NE(object->ptx.find(instruction), std::string::npos) << instruction;
  if (!assembler)
    GTEST_SKIP() << "no ptxas";
  ASSERT_EQ(object->kernels.size(), 1u);
  const AssembledKernel &kernel = object->kernels[0];
  EXPECT_EQ(kernel.spillBytes, 0);
  EXPECT_LE(kernel.registers, 255);
  EXPECT_LE(kernel.sharedBytes, chip.sharedPerBlock);
  EXPECT_GT(kernel.occupancy, 0.0);
  std::cout << chip.name.str() << " head_dim " << p.headDimQk << " " << p.layout
            << " window " << p.window << " splits " << p.numSplits << " tile "
            << p.blockQ << "x" << p.blockKv << ": registers "
            << kernel.registers << " spill " << kernel.spillBytes << " shared "
            << kernel.sharedBytes << " occupancy " << kernel.occupancy << "\n";
}

TEST_P(CudaAttentionAssembly, NoSpills) {
  const CudaChip &chip = *lookupCudaChip(GetParam());
  for (int64_t headDim : {64, 128}) {
    expectNoSpills(chip, shipped(chip, headDim, 4, 0, "paged_nhd"));
    expectNoSpills(chip, shipped(chip, headDim, 7, 0, "contiguous"));
  }
  // Three loops.
  expectNoSpills(chip, shipped(chip, 128, 4, 4096, "paged_nhd"));
  // Splits, in the schedules that have them.
  for (const CudaSchedule &schedule : cudaSchedules().take_front(2))
    for (int64_t headDim : {64, 128})
      for (int64_t window : {0, 4096}) {
        AttentionProblem p = shipped(chip, headDim, 4, window, "paged_nhd");
        SplitAttention split = llvm::cantFail(
            splitAttention(chip, headsOf(p), {p.blockQ, p.blockKv},
                           schedule.attentionCalls()));
        p.numSplits = split.splits;
        p.blockQ = split.tile.blockQ;
        p.blockKv = split.tile.blockKv;
        ASSERT_GT(p.numSplits, 1);
        expectNoSpills(chip, p);
      }
}

INSTANTIATE_TEST_SUITE_P(Chips, CudaAttentionAssembly,
                         testing::Values("sm_80", "sm_86", "sm_89", "sm_90"),
                         [](const auto &info) {
                           return std::string(info.param);
                         });

} // namespace
