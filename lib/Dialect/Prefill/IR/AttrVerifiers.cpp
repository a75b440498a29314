//===- AttrVerifiers.cpp - verifiers of types and attributes --------------===//
// Each rule carries its number in docs/spec.md.
//===----------------------------------------------------------------------===//
#include "ShapeChecks.h"

using namespace mlir;
using namespace mlir::prefill;

using EmitError = function_ref<InFlightDiagnostic()>;

/// `value` is at least `least`; `what` names the attribute and its parameter.
static LogicalResult verifyAtLeast(EmitError emitError, StringRef what,
                                   int64_t value, int64_t least) {
  if (value < least)
    return emitError() << what << " is " << value << ", expected at least "
                       << least;
  return success();
}

LogicalResult KVCacheType::verify(EmitError emitError, KVLayout layout,
                                  int64_t numKvHeads, int64_t headDimQk,
                                  int64_t headDimV, Type dtype,
                                  int64_t blockSize) {
  // KV_CACHE-C1
  if (failed(verifyAtLeast(emitError, "kv_cache num_kv_heads", numKvHeads, 1)))
    return failure();
  // KV_CACHE-C2
  if (failed(verifyAtLeast(emitError, "kv_cache head_dim_qk", headDimQk, 1)) ||
      failed(verifyAtLeast(emitError, "kv_cache head_dim_v", headDimV, 1)))
    return failure();
  // KV_CACHE-C3
  if (!isSupportedFloat(dtype))
    return emitError() << "kv_cache dtype is " << dtype
                       << ", expected f64, f32, bf16 or f16";
  // KV_CACHE-C4
  if (failed(verifyAtLeast(emitError, "kv_cache block_size", blockSize, 1)))
    return failure();
  // KV_CACHE-C5
  constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
  std::pair<StringRef, int64_t> sizes[] = {{"num_kv_heads", numKvHeads},
                                           {"head_dim_qk", headDimQk},
                                           {"head_dim_v", headDimV},
                                           {"block_size", blockSize}};
  for (auto [what, value] : sizes)
    if (value > kMaxSize)
      return emitError() << "kv_cache " << what << " is " << value
                         << ", expected at most " << kMaxSize;
  // KV_CACHE-C6
  if (!isSupportedCount({blockSize, numKvHeads, headDimQk}) ||
      !isSupportedCount({blockSize, numKvHeads, headDimV}))
    return emitError() << "kv_cache has blocks of " << blockSize << " tokens, "
                       << numKvHeads << " heads and head dimensions "
                       << headDimQk << " and " << headDimV
                       << ", expected at most " << kMaxElements
                       << " elements in a block";
  // KV_CACHE-C7
  if (layout == KVLayout::PagedVNNI && blockSize != kVNNIPageTokens)
    return emitError() << "kv_cache block_size is " << blockSize
                       << ", expected " << kVNNIPageTokens << " for paged_vnni";
  return success();
}

LogicalResult RopeAttr::verify(EmitError emitError, APFloat thetaValue,
                               int64_t rotaryDim, bool, RopeScaling scaling,
                               APFloat factorValue, APFloat lowValue,
                               APFloat highValue, int64_t originalMaxPosition) {
  auto isPositive = [](const APFloat &value) {
    return value.isFinite() && value.convertToDouble() > 0;
  };
  // ROPE_ATTR-C1
  if (!isPositive(thetaValue))
    return emitError() << "rope theta is " << thetaValue.convertToDouble()
                       << ", expected a positive number";
  // ROPE_ATTR-C2
  if (rotaryDim < 2 || rotaryDim % 2)
    return emitError() << "rope rotary_dim is " << rotaryDim
                       << ", expected an even number of at least 2";
  // ROPE_ATTR-C3
  if (scaling != RopeScaling::None && !isPositive(factorValue))
    return emitError() << "rope scaling factor is "
                       << factorValue.convertToDouble()
                       << ", expected a positive number";
  if (scaling != RopeScaling::Llama3)
    return success();
  // ROPE_ATTR-C4
  double low = lowValue.convertToDouble(), high = highValue.convertToDouble();
  if (!isPositive(lowValue) || !isPositive(highValue) || low >= high)
    return emitError() << "rope low_freq_factor is " << low
                       << " and high_freq_factor " << high
                       << ", expected 0 < low_freq_factor < high_freq_factor";
  // ROPE_ATTR-C5
  return verifyAtLeast(emitError, "rope original_max_position",
                       originalMaxPosition, 1);
}

// CHECKPOINT-C1
LogicalResult CheckpointAttr::verify(EmitError emitError, StringRef name) {
  if (name.empty())
    return emitError() << "checkpoint has an empty tensor name";
  return success();
}

// CONCAT-C1: the parser admits no empty list, builders do.
LogicalResult ConcatAttr::verify(EmitError emitError,
                                 ArrayRef<FlatSymbolRefAttr> inputs) {
  if (inputs.empty())
    return emitError() << "concat has no inputs, expected at least one";
  return success();
}

// INTERLEAVE-C1
LogicalResult InterleaveAttr::verify(EmitError emitError, FlatSymbolRefAttr,
                                     FlatSymbolRefAttr, int64_t granularity) {
  return verifyAtLeast(emitError, "interleave granularity", granularity, 1);
}

// PACK-C1
LogicalResult PackAttr::verify(EmitError emitError, FlatSymbolRefAttr,
                               int64_t panelN, int64_t kPack, int64_t groupN) {
  return success(
      succeeded(verifyAtLeast(emitError, "pack panel_n", panelN, 1)) &&
      succeeded(verifyAtLeast(emitError, "pack k_pack", kPack, 1)) &&
      succeeded(verifyAtLeast(emitError, "pack group_n", groupN, 1)));
}

// ROPE_TABLE-C1
LogicalResult RopeTableAttr::verify(EmitError emitError, RopeAttr,
                                    int64_t maxPosition) {
  return verifyAtLeast(emitError, "rope_table max_position", maxPosition, 1);
}

// LOWERING_CONFIG-C1. Whether the sizes fit an op is a contract of the level
// `config` (prefill-verify-config).
LogicalResult LoweringConfigAttr::verify(EmitError emitError, RowDomain,
                                         int64_t blockM, int64_t blockN,
                                         int64_t blockKv, int64_t panelN,
                                         ArrayRef<int64_t> rowBuckets) {
  std::pair<StringRef, int64_t> sizes[] = {
      {"lowering_config block_m", blockM},
      {"lowering_config block_n", blockN},
      {"lowering_config block_kv", blockKv},
      {"lowering_config panel_n", panelN}};
  for (auto [what, value] : sizes)
    if (failed(verifyAtLeast(emitError, what, value, 0)))
      return failure();
  // LOWERING_CONFIG-C2
  for (int64_t bucket : rowBuckets)
    if (failed(
            verifyAtLeast(emitError, "lowering_config row bucket", bucket, 1)))
      return failure();
  return success();
}

// BUFFER-C1
LogicalResult BufferAttr::verify(EmitError emitError, BufferClass, RowDomain,
                                 int64_t rowBytes, int64_t rowOffset) {
  return success(
      succeeded(verifyAtLeast(emitError, "buffer row_bytes", rowBytes, 1)) &&
      succeeded(verifyAtLeast(emitError, "buffer row_offset", rowOffset, 0)));
}

// GRID-C1
LogicalResult GridAttr::verify(EmitError emitError, RowDomain, int64_t block,
                               bool, int64_t multiplier) {
  return success(
      succeeded(verifyAtLeast(emitError, "grid block", block, 1)) &&
      succeeded(verifyAtLeast(emitError, "grid multiplier", multiplier, 1)));
}

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

LogicalResult prefill::verifyBufferAttrs(Operation *op, StringRef name,
                                         ArrayAttr buffers) {
  // BUFFERS-C1
  if (buffers.size() != op->getNumResults())
    return op->emitOpError(name)
           << " has " << buffers.size() << " elements but there are "
           << op->getNumResults() << " results: there must be one for each";
  // BUFFERS-C2
  for (auto [index, pair] :
       llvm::enumerate(llvm::zip(buffers, op->getResultTypes()))) {
    auto [buffer, type] = pair;
    bool isCache = isa<KVCacheType>(type);
    if (isCache ? !isa<UnitAttr>(buffer) : !isa<BufferAttr>(buffer))
      return op->emitOpError(name)
             << " element " << index << " is " << buffer << " for a result of "
             << type << ", expected "
             << (isCache ? "unit" : "a #prefill.buffer");
  }
  return success();
}

/// An i64 of at least 0.
static bool isCount(Attribute value) {
  auto integer = dyn_cast<IntegerAttr>(value);
  return integer && integer.getType().isInteger(64) && integer.getInt() >= 0;
}

LogicalResult
PrefillDialect::verifyOperationAttribute(Operation *op,
                                         NamedAttribute attribute) {
  StringRef name = attribute.getName();
  Attribute value = attribute.getValue();
  auto check = [&](bool valid, StringRef expected) -> LogicalResult {
    if (valid)
      return success();
    return op->emitOpError("attribute '")
           << name << "' is " << value << ", expected " << expected;
  };
  // LAYER-C1, SCRATCH_BYTES-C1
  if (name == kLayerAttr || name == kScratchBytesAttr)
    return check(isCount(value), "an i64 of at least 0");
  // NAME-C1
  if (name == kNameAttr)
    return check(isa<StringAttr>(value) && !cast<StringAttr>(value).empty(),
                 "a string that is not empty");
  // KERNEL-C1, PAD_ROWS-C1
  if (name == kKernelAttr || name == kPadRowsAttr)
    return check(isa<UnitAttr>(value), "unit");
  // KERNEL-C2
  if (name == kGridAttr)
    return check(isa<GridAttr>(value), "a #prefill.grid");
  if (name == kBuffersAttr) {
    if (failed(check(isa<ArrayAttr>(value), "an array")))
      return failure();
    return verifyBufferAttrs(op, name, cast<ArrayAttr>(value));
  }
  return success();
}
