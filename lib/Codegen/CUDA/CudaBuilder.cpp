//===- CudaBuilder.cpp - what a CUDA thread can do ------------------------===//
#include "prefill/Codegen/CUDA/CudaBuilder.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "prefill/Codegen/CUDA/ChipTable.h"

using namespace mlir;
using namespace mlir::prefill;

Location CudaBuilder::site(StringRef name) {
  return NameLoc::get(getStringAttr(name), getLoc());
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

Value CudaBuilder::i32(int64_t value) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(int32_t(value)));
}
Value CudaBuilder::toI32(Value integer) {
  if (integer.getType().isInteger(32))
    return integer;
  if (integer.getType().isIndex())
    return createOrFold<arith::IndexCastOp>(getI32Type(), integer);
  return createOrFold<arith::TruncIOp>(getI32Type(), integer);
}
Value CudaBuilder::toI64(Value integer) {
  if (integer.getType().isInteger(64))
    return integer;
  if (integer.getType().isIndex())
    return createOrFold<arith::IndexCastOp>(getI64Type(), integer);
  return createOrFold<arith::ExtSIOp>(getI64Type(), integer);
}
Value CudaBuilder::bitAnd(Value lhs, Value rhs) {
  return createOrFold<arith::AndIOp>(lhs, rhs);
}
Value CudaBuilder::bitAnd(Value lhs, int64_t rhs) {
  return bitAnd(lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::bitXor(Value lhs, Value rhs) {
  return createOrFold<arith::XOrIOp>(lhs, rhs);
}
Value CudaBuilder::bitXor(Value lhs, int64_t rhs) {
  return rhs == 0 ? lhs : bitXor(lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::shiftLeft(Value lhs, int64_t rhs) {
  return createOrFold<arith::ShLIOp>(lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::shiftRight(Value lhs, int64_t rhs) {
  return createOrFold<arith::ShRUIOp>(lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::both(Value lhs, Value rhs) {
  if (!lhs || !rhs)
    return lhs ? lhs : rhs;
  return bitAnd(lhs, rhs);
}
Value CudaBuilder::less(Value lhs, Value rhs) {
  return compare(arith::CmpIPredicate::slt, lhs, rhs);
}
Value CudaBuilder::less(Value lhs, int64_t rhs) {
  return less(lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::equal(Value lhs, int64_t rhs) {
  return compare(arith::CmpIPredicate::eq, lhs, constantLike(lhs, rhs));
}
Value CudaBuilder::select(Value condition, Value yes, Value no) {
  return createOrFold<arith::SelectOp>(condition, yes, no);
}

Value CudaBuilder::threadId() {
  return NVVM::ThreadIdXOp::create(*this, getI32Type());
}
Value CudaBuilder::blockId() {
  return NVVM::BlockIdXOp::create(*this, getI32Type());
}
Value CudaBuilder::lane() { return bitAnd(threadId(), kWarpThreads - 1); }
Value CudaBuilder::warp() { return divide(threadId(), kWarpThreads); }

//===----------------------------------------------------------------------===//
// Floating point
//===----------------------------------------------------------------------===//

Value CudaBuilder::fadd(Value lhs, Value rhs) {
  return arith::AddFOp::create(*this, lhs, rhs);
}
Value CudaBuilder::fsub(Value lhs, Value rhs) {
  return arith::SubFOp::create(*this, lhs, rhs);
}
Value CudaBuilder::fmul(Value lhs, Value rhs) {
  return arith::MulFOp::create(*this, lhs, rhs);
}
Value CudaBuilder::fmul(Value lhs, double rhs) { return fmul(lhs, f32(rhs)); }
Value CudaBuilder::fma(Value a, Value b, Value c) {
  return LLVM::FMAOp::create(*this, a, b, c);
}
Value CudaBuilder::fmax(Value lhs, Value rhs) {
  return arith::MaxNumFOp::create(*this, lhs, rhs);
}
static Value approximation(CudaBuilder &b, StringRef intrinsic, Value x) {
  return LLVM::CallIntrinsicOp::create(b, b.getF32Type(),
                                       b.getStringAttr(intrinsic), x)
      .getResult(0);
}
Value CudaBuilder::exp2(Value x) {
  return approximation(*this, "llvm.nvvm.ex2.approx.ftz.f32", x);
}
Value CudaBuilder::log2(Value x) {
  return approximation(*this, "llvm.nvvm.lg2.approx.ftz.f", x);
}
Value CudaBuilder::reciprocal(Value x) {
  return NVVM::RcpApproxFtzF32Op::create(*this, getF32Type(), x);
}
Value CudaBuilder::rsqrt(Value x) {
  return approximation(*this, "llvm.nvvm.rsqrt.approx.ftz.f", x);
}

Value CudaBuilder::pack(Value first, Value second, Type element) {
  // As a vector: PTX then has one cvt.rn.bf16x2.f32 (f16x2) for both.
  auto wide = VectorType::get({2}, getF32Type());
  Value both = LLVM::PoisonOp::create(*this, wide);
  both = LLVM::InsertElementOp::create(*this, both, first, i32(0));
  both = LLVM::InsertElementOp::create(*this, both, second, i32(1));
  Value narrow =
      LLVM::FPTruncOp::create(*this, VectorType::get({2}, element), both);
  return LLVM::BitcastOp::create(*this, getI32Type(), narrow);
}

std::pair<Value, Value> CudaBuilder::unpack(Value word, Type element) {
  if (element.isBF16()) {
    // bf16 is the upper half of an f32.
    Value first = shiftLeft(word, 16);
    Value second = bitAnd(word, int64_t(int32_t(0xffff0000)));
    return {LLVM::BitcastOp::create(*this, getF32Type(), first),
            LLVM::BitcastOp::create(*this, getF32Type(), second)};
  }
  Value halves =
      LLVM::BitcastOp::create(*this, VectorType::get({2}, element), word);
  auto wide = [&](int64_t i) -> Value {
    return LLVM::FPExtOp::create(
        *this, getF32Type(),
        LLVM::ExtractElementOp::create(*this, halves, i32(i)));
  };
  Value first = wide(0);
  return {first, wide(1)};
}

Value CudaBuilder::roundTo(Value value, Type element) {
  if (element.isF32())
    return value;
  Value word = pack(value, f32(0.0), element);
  return unpack(word, element).first;
}

SmallVector<Value> CudaBuilder::zeros(int64_t count) {
  return SmallVector<Value>(count, f32(0.0));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value CudaBuilder::pointer(Value base, Value bytes) {
  if (bytes.getType().isIndex())
    bytes = toI64(bytes);
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{bytes});
}
Value CudaBuilder::pointer(Value base, int64_t bytes) {
  if (bytes == 0)
    return base;
  return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{int32_t(bytes)});
}
Value CudaBuilder::elementPointer(Value base, Value element, Type type) {
  int64_t bytes = type.getIntOrFloatBitWidth() / 8;
  if (cast<LLVM::LLVMPointerType>(base.getType()).getAddressSpace() != 3)
    element = toI64(element);
  return pointer(base, mul(element, bytes));
}

Value CudaBuilder::load(Type type, Value pointer, StringRef name,
                        int64_t alignment) {
  return LLVM::LoadOp::create(static_cast<OpBuilder &>(*this), site(name), type,
                              pointer, unsigned(alignment));
}
void CudaBuilder::store(Value value, Value pointer, StringRef name,
                        int64_t alignment) {
  LLVM::StoreOp::create(static_cast<OpBuilder &>(*this), site(name), value,
                        pointer, unsigned(alignment));
}

static SmallVector<Value> elements(CudaBuilder &b, Value vector) {
  SmallVector<Value> values;
  int64_t count = cast<VectorType>(vector.getType()).getDimSize(0);
  for (int64_t i = 0; i < count; ++i)
    values.push_back(LLVM::ExtractElementOp::create(b, vector, b.i32(i)));
  return values;
}
static Value gather(CudaBuilder &b, ValueRange values) {
  auto type = VectorType::get({int64_t(values.size())}, values[0].getType());
  Value vector = LLVM::PoisonOp::create(b, type);
  for (auto [i, value] : llvm::enumerate(values))
    vector = LLVM::InsertElementOp::create(b, vector, value, b.i32(i));
  return vector;
}

SmallVector<Value> CudaBuilder::loadChunk(Value pointer, StringRef name) {
  return elements(*this, load(VectorType::get({4}, getI32Type()), pointer, name,
                              kChunkBytes));
}
void CudaBuilder::storeChunk(ValueRange words, Value pointer, StringRef name) {
  store(gather(*this, words), pointer, name, kChunkBytes);
}
SmallVector<Value> CudaBuilder::loadFloats(Value pointer, StringRef name) {
  return elements(*this, load(vectorF32(4), pointer, name, kChunkBytes));
}
void CudaBuilder::storeFloats(ValueRange values, Value pointer,
                              StringRef name) {
  store(gather(*this, values), pointer, name, kChunkBytes);
}

//===----------------------------------------------------------------------===//
// Synchronisation, collectives, copies
//===----------------------------------------------------------------------===//

void CudaBuilder::barrier(StringRef name) {
  NVVM::Barrier0Op::create(static_cast<OpBuilder &>(*this), site(name));
}
void CudaBuilder::syncWarp(StringRef name) {
  NVVM::SyncWarpOp::create(static_cast<OpBuilder &>(*this), site(name),
                           i32(-1));
}
static Value shuffle(CudaBuilder &b, Location loc, NVVM::ShflKind kind,
                     Value value, Value offset) {
  // Clamp 31, segment mask 0: one segment of 32 lanes.
  Value mask = b.i32(-1), clamp = b.i32(31);
  return NVVM::ShflOp::create(static_cast<OpBuilder &>(b), loc, value.getType(),
                              mask, value, offset, clamp, kind, UnitAttr());
}
Value CudaBuilder::shuffleIndex(Value value, Value lane, StringRef name) {
  return shuffle(*this, site(name), NVVM::ShflKind::idx, value, lane);
}
Value CudaBuilder::shuffleXor(Value value, int64_t laneMask, StringRef name) {
  return shuffle(*this, site(name), NVVM::ShflKind::bfly, value, i32(laneMask));
}

void CudaBuilder::copyAsync(Value shared, Value global, Value bytes,
                            StringRef name) {
  NVVM::CpAsyncOp::create(static_cast<OpBuilder &>(*this), site(name), shared,
                          global, getI32IntegerAttr(kChunkBytes),
                          NVVM::LoadCacheModifierKindAttr::get(
                              getContext(), NVVM::LoadCacheModifierKind::CG),
                          bytes);
}
void CudaBuilder::commitGroup() { NVVM::CpAsyncCommitGroupOp::create(*this); }
void CudaBuilder::waitGroup(int64_t open, StringRef name) {
  NVVM::CpAsyncWaitGroupOp::create(static_cast<OpBuilder &>(*this), site(name),
                                   getI32IntegerAttr(int32_t(open)));
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

SmallVector<Value> CudaBuilder::loadMatrix(Value shared, int64_t count,
                                           bool transposed, StringRef name) {
  Type result = getI32Type();
  if (count > 1)
    result = LLVM::LLVMStructType::getLiteral(
        getContext(), SmallVector<Type>(count, getI32Type()));
  Value loaded = NVVM::LdMatrixOp::create(
      static_cast<OpBuilder &>(*this), site(name), result, shared,
      getI32IntegerAttr(int32_t(count)),
      NVVM::MMALayoutAttr::get(getContext(), transposed ? NVVM::MMALayout::col
                                                        : NVVM::MMALayout::row),
      NVVM::LdStMatrixShapeAttr::get(getContext(), 8, 8),
      NVVM::LdStMatrixEltTypeAttr::get(getContext(),
                                       NVVM::LdStMatrixEltType::B16));
  if (count == 1)
    return {loaded};
  SmallVector<Value> words;
  for (int64_t i = 0; i < count; ++i)
    words.push_back(LLVM::ExtractValueOp::create(*this, loaded, i));
  return words;
}

SmallVector<Value> CudaBuilder::mma(Type element, ValueRange a, ValueRange b,
                                    ValueRange sums, StringRef name) {
  // f16 operands are vectors in this dialect, bf16 ones are words.
  auto operands = [&](ValueRange words) {
    SmallVector<Value> values(words);
    if (element.isF16())
      for (Value &value : values)
        value = LLVM::BitcastOp::create(*this, VectorType::get({2}, element),
                                        value);
    return values;
  };
  auto type = element.isF16() ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  SmallVector<Value> operandsA = operands(a), operandsB = operands(b);
  auto result = LLVM::LLVMStructType::getLiteral(
      getContext(), SmallVector<Type>(4, getF32Type()));
  Value product = NVVM::MmaOp::create(
      static_cast<OpBuilder &>(*this), site(name), result, operandsA, operandsB,
      sums, ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt,
      std::array<NVVM::MMATypes, 2>{type, type},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  SmallVector<Value> values;
  for (int64_t i = 0; i < 4; ++i)
    values.push_back(LLVM::ExtractValueOp::create(*this, product, i));
  return values;
}
