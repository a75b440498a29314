//===- FusedOpVerifiers.cpp - verifiers of gemm, rowwise and their nodes --===//
// Each rule carries its number in docs/spec.md.
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::prefill;

//===----------------------------------------------------------------------===//
// gemm and rowwise
//===----------------------------------------------------------------------===//

// TILE-C1, TILE-C2: either results, or a tile of `numIndices` and buffers.
static LogicalResult verifyTileForm(Operation *op, size_t numIndices,
                                    OperandRange tile, OperandRange outs) {
  if (tile.empty() && outs.empty())
    return success();
  if (tile.size() != numIndices)
    return op->emitOpError("tile has ")
           << tile.size() << " indices, expected " << numIndices;
  if (op->getNumResults())
    return op->emitOpError("has a tile and ")
           << op->getNumResults()
           << " results, expected none: a tile is stored into buffers";
  return success();
}

/// EPILOGUE-C5, EPILOGUE-C6: what stores of kernels know no conversion for.
/// `stored` is the type of the result or buffer that the value goes to.
static LogicalResult verifyStored(Operation *op, Value value, Type stored) {
  auto quantize = value.getDefiningOp<QuantizeRowsOp>();
  bool isInteger = isa<TensorType>(value.getType()) &&
                   elementTypeOf(value).isSignlessInteger(8);
  if (isInteger && !quantize)
    return op->emitOpError("yields ")
           << value.getType() << ", expected integers of quantize_rows alone";
  bool isRowScalar = isa_and_present<RowSumsqOp>(value.getDefiningOp()) ||
                     (quantize && value == quantize.getScale());
  if (isRowScalar && !getElementTypeOrSelf(stored).isF32())
    return op->emitOpError("stores a result of ")
           << value.getDefiningOp()->getName() << " as " << stored
           << ", expected f32";
  return success();
}

/// TILE-C3, TILE-C4: one buffer for each tensor yielded; caches are written in
/// place.
static LogicalResult verifyBuffers(Operation *op, YieldOp yield,
                                   OperandRange outs) {
  SmallVector<Value> tensors;
  llvm::copy_if(yield.getOperands(), std::back_inserter(tensors),
                [](Value value) { return isa<TensorType>(value.getType()); });
  if (tensors.size() != outs.size())
    return op->emitOpError("yields ")
           << tensors.size() << " tensors but has " << outs.size()
           << " buffers: there must be one for each";
  for (auto [index, pair] : llvm::enumerate(llvm::zip(tensors, outs))) {
    auto [value, out] = pair;
    auto buffer = dyn_cast<MemRefType>(out.getType());
    if (!buffer || buffer.getRank() != 2 ||
        buffer.getDimSize(1) != channelsOf(value))
      return op->emitOpError("buffer ")
             << index << " is " << out.getType() << " but the region yields "
             << value.getType() << ": their channels must agree";
    if (buffer.getElementType().isSignlessInteger(8) !=
        elementTypeOf(value).isSignlessInteger(8))
      return op->emitOpError("buffer ")
             << index << " is " << out.getType() << " but the region yields "
             << value.getType() << ": expected both of i8 or neither";
    if (failed(verifyStored(op, value, buffer)))
      return failure();
  }
  return success();
}

/// EPILOGUE-C1 to C6: what the region does and what it yields.
static LogicalResult verifyRegion(Operation *op, Block &block,
                                  function_ref<bool(Operation &)> isNode,
                                  OperandRange outs) {
  // EPILOGUE-C1
  for (Operation &node : block.without_terminator())
    if (!isNode(node))
      return op->emitOpError("has '")
             << node.getName()
             << "' in its region, which is not a node of an "
                "epilogue";
  auto yield = dyn_cast<YieldOp>(block.back());
  if (!yield)
    return op->emitOpError("region ends with '")
           << block.back().getName() << "', expected 'prefill.yield'";
  // EPILOGUE-C2
  for (Value value : yield.getOperands())
    if (!isa<KVCacheType, RankedTensorType>(value.getType()))
      return op->emitOpError("yields ")
             << value.getType() << ", expected a tensor or a cache";
    else if (isa<RankedTensorType>(value.getType()) &&
             failed(verifyActivation(op, "a yielded value", value,
                                     Elements::FloatsOrInt8)))
      return failure();
  if (!outs.empty() || op->getNumResults() == 0)
    return verifyBuffers(op, yield, outs);
  // EPILOGUE-C3
  if (yield.getNumOperands() != op->getNumResults())
    return op->emitOpError("yields ")
           << yield.getNumOperands() << " values but has "
           << op->getNumResults() << " results: there must be one for each";
  // EPILOGUE-C4
  for (auto [index, pair] :
       llvm::enumerate(llvm::zip(yield.getOperands(), op->getResults()))) {
    auto [value, result] = pair;
    auto from = dyn_cast<RankedTensorType>(value.getType());
    auto to = dyn_cast<RankedTensorType>(result.getType());
    // An integer is none of the numbers that a float may be rounded to.
    bool roundable = from && to && isSupportedFloat(from.getElementType()) &&
                     isSupportedFloat(to.getElementType());
    bool agree = roundable ? from.getShape() == to.getShape()
                           : value.getType() == result.getType();
    if (!agree)
      return op->emitOpError("result ")
             << index << " is " << result.getType() << " but the region yields "
             << value.getType()
             << ": only the element type may differ, and of floats alone";
    if (failed(verifyStored(op, value, result.getType())))
      return failure();
  }
  return success();
}

static bool isEpilogueNode(Operation &op) {
  return isa<RMSNormOp, RopeOp, KVAppendOp, GatedActOp, AddOp, ScaleOp, SplitOp,
             DeinterleaveOp, BiasAddOp, RowSumsqOp, RowRMSScaleOp>(op);
}

LogicalResult GemmOp::verify() {
  if (failed(
          verifyActivation(*this, "input", getInput(), Elements::FloatsOrInt8)))
    return failure();
  RankedTensorType weight = getWeight().getType();
  int64_t k = channelsOf(getInput());
  bool packed = weight.getRank() == 4;
  if (failed(verifyConstant(*this, "weight", getWeight(), packed ? 4 : 2,
                            Elements::FloatsOrInt8)))
    return failure();
  // GEMM-C1
  if (packed) {
    int64_t kPack = weight.getDimSize(3);
    if (weight.getDimSize(1) != llvm::divideCeilSigned(k, kPack))
      return emitOpError("weight is ")
             << weight << ", packed with k_pack " << kPack << ", but input has "
             << k << " channels: expected " << llvm::divideCeilSigned(k, kPack)
             << " groups of K";
  } else if (weight.getDimSize(1) != k) {
    return emitOpError("weight is ")
           << weight << " but input has " << k << " channels: K must agree";
  }
  // GEMM-C5
  bool isInt8 = elementTypeOf(getInput()).isSignlessInteger(8);
  if (isInt8 != weight.getElementType().isSignlessInteger(8))
    return emitOpError("input is ")
           << getInput().getType() << " but weight is " << weight
           << ": expected both of i8 or neither";
  // GEMM-C6
  if (isInt8 && k > kMaxInt8K)
    return emitOpError("input is ")
           << getInput().getType() << ", expected at most " << kMaxInt8K
           << " channels of i8, whose sums fit i32";
  return verifyTileForm(*this, 2, getTile(), getOuts());
}

LogicalResult GemmOp::verifyRegions() {
  Block &block = getEpilogue().front();
  // GEMM-C2
  auto accumulator =
      block.getNumArguments() == 1
          ? dyn_cast<RankedTensorType>(block.getArgument(0).getType())
          : RankedTensorType();
  if (!accumulator || accumulator.getRank() != 2 ||
      accumulator.isDynamicDim(1) || !accumulator.getElementType().isF32())
    return emitOpError("region must have one argument, the accumulator: f32 "
                       "[M, N]");
  // GEMM-C3
  RankedTensorType weight = getWeight().getType();
  int64_t n = accumulator.getDimSize(1);
  if (weight.getRank() == 4) {
    int64_t padded = weight.getDimSize(0) * weight.getDimSize(2);
    if (n > padded)
      return emitOpError("accumulator is ")
             << accumulator << " but weight is " << weight << ", which has "
             << padded << " columns with padding: N must fit";
  } else if (n != weight.getDimSize(0)) {
    return emitOpError("accumulator is ")
           << accumulator << " but weight is " << weight << ": N must agree";
  }
  if (failed(verifySameRows(*this, "accumulator", block.getArgument(0), "input",
                            getInput())))
    return failure();
  // GEMM-C4: loads may pick rows.
  auto isNode = [](Operation &op) {
    return isEpilogueNode(op) || isa<SelectRowsOp, DequantizeOp>(op);
  };
  for (auto select : block.getOps<SelectRowsOp>())
    if (select.getInput().getParentBlock() == &block)
      return emitOpError("selects rows of a value of its own region, expected "
                         "one from outside");
  return verifyRegion(*this, block, isNode, getOuts());
}

LogicalResult RowwiseOp::verify() {
  return verifyTileForm(*this, 1, getTile(), getOuts());
}

LogicalResult RowwiseOp::verifyRegions() {
  Block &block = getBody().front();
  // ROWWISE-C1
  if (block.getNumArguments())
    return emitOpError("region has ")
           << block.getNumArguments()
           << " arguments, expected none: its nodes load what they need";
  // ROWWISE-C2: its leaves may pick rows and combine splits; it has whole rows
  // to quantize.
  auto isNode = [](Operation &op) {
    return isEpilogueNode(op) ||
           isa<EmbedOp, SelectRowsOp, CombineSplitsOp, QuantizeRowsOp>(op);
  };
  // ROWWISE-C3
  for (auto quantize : block.getOps<QuantizeRowsOp>())
    for (Operation *user : quantize->getUsers())
      if (!isa<YieldOp>(user))
        return emitOpError("has '")
               << user->getName()
               << "' in its region that reads a result of quantize_rows, which "
                  "is only yielded";
  return verifyRegion(*this, block, isNode, getOuts());
}

//===----------------------------------------------------------------------===//
// Nodes that only occur in an epilogue
//===----------------------------------------------------------------------===//

LogicalResult SplitOp::verify() {
  if (failed(verifyActivation(*this, "input", getInput())))
    return failure();
  int64_t sum = 0;
  for (Value result : getResults()) {
    if (failed(verifyActivation(*this, "result", result)) ||
        failed(verifySameRows(*this, "result", result, "input", getInput())))
      return failure();
    sum += channelsOf(result);
  }
  // SPLIT-C1
  if (sum != channelsOf(getInput()))
    return emitOpError("input is ")
           << getInput().getType() << " but the results have " << sum
           << " channels together: they must agree";
  return success();
}

LogicalResult DeinterleaveOp::verify() {
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "first", getFirst())) ||
      failed(verifyActivation(*this, "second", getSecond())))
    return failure();
  // DEINTERLEAVE-C1
  int64_t granularity = getGranularity();
  if (granularity < 1)
    return emitOpError("granularity is ")
           << granularity << ", expected at least 1";
  // DEINTERLEAVE-C2
  if (failed(
          verifySameShape(*this, "second", getSecond(), "first", getFirst())) ||
      failed(verifySameRows(*this, "first", getFirst(), "input", getInput())))
    return failure();
  // DEINTERLEAVE-C3
  int64_t expected =
      2 * llvm::divideCeilSigned(channelsOf(getFirst()), granularity) *
      granularity;
  if (channelsOf(getInput()) != expected)
    return emitOpError("input is ")
           << getInput().getType() << " but the results are "
           << getFirst().getType() << " in runs of " << granularity
           << ": expected " << expected << " channels";
  return success();
}

LogicalResult BiasAddOp::verify() {
  // BIAS_ADD-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())) ||
      failed(verifyConstant(*this, "bias", getBias(), 1)))
    return failure();
  // BIAS_ADD-C2
  if (getBias().getType().getDimSize(0) != channelsOf(getInput()))
    return emitOpError("bias is ")
           << getBias().getType() << " but input has " << channelsOf(getInput())
           << " channels: they must agree";
  return success();
}

/// Partial sums of squares: f32 [M, P].
static LogicalResult verifyPartials(Operation *op, StringRef name,
                                    Value value) {
  if (failed(verifyActivation(op, name, value)))
    return failure();
  if (!cast<RankedTensorType>(value.getType()).getElementType().isF32())
    return op->emitOpError(name)
           << " is " << value.getType() << ", expected f32 elements";
  return success();
}

LogicalResult RowSumsqOp::verify() {
  // ROW_SUMSQ-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyPartials(*this, "result", getResult())) ||
      failed(verifySameRows(*this, "result", getResult(), "input", getInput())))
    return failure();
  // ROW_SUMSQ-C2
  if (channelsOf(getResult()) > channelsOf(getInput()))
    return emitOpError("result is ")
           << getType() << " but input is " << getInput().getType()
           << ": there must not be more partial sums than channels";
  return success();
}

int64_t CombineSplitsOp::getNumSplits() {
  return channelsOf(getPartials()) / channelsOf(getResult());
}

LogicalResult CombineSplitsOp::verify() {
  if (failed(verifyActivation(*this, "partials", getPartials())) ||
      failed(verifyActivation(*this, "lse", getLse())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameRows(*this, "lse", getLse(), "partials", getPartials())) ||
      failed(verifySameRows(*this, "result", getResult(), "partials",
                            getPartials())))
    return failure();
  // COMBINE_SPLITS-C1
  RankedTensorType partials = getPartials().getType();
  int64_t channels = channelsOf(getResult());
  if (!partials.getElementType().isF32() ||
      partials.getDimSize(1) % channels != 0 || getNumSplits() < 2)
    return emitOpError("partials are ")
           << partials << " but the result has " << channels
           << " channels: expected f32 with two or more times as many";
  // COMBINE_SPLITS-C2
  RankedTensorType lse = getLse().getType();
  int64_t splits = getNumSplits();
  int64_t heads = lse.getDimSize(1) / splits;
  if (!lse.getElementType().isF32() || lse.getDimSize(1) % splits != 0 ||
      heads < 1 || channels % heads != 0)
    return emitOpError("lse is ")
           << lse << " for " << splits << " splits of " << channels
           << " channels: expected f32 with the same heads in each split";
  return success();
}

LogicalResult RowRMSScaleOp::verify() {
  // ROW_RMS_SCALE-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())))
    return failure();
  // ROW_RMS_SCALE-C2
  if (failed(verifyPartials(*this, "sumsq", getSumsq())) ||
      failed(verifySameRows(*this, "sumsq", getSumsq(), "input", getInput())))
    return failure();
  // ROW_RMS_SCALE-C3
  if (static_cast<int64_t>(getChannels()) < 1)
    return emitOpError("channels is ")
           << static_cast<int64_t>(getChannels()) << ", expected at least 1";
  // ROW_RMS_SCALE-C4
  return verifyEpsilon(*this, getEps());
}

/// f32 [M, 1]: one scale for each row of `input`.
static LogicalResult verifyRowScale(Operation *op, StringRef name, Value scale,
                                    Value input) {
  if (failed(verifyActivation(op, name, scale)) ||
      failed(verifySameRows(op, name, scale, "input", input)))
    return failure();
  if (!elementTypeOf(scale).isF32() || channelsOf(scale) != 1)
    return op->emitOpError(name)
           << " is " << scale.getType() << ", expected f32 [M, 1]";
  return success();
}

LogicalResult QuantizeRowsOp::verify() {
  // QUANTIZE_ROWS-C1
  if (failed(verifyActivation(*this, "input", getInput())))
    return failure();
  // QUANTIZE_ROWS-C2
  if (failed(verifyActivation(*this, "quantized", getQuantized(),
                              Elements::FloatsOrInt8)) ||
      failed(verifySameShape(*this, "quantized", getQuantized(), "input",
                             getInput())))
    return failure();
  if (!elementTypeOf(getQuantized()).isSignlessInteger(8))
    return emitOpError("quantized is ")
           << getQuantized().getType() << ", expected elements of i8";
  // QUANTIZE_ROWS-C3
  return verifyRowScale(*this, "scale", getScale(), getInput());
}

LogicalResult DequantizeOp::verify() {
  // DEQUANTIZE-C1
  if (failed(verifyActivation(*this, "input", getInput())) ||
      failed(verifyActivation(*this, "result", getResult())) ||
      failed(
          verifySameShape(*this, "result", getResult(), "input", getInput())))
    return failure();
  if (!elementTypeOf(getInput()).isF32() || !elementTypeOf(getResult()).isF32())
    return emitOpError("input is ") << getInput().getType() << " and result "
                                    << getType() << ", expected f32 elements";
  // DEQUANTIZE-C2
  if (failed(verifyRowScale(*this, "row_scale", getRowScale(), getInput())))
    return failure();
  // DEQUANTIZE-C3
  if (failed(verifyConstant(*this, "column_scale", getColumnScale(), 1)))
    return failure();
  if (!elementTypeOf(getColumnScale()).isF32() ||
      getColumnScale().getType().getDimSize(0) != channelsOf(getInput()))
    return emitOpError("column_scale is ")
           << getColumnScale().getType() << " but input has "
           << channelsOf(getInput())
           << " channels: expected as many f32 elements";
  return success();
}

//===----------------------------------------------------------------------===//
// launch
//===----------------------------------------------------------------------===//

/// LAUNCH-C2, LAUNCH-C3: the operands are the kernel's arguments and the
/// results its results; once a kernel is tiled it has a buffer argument in
/// place of each tensor result. At level `kernel` the arguments are flattened
/// pointers, and there is nothing to compare.
static LogicalResult verifyLaunchTypes(LaunchOp launch, func::FuncOp kernel) {
  FunctionType type = kernel.getFunctionType();
  if (llvm::none_of(type.getInputs(),
                    llvm::IsaPred<TensorType, KVCacheType, BatchType>))
    return success();
  size_t count = launch.getNumOperands();
  // LAUNCH-C2
  bool tiled = type.getNumResults() == 0;
  if (type.getNumInputs() < count || (!tiled && type.getNumInputs() > count))
    return launch.emitOpError("has ")
           << count << " operands but kernel " << launch.getKernelAttr()
           << " has " << type.getNumInputs() << " arguments";
  for (size_t index = 0; index < count; ++index)
    if (launch.getOperand(index).getType() != type.getInput(index))
      return launch.emitOpError("operand ")
             << index << " is " << launch.getOperand(index).getType()
             << " but the argument of kernel " << launch.getKernelAttr()
             << " is " << type.getInput(index);
  // LAUNCH-C3
  if (!tiled) {
    if (launch.getResultTypes() != type.getResults())
      return launch.emitOpError("results are (")
             << launch.getResultTypes() << ") but those of kernel "
             << launch.getKernelAttr() << " are (" << type.getResults() << ")";
    return success();
  }
  size_t numTensors =
      llvm::count_if(launch.getResultTypes(), llvm::IsaPred<TensorType>);
  size_t numBuffers = 0;
  for (size_t index = count; index < type.getNumInputs(); ++index)
    numBuffers += isa<MemRefType>(type.getInput(index)) &&
                  !kernel.getArgAttr(index, kScoreAttr);
  if (numTensors != numBuffers)
    return launch.emitOpError("has ")
           << numTensors << " tensor results but kernel "
           << launch.getKernelAttr() << " has " << numBuffers << " buffers";
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbolTable) {
  auto kernel =
      symbolTable.lookupNearestSymbolFrom<func::FuncOp>(*this, getKernelAttr());
  // LAUNCH-C1
  if (!kernel || !kernel->hasAttr(kKernelAttr))
    return emitOpError("names kernel ")
           << getKernelAttr()
           << ", which is not a func.func with prefill.kernel";
  return verifyLaunchTypes(*this, kernel);
}

LogicalResult LaunchOp::verify() {
  // LAUNCH-C4
  if (ArrayAttr buffers = getBuffersAttr())
    return verifyBufferAttrs(*this, "buffers", buffers);
  return success();
}
