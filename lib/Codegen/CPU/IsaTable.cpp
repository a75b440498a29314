//===- IsaTable.cpp - the x86-64 variants that kernels are built for ------===//
#include "prefill/Codegen/CPU/IsaTable.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::prefill;

// AVX2 has 16 registers: 6 rows x 2 vectors leave 4 for the operands. Fewer
// than 8 accumulators could not hide the latency of a multiply-add on two
// pipes. With 32 registers 8 rows x 2 vectors fit.
static constexpr CpuIsa kIsas[] = {
    {"avx2", "x86-64-v3", "", 8, 6, 16, false, false, false, false},
    {"avx_vnni", "x86-64-v3", "+avxvnni", 8, 6, 16, false, false, true, true},
    {"avx512", "x86-64-v4", "", 16, 8, 32, false, false, false, false},
    {"avx512_vnni", "x86-64-v4", "+avx512vnni", 16, 8, 32, false, false, true,
     true},
    // Every CPU with AVX512-BF16 has AVX512-VNNI as well.
    {"avx512_bf16", "x86-64-v4", "+avx512vnni,+avx512bf16", 16, 8, 32, true,
     false, true, false},
    {"amx_bf16", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-tile,+amx-bf16", 16,
     8, 32, true, true, true, false},
};

MacKind CpuIsa::macKind(Type elementType) const {
  if (elementType.isSignlessInteger(8))
    return hasInt8Dot ? MacKind::Int8Dot : MacKind::Int8Split;
  if (elementType.isF16())
    return MacKind::F16Convert;
  if (!elementType.isBF16())
    return MacKind::F32;
  return hasBf16Dot ? MacKind::Bf16Dot : MacKind::Bf16Split;
}

bool CpuIsa::convertsLeftOperand(Type elementType) const {
  return macKind(elementType) == MacKind::F16Convert ||
         macKind(elementType) == MacKind::Bf16Split;
}

bool CpuIsa::widensWeight(Type elementType) const {
  return macKind(elementType) == MacKind::Bf16Split && lanes >= 16;
}

Type CpuIsa::attentionType(Type elementType) const {
  return macKind(elementType) == MacKind::Bf16Dot
             ? elementType
             : Float32Type::get(elementType.getContext());
}

llvm::ArrayRef<CpuIsa> prefill::cpuIsas() { return kIsas; }

const CpuIsa *prefill::lookupCpuIsa(llvm::StringRef name) {
  const CpuIsa *isa =
      llvm::find_if(kIsas, [&](const CpuIsa &isa) { return isa.name == name; });
  return isa == std::end(kIsas) ? nullptr : isa;
}

std::string prefill::cpuIsaNames() {
  return llvm::join(
      llvm::map_range(kIsas, [](const CpuIsa &isa) { return isa.name.str(); }),
      ", ");
}

int64_t prefill::kPack(Type elementType) {
  if (elementType.isSignlessInteger(8))
    return 4;
  return elementType.isBF16() ? 2 : 1;
}
