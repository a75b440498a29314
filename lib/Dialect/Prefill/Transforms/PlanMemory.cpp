//===- PlanMemory.cpp - one set of activation buffers for all layers ------===//
#include "mlir/IR/Remarks.h"
#include "prefill/Analysis/ActivationBuffers.h"
#include "prefill/Dialect/Prefill/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::prefill {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "prefill/Dialect/Prefill/Transforms/Passes.h.inc"
} // namespace mlir::prefill

using namespace mlir;
using namespace mlir::prefill;

static int64_t bytesOf(RankedTensorType type) {
  return type.getNumElements() * (type.getElementTypeBitWidth() / 8);
}

/// Bytes of the weights that stay in memory: those that a kernel reads.
static int64_t residentWeightBytes(func::FuncOp function) {
  llvm::SmallDenseSet<Attribute> seen;
  int64_t bytes = 0;
  function.walk([&](GetWeightOp weight) {
    if (seen.insert(weight.getNameAttr()).second)
      bytes += bytesOf(cast<RankedTensorType>(weight.getType()));
  });
  return bytes;
}

/// Elements of one token's key and value of a head. The runtime gives both the
/// same stride in pages of paged_vnni, that of the larger.
static int64_t elementsPerToken(KVCacheType cache) {
  int64_t keys = cache.getHeadDimQk(), values = cache.getHeadDimV();
  if (cache.getLayout() != KVLayout::PagedVNNI)
    return keys + values;
  keys = llvm::alignTo(keys, cache.getDtype().isF32() ? 1 : 2);
  values = llvm::alignTo(values, KVCacheType::kVNNIPageTokens);
  return 2 * std::max(keys, values);
}

/// Bytes of one token's keys and values in all layers.
static int64_t kvCacheBytesPerToken(func::FuncOp function) {
  int64_t bytes = 0;
  for (Type type : function.getArgumentTypes())
    if (auto cache = dyn_cast<KVCacheType>(type))
      bytes += cache.getNumKvHeads() * elementsPerToken(cache) *
               (cache.getDtype().getIntOrFloatBitWidth() / 8);
  return bytes;
}

/// What `seq` means for the size of the caches.
static StringRef cachedLength(func::FuncOp function) {
  for (Type type : function.getArgumentTypes())
    if (auto cache = dyn_cast<KVCacheType>(type); cache && cache.isPaged())
      return "in whole blocks";
  return "the maximum length";
}

namespace {
class PlanMemoryPass
    : public mlir::prefill::impl::PlanMemoryPassBase<PlanMemoryPass> {
public:
  using PlanMemoryPassBase::PlanMemoryPassBase;

private:
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>(kEntryName);
    if (!function || function.isExternal()) {
      emitError(getOperation().getLoc())
          << getArgument() << ": the module has no function @" << kEntryName;
      return signalPassFailure();
    }
    if (padRows)
      getOperation()->setAttr(kPadRowsAttr, UnitAttr::get(&getContext()));
    SmallVector<ActivationBuffer> buffers =
        collectActivationBuffers(function, padRows);
    for (const ActivationBuffer &buffer : buffers) {
      auto type = cast<RankedTensorType>(buffer.value.getType());
      if (type.getRank() != 2 || type.isDynamicDim(1)) {
        emitError(buffer.value.getLoc())
            << buffer.value.getOwner()->getName() << " has a result of type "
            << type << ", expected rows of a known number of channels";
        return signalPassFailure();
      }
    }

    // A buffer's rows are one domain's, so each domain has a part of the arena.
    llvm::DenseMap<Value, int64_t> offsets;
    int64_t rowBytes[2] = {0, 0};
    for (RowDomain domain : {RowDomain::Tokens, RowDomain::Logits}) {
      SmallVector<Value> values;
      SmallVector<BufferLifetime> lives;
      for (const ActivationBuffer &buffer : buffers)
        if (buffer.domain == domain) {
          values.push_back(buffer.value);
          lives.push_back(buffer.life);
        }
      BufferPacking packing =
          reuse ? packBuffers(lives, kBufferAlignment)
                : packBuffersWithoutReuse(lives, kBufferAlignment);
      for (auto [value, offset] : llvm::zip_equal(values, packing.offsets))
        offsets[value] = offset;
      rowBytes[int(domain)] = packing.totalBytes;
      peakRowBytes += peakLiveBytes(lives, kBufferAlignment);
    }
    setBuffers(function, buffers, offsets);
    report(function, rowBytes[0], rowBytes[1]);
    numBuffers += buffers.size();
    activationRowBytes += rowBytes[0];
    logitsRowBytes += rowBytes[1];
  }

  static void setBuffers(func::FuncOp function,
                         ArrayRef<ActivationBuffer> buffers,
                         const llvm::DenseMap<Value, int64_t> &offsets) {
    MLIRContext *context = function.getContext();
    llvm::MapVector<Operation *, SmallVector<Attribute>> ofStep;
    for (Operation &op : function.getBody().front())
      if (isPlanStep(&op))
        ofStep[&op].assign(op.getNumResults(), UnitAttr::get(context));
    for (const ActivationBuffer &buffer : buffers)
      ofStep[buffer.value.getOwner()][buffer.value.getResultNumber()] =
          BufferAttr::get(context, BufferClass::Activation, buffer.domain,
                          buffer.life.bytes, offsets.lookup(buffer.value));
    for (auto &[op, attributes] : ofStep)
      op->setAttr(kBuffersAttr, ArrayAttr::get(context, attributes));
  }

  void report(func::FuncOp function, int64_t tokensRowBytes,
              int64_t logitsRowBytes) {
    Builder builder(function.getContext());
    int64_t weights = residentWeightBytes(function);
    int64_t kvPerToken = kvCacheBytesPerToken(function);
    function->setAttr("prefill.activation_row_bytes",
                      builder.getI64IntegerAttr(tokensRowBytes));
    function->setAttr("prefill.logits_row_bytes",
                      builder.getI64IntegerAttr(logitsRowBytes));
    function->setAttr("prefill.weights_bytes",
                      builder.getI64IntegerAttr(weights));
    function->setAttr("prefill.kv_cache_bytes_per_token",
                      builder.getI64IntegerAttr(kvPerToken));
    remark::analysis(function.getLoc(), remark::RemarkOpts::name(getArgument())
                                            .category("prefill-memory")
                                            .function(function.getName()))
        << remark::add("activation {0} * M_pad + {1} * R_pad bytes, kv_cache "
                       "{2} * seq bytes (seq is {3}), weights {4} bytes, "
                       "temporaries known once kernels are tiled",
                       tokensRowBytes, logitsRowBytes, kvPerToken,
                       cachedLength(function), weights);
  }
};
} // namespace
