//===- KernelABI.cpp - what a CPU kernel is called with -------------------===//
#include "prefill/Codegen/CPU/KernelABI.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "prefill/Analysis/ActivationBuffers.h"
#include "prefill/Codegen/Common/TiledBody.h"

using namespace mlir;
using namespace mlir::prefill;

Value CacheView::slotOffset(KernelBuilder &b, Value slot) const {
  int64_t blockSize = type.getBlockSize();
  Value block = b.mul(b.divide(slot, blockSize), blockStride);
  if (type.getLayout() == KVLayout::PagedVNNI)
    return block;
  return b.add(block, b.mul(b.remainder(slot, blockSize), tokenStride));
}

Value CacheView::blockOffset(KernelBuilder &b, const BatchView &batch,
                             Value seq, Value token) const {
  int64_t blockSize = type.getBlockSize();
  Value entry =
      b.add(b.mul(seq, batch.blockTableStride), b.divide(token, blockSize));
  Value id =
      b.toIndex(memref::LoadOp::create(b, batch.blockTable, ValueRange{entry}));
  return b.mul(id, blockStride);
}

Value CacheView::tokenOffset(KernelBuilder &b, const BatchView &batch,
                             Value seq, Value token) const {
  return b.add(blockOffset(b, batch, seq, token),
               b.mul(b.remainder(token, type.getBlockSize()), tokenStride));
}

Value CacheView::headOffset(KernelBuilder &b, Value offset, Value head) const {
  return b.add(offset, b.mul(head, headStride));
}

namespace {

/// The domain of the rows of a kernel's compute op.
RowDomain kernelDomain(func::FuncOp tiled) {
  RowDomain domain = RowDomain::Tokens;
  tiled.walk([&](Operation *op) {
    if (auto config = op->getAttrOfType<LoweringConfigAttr>("lowering_config"))
      domain = config.getDomain();
  });
  return domain;
}

/// The domain of the rows of an argument: what rows are selected of has those
/// of the batch.
RowDomain argumentDomain(Value argument, RowDomain kernel) {
  bool isSelected = llvm::any_of(argument.getUsers(), [&](Operation *user) {
    if (auto select = dyn_cast<SelectRowsOp>(user))
      return select.getInput() == argument;
    if (auto attention = dyn_cast<OnlineAttentionOp>(user))
      return attention.getQuery() == argument;
    return false;
  });
  return isSelected ? RowDomain::Tokens : kernel;
}

/// Adds the flattened arguments and remembers their places.
class Flattener {
public:
  Flattener(MLIRContext *context) : b(context) {}

  size_t pointer(Type elementType) {
    types.push_back(MemRefType::get({1}, elementType));
    return types.size() - 1;
  }
  size_t size() {
    types.push_back(b.getIndexType());
    return types.size() - 1;
  }
  Builder b;
  SmallVector<Type> types;
};

/// Views that a builder makes of bare pointers.
struct Views {
  KernelBuilder &b;
  Block *body;

  Value raw(size_t i) { return body->getArgument(i); }

  Value strided(Value pointer, ArrayRef<OpFoldResult> sizes,
                ArrayRef<int64_t> shape) {
    Type element = cast<MemRefType>(pointer.getType()).getElementType();
    SmallVector<OpFoldResult> strides(shape.size());
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = b.getIndexAttr(stride);
      stride *= d == 0 ? 1 : shape[d];
    }
    return memref::ReinterpretCastOp::create(b, MemRefType::get(shape, element),
                                             pointer, b.getIndexAttr(0), sizes,
                                             strides);
  }
  /// Rows of a matrix `pitch` elements apart.
  Value pitched(Value pointer, ArrayRef<OpFoldResult> sizes,
                ArrayRef<int64_t> shape, int64_t pitch) {
    Type element = cast<MemRefType>(pointer.getType()).getElementType();
    auto layout = StridedLayoutAttr::get(b.getContext(), 0, {pitch, 1});
    SmallVector<OpFoldResult> strides{b.getIndexAttr(pitch), b.getIndexAttr(1)};
    return memref::ReinterpretCastOp::create(
        b, MemRefType::get(shape, element, layout), pointer, b.getIndexAttr(0),
        sizes, strides);
  }
  Value flat(Value pointer, Value size) {
    return strided(pointer, {OpFoldResult(size)}, {ShapedType::kDynamic});
  }
  Value flat(Value pointer, int64_t size) {
    return strided(pointer, {OpFoldResult(b.getIndexAttr(size))}, {size});
  }
};

} // namespace

FailureOr<KernelABI> KernelABI::create(func::FuncOp tiled, bool padRows) {
  struct Argument {
    Value original;
    size_t first;
  };
  Flattener flattener(tiled.getContext());
  SmallVector<Argument> arguments;
  for (BlockArgument argument : tiled.getArguments()) {
    size_t first = flattener.types.size();
    Type type = argument.getType();
    if (auto shaped = dyn_cast<ShapedType>(type)) {
      ArrayRef<int64_t> shape = shaped.getShape();
      bool isScore =
          bool(tiled.getArgAttr(argument.getArgNumber(), kScoreAttr));
      if (!isScore && !shape.empty() &&
          llvm::is_contained(shape.drop_front(), ShapedType::kDynamic))
        return tiled.emitError()
               << "argument " << argument.getArgNumber() << " of kernel "
               << tiled.getSymName() << " has type " << type
               << "; only the first size may be dynamic";
      flattener.pointer(shaped.getElementType());
      if (isScore)
        flattener.size();
    } else if (isa<BatchType>(type)) {
      for (int i = 0; i < 3; ++i)
        flattener.size();
      flattener.pointer(flattener.b.getI32Type());
      flattener.pointer(flattener.b.getI32Type());
      flattener.pointer(flattener.b.getI64Type());
      for (int i = 0; i < 3; ++i)
        flattener.pointer(flattener.b.getI32Type());
      flattener.size();
      flattener.pointer(flattener.b.getI32Type());
    } else if (auto cache = dyn_cast<KVCacheType>(type)) {
      flattener.pointer(cache.getDtype());
      flattener.pointer(cache.getDtype());
      for (int i = 0; i < 3; ++i)
        flattener.size();
    } else {
      return tiled.emitError()
             << "argument " << argument.getArgNumber() << " of kernel "
             << tiled.getSymName() << " has type " << type
             << "; a kernel takes tensors, memrefs, batches and KV caches";
    }
    arguments.push_back({argument, first});
  }
  size_t tail = flattener.types.size();
  flattener.size();
  flattener.size();
  flattener.pointer(flattener.b.getIntegerType(8));

  KernelABI abi;
  OpBuilder moduleBuilder(tiled);
  abi.function = func::FuncOp::create(
      moduleBuilder, tiled.getLoc(), (tiled.getSymName() + "$kernel").str(),
      FunctionType::get(tiled.getContext(), flattener.types, {}));
  for (NamedAttribute attr : tiled->getDiscardableAttrs())
    abi.function->setDiscardableAttr(attr.getName(), attr.getValue());
  Block *body = abi.function.addEntryBlock();
  KernelBuilder b(tiled.getLoc(), tiled.getContext());
  b.setInsertionPointToEnd(body);
  Views views{b, body};

  // The batch first: row counts come from it.
  for (Argument &argument : arguments) {
    if (!isa<BatchType>(argument.original.getType()))
      continue;
    size_t i = argument.first;
    BatchView &batch = abi.batchView;
    batch.rows = views.raw(i);
    batch.numSeqs = views.raw(i + 1);
    batch.logitRows = views.raw(i + 2);
    batch.tokens = views.flat(views.raw(i + 3), batch.rows);
    batch.positions = views.flat(views.raw(i + 4), batch.rows);
    batch.slotMapping = views.flat(views.raw(i + 5), batch.rows);
    batch.cuSeqlens = views.flat(views.raw(i + 6), b.add(batch.numSeqs, 1));
    batch.kvLens = views.flat(views.raw(i + 7), batch.numSeqs);
    batch.blockTableStride = views.raw(i + 9);
    batch.blockTable = views.flat(views.raw(i + 8),
                                  b.mul(batch.numSeqs, batch.blockTableStride));
    batch.logitsIndices = views.flat(views.raw(i + 10), batch.logitRows);
  }
  RowDomain domain = kernelDomain(tiled);
  // Caches have no size of their own in the ABI; addresses are checked by the
  // runtime when it makes the slot mapping.
  Value unbounded = b.index(std::numeric_limits<int64_t>::max());
  for (Argument &argument : arguments) {
    Value original = argument.original;
    if (auto cache = dyn_cast<KVCacheType>(original.getType())) {
      size_t i = argument.first;
      abi.caches[original] = CacheView{cache,
                                       views.flat(views.raw(i), unbounded),
                                       views.flat(views.raw(i + 1), unbounded),
                                       views.raw(i + 2),
                                       views.raw(i + 3),
                                       views.raw(i + 4)};
      continue;
    }
    auto shaped = dyn_cast<ShapedType>(original.getType());
    if (!shaped)
      continue;
    Value pointer = views.raw(argument.first);
    if (tiled.getArgAttr(cast<BlockArgument>(original).getArgNumber(),
                         kScoreAttr)) {
      abi.scores[original] = {views.flat(pointer, unbounded),
                              views.raw(argument.first + 1)};
      continue;
    }
    ArrayRef<int64_t> shape = shaped.getShape();
    if (shaped.hasStaticShape()) {
      Value flat = views.flat(pointer, shaped.getNumElements());
      abi.flats[original] = flat;
      SmallVector<OpFoldResult> sizes =
          llvm::map_to_vector(shape, [&](int64_t size) {
            return OpFoldResult(b.getIndexAttr(size));
          });
      abi.views[original] =
          shape.size() <= 2 ? views.strided(pointer, sizes, shape) : flat;
      continue;
    }
    if (!abi.hasBatch()) {
      tiled.emitError() << "kernel " << tiled.getSymName()
                        << " has rows but no !prefill.batch argument that "
                           "tells how many";
      abi.function.erase();
      return failure();
    }
    Value rows = argumentDomain(original, domain) == RowDomain::Logits
                     ? abi.batchView.logitRows
                     : abi.batchView.rows;
    abi.rowCounts[original] = rows;
    int64_t rowElements = 1;
    SmallVector<OpFoldResult> sizes{rows};
    for (int64_t size : shape.drop_front()) {
      rowElements *= size;
      sizes.push_back(b.getIndexAttr(size));
    }
    int64_t pitch =
        shape.size() == 2 ? prefill::rowPitch(shaped, padRows) : rowElements;
    abi.pitches[original] = pitch;
    abi.views[original] = pitch == rowElements
                              ? views.strided(pointer, sizes, shape)
                              : views.pitched(pointer, sizes, shape, pitch);
    abi.flats[original] = views.flat(pointer, b.mul(rows, pitch));
  }
  abi.workgroupBegin = views.raw(tail);
  abi.workgroupEnd = views.raw(tail + 1);
  // Scratch belongs to the thread alone.
  abi.function.setArgAttr(tail + 2, "llvm.noalias", b.getUnitAttr());
  abi.scratch = views.flat(views.raw(tail + 2), unbounded);
  func::ReturnOp::create(b);
  return abi;
}

KernelBuilder KernelABI::bodyBuilder() const {
  func::FuncOp kernel = function;
  KernelBuilder b(kernel.getLoc(), kernel.getContext());
  b.setInsertionPoint(kernel.getBody().front().getTerminator());
  return b;
}

Value KernelABI::allocateScratch(Type elementType, int64_t count) {
  KernelBuilder b(scratch.getLoc(), scratch.getContext());
  // In the entry block, so that it dominates every use.
  b.setInsertionPointAfterValue(scratch);
  int64_t offset = scratchUsed;
  int64_t bytes = count * elementType.getIntOrFloatBitWidth() / 8;
  scratchUsed += llvm::alignTo(bytes, 64);
  return memref::ViewOp::create(b, MemRefType::get({count}, elementType),
                                scratch, b.index(offset), ValueRange{});
}

Value KernelABI::unknownZero() {
  if (!zero) {
    KernelBuilder b(scratch.getLoc(), scratch.getContext());
    // In the entry block, so that it dominates every use. No grid has 2^62
    // workgroups.
    b.setInsertionPointAfterValue(scratch);
    zero = arith::ShRUIOp::create(b, workgroupEnd, b.index(62));
  }
  return zero;
}

void KernelABI::finish(func::FuncOp tiled) {
  function->setAttr(
      kScratchBytesAttr,
      IntegerAttr::get(IntegerType::get(function.getContext(), 64),
                       scratchUsed));
  function.setVisibility(tiled.getVisibility());
  StringAttr name = tiled.getSymNameAttr();
  tiled.erase();
  function.setSymNameAttr(name);
}

LogicalResult prefill::convertTiledBody(
    func::FuncOp tiled, KernelABI &abi,
    llvm::function_ref<LogicalResult(Operation *, KernelBuilder &, IRMapping &)>
        emitOp) {
  KernelBuilder b = abi.bodyBuilder();
  return cloneTiledBody(
      tiled, b,
      {[&](OpFoldResult, llvm::function_ref<void(Value)> body) {
         b.forLoop(abi.workgroupBegin, abi.workgroupEnd, 1, body);
       },
       [&](Value argument) { return abi.rowsOf(argument); },
       [&](Operation *op, IRMapping &mapping) {
         return emitOp(op, b, mapping);
       }});
}
