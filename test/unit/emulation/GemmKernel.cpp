//===- GemmKernel.cpp - a tile GEMM, right or broken on purpose -----------===//
#include "GemmKernel.h"
#include "KernelText.h"

using namespace prefill_test;

namespace {

constexpr int threads = 128, tileBytes = gemmTile * gemmDepth * 2;
constexpr int stageBytes = 2 * tileBytes, chunkBytes = 16;
constexpr int sharedBytes = 2 * stageBytes;

class GemmWriter {
public:
  explicit GemmWriter(GemmMutant mutant)
      : mutant(mutant), k("gemm", "pppiii", threads, sharedBytes) {}
  std::string write();

private:
  bool is(GemmMutant other) const { return mutant == other; }
  /// Byte of (row, chunk of 16 bytes) in a tile: rows of 64 bytes, so 8 rows of
  /// one chunk lie in different banks when the chunk is permuted by row / 2.
  V swizzled(V row, V chunk, bool really = true) {
    V slot =
        really ? k.exclusiveOr(chunk, k.modulo(k.divide(row, 2), 4)) : chunk;
    return k.add(k.mul(row, 64), k.mul(slot, chunkBytes));
  }
  void copyTile(V step, V stage, bool ofA);
  void copyStage(V step, V stage) {
    copyTile(step, stage, true);
    copyTile(step, stage, false);
  }
  void commit() {
    if (!is(GemmMutant::noCommit))
      k.commit();
  }
  std::vector<V> multiply(V stage, std::vector<V> sums);
  void epilogue(const std::vector<V> &sums);

  GemmMutant mutant;
  KernelText k;
  V rows, columns, depth, firstRow, firstColumn, base, warpRow, warpColumn;
};

} // namespace

void GemmWriter::copyTile(V step, V stage, bool ofA) {
  for (int round = 0; round < 2; ++round) {
    V index = k.add(k.tid, round * threads);
    V row = k.divide(index, 4), chunk = k.modulo(index, 4);
    V to = k.add(k.mul(stage, stageBytes), swizzled(row, chunk));
    if (!ofA)
      to = k.add(to, tileBytes);
    else if (is(GemmMutant::unalignedTile))
      to = k.add(to, 8);
    V source = k.add(ofA ? firstRow : firstColumn, row);
    V inside = k.compare(is(GemmMutant::rowBeyondEnd) ? "sle" : "slt", source,
                         ofA ? rows : columns);
    V column = k.add(k.mul(step, gemmDepth), k.mul(chunk, 8));
    auto copy = [&](V from) {
      V offset = k.mul(from, depth);
      V bytes = k.mul(k.add(offset, column), 2);
      V count = k.select(inside, k.c(16, "i32"), k.c(0, "i32"));
      if (ofA && is(GemmMutant::sourceShifted))
        bytes = k.add(bytes, 8);
      if (ofA && is(GemmMutant::tooManyBytes))
        count = k.c(32, "i32");
      k.copyAsync(k.at(base, to), k.at(k.arg(ofA ? 0 : 1), bytes),
                  ofA ? "gemm.copy_a" : "gemm.copy_b", count);
    };
    if (ofA && is(GemmMutant::unwrittenRows))
      k.ifThen(inside, [&] { copy(source); });
    else
      copy(k.select(inside, source, k.c(0)));
  }
}

/// The warp's 32x32 part: sums[(i * 4 + n) * 4 + e].
std::vector<V> GemmWriter::multiply(V stage, std::vector<V> sums) {
  V tileA = k.mul(stage, stageBytes), tileB = k.add(tileA, tileBytes);
  V lane16 = k.modulo(k.lane, 16), half = k.divide(k.lane, 16);
  V lane8 = k.modulo(k.lane, 8), quarter = k.modulo(k.divide(k.lane, 8), 2);
  for (int step = 0; step < gemmDepth / 16; ++step) {
    std::vector<V> a[2], b[2];
    for (int i = 0; i < 2; ++i) {
      V row = k.add(k.add(warpRow, lane16), i * 16);
      V chunk = k.add(half, step * 2);
      V from = k.add(tileA, swizzled(row, chunk));
      a[i] = k.loadMatrix(k.at(base, from), 4, false, "gemm.load_a");
    }
    for (int j = 0; j < 2; ++j) {
      V row = k.add(k.add(k.add(warpColumn, lane8), k.mul(half, 8)), j * 16);
      V chunk = k.add(quarter, step * 2);
      V from =
          k.add(tileB, swizzled(row, chunk, !is(GemmMutant::loadUnswizzled)));
      b[j] = k.loadMatrix(k.at(base, from), 4, false, "gemm.load_b");
    }
    for (int i = 0; i < 2; ++i)
      for (int n = 0; n < 4; ++n) {
        auto first = sums.begin() + (i * 4 + n) * 4;
        std::vector<V> words{b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]};
        std::vector<V> d = k.mma("bf16", a[i], words,
                                 std::vector<V>(first, first + 4), "gemm.mma");
        std::copy(d.begin(), d.end(), first);
      }
  }
  return sums;
}

void GemmWriter::epilogue(const std::vector<V> &sums) {
  int pitch = is(GemmMutant::stagingTooLarge) ? 288 : 144;
  V group = k.divide(k.lane, 4), pair = k.mul(k.modulo(k.lane, 4), 2);
  for (int i = 0; i < 2; ++i)
    for (int n = 0; n < 4; ++n)
      for (int h = 0; h < 2; ++h) {
        V row = k.add(k.add(warpRow, group), i * 16 + h * 8);
        V column = k.add(k.add(warpColumn, pair), n * 8);
        V vector = k.op("llvm.mlir.poison : vector<2xf32>", "vector<2xf32>");
        for (int e = 0; e < 2; ++e)
          vector = k.op("llvm.insertelement " +
                            sums[(i * 4 + n) * 4 + h * 2 + e].name + ", " +
                            vector.name + "[" + k.c(e, "i32").name +
                            " : i32] : vector<2xf32>",
                        "vector<2xf32>");
        V narrow = k.op("llvm.fptrunc " + vector.name +
                            " : vector<2xf32> to vector<2xbf16>",
                        "vector<2xbf16>");
        V to = k.add(k.mul(row, pitch), k.mul(column, 2));
        k.store(narrow, k.at(base, to), "gemm.stage_store", 4);
      }
  if (!is(GemmMutant::noStagedBarrier))
    k.barrier("gemm.staged");
  for (int round = 0; round < 4; ++round) {
    V index = k.add(k.tid, round * threads);
    V row = k.divide(index, 8), chunk = k.modulo(index, 8);
    V to = k.add(firstRow, row);
    V inside =
        k.compare(is(GemmMutant::storeBeyondEnd) ? "sle" : "slt", to, rows);
    k.ifThen(inside, [&] {
      V from = k.add(k.mul(row, pitch), k.mul(chunk, chunkBytes));
      V value = k.load(k.at(base, from), "vector<4xi32>", "gemm.stage_load",
                       chunkBytes);
      V element =
          k.add(k.mul(to, columns), k.add(firstColumn, k.mul(chunk, 8)));
      k.store(value, k.at(k.arg(2), k.mul(element, 2)), "gemm.store",
              chunkBytes);
    });
  }
}

std::string GemmWriter::write() {
  rows = k.arg(3), columns = k.arg(4), depth = k.arg(5);
  V tilesAcross = k.divide(columns, gemmTile);
  V tile = is(GemmMutant::sameTile) ? k.divide(k.block, 2) : k.block;
  firstRow = k.mul(k.divide(tile, tilesAcross), gemmTile);
  firstColumn = k.mul(k.modulo(tile, tilesAcross), gemmTile);
  base = k.shared();
  warpRow = k.mul(k.divide(k.warp, 2), 32);
  warpColumn = k.mul(k.modulo(k.warp, 2), 32);
  V hasRows = k.less(k.add(firstRow, warpRow), rows);
  V steps = k.divide(depth, gemmDepth);

  copyStage(k.c(0), k.c(0));
  commit();
  if (is(GemmMutant::warpExits))
    k.ifThen(k.compare("eq", hasRows, k.c(0, "i1")), [&] {
      k.waitGroup(0, "gemm.wait");
      k.exit();
    });
  std::vector<V> zero(32, k.f("0.0"));
  std::vector<V> sums =
      k.loop(steps, zero, [&](V step, std::vector<V> carried) {
        V stage = k.modulo(step, 2), next = k.add(step, 1);
        V nextStage = is(GemmMutant::wrongStage) ? stage : k.modulo(next, 2);
        if (is(GemmMutant::prefetchTooFar))
          copyStage(k.select(k.less(next, steps), next, step), nextStage);
        else
          k.ifThen(k.less(next, steps), [&] { copyStage(next, nextStage); });
        commit();
        if (!is(GemmMutant::noWait))
          k.waitGroup(is(GemmMutant::weakWait) ? 2 : 1, "gemm.wait");
        if (is(GemmMutant::barrierInBranch))
          k.ifThen(hasRows, [&] { k.barrier("gemm.arrived"); });
        else if (is(GemmMutant::oneWarpLess))
          k.namedBarrier(k.c(1), k.c(96), "gemm.arrived");
        else if (!is(GemmMutant::noArrivalBarrier))
          k.barrier("gemm.arrived");
        std::vector<V> result = multiply(stage, carried);
        if (!is(GemmMutant::noReuseBarrier))
          k.barrier("gemm.reuse");
        return result;
      });
  epilogue(sums);
  return k.module();
}

std::string prefill_test::gemmKernel(GemmMutant mutant) {
  return GemmWriter(mutant).write();
}
