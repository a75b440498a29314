// 2^x of the softmax, compiled for every variant, over its whole range.
#include "CompiledKernels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "prefill/Codegen/CPU/VectorMath.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace mlir::prefill;
using namespace prefill_test;

namespace {

enum class Form { Portable, ForF32, ForBf16 };

/// A kernel y[i] = 2^x[i] for i in [wg_begin, wg_end), in whole vectors.
std::unique_ptr<CompiledKernels> compileExp2(const CpuIsa &isa, Form form) {
  MLIRContext &context = kernelContext();
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                      math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                      vector::VectorDialect>();
  KernelBuilder b(UnknownLoc::get(&context), &context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
  b.setInsertionPointToEnd(module->getBody());
  auto data = MemRefType::get({1}, b.getF32Type());
  Type index = b.getIndexType();
  auto kernel = func::FuncOp::create(
      b, "exp2",
      b.getFunctionType(
          {data, data, index, index, MemRefType::get({1}, b.getIntegerType(8))},
          {}));
  kernel->setAttr(kKernelAttr, b.getUnitAttr());
  kernel->setAttr(kScratchBytesAttr, b.getI64IntegerAttr(0));
  Block *body = kernel.addEntryBlock();
  b.setInsertionPointToEnd(body);
  auto view = [&](Value pointer) -> Value {
    return memref::ReinterpretCastOp::create(
        b, MemRefType::get({ShapedType::kDynamic}, b.getF32Type()), pointer,
        OpFoldResult(b.getIndexAttr(0)),
        ArrayRef<OpFoldResult>{OpFoldResult(body->getArgument(3))},
        ArrayRef<OpFoldResult>{OpFoldResult(b.getIndexAttr(1))});
  };
  Value x = view(body->getArgument(0)), y = view(body->getArgument(1));
  b.forLoop(
      body->getArgument(2), body->getArgument(3), isa.lanes, [&](Value i) {
        Value loaded =
            vector::LoadOp::create(b, b.vectorF32(isa.lanes), x, ValueRange{i});
        Value power = form == Form::Portable ? emitExp2(b, loaded)
                      : form == Form::ForF32
                          ? emitExp2For(b, isa, loaded, b.getF32Type())
                          : emitExp2For(b, isa, loaded, b.getBF16Type());
        vector::StoreOp::create(b, power, y, ValueRange{i});
      });
  func::ReturnOp::create(b);
  return CompiledKernels::load(*module, isa);
}

class Exp2 : public testing::TestWithParam<const CpuIsa *> {};

TEST_P(Exp2, WholeRange) {
  const CpuIsa &isa = *GetParam();
  if (!machineRuns(isa))
    GTEST_SKIP() << "this machine does not run " << isa.name.str();
  // Every 199th float from -0 to -160, then the special ones.
  std::vector<float> x;
  auto bitsOf = [](float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
  };
  for (uint32_t bits = bitsOf(-0.0f); bits < bitsOf(-160.0f); bits += 199) {
    x.emplace_back();
    std::memcpy(&x.back(), &bits, 4);
  }
  x.insert(x.end(),
           {0.0f, -1e-10f, -1.0f, -126.0f, -127.0f, -1e30f, -INFINITY});
  for (uint32_t bits : {0x7fc00000u, 0x7fc00001u, ~0u}) { // NaN, poison's too
    x.emplace_back();
    std::memcpy(&x.back(), &bits, 4);
  }
  while (x.size() % 16)
    x.push_back(-INFINITY);
  std::vector<float> y(x.size());
  for (Form form : {Form::Portable, Form::ForF32, Form::ForBf16}) {
    auto kernels = compileExp2(isa, form);
    ASSERT_TRUE(kernels);
    uint64_t args[] = {reinterpret_cast<uint64_t>(x.data()),
                       reinterpret_cast<uint64_t>(y.data())};
    alignas(64) char scratch[64];
    kernels->entry("exp2")(args, 0, int64_t(x.size()), scratch);
    double tolerance = form == Form::ForBf16 ? 9e-5 : 2e-7;
    double smallest = std::ldexp(1.0, -126), worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i])); // it must show in the result
        continue;
      }
      double expected = std::exp2(double(x[i]));
      if (expected >= smallest)
        worst = std::max(worst, std::abs(y[i] / expected - 1));
      else
        ASSERT_TRUE(y[i] >= 0.0f && y[i] <= smallest) << x[i] << ": " << y[i];
      if (std::isinf(x[i]) || (form == Form::Portable && x[i] < -126.0f))
        ASSERT_EQ(y[i], 0.0f) << x[i];
      if (x[i] == 0.0f)
        ASSERT_EQ(y[i], 1.0f); // rescaling by it changes nothing
    }
    EXPECT_LT(worst, tolerance) << "form " << int(form);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Exp2, testing::ValuesIn([] {
                           std::vector<const CpuIsa *> isas;
                           for (const CpuIsa &isa : cpuIsas())
                             isas.push_back(&isa);
                           return isas;
                         }()),
                         [](const auto &info) {
                           return info.param->name.str();
                         });

} // namespace
