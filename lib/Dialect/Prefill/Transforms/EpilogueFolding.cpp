//===- EpilogueFolding.cpp - moving ops into a region of a GEMM -----------===//
#include "prefill/Dialect/Prefill/Transforms/EpilogueFolding.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace mlir::prefill;

void prefill::recordGraphPass(ModuleOp module, StringRef passFlag) {
  if (hasRunGraphPass(module, passFlag))
    return;
  SmallVector<Attribute> flags;
  if (auto earlier = module->getAttrOfType<ArrayAttr>(kGraphPassesAttr))
    llvm::append_range(flags, earlier);
  flags.push_back(StringAttr::get(module.getContext(), passFlag));
  module->setAttr(kGraphPassesAttr, ArrayAttr::get(module.getContext(), flags));
}

bool prefill::hasRunGraphPass(ModuleOp module, StringRef passFlag) {
  auto flags = module->getAttrOfType<ArrayAttr>(kGraphPassesAttr);
  return flags && llvm::is_contained(
                      flags, StringAttr::get(module.getContext(), passFlag));
}

void prefill::noteNotFolded(Operation *op, StringRef passFlag,
                            const Twine &reason) {
  std::string text = reason.str();
  // Several passes may have a reason of their own.
  std::string all = text;
  if (auto earlier = op->getAttrOfType<StringAttr>(kNotFoldedAttr))
    all = earlier.getValue().contains(text)
              ? earlier.str()
              : (earlier.getValue() + "; " + text).str();
  op->setAttr(kNotFoldedAttr, StringAttr::get(op->getContext(), all));
  remark::missed(op->getLoc(),
                 remark::RemarkOpts::name(passFlag).category("prefill-fold"))
      << remark::reason("{0} not folded: {1}",
                        op->getName().getStringRef().str(), text);
}

RankedTensorType prefill::withF32Elements(RankedTensorType type) {
  return type.clone(Float32Type::get(type.getContext()));
}

int64_t prefill::numColumns(Value value) {
  return cast<RankedTensorType>(value.getType()).getDimSize(1);
}

GemmOp prefill::createGemm(OpBuilder &builder, Location loc, Value input,
                           Value weight, TypeRange resultTypes,
                           EpilogueBuilder epilogue) {
  auto inputType = cast<RankedTensorType>(input.getType());
  auto weightType = cast<RankedTensorType>(weight.getType());
  auto accumulatorType =
      RankedTensorType::get({inputType.getDimSize(0), weightType.getDimSize(0)},
                            builder.getF32Type());
  auto gemm = GemmOp::create(builder, loc, resultTypes, input, weight,
                             ValueRange{}, ValueRange{}, LoweringConfigAttr{});
  OpBuilder::InsertionGuard guard(builder);
  Block *block =
      builder.createBlock(&gemm.getEpilogue(), {}, {accumulatorType}, {loc});
  SmallVector<Value> yielded = epilogue(builder, block->getArgument(0));
  YieldOp::create(builder, loc, yielded);
  return gemm;
}

GemmOp prefill::convertToGemm(LinearOp linear) {
  OpBuilder builder(linear);
  GemmOp gemm =
      createGemm(builder, linear.getLoc(), linear.getInput(),
                 linear.getWeight(), linear->getResultTypes(),
                 [&](OpBuilder &b, Value accumulator) -> SmallVector<Value> {
                   if (Value bias = linear.getBias()) {
                     auto add = BiasAddOp::create(b, linear.getLoc(),
                                                  accumulator.getType(),
                                                  accumulator, bias);
                     return {add.getResult()};
                   }
                   return {accumulator};
                 });
  gemm->setDiscardableAttrs(linear->getDiscardableAttrDictionary());
  gemm->removeDiscardableAttr(kNotFoldedAttr);
  linear->replaceAllUsesWith(gemm->getResults());
  linear.erase();
  return gemm;
}

GemmOp prefill::getOrCreateProducerGemm(Value value) {
  Operation *producer = value.getDefiningOp();
  if (auto linear = dyn_cast_or_null<LinearOp>(producer))
    return convertToGemm(linear);
  return dyn_cast_or_null<GemmOp>(producer);
}

static YieldOp yieldOf(Operation *compute) {
  return cast<YieldOp>(compute->getRegion(0).front().getTerminator());
}

/// Whether the value is there when `op` runs.
static bool isDefinedBefore(Value value, Operation *op) {
  Operation *definition = value.getDefiningOp();
  return !definition || definition->isBeforeInBlock(op);
}

/// Moves get_weight operands of `consumer` up to `op`.
static void hoistWeights(Operation *consumer, Operation *op) {
  for (Value operand : consumer->getOperands())
    if (auto weight = operand.getDefiningOp<GetWeightOp>())
      if (!isDefinedBefore(operand, op))
        weight->moveBefore(op);
}

/// Whether `producer` must run where `consumer` stands, because an operand of
/// the consumer is not there earlier.
static bool mustSink(Operation *producer, Operation *consumer) {
  return llvm::any_of(consumer->getOperands(), [&](Value operand) {
    return operand.getDefiningOp() != producer &&
           !operand.getDefiningOp<GetWeightOp>() &&
           !isDefinedBefore(operand, producer);
  });
}

/// A row_sumsq reads the value as stored and leaves it to its other users.
static bool sharesOperand(Operation *consumer) {
  return isa<RowSumsqOp>(consumer);
}

std::optional<std::string> prefill::whyNotAbsorbable(Operation *producer,
                                                     Operation *consumer) {
  if (producer->getBlock() != consumer->getBlock())
    return "it stands in another block than its producer";
  YieldOp yield = yieldOf(producer);
  for (Value operand : consumer->getOperands()) {
    auto result = dyn_cast<OpResult>(operand);
    if (!result || result.getOwner() != producer)
      continue;
    Value yielded = yield.getOperand(result.getResultNumber());
    if (sharesOperand(consumer)) {
      if (yielded.getType() != result.getType())
        return "its operand is rounded only when stored, and the sums must be "
               "of the stored value";
      continue;
    }
    for (Operation *user : result.getUsers())
      if (user != consumer)
        return ("its operand has another user, " +
                user->getName().getStringRef())
            .str();
  }
  if (mustSink(producer, consumer))
    for (Operation *use : producer->getUsers()) {
      // A use in another op's region is one of that op.
      Operation *user = producer->getBlock()->findAncestorOpInBlock(*use);
      if (user != consumer && user->isBeforeInBlock(consumer))
        return ("one of its operands is defined after the producer, which " +
                user->getName().getStringRef() + " needs earlier")
            .str();
    }
  return std::nullopt;
}

/// The element type that `op`'s results keep inside a region.
static bool keepsTypeInRegion(Operation *op) {
  return isa<AddOp, RowSumsqOp, KVAppendOp>(op);
}

Operation *prefill::absorb(Operation *producer, Operation *consumer) {
  hoistWeights(consumer, producer);
  if (mustSink(producer, consumer))
    producer->moveBefore(consumer);

  YieldOp yield = yieldOf(producer);
  OpBuilder builder(yield);
  IRMapping mapping;
  for (auto [result, yielded] :
       llvm::zip_equal(producer->getResults(), yield.getOperands()))
    mapping.map(result, yielded);
  Operation *inside = builder.clone(*consumer, mapping);
  inside->removeDiscardableAttr(kNotFoldedAttr);
  // Name and layer are the compute op's: inside they would only keep the equal
  // kernels of two layers apart.
  inside->removeDiscardableAttr(kNameAttr);
  inside->removeDiscardableAttr(kLayerAttr);
  if (!keepsTypeInRegion(consumer))
    for (OpResult result : inside->getResults())
      result.setType(withF32Elements(cast<RankedTensorType>(result.getType())));

  // The new results: the old ones without those that only the consumer read,
  // the consumer's in place of the first of these (or last).
  SmallVector<Value> yielded, replaced;
  SmallVector<Type> types;
  bool inserted = false;
  auto insertConsumerResults = [&] {
    if (inserted)
      return;
    inserted = true;
    llvm::append_range(yielded, inside->getResults());
    llvm::append_range(replaced, consumer->getResults());
    llvm::append_range(types, consumer->getResultTypes());
  };
  for (OpResult result : producer->getResults()) {
    bool consumed = llvm::is_contained(result.getUsers(), consumer);
    if (consumed && !sharesOperand(consumer)) {
      insertConsumerResults();
      continue;
    }
    yielded.push_back(yield.getOperand(result.getResultNumber()));
    replaced.push_back(result);
    types.push_back(result.getType());
  }
  insertConsumerResults();
  yield->setOperands(yielded);

  builder.setInsertionPoint(producer);
  OperationState state(producer->getLoc(), producer->getName());
  state.addOperands(producer->getOperands());
  state.addTypes(types);
  state.addRegion()->takeBody(producer->getRegion(0));
  Operation *rebuilt = builder.create(state);
  rebuilt->copyProperties(producer->getPropertiesStorage());
  rebuilt->setDiscardableAttrs(producer->getDiscardableAttrDictionary());
  for (auto [old, result] : llvm::zip_equal(replaced, rebuilt->getResults()))
    old.replaceAllUsesWith(result);
  consumer->erase();
  producer->erase();
  return rebuilt;
}

void prefill::eraseDeadGetWeights(func::FuncOp function) {
  for (auto weight : llvm::make_early_inc_range(function.getOps<GetWeightOp>()))
    if (weight.use_empty())
      weight.erase();
}
