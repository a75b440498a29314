//===- KernelFrame.cpp - what a CUDA kernel is called with ----------------===//
#include "prefill/Codegen/CUDA/KernelFrame.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "prefill/Codegen/CUDA/LaunchAttributes.h"

using namespace mlir;
using namespace mlir::prefill;

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

Value CudaTensor::at(CudaBuilder &b, Value row, Value column) const {
  Value element = b.toI64(column);
  if (rank == 2)
    element = b.add(b.mul(b.toI64(row), columns), element);
  return b.elementPointer(pointer, element, elementType);
}

Value CudaBatch::loadI32(CudaBuilder &b, Value array, Value index,
                         StringRef site) {
  Type type = b.getI32Type();
  return b.toIndex(b.load(type, b.elementPointer(array, index, type), site));
}
Value CudaBatch::loadI64(CudaBuilder &b, Value array, Value index,
                         StringRef site) {
  Type type = b.getI64Type();
  return b.toIndex(b.load(type, b.elementPointer(array, index, type), site));
}

Value CudaCache::slotOffset(CudaBuilder &b, Value slot) const {
  int64_t blockSize = type.getBlockSize();
  Value block = b.mul(b.divide(slot, blockSize), blockStride);
  return b.add(block, b.mul(b.remainder(slot, blockSize), tokenStride));
}

Value CudaCache::tokenOffset(CudaBuilder &b, const CudaBatch &batch, Value seq,
                             Value token) const {
  int64_t blockSize = type.getBlockSize();
  Value entry =
      b.add(b.mul(seq, batch.blockTableStride), b.divide(token, blockSize));
  Value id =
      CudaBatch::loadI32(b, batch.blockTable, entry, "batch.load_block_table");
  return b.add(b.mul(id, blockStride),
               b.mul(b.remainder(token, blockSize), tokenStride));
}

Value CudaCache::headOffset(CudaBuilder &b, Value offset, Value head) const {
  return b.add(offset, b.mul(head, headStride));
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

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

bool isSelected(Value argument) {
  return llvm::any_of(argument.getUsers(), [&](Operation *user) {
    auto select = dyn_cast<SelectRowsOp>(user);
    return select && select.getInput() == argument;
  });
}

bool isScore(func::FuncOp tiled, BlockArgument argument) {
  return bool(tiled.getArgAttr(argument.getArgNumber(), kScoreAttr));
}

constexpr int64_t kBatchWords = 11, kCacheWords = 5, kScoreWords = 2;

/// Words that an argument takes; a diagnostic when it has no form.
FailureOr<int64_t> wordsOf(func::FuncOp tiled, BlockArgument argument) {
  auto refuse = [&]() {
    return tiled.emitError()
           << "argument " << argument.getArgNumber() << " of kernel "
           << tiled.getSymName() << " has type " << argument.getType();
  };
  Type type = argument.getType();
  if (isa<BatchType>(type))
    return kBatchWords;
  if (auto cache = dyn_cast<KVCacheType>(type)) {
    if (cache.getLayout() == KVLayout::PagedVNNI)
      return refuse() << "; target cuda has no kernel for layout paged_vnni";
    return kCacheWords;
  }
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return refuse() << "; a kernel takes tensors, memrefs, batches and KV "
                       "caches";
  if (isScore(tiled, argument))
    return kScoreWords;
  ArrayRef<int64_t> shape = shaped.getShape();
  if (shape.empty() || shape.size() > 2 ||
      llvm::is_contained(shape.drop_front(), ShapedType::kDynamic))
    return refuse() << "; target cuda takes vectors and matrices of which only "
                       "the first size may be dynamic";
  return 1;
}

/// Turns the words of a launch into pointers and sizes.
struct Words {
  CudaBuilder &b;
  Block *body;

  Value pointer(size_t i) {
    auto type = LLVM::LLVMPointerType::get(b.getContext(), 1);
    return LLVM::IntToPtrOp::create(b, type, body->getArgument(i));
  }
  Value size(size_t i) { return b.toIndex(body->getArgument(i)); }
  CudaBatch batch(size_t i) {
    CudaBatch batch;
    batch.rows = size(i);
    batch.numSeqs = size(i + 1);
    batch.logitRows = size(i + 2);
    batch.tokens = pointer(i + 3);
    batch.positions = pointer(i + 4);
    batch.slotMapping = pointer(i + 5);
    batch.cuSeqlens = pointer(i + 6);
    batch.kvLens = pointer(i + 7);
    batch.blockTable = pointer(i + 8);
    batch.blockTableStride = size(i + 9);
    batch.logitsIndices = pointer(i + 10);
    return batch;
  }
};

void declareSharedWindow(func::FuncOp tiled) {
  auto module = tiled->getParentOfType<ModuleOp>();
  if (module.lookupSymbol(kSharedWindowSymbol))
    return;
  OpBuilder b(module.getBodyRegion());
  constexpr int64_t alignment = 128;
  LLVM::GlobalOp::create(b, module.getLoc(),
                         LLVM::LLVMArrayType::get(b.getI8Type(), 0),
                         /*isConstant=*/false, LLVM::Linkage::External,
                         kSharedWindowSymbol, Attribute(), alignment,
                         /*addrSpace=*/3);
}

} // namespace

FailureOr<KernelFrame> KernelFrame::create(func::FuncOp tiled) {
  SmallVector<int64_t> firstWord;
  int64_t numWords = 0;
  BlockArgument batchArgument;
  for (BlockArgument argument : tiled.getArguments()) {
    FailureOr<int64_t> words = wordsOf(tiled, argument);
    if (failed(words))
      return failure();
    firstWord.push_back(numWords);
    numWords += *words;
    if (isa<BatchType>(argument.getType()))
      batchArgument = argument;
  }
  for (BlockArgument argument : tiled.getArguments()) {
    auto shaped = dyn_cast<ShapedType>(argument.getType());
    if (shaped && !shaped.hasStaticShape() && !batchArgument)
      return tiled.emitError()
             << "kernel " << tiled.getSymName()
             << " has rows but no !prefill.batch argument that tells how many";
  }

  declareSharedWindow(tiled);
  MLIRContext *context = tiled.getContext();
  OpBuilder before(tiled);
  KernelFrame frame;
  frame.function = LLVM::LLVMFuncOp::create(
      before, tiled.getLoc(), (tiled.getSymName() + "$kernel").str(),
      LLVM::LLVMFunctionType::get(
          LLVM::LLVMVoidType::get(context),
          SmallVector<Type>(numWords, before.getI64Type())));
  for (NamedAttribute attr : tiled->getDiscardableAttrs())
    frame.function->setDiscardableAttr(attr.getName(), attr.getValue());
  Block *body = frame.function.addEntryBlock(before);
  CudaBuilder b(tiled.getLoc(), context);
  b.setInsertionPointToEnd(body);
  Words words{b, body};

  if (batchArgument)
    frame.batchView = words.batch(firstWord[batchArgument.getArgNumber()]);
  RowDomain domain = kernelDomain(tiled);
  for (auto [argument, i] : llvm::zip(tiled.getArguments(), firstWord)) {
    if (auto cache = dyn_cast<KVCacheType>(argument.getType())) {
      frame.caches[argument] = CudaCache{cache,
                                         words.pointer(i),
                                         words.pointer(i + 1),
                                         words.size(i + 2),
                                         words.size(i + 3),
                                         words.size(i + 4)};
      continue;
    }
    auto shaped = dyn_cast<ShapedType>(argument.getType());
    if (!shaped)
      continue;
    if (isScore(tiled, argument)) {
      frame.scoreOf[argument] = {words.pointer(i), words.size(i + 1)};
      continue;
    }
    CudaTensor tensor;
    tensor.pointer = words.pointer(i);
    tensor.elementType = shaped.getElementType();
    tensor.rank = shaped.getRank();
    tensor.columns = shaped.getShape().back();
    if (shaped.isDynamicDim(0))
      tensor.rows = domain == RowDomain::Logits && !isSelected(argument)
                        ? frame.batchView.logitRows
                        : frame.batchView.rows;
    frame.tensors[argument] = tensor;
  }
  frame.lastOfEntry = LLVM::ReturnOp::create(b, ValueRange());
  if (Operation *last = frame.lastOfEntry->getPrevNode())
    frame.lastOfEntry = last;
  return frame;
}

CudaBuilder KernelFrame::bodyBuilder() const {
  LLVM::LLVMFuncOp kernel = function;
  CudaBuilder b(kernel.getLoc(), kernel.getContext());
  b.setInsertionPoint(kernel.getBody().front().getTerminator());
  return b;
}

CudaBuilder KernelFrame::entryBuilder() const {
  LLVM::LLVMFuncOp kernel = function;
  CudaBuilder b(kernel.getLoc(), kernel.getContext());
  if (lastOfEntry->hasTrait<OpTrait::IsTerminator>())
    b.setInsertionPoint(lastOfEntry);
  else
    b.setInsertionPointAfter(lastOfEntry);
  return b;
}

const CudaTensor &KernelFrame::tensor(Value argument) const {
  auto found = tensors.find(argument);
  assert(found != tensors.end() && "not an argument of the tiled kernel");
  return found->second;
}

Value KernelFrame::sharedPointer(CudaBuilder &b, int64_t offset) const {
  auto type = LLVM::LLVMPointerType::get(b.getContext(), 3);
  Value base = LLVM::AddressOfOp::create(b, type, kSharedWindowSymbol);
  return b.pointer(base, offset);
}

void KernelFrame::finish(func::FuncOp tiled) {
  Builder b(function.getContext());
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                    b.getUnitAttr());
  function->setAttr(kBlockThreadsAttr,
                    b.getI32IntegerAttr(int32_t(blockThreads)));
  function->setAttr(kSharedBytesAttr, b.getI64IntegerAttr(shared.used()));
  StringAttr name = tiled.getSymNameAttr();
  tiled.erase();
  function.setSymNameAttr(name);
}
