//===- KernelText.h - writes kernels in the NVVM dialect --------*- C++ -*-===//
// A kernel as text, one operation a line: arithmetic on i64, memory by byte
// offsets. Each watched operation takes the name of its site.
//===----------------------------------------------------------------------===//
#ifndef PREFILL_TEST_EMULATION_KERNELTEXT_H
#define PREFILL_TEST_EMULATION_KERNELTEXT_H

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace prefill_test {

struct V {
  std::string name, type;
};

class KernelText {
public:
  /// Parameters: 'p' a pointer to global memory, 'i' an i64.
  KernelText(const std::string &name, const std::string &parameters,
             int threads, int64_t sharedBytes) {
    header = "llvm.func @" + name + "(";
    for (size_t i = 0; i < parameters.size(); ++i) {
      V value{"%arg" + std::to_string(i),
              parameters[i] == 'p' ? "!llvm.ptr<1>" : "i64"};
      arguments.push_back(value);
      header += (i ? ", " : "") + value.name + ": " + value.type;
    }
    header += ") attributes {nvvm.kernel, prefill.block_threads = " +
              std::to_string(threads) +
              " : i32, prefill.shared_bytes = " + std::to_string(sharedBytes) +
              " : i64} {\n";
    tid = zext(op("nvvm.read.ptx.sreg.tid.x : i32", "i32"));
    block = zext(op("nvvm.read.ptx.sreg.ctaid.x : i32", "i32"));
    lane = zext(op("nvvm.read.ptx.sreg.laneid : i32", "i32"));
    warp = divide(tid, 32);
  }

  V arg(int i) const { return arguments[i]; }
  V tid, block, lane, warp;

  /// An operation with a result.
  V op(const std::string &text, const std::string &type,
       const std::string &site = "") {
    V value{"%v" + std::to_string(next++), type};
    line(value.name + " = " + text, site);
    return value;
  }
  void line(const std::string &text, const std::string &site = "") {
    body += "  " + text + (site.empty() ? "" : " loc(\"" + site + "\")") + "\n";
  }

  V c(int64_t value, const std::string &type = "i64") {
    return op("llvm.mlir.constant(" + std::to_string(value) + " : " + type +
                  ") : " + type,
              type);
  }
  V f(const std::string &value) {
    return op("llvm.mlir.constant(" + value + " : f32) : f32", "f32");
  }
  V binary(const std::string &name, V a, V b) {
    return op("llvm." + name + " " + a.name + ", " + b.name + " : " + a.type,
              a.type);
  }
  V add(V a, V b) { return binary("add", a, b); }
  V add(V a, int64_t b) { return b ? add(a, c(b, a.type)) : a; }
  V sub(V a, V b) { return binary("sub", a, b); }
  V mul(V a, V b) { return binary("mul", a, b); }
  V mul(V a, int64_t b) { return mul(a, c(b, a.type)); }
  V divide(V a, int64_t b) { return binary("udiv", a, c(b)); }
  V divide(V a, V b) { return binary("udiv", a, b); }
  V modulo(V a, int64_t b) { return binary("urem", a, c(b)); }
  V modulo(V a, V b) { return binary("urem", a, b); }
  V exclusiveOr(V a, V b) { return binary("xor", a, b); }
  V less(V a, V b) { return compare("slt", a, b); }
  V compare(const std::string &predicate, V a, V b) {
    return op("llvm.icmp \"" + predicate + "\" " + a.name + ", " + b.name +
                  " : " + a.type,
              "i1");
  }
  V select(V condition, V a, V b) {
    return op("llvm.select " + condition.name + ", " + a.name + ", " + b.name +
                  " : i1, " + a.type,
              a.type);
  }
  V zext(V a) {
    return op("llvm.zext " + a.name + " : " + a.type + " to i64", "i64");
  }
  V sext(V a) {
    return op("llvm.sext " + a.name + " : " + a.type + " to i64", "i64");
  }
  V trunc(V a, const std::string &type = "i32") {
    return op("llvm.trunc " + a.name + " : " + a.type + " to " + type, type);
  }
  V bitcast(V a, const std::string &type) {
    return op("llvm.bitcast " + a.name + " : " + a.type + " to " + type, type);
  }
  V toBF16(V a) {
    return op("llvm.fptrunc " + a.name + " : f32 to bf16", "bf16");
  }
  V fromBF16(V a) {
    return op("llvm.fpext " + a.name + " : bf16 to f32", "f32");
  }

  V shared() {
    return op("llvm.mlir.addressof @prefill_shared : !llvm.ptr<3>",
              "!llvm.ptr<3>");
  }
  V at(V base, V bytes) {
    return op("llvm.getelementptr " + base.name + "[" + bytes.name + "] : (" +
                  base.type + ", i64) -> " + base.type + ", i8",
              base.type);
  }
  V load(V from, const std::string &type, const std::string &site,
         int alignment = 0) {
    return op("llvm.load " + from.name + aligned(alignment) + " : " +
                  from.type + " -> " + type,
              type, site);
  }
  void store(V value, V to, const std::string &site, int alignment = 0) {
    line("llvm.store " + value.name + ", " + to.name + aligned(alignment) +
             " : " + value.type + ", " + to.type,
         site);
  }

  // In the generic form: the operation's own parser takes a location for the
  // optional reduction.
  void barrier(const std::string &site) {
    line("\"nvvm.barrier\"() <{operandSegmentSizes = array<i32: 0, 0, 0>}> : "
         "() -> ()",
         site);
  }
  void namedBarrier(V id, V threads, const std::string &site) {
    line("\"nvvm.barrier\"(" + trunc(id).name + ", " + trunc(threads).name +
             ") <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i32, i32) -> "
             "()",
         site);
  }
  void syncWarp(const std::string &site, int64_t mask = 0xffffffff) {
    line("nvvm.bar.warp.sync " + c(mask, "i32").name + " : i32", site);
  }
  /// `kind`: bfly, up, down or idx.
  V shuffle(const std::string &kind, V value, V offset, int64_t clamp,
            const std::string &site, V mask) {
    return op("nvvm.shfl.sync " + kind + " " + mask.name + ", " + value.name +
                  ", " + offset.name + ", " + c(clamp, "i32").name + " : " +
                  value.type + " -> " + value.type,
              value.type, site);
  }
  V shuffle(const std::string &kind, V value, int64_t offset, int64_t clamp,
            const std::string &site, int64_t mask = 0xffffffff) {
    return shuffle(kind, value, c(offset, "i32"), clamp, site, c(mask, "i32"));
  }
  void copyAsync(V to, V from, const std::string &site, V sourceBytes) {
    line("nvvm.cp.async.shared.global " + to.name + ", " + from.name +
             ", 16, cache = cg, " + sourceBytes.name +
             " : !llvm.ptr<3>, !llvm.ptr<1>, i32",
         site);
  }
  void copyAsync(V to, V from, const std::string &site, int bytes = 16) {
    line("nvvm.cp.async.shared.global " + to.name + ", " + from.name + ", " +
             std::to_string(bytes) + ", cache = " +
             (bytes == 16 ? "cg" : "ca") + " : !llvm.ptr<3>, !llvm.ptr<1>",
         site);
  }
  void commit() { line("nvvm.cp.async.commit.group"); }
  void waitGroup(int open, const std::string &site) {
    line("nvvm.cp.async.wait.group " + std::to_string(open), site);
  }
  /// `count` words, each an 8x8 matrix of 16-bit numbers.
  std::vector<V> loadMatrix(V from, int count, bool transposed,
                            const std::string &site) {
    std::string type = "i32";
    if (count > 1) {
      type = "!llvm.struct<(";
      for (int i = 0; i < count; ++i)
        type += i ? ", i32" : "i32";
      type += ")>";
    }
    V all =
        op("nvvm.ldmatrix " + from.name + " {num = " + std::to_string(count) +
               " : i32, layout = #nvvm.mma_layout<" +
               (transposed ? "col" : "row") +
               ">, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, "
               "eltType = #nvvm.ld_st_matrix_elt_type<b16>} : "
               "(!llvm.ptr<3>) -> " +
               type,
           type, site);
    if (count == 1)
      return {all};
    return unpack(all, count, "i32");
  }
  /// `type` bf16 or f16; the result is 4 f32.
  std::vector<V> mma(const std::string &type, std::vector<V> a,
                     std::vector<V> b, std::vector<V> sums,
                     const std::string &site) {
    std::string word = "i32";
    if (type == "f16") {
      word = "vector<2xf16>";
      for (auto *operands : {&a, &b})
        for (V &value : *operands)
          value = bitcast(value, word);
    }
    std::string element = type == "f16"
                              ? ""
                              : "multiplicandAPtxType = #nvvm.mma_type<bf16>, "
                                "multiplicandBPtxType = #nvvm.mma_type<bf16>, ";
    V all = op(
        "nvvm.mma.sync A[" + list(a) + "] B[" + list(b) + "] C[" + list(sums) +
            "] {layoutA = #nvvm.mma_layout<row>, layoutB = "
            "#nvvm.mma_layout<col>, " +
            element + "shape = #nvvm.shape<m = 16, n = 8, k = 16>} : (" + word +
            ", " + word + ", f32) -> !llvm.struct<(f32, f32, f32, f32)>",
        "!llvm.struct<(f32, f32, f32, f32)>", site);
    return unpack(all, 4, "f32");
  }
  std::vector<V> unpack(V all, int count, const std::string &type) {
    std::vector<V> values;
    for (int i = 0; i < count; ++i)
      values.push_back(op("llvm.extractvalue " + all.name + "[" +
                              std::to_string(i) + "] : " + all.type,
                          type));
    return values;
  }

  void ifThen(V condition, const std::function<void()> &then,
              const std::function<void()> &otherwise = nullptr) {
    std::string label = std::to_string(next++);
    std::string no = otherwise ? "^else" + label : "^end" + label;
    line("llvm.cond_br " + condition.name + ", ^then" + label + ", " + no);
    body += "^then" + label + ":\n";
    then();
    line("llvm.br ^end" + label);
    if (otherwise) {
      body += "^else" + label + ":\n";
      otherwise();
      line("llvm.br ^end" + label);
    }
    body += "^end" + label + ":\n";
  }
  /// i = 0, 1, … < count; returns the carried values after the loop.
  std::vector<V>
  loop(V count, const std::vector<V> &start,
       const std::function<std::vector<V>(V, std::vector<V>)> &iteration) {
    std::string label = std::to_string(next++);
    std::vector<V> first{c(0)}, carried;
    first.insert(first.end(), start.begin(), start.end());
    jump("^head" + label, first);
    V i{"%i" + label, "i64"};
    body += "^head" + label + "(" + i.name + ": i64";
    for (size_t n = 0; n < start.size(); ++n) {
      carried.push_back(
          {"%c" + label + "_" + std::to_string(n), start[n].type});
      body += ", " + carried[n].name + ": " + carried[n].type;
    }
    body += "):\n";
    line("llvm.cond_br " + less(i, count).name + ", ^body" + label + ", ^exit" +
         label);
    body += "^body" + label + ":\n";
    std::vector<V> result = iteration(i, carried);
    result.insert(result.begin(), add(i, 1));
    jump("^head" + label, result);
    body += "^exit" + label + ":\n";
    return carried;
  }
  void exit() {
    line("llvm.return");
    body += "^after" + std::to_string(next++) + ":\n";
  }

  std::string text() const { return header + body + "  llvm.return\n}\n"; }
  /// A module with this kernel.
  std::string module() const { return module({text()}); }
  static std::string module(const std::vector<std::string> &kernels) {
    std::string all = "llvm.mlir.global external @prefill_shared() {addr_space "
                      "= 3 : i32, alignment = 128 : i64} : "
                      "!llvm.array<0 x i8>\n";
    for (const std::string &kernel : kernels)
      all += kernel;
    return all;
  }

private:
  static std::string aligned(int alignment) {
    return alignment ? " {alignment = " + std::to_string(alignment) + " : i64}"
                     : "";
  }
  static std::string list(const std::vector<V> &values) {
    std::string text;
    for (const V &value : values)
      text += (text.empty() ? "" : ", ") + value.name;
    return text;
  }
  void jump(const std::string &label, const std::vector<V> &values) {
    std::string types;
    for (const V &value : values)
      types += (types.empty() ? "" : ", ") + value.type;
    line("llvm.br " + label + "(" + list(values) + " : " + types + ")");
  }

  std::string header, body;
  std::vector<V> arguments;
  int next = 0;
};

} // namespace prefill_test

#endif // PREFILL_TEST_EMULATION_KERNELTEXT_H
