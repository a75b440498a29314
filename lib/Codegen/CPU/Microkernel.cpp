//===- Microkernel.cpp - register-blocked inner product loop --------------===//
#include "prefill/Codegen/CPU/Microkernel.h"
#include "BF16Pairs.h"
#include "Int8Rows.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "prefill/Codegen/CPU/TileTable.h"

using namespace mlir;
using namespace mlir::prefill;

namespace {

/// Asks the second-level cache for the line of an element.
void prefetchLine(KernelBuilder &b, Value source, Value element) {
  constexpr unsigned secondLevel = 2;
  memref::PrefetchOp::create(b, source, element, /*isWrite=*/false, secondLevel,
                             /*isDataCache=*/true);
}

/// One step of the K loop: loads of both operands and the multiply-adds.
class Step {
public:
  /// The `index`-th step of an iteration that starts with step `first`.
  /// Distances from the first one are constants that addresses take along.
  Step(KernelBuilder &b, const CpuIsa &isa, const MicrokernelOperands &ops,
       Value first, int64_t index)
      : b(b), ops(ops), lanes(isa.lanes), mac(isa.macKind(ops.elementType)) {
    int64_t pack = kPack(ops.elementType);
    aStep = b.add(b.mul(first, pack), index * pack);
    bStep = b.add(b.mul(first, ops.bStepStride), index * ops.bStepStride);
  }

  SmallVector<Value> accumulate(ValueRange accumulators) {
    SmallVector<Value> acc(accumulators);
    switch (mac) {
    case MacKind::F32:
      prefetchColumns(lanes);
      multiplyAdd(acc, 0, [&](size_t v) {
        return loadColumn(v, b.getF32Type(), lanes, bStep);
      });
      break;
    case MacKind::F16Convert:
      prefetchColumns(lanes);
      multiplyAdd(acc, 0, [&](size_t v) -> Value {
        return arith::ExtFOp::create(
            b, b.vectorF32(lanes), loadColumn(v, b.getF16Type(), lanes, bStep));
      });
      break;
    case MacKind::Bf16Dot: {
      SmallVector<Value> columns = loadColumns(b.getBF16Type(), 2 * lanes);
      auto pairType = VectorType::get({2 * lanes}, b.getBF16Type());
      size_t vectors = columns.size();
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets)) {
        Value row = vector::BitCastOp::create(
            b, pairType, loadWord(b.getBF16Type(), b.add(rowOffset, aStep)));
        for (size_t v = 0; v < vectors; ++v) {
          Value &sum = acc[r * vectors + v];
          sum = x86vector::DotBF16Op::create(b, sum, row, columns[v]);
        }
      }
      break;
    }
    case MacKind::Int8Dot: {
      SmallVector<Value> columns =
          asWords(loadColumns(b.getI8Type(), 4 * lanes));
      size_t vectors = columns.size();
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets)) {
        Value row = loadWord(b.getI8Type(), b.add(rowOffset, aStep));
        for (size_t v = 0; v < vectors; ++v) {
          Value &sum = acc[r * vectors + v];
          sum = emitInt8Dot(b, sum, row, columns[v]);
        }
      }
      break;
    }
    case MacKind::Int8Split:
      multiplySplitInts(acc);
      break;
    case MacKind::Bf16Split: {
      if (ops.unknownZero && lanes < 16) {
        prefetchColumns(2 * lanes);
        Value again = b.add(bStep, ops.unknownZero);
        multiplyAdd(acc, 0, [&](size_t v) { return loadPair(v, bStep).even; });
        multiplyAdd(acc, 1, [&](size_t v) { return loadPair(v, again).odd; });
        break;
      }
      SmallVector<Value> even, odd;
      for (Value pairs : loadColumns(b.getBF16Type(), 2 * lanes)) {
        SplitPair split = splitPairs(b, pairs, lanes);
        even.push_back(split.even);
        odd.push_back(split.odd);
      }
      multiplyAdd(acc, 0, [&](size_t v) { return even[v]; });
      multiplyAdd(acc, 1, [&](size_t v) { return odd[v]; });
      break;
    }
    }
    return acc;
  }

private:
  SplitPair loadPair(size_t v, Value step) {
    return splitPairs(b, loadColumn(v, b.getBF16Type(), 2 * lanes, step),
                      lanes);
  }

  SmallVector<Value> asWords(ArrayRef<Value> columns) {
    return llvm::map_to_vector(columns, [&](Value ints) -> Value {
      return vector::BitCastOp::create(
          b, VectorType::get({lanes}, b.getI32Type()), ints);
    });
  }

  /// The even or odd k of each four, as two i16 in a word.
  SmallVector<Value> loadInt8Halves(int64_t part) {
    bool again = ops.unknownZero && lanes < 16;
    SmallVector<Value> columns =
        part == 0
            ? loadColumns(b.getI8Type(), 4 * lanes)
            : loadColumnsAt(b.getI8Type(), 4 * lanes,
                            again ? b.add(bStep, ops.unknownZero) : bStep);
    auto halves = VectorType::get({2 * lanes}, b.getI16Type());
    Value eight = arith::ConstantOp::create(
        b, DenseElementsAttr::get(halves, b.getI16IntegerAttr(8)));
    for (Value &column : columns) {
      column = vector::BitCastOp::create(b, halves, column);
      if (part == 0)
        column = arith::ShLIOp::create(b, column, eight);
      column = arith::ShRSIOp::create(b, column, eight);
    }
    return asWords(columns);
  }

  /// The even and the odd k of each four. With 32 registers a row takes both at
  /// once; with 16, which do not hold both halves of the columns, the halves
  /// come one after the other. (LLVM adds the products of both halves first, so
  /// that the former order would keep as many products as there are sums.)
  void multiplySplitInts(SmallVector<Value> &acc) {
    SmallVector<Value> halves[] = {loadInt8Halves(0), {}};
    if (lanes >= 16)
      halves[1] = loadInt8Halves(1);
    size_t vectors = halves[0].size();
    auto multiply = [&](ArrayRef<int64_t> parts) {
      for (auto [r, rowOffset] : llvm::enumerate(ops.aRowOffsets))
        for (int64_t part : parts) {
          // Two 16-bit integers of the row.
          Value row = loadWord(b.getI16Type(),
                               b.add(b.add(rowOffset, aStep), 2 * part));
          for (size_t v = 0; v < vectors; ++v) {
            Value &sum = acc[r * vectors + v];
            sum = emitInt16Dot(b, sum, row, halves[part][v]);
          }
        }
    };
    if (lanes >= 16)
      return multiply({0, 1});
    multiply({0});
    halves[1] = loadInt8Halves(1);
    multiply({1});
  }

  /// One k, the `part`-th of the step: every row's scalar times the columns.
  /// Of rows and columns the fewer stay in registers, and the others come one
  /// after the other: LLVM's scheduler keeps that order.
  void multiplyAdd(SmallVector<Value> &acc, int64_t part,
                   llvm::function_ref<Value(size_t)> columnAt) {
    size_t vectors = ops.bOffsets.size(), rows = ops.aRowOffsets.size();
    auto rowAt = [&](size_t r) -> Value {
      Value scalar = memref::LoadOp::create(
          b, ops.a, b.add(b.add(ops.aRowOffsets[r], aStep), part));
      return vector::BroadcastOp::create(b, b.vectorF32(lanes), scalar);
    };
    auto add = [&](size_t r, size_t v, Value row, Value column) {
      Value &sum = acc[r * vectors + v];
      sum = vector::FMAOp::create(b, row, column, sum);
    };
    SmallVector<Value> staying;
    bool rowsStay = rows < vectors;
    for (size_t i = 0; i < (rowsStay ? rows : vectors); ++i)
      staying.push_back(rowsStay ? rowAt(i) : columnAt(i));
    for (size_t i = 0; i < (rowsStay ? vectors : rows); ++i) {
      Value coming = rowsStay ? columnAt(i) : rowAt(i);
      for (auto [j, other] : llvm::enumerate(staying))
        rowsStay ? add(j, i, other, coming) : add(i, j, coming, other);
    }
  }

  // Flat loads: a two-dimensional transfer of pairs would go through the stack.
  Value loadColumn(size_t v, Type elementType, int64_t elements, Value step) {
    return vector::LoadOp::create(b, VectorType::get({elements}, elementType),
                                  ops.b, b.add(ops.bOffsets[v], step));
  }

  SmallVector<Value> loadColumns(Type elementType, int64_t elements) {
    prefetchColumns(elements);
    return loadColumnsAt(elementType, elements, bStep);
  }

  SmallVector<Value> loadColumnsAt(Type elementType, int64_t elements,
                                   Value step) {
    SmallVector<Value> columns;
    for (size_t v = 0; v < ops.bOffsets.size(); ++v)
      columns.push_back(loadColumn(v, elementType, elements, step));
    return columns;
  }

  /// Asks ahead for each line of the neighbouring vectors of columns.
  void prefetchColumns(int64_t elements) {
    if (!ops.prefetchDistance)
      return;
    int64_t line =
        kCacheLineBytes * 8 / ops.elementType.getIntOrFloatBitWidth();
    Value ahead = b.add(ops.prefetchDistance, bStep);
    for (size_t v = 0; v < ops.bOffsets.size(); ++v)
      if (int64_t(v) * elements % line == 0)
        prefetchLine(b, ops.b, b.add(ops.bOffsets[v], ahead));
  }

  /// 32 bits of a row, from an element on, in every lane: vector<lanes x i32>.
  Value loadWord(Type type, Value element) {
    int64_t count = 32 / type.getIntOrFloatBitWidth();
    Value elements = vector::LoadOp::create(b, VectorType::get({count}, type),
                                            ops.a, ValueRange{element});
    Value word = vector::BitCastOp::create(
        b, VectorType::get({1}, b.getI32Type()), elements);
    Value scalar = vector::ExtractOp::create(b, word, ArrayRef<int64_t>{0});
    return vector::BroadcastOp::create(
        b, VectorType::get({lanes}, b.getI32Type()), scalar);
  }

  KernelBuilder &b;
  const MicrokernelOperands &ops;
  int64_t lanes;
  MacKind mac;
  Value aStep, bStep;
};

} // namespace

SmallVector<Value> prefill::panelVectorOffsets(KernelBuilder &b,
                                               const CpuIsa &isa,
                                               Type elementType, Value start,
                                               int64_t count) {
  SmallVector<Value> offsets;
  for (int64_t v = 0; v < count; ++v)
    offsets.push_back(b.add(start, v * isa.lanes * kPack(elementType)));
  return offsets;
}

VectorType prefill::accumulatorType(KernelBuilder &b, const CpuIsa &isa,
                                    Type elementType) {
  if (elementType.isSignlessInteger(8))
    return VectorType::get({isa.lanes}, b.getI32Type());
  return b.vectorF32(isa.lanes);
}

SmallVector<Value> prefill::emitMicrokernel(KernelBuilder &b, const CpuIsa &isa,
                                            const MicrokernelOperands &operands,
                                            ValueRange init) {
  SmallVector<Value> start(init);
  if (start.empty())
    start.assign(
        operands.aRowOffsets.size() * operands.bOffsets.size(),
        arith::ConstantOp::create(
            b, b.getZeroAttr(accumulatorType(b, isa, operands.elementType))));
  // Where it asks ahead is carried along: LLVM would compute a product in every
  // step.
  if (operands.prefetchStart)
    start.push_back(operands.prefetchStart);
  SmallVector<Value> results =
      b.forLoop(b.index(0), operands.steps, operands.unroll, start,
                [&](Value first, ValueRange carried) {
                  SmallVector<Value> next(carried);
                  Value ahead =
                      operands.prefetchStart ? next.pop_back_val() : Value();
                  for (int64_t i = 0; i < operands.unroll; ++i) {
                    if (ahead && i % isa.prefetchSteps() == 0) {
                      prefetchLine(b, operands.prefetchSource, ahead);
                      ahead = b.add(ahead, operands.prefetchStride);
                    }
                    next = Step(b, isa, operands, first, i).accumulate(next);
                  }
                  if (ahead)
                    next.push_back(ahead);
                  return next;
                });
  if (operands.prefetchStart)
    results.pop_back();
  return results;
}
