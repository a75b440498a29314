//===- MaterializeRopeTables.cpp - angles as a weight ---------------------===//
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "prefill/Dialect/Prefill/Transforms/WeightSteps.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_MATERIALIZEROPETABLESPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

namespace {
class MaterializeRopeTablesPass
    : public mlir::prefill::impl::MaterializeRopeTablesPassBase<
          MaterializeRopeTablesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    WeightSteps steps(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      SmallVector<RopeOp> ropes;
      function.walk([&](RopeOp rope) {
        if (!rope.getTable())
          ropes.push_back(rope);
      });
      if (ropes.empty())
        continue;
      auto maxSeq = module->getAttrOfType<IntegerAttr>("prefill.max_seq");
      if (!maxSeq || maxSeq.getInt() < 1) {
        module.emitError("has no attribute prefill.max_seq, the number of "
                         "positions (run prefill-specialize-model)");
        return signalPassFailure();
      }
      // One read of each table at the function's start, outside of regions.
      OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
      llvm::DenseMap<Attribute, Value> tables;
      for (RopeOp rope : ropes) {
        Value &table = tables[rope.getRope()];
        if (!table) {
          auto type = RankedTensorType::get(
              {maxSeq.getInt(), rope.getRope().getRotaryDim()},
              builder.getF32Type());
          table = steps.append(builder, rope.getLoc(), "rope_table", type,
                               RopeTableAttr::get(&getContext(), rope.getRope(),
                                                  maxSeq.getInt()));
          ++numTables;
        }
        rope.getTableMutable().assign(table);
        ++numRopes;
      }
    }
  }
};
} // namespace
