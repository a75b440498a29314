//===- InstrumentKernels.cpp - NVVM operations to calls of the emulator ---===//
#include "SiteTable.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "prefill/Target/Emulation/CompileEmulation.h"

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::emulation;

namespace {

/// 32-bit words of a thread's part of m16n8k16: A, B, C, then D.
constexpr int wordsA = 4, wordsB = 2, wordsC = 4, wordsD = 4;
constexpr int wordsIn = wordsA + wordsB + wordsC;

class Instrumenter {
public:
  Instrumenter(ModuleOp module, const Manifest &manifest)
      : module(module), manifest(manifest), builder(module.getContext()),
        pointer(LLVM::LLVMPointerType::get(module.getContext())),
        i32(builder.getI32Type()), i64(builder.getI64Type()),
        f32(builder.getF32Type()),
        none(LLVM::LLVMVoidType::get(module.getContext())) {}

  void run();

private:
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(builder, loc, type,
                                    IntegerAttr::get(type, value));
  }
  Value word(Value value) {
    return value.getType() == i32
               ? value
               : LLVM::BitcastOp::create(builder, loc, i32, value);
  }
  Value address(Value value) {
    return LLVM::PtrToIntOp::create(builder, loc, i64, value);
  }
  Value call(ApiFunction function, Type result, ArrayRef<Value> arguments);
  Value element(Value base, int index);
  Value scratch(LLVM::LLVMFuncOp func);

  void addGlobals();
  void toOneAddressSpace();
  void dropAssumptions(Operation *op);
  /// What takes the place of the operation's result; nullptr when there is
  /// none.
  Value replace(Operation *op, Value site);
  Value replaceMma(NVVM::MmaOp op, Value site);
  Value replaceLoadMatrix(NVVM::LdMatrixOp op, Value site);
  Value replaceShuffle(NVVM::ShflOp op, Value site);
  /// The same for what has no site.
  Value replacePlain(Operation *op);
  void rewrite(Operation *op);
  void addEntry(LLVM::LLVMFuncOp kernel);

  ModuleOp module;
  const Manifest &manifest;
  OpBuilder builder;
  Location loc = builder.getUnknownLoc();
  Type pointer, i32, i64, f32, none;
  llvm::DenseMap<Operation *, Value> scratchOf;
};

} // namespace

/// A call through the table. It is convergent: it may wait for other threads.
Value Instrumenter::call(ApiFunction function, Type result,
                         ArrayRef<Value> arguments) {
  Value global = LLVM::AddressOfOp::create(builder, loc, pointer, apiSymbol);
  auto loadConstant = [&](Value from) {
    auto load = LLVM::LoadOp::create(builder, loc, pointer, from);
    load.setInvariant(true); // set before the first thread starts
    return load;
  };
  Value slot = LLVM::GEPOp::create(
      builder, loc, pointer, pointer, loadConstant(global),
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(function)});
  SmallVector<Type> types;
  SmallVector<Value> operands{loadConstant(slot)};
  for (Value argument : arguments) {
    types.push_back(argument.getType());
    operands.push_back(argument);
  }
  auto type = LLVM::LLVMFunctionType::get(result, types);
  auto op = LLVM::CallOp::create(builder, loc, type, operands);
  op.setConvergent(true);
  op.setNoUnwind(true);
  return result == none ? Value() : op.getResult();
}

Value Instrumenter::element(Value base, int index) {
  return LLVM::GEPOp::create(builder, loc, pointer, i32, base,
                             ArrayRef<LLVM::GEPArg>{index});
}

/// Memory on the thread's stack through which fragments pass.
Value Instrumenter::scratch(LLVM::LLVMFuncOp func) {
  Value &value = scratchOf[func];
  if (!value) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&func.getBody().front());
    value = LLVM::AllocaOp::create(builder, loc, pointer, i32,
                                   constant(i32, wordsIn + wordsD), 16);
  }
  return value;
}

void Instrumenter::addGlobals() {
  builder.setInsertionPointToStart(module.getBody());
  auto api =
      LLVM::GlobalOp::create(builder, loc, pointer, /*isConstant=*/false,
                             LLVM::Linkage::External, apiSymbol, Attribute());
  std::string text = manifest.toJson();
  text.push_back('\0');
  auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), text.size());
  LLVM::GlobalOp::create(builder, loc, bytes, /*isConstant=*/true,
                         LLVM::Linkage::External, manifestSymbol,
                         builder.getStringAttr(text));
  builder.createBlock(&api.getInitializerRegion());
  Value null = LLVM::ZeroOp::create(builder, loc, pointer);
  LLVM::ReturnOp::create(builder, loc, null);
}

void Instrumenter::toOneAddressSpace() {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](LLVM::LLVMPointerType type) {
    return LLVM::LLVMPointerType::get(type.getContext());
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true,
                                        /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

/// Wrapping and out-of-range addresses are to reach the checks: nothing may be
/// concluded from the promise that they do not happen.
void Instrumenter::dropAssumptions(Operation *op) {
  if (auto flags = dyn_cast<LLVM::IntegerOverflowFlagsInterface>(op))
    flags.setOverflowFlags(LLVM::IntegerOverflowFlags::none);
  if (auto gep = dyn_cast<LLVM::GEPOp>(op))
    gep.setNoWrapFlags(LLVM::GEPNoWrapFlags::none);
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    load.setInvariant(false);
    load.setInvariantGroup(false);
  }
}

Value Instrumenter::replaceMma(NVVM::MmaOp op, Value site) {
  Value memory = scratch(op->getParentOfType<LLVM::LLVMFuncOp>());
  int index = 0;
  for (ValueRange operands :
       {ValueRange(op.getOperandA()), ValueRange(op.getOperandB()),
        ValueRange(op.getOperandC())})
    for (Value operand : operands)
      LLVM::StoreOp::create(builder, loc, operand, element(memory, index++));
  Value result = element(memory, wordsIn);
  call(ApiFunction::mma, none, {site, memory, result});
  return LLVM::LoadOp::create(builder, loc, op.getType(), result);
}

Value Instrumenter::replaceLoadMatrix(NVVM::LdMatrixOp op, Value site) {
  Value memory = scratch(op->getParentOfType<LLVM::LLVMFuncOp>());
  call(ApiFunction::loadMatrix, none, {site, address(op.getPtr()), memory});
  return LLVM::LoadOp::create(builder, loc, op.getType(), memory);
}

Value Instrumenter::replaceShuffle(NVVM::ShflOp op, Value site) {
  Value both = call(ApiFunction::shuffle, i64,
                    {site, op.getThreadMask(), word(op.getVal()),
                     op.getOffset(), op.getMaskAndClamp()});
  Value bits = LLVM::TruncOp::create(builder, loc, i32, both);
  auto shaped = [&](Type type) -> Value {
    return type == i32
               ? bits
               : LLVM::BitcastOp::create(builder, loc, type, bits).getResult();
  };
  auto pair = dyn_cast<LLVM::LLVMStructType>(op.getType());
  if (!pair)
    return shaped(op.getType());
  Value shifted = LLVM::LShrOp::create(builder, loc, both, constant(i64, 32));
  Value valid =
      LLVM::TruncOp::create(builder, loc, builder.getI1Type(), shifted);
  Value result = LLVM::PoisonOp::create(builder, loc, pair);
  result = LLVM::InsertValueOp::create(
      builder, loc, result, shaped(pair.getBody()[0]), ArrayRef<int64_t>{0});
  return LLVM::InsertValueOp::create(builder, loc, result, valid,
                                     ArrayRef<int64_t>{1});
}

Value Instrumenter::replace(Operation *op, Value site) {
  auto translated = [&](Value from) {
    return call(ApiFunction::access, pointer, {site, address(from)});
  };
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    load.getAddrMutable().assign(translated(load.getAddr()));
    return {};
  }
  if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
    store.getAddrMutable().assign(translated(store.getAddr()));
    return {};
  }
  if (auto mma = dyn_cast<NVVM::MmaOp>(op))
    return replaceMma(mma, site);
  if (auto load = dyn_cast<NVVM::LdMatrixOp>(op))
    return replaceLoadMatrix(load, site);
  if (auto shuffle = dyn_cast<NVVM::ShflOp>(op))
    return replaceShuffle(shuffle, site);
  if (auto vote = dyn_cast<NVVM::VoteSyncOp>(op)) {
    Value predicate = LLVM::ZExtOp::create(builder, loc, i32, vote.getPred());
    Value result =
        call(ApiFunction::vote, i32, {site, vote.getMask(), predicate});
    if (vote.getType() == i32)
      return result;
    return LLVM::TruncOp::create(builder, loc, vote.getType(), result);
  }
  if (auto redux = dyn_cast<NVVM::ReduxOp>(op))
    return call(ApiFunction::redux, i32,
                {site, redux.getMaskAndClamp(), redux.getVal()});
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
    Value bytes =
        copy.getCpSize() ? copy.getCpSize() : constant(i32, copy.getSize());
    return call(ApiFunction::asyncCopy, none,
                {site, address(copy.getDst()), address(copy.getSrc()), bytes});
  }
  if (auto barrier = dyn_cast<NVVM::BarrierOp>(op)) {
    auto or0 = [&](Value value) { return value ? value : constant(i32, 0); };
    return call(
        ApiFunction::barrier, none,
        {site, or0(barrier.getBarrierId()), or0(barrier.getNumberOfThreads())});
  }
  if (isa<NVVM::Barrier0Op>(op))
    return call(ApiFunction::barrier, none,
                {site, constant(i32, 0), constant(i32, 0)});
  if (auto sync = dyn_cast<NVVM::SyncWarpOp>(op))
    return call(ApiFunction::syncWarp, none, {site, sync.getMask()});
  if (isa<NVVM::CpAsyncCommitGroupOp>(op))
    return call(ApiFunction::commitGroup, none, {site});
  if (isa<NVVM::CpAsyncWaitGroupOp>(op))
    return call(ApiFunction::waitGroup, none, {site});
  assert(isa<NVVM::GriddepcontrolOp>(op) && "a site without a replacement");
  return call(ApiFunction::gridDependency, none, {site});
}

Value Instrumenter::replacePlain(Operation *op) {
  auto special = [&](SpecialRegister which) {
    return call(ApiFunction::specialRegister, i32,
                {constant(i32, static_cast<int>(which))});
  };
  if (isa<NVVM::ThreadIdXOp>(op))
    return special(SpecialRegister::tid);
  if (isa<NVVM::BlockDimXOp>(op))
    return special(SpecialRegister::ntid);
  if (isa<NVVM::BlockIdXOp>(op))
    return special(SpecialRegister::ctaid);
  if (isa<NVVM::GridDimXOp>(op))
    return special(SpecialRegister::nctaid);
  if (isa<NVVM::LaneIdOp>(op))
    return special(SpecialRegister::laneid);
  if (auto cast = dyn_cast<LLVM::AddrSpaceCastOp>(op))
    return cast.getArg();
  if (isa<LLVM::AddressOfOp>(op))
    return LLVM::IntToPtrOp::create(builder, loc, pointer,
                                    constant(i64, sharedWindow));
  if (auto truncate = dyn_cast<LLVM::FPTruncOp>(op);
      truncate && getElementTypeOrSelf(truncate.getType()).isBF16()) {
    Value value = truncate.getArg();
    return roundToBFloat16(builder, loc, value);
  }
  if (auto rcp = dyn_cast<NVVM::RcpApproxFtzF32Op>(op))
    return call(ApiFunction::reciprocalApprox, f32, {rcp.getArg()});
  if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op)) {
    StringRef name = intrinsic.getIntrin();
    ApiFunction function = ApiFunction::exp2Approx;
    if (name.starts_with("llvm.nvvm.rcp."))
      function = ApiFunction::reciprocalApprox;
    else if (name.starts_with("llvm.nvvm.rsqrt."))
      function = ApiFunction::reciprocalSqrtApprox;
    else if (name.starts_with("llvm.nvvm.lg2."))
      function = ApiFunction::log2Approx;
    return call(function, f32, {intrinsic.getArgs()[0]});
  }
  return {};
}

void Instrumenter::rewrite(Operation *op) {
  builder.setInsertionPoint(op);
  loc = op->getLoc();
  Value result;
  bool keep = isa<LLVM::LoadOp, LLVM::StoreOp>(op);
  auto site = manifest.siteOf.find(op);
  if (site != manifest.siteOf.end()) {
    result = replace(op, constant(i32, site->second));
  } else {
    result = replacePlain(op);
    keep = !result;
  }
  if (keep)
    return;
  if (result)
    op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

/// void NAME(const uint64_t *words): the words become the body's arguments.
void Instrumenter::addEntry(LLVM::LLVMFuncOp body) {
  loc = body.getLoc();
  std::string name = body.getName().str();
  body.setName(name + ".body");
  body.setLinkage(LLVM::Linkage::Internal);
  body.removeArgAttrsAttr();
  for (NamedAttribute attribute : llvm::to_vector(body->getDiscardableAttrs()))
    body->removeDiscardableAttr(attribute.getName());
  body.setPassthroughAttr(
      builder.getArrayAttr({builder.getStringAttr("alwaysinline")}));

  builder.setInsertionPointAfter(body);
  auto entry = LLVM::LLVMFuncOp::create(
      builder, loc, name, LLVM::LLVMFunctionType::get(none, {pointer}));
  builder.setInsertionPointToStart(entry.addEntryBlock(builder));
  Value words = entry.getBody().front().getArgument(0);
  SmallVector<Value> operands;
  for (auto [index, type] : llvm::enumerate(body.getArgumentTypes())) {
    Value from = LLVM::GEPOp::create(builder, loc, pointer, i64, words,
                                     ArrayRef<LLVM::GEPArg>{int32_t(index)});
    operands.push_back(LLVM::LoadOp::create(builder, loc, type, from));
  }
  LLVM::CallOp::create(builder, loc, body, operands);
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

void Instrumenter::run() {
  for (auto global :
       llvm::make_early_inc_range(module.getOps<LLVM::GlobalOp>()))
    global.erase(); // the shared window; nothing else passed the checks
  toOneAddressSpace();
  SmallVector<LLVM::LLVMFuncOp> kernels(module.getOps<LLVM::LLVMFuncOp>());
  for (LLVM::LLVMFuncOp kernel : kernels) {
    SmallVector<Operation *> ops;
    kernel.getBody().walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops) {
      dropAssumptions(op);
      rewrite(op);
    }
    addEntry(kernel);
  }
  loc = module.getLoc();
  addGlobals();
}

LogicalResult
mlir::prefill::emulation::instrumentKernels(ModuleOp module,
                                            const Manifest &manifest) {
  Instrumenter(module, manifest).run();
  return success();
}
