//===- MemoryPlanTest.cpp - activations in their places -------------------===//
// The plan is run symbolically: each op must find its operands where their
// producers left them. This shares no liveness with the pass.
//===----------------------------------------------------------------------===//
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/RegionUtils.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Import/DecoderBuilder.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

DecoderConfig model(int64_t numLayers) {
  DecoderConfig config;
  config.modelType = "llama";
  config.vocabSize = 100; // 400 bytes of logits: no multiple of 64
  config.hiddenSize = 96;
  config.intermediateSize = 224;
  config.numLayers = numLayers;
  config.numQHeads = 6;
  config.numKvHeads = 2;
  config.headDim = 16;
  config.maxPosition = 64;
  config.rmsNormEps = 1e-5;
  config.rope.rotaryDim = 16;
  config.slidingWindows.assign(numLayers, 0);
  return config;
}

class MemoryPlan : public testing::Test {
protected:
  OwningOpRef<ModuleOp> plan(int64_t numLayers, bool fused, bool reuse,
                             bool int8 = false) {
    OwningOpRef<ModuleOp> module =
        buildDecoder(&context, model(numLayers), TensorNaming::huggingFace);
    PassManager manager(&context);
    if (fused) {
      manager.addPass(createFoldScalePass());
      manager.addPass(createFuseQKVProjectionPass());
      manager.addPass(createFuseGateUpPass());
      if (!int8)
        manager.addPass(createFoldNormPass());
      manager.addPass(createFoldKVAppendIntoEpiloguePass());
      manager.addPass(createFoldResidualIntoEpiloguePass());
      manager.addPass(createFoldActivationIntoEpiloguePass());
    }
    if (int8)
      manager.addPass(createQuantizeWeightsPass());
    manager.addPass(createPlanMemoryPass({reuse}));
    EXPECT_TRUE(succeeded(manager.run(*module)));
    return module;
  }

  static int64_t number(ModuleOp module, StringRef name) {
    return module.lookupSymbol<func::FuncOp>(kEntryName)
        ->getAttrOfType<IntegerAttr>(name)
        .getInt();
  }

  MLIRContext context;
};

/// Bytes of the arena's two parts by row, each with the value that it holds.
class SymbolicArena {
public:
  explicit SymbolicArena(ModuleOp module)
      : function(module.lookupSymbol<func::FuncOp>(kEntryName)) {
    for (auto [domain, name] :
         {std::pair(RowDomain::Tokens, "prefill.activation_row_bytes"),
          std::pair(RowDomain::Logits, "prefill.logits_row_bytes")})
      bytes[int(domain)].resize(
          function->getAttrOfType<IntegerAttr>(name).getInt());
  }

  void run() {
    for (Operation &op : function.getBody().front())
      step(&op);
  }

private:
  void step(Operation *op) {
    SetVector<Value> operands(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), operands);
    // Workgroups run in any order, so results may stand before all operands
    // have been read: they are written first, and must leave these intact.
    if (auto buffers = op->getAttrOfType<ArrayAttr>(kBuffersAttr)) {
      ASSERT_EQ(buffers.size(), op->getNumResults());
      for (auto [result, attribute] : llvm::zip(op->getResults(), buffers))
        if (auto buffer = dyn_cast<BufferAttr>(attribute))
          write(result, buffer);
        else
          EXPECT_TRUE(isa<KVCacheType>(result.getType()));
    }
    for (Value operand : operands)
      if (auto buffer = places.find(operand); buffer != places.end())
        expectHolds(op, operand, buffer->second);
  }

  void write(Value value, BufferAttr buffer) {
    auto type = cast<RankedTensorType>(value.getType());
    EXPECT_EQ(buffer.getRowBytes(),
              type.getDimSize(1) * type.getElementTypeBitWidth() / 8);
    std::vector<Value> &arena = bytes[int(buffer.getDomain())];
    ASSERT_LE(buffer.getRowOffset() + buffer.getRowBytes(),
              int64_t(arena.size()));
    for (int64_t i = 0; i < buffer.getRowBytes(); ++i)
      arena[buffer.getRowOffset() + i] = value;
    places[value] = buffer;
  }

  void expectHolds(Operation *op, Value value, BufferAttr buffer) {
    const std::vector<Value> &arena = bytes[int(buffer.getDomain())];
    for (int64_t i = 0; i < buffer.getRowBytes(); ++i)
      ASSERT_EQ(arena[buffer.getRowOffset() + i], value)
          << "byte " << i << " of an operand of "
          << op->getName().getStringRef().str() << " was overwritten";
  }

  func::FuncOp function;
  std::vector<Value> bytes[2];
  llvm::DenseMap<Value, BufferAttr> places;
};

TEST_F(MemoryPlan, OperandsAreWhereTheirProducersLeftThem) {
  for (bool fused : {true, false})
    for (bool reuse : {true, false})
      for (bool int8 : {true, false}) {
        SCOPED_TRACE(testing::Message() << "fused " << fused << " reuse "
                                        << reuse << " int8 " << int8);
        OwningOpRef<ModuleOp> module = plan(3, fused, reuse, int8);
        SymbolicArena(*module).run();
      }
}

TEST_F(MemoryPlan, LayersShareOneSetOfBuffers) {
  int64_t two = number(*plan(2, true, true), "prefill.activation_row_bytes");
  int64_t many = number(*plan(9, true, true), "prefill.activation_row_bytes");
  EXPECT_EQ(two, many);
  // The widest moment: the gated activation (224 bf16) between the residual
  // stream (96 bf16) that it came from with its sums and the stream that
  // follows, with its own.
  EXPECT_EQ(two, 448 + 192 + 64 + 192);
  // Without reuse memory grows with the layers.
  EXPECT_GT(number(*plan(9, true, false), "prefill.activation_row_bytes"),
            4 * many);
}

TEST_F(MemoryPlan, LogitsKeepTheirRowAndTheTotalsTheirAlignment) {
  OwningOpRef<ModuleOp> module = plan(1, true, true);
  EXPECT_EQ(number(*module, "prefill.logits_row_bytes") % 64, 0);
  auto function = module->lookupSymbol<func::FuncOp>(kEntryName);
  Operation *logits =
      function.getBody().front().getTerminator()->getOperand(0).getDefiningOp();
  auto buffer =
      cast<BufferAttr>(logits->getAttrOfType<ArrayAttr>(kBuffersAttr)[0]);
  EXPECT_EQ(buffer.getDomain(), RowDomain::Logits);
  EXPECT_EQ(buffer.getRowBytes(), 400);
}

TEST_F(MemoryPlan, CacheAndWeightsAreCounted) {
  OwningOpRef<ModuleOp> module = plan(3, true, true);
  EXPECT_EQ(number(*module, "prefill.kv_cache_bytes_per_token"),
            3 * 2 * (16 + 16) * 2);
  // Embedding, head, final norm; a layer: QKV, output, gate and up, down. The
  // gains of a layer's two norms went into the weights.
  EXPECT_EQ(number(*module, "prefill.weights_bytes"),
            2 * (100 * 96 * 2 + 96 +
                 3 * (160 * 96 + 96 * 96 + 2 * 224 * 96 + 96 * 224)));
}

// Integers take a byte, scales four for each output channel, gains stay.
TEST_F(MemoryPlan, QuantizedWeightsAreCountedByTheirWidth) {
  OwningOpRef<ModuleOp> module = plan(3, true, true, true);
  int64_t layer = 160 * 96 + 96 * 96 + 2 * 224 * 96 + 96 * 224;
  int64_t channels = 160 + 96 + 2 * 224 + 96;
  EXPECT_EQ(number(*module, "prefill.weights_bytes"),
            2 * (100 * 96 * 2 + 96) + 3 * (layer + 4 * channels + 2 * 2 * 96));
}

// The widest moment: the integers of the gated activation (224) beside it (224
// bf16), their scales (4, a line) and the residual stream (96 bf16).
TEST_F(MemoryPlan, IntegersLieBesideWhatTheyAreMadeOf) {
  int64_t two =
      number(*plan(2, true, true, true), "prefill.activation_row_bytes");
  EXPECT_EQ(two, 448 + 256 + 64 + 192);
  EXPECT_EQ(number(*plan(9, true, true, true), "prefill.activation_row_bytes"),
            two);
}

} // namespace
