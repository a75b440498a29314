//===- ModelDescription.cpp - prefill.model against the function ----------===//
// The runtime sizes buffers, checks tokens and counts work by these numbers:
// one that disagrees with the ops would not be found out before it does harm.
//===----------------------------------------------------------------------===//
#include "ModelContract.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

/// An integer of prefill.model. The ranges are those that the runtime loads.
struct IntegerKey {
  const char *name;
  int64_t least, most;
};
constexpr IntegerKey kIntegerKeys[] = {
    {"vocab_size", 1, kMaxInt32},   {"hidden_size", 1, kMaxInt32},
    {"num_layers", 1, 100000},      {"num_q_heads", 1, 1 << 20},
    {"max_position", 1, kMaxInt32}, {"sliding_window", 0, kMaxInt32}};

class DescriptionVerifier {
public:
  DescriptionVerifier(ModuleOp module, func::FuncOp function)
      : module(module), function(function),
        model(module->getAttrOfType<DictionaryAttr>("prefill.model")) {}

  LogicalResult verify();

private:
  LogicalResult verifyKeys();
  LogicalResult verifyInteger(const IntegerKey &key);
  LogicalResult verifyWindow();
  LogicalResult verifyOp(Operation *op);

  int64_t get(StringRef key) { return model.getAs<IntegerAttr>(key).getInt(); }

  /// The key's value is `actual`, what an op says.
  LogicalResult expect(StringRef key, int64_t actual, Location location,
                       const Twine &what) {
    if (get(key) == actual)
      return success();
    return emitError(location) << "prefill.model has " << key << " " << get(key)
                               << ", but " << what << " " << actual;
  }

  ModuleOp module;
  func::FuncOp function;
  DictionaryAttr model;
};

} // namespace

static int64_t channelsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape().back();
}

LogicalResult DescriptionVerifier::verifyInteger(const IntegerKey &key) {
  // MODEL-C3
  Attribute value = model.get(key.name);
  auto integer = dyn_cast_or_null<IntegerAttr>(value);
  if (!integer || !integer.getType().isSignlessInteger(64)) {
    InFlightDiagnostic error = emitError(module.getLoc());
    error << "prefill.model has no integer " << key.name;
    if (value)
      error << " but " << value << ", expected an i64";
    return error;
  }
  // MODEL-C4
  if (integer.getInt() < key.least || integer.getInt() > key.most)
    return emitError(module.getLoc())
           << "prefill.model has " << key.name << " " << integer.getInt()
           << ", expected " << key.least << " to " << key.most;
  return success();
}

LogicalResult DescriptionVerifier::verifyKeys() {
  // MODEL-C1
  auto modelType = model.getAs<StringAttr>("model_type");
  if (!modelType)
    return emitError(module.getLoc())
           << "prefill.model has no string model_type";
  if (modelType.empty())
    return emitError(module.getLoc())
           << "prefill.model has model_type \"\", expected a name";
  // MODEL-C2
  if (!model.getAs<BoolAttr>("tied_embeddings"))
    return emitError(module.getLoc())
           << "prefill.model has no bool tied_embeddings";
  for (const IntegerKey &key : kIntegerKeys)
    if (failed(verifyInteger(key)))
      return failure();
  // MODEL-C5
  int64_t caches = function.getNumArguments() - 1;
  if (get("num_layers") != caches)
    return emitError(module.getLoc())
           << "prefill.model has num_layers " << get("num_layers")
           << ", but function @" << function.getName() << " has " << caches
           << " caches";
  return success();
}

LogicalResult DescriptionVerifier::verifyOp(Operation *op) {
  Location location = op->getLoc();
  // MODEL-C6
  if (auto embed = dyn_cast<EmbedOp>(op)) {
    auto table = cast<RankedTensorType>(embed.getTable().getType());
    if (failed(expect("vocab_size", table.getDimSize(0), location,
                      "the table of prefill.embed has rows")) ||
        failed(expect("hidden_size", table.getDimSize(1), location,
                      "the table of prefill.embed has columns")))
      return failure();
  }
  if (auto head = dyn_cast<LMHeadOp>(op))
    if (failed(expect("vocab_size", channelsOf(head.getResult()), location,
                      "prefill.lm_head has logits")) ||
        failed(expect("hidden_size", channelsOf(head.getInput()), location,
                      "prefill.lm_head reads channels")))
      return failure();
  // MODEL-C7
  if (auto attention = dyn_cast<AttentionOp>(op)) {
    int64_t headDim = attention.getCache().getType().getHeadDimQk();
    if (failed(expect("num_q_heads", channelsOf(attention.getQuery()) / headDim,
                      location, "prefill.attention has query heads")))
      return failure();
  }
  // MODEL-C8
  if (auto layer = op->getAttrOfType<IntegerAttr>(kLayerAttr))
    if (layer.getInt() < 0 || layer.getInt() >= get("num_layers"))
      return emitError(location)
             << op->getName() << " has prefill.layer " << layer.getInt()
             << ", expected 0 to " << get("num_layers") - 1;
  return success();
}

/// MODEL-C9: one window of all layers, or 0 where they differ.
LogicalResult DescriptionVerifier::verifyWindow() {
  SmallVector<int64_t> windows;
  function.walk([&](AttentionOp attention) {
    windows.push_back(attention.getSlidingWindow().value_or(0));
  });
  if (windows.empty() || !llvm::all_equal(windows))
    return get("sliding_window") == 0
               ? success()
               : emitError(module.getLoc())
                     << "prefill.model has sliding_window "
                     << get("sliding_window")
                     << ", expected 0, since layers have different windows";
  return expect("sliding_window", windows.front(), module.getLoc(),
                "every prefill.attention has");
}

LogicalResult DescriptionVerifier::verify() {
  if (!model)
    return emitError(module.getLoc()) << "the module has no prefill.model";
  if (failed(verifyKeys()))
    return failure();
  for (Operation &op : function.getBody().front())
    if (failed(verifyOp(&op)))
      return failure();
  return verifyWindow();
}

LogicalResult prefill::verifyModelDescription(ModuleOp module,
                                              func::FuncOp function) {
  return DescriptionVerifier(module, function).verify();
}
