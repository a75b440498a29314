//===- Vocabulary.cpp - what kernels may use, and the sites it makes ------===//
#include "SiteTable.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::prefill::emulation;

/// Operations that mean the same on both targets and need no library.
static bool isPlain(Operation *op) {
  static const llvm::StringSet<> plain = {"llvm.mlir.constant",
                                          "llvm.mlir.undef",
                                          "llvm.mlir.poison",
                                          "llvm.mlir.zero",
                                          "llvm.mlir.addressof",
                                          "llvm.getelementptr",
                                          "llvm.bitcast",
                                          "llvm.inttoptr",
                                          "llvm.ptrtoint",
                                          "llvm.addrspacecast",
                                          "llvm.add",
                                          "llvm.sub",
                                          "llvm.mul",
                                          "llvm.udiv",
                                          "llvm.sdiv",
                                          "llvm.urem",
                                          "llvm.srem",
                                          "llvm.and",
                                          "llvm.or",
                                          "llvm.xor",
                                          "llvm.shl",
                                          "llvm.lshr",
                                          "llvm.ashr",
                                          "llvm.icmp",
                                          "llvm.fcmp",
                                          "llvm.select",
                                          "llvm.trunc",
                                          "llvm.zext",
                                          "llvm.sext",
                                          "llvm.fptrunc",
                                          "llvm.fpext",
                                          "llvm.sitofp",
                                          "llvm.uitofp",
                                          "llvm.fptosi",
                                          "llvm.fptoui",
                                          "llvm.fadd",
                                          "llvm.fsub",
                                          "llvm.fmul",
                                          "llvm.fdiv",
                                          "llvm.fneg",
                                          "llvm.extractelement",
                                          "llvm.insertelement",
                                          "llvm.shufflevector",
                                          "llvm.extractvalue",
                                          "llvm.insertvalue",
                                          "llvm.freeze",
                                          "llvm.br",
                                          "llvm.cond_br",
                                          "llvm.switch",
                                          "llvm.return",
                                          "llvm.unreachable",
                                          "llvm.func",
                                          "llvm.intr.fma",
                                          "llvm.intr.fmuladd",
                                          "llvm.intr.maxnum",
                                          "llvm.intr.minnum",
                                          "llvm.intr.maximum",
                                          "llvm.intr.minimum",
                                          "llvm.intr.sqrt",
                                          "llvm.intr.fabs",
                                          "llvm.intr.copysign",
                                          "llvm.intr.floor",
                                          "llvm.intr.ceil",
                                          "llvm.intr.trunc",
                                          "llvm.intr.rint",
                                          "llvm.intr.nearbyint",
                                          "llvm.intr.roundeven",
                                          "llvm.intr.umin",
                                          "llvm.intr.umax",
                                          "llvm.intr.smin",
                                          "llvm.intr.smax",
                                          "llvm.intr.abs",
                                          "llvm.intr.ctpop",
                                          "llvm.intr.ctlz",
                                          "llvm.intr.cttz",
                                          "llvm.intr.fshl",
                                          "llvm.intr.fshr",
                                          "llvm.intr.assume"};
  return plain.contains(op->getName().getStringRef());
}

static bool isSpecialRegister(Operation *op) {
  return isa<NVVM::ThreadIdXOp, NVVM::BlockDimXOp, NVVM::BlockIdXOp,
             NVVM::GridDimXOp, NVVM::LaneIdOp>(op);
}

static bool isApproximation(Operation *op) {
  if (isa<NVVM::RcpApproxFtzF32Op>(op))
    return true;
  auto call = dyn_cast<LLVM::CallIntrinsicOp>(op);
  return call &&
         llvm::is_contained(
             {"llvm.nvvm.ex2.approx.ftz.f32", "llvm.nvvm.ex2.approx.ftz.f",
              "llvm.nvvm.ex2.approx.ftz", "llvm.nvvm.rcp.approx.ftz.f",
              "llvm.nvvm.rsqrt.approx.ftz.f", "llvm.nvvm.lg2.approx.ftz.f"},
             call.getIntrin());
}

/// bf16 values may be moved and converted; arithmetic on them would need
/// libcalls here and other rounding there.
static bool isBFloat16Arithmetic(Operation *op) {
  if (!op->hasTrait<OpTrait::SameOperandsAndResultType>() &&
      !isa<LLVM::FCmpOp>(op) &&
      !op->getName().getStringRef().starts_with("llvm.intr."))
    return false;
  if (isa<LLVM::SelectOp, LLVM::FreezeOp>(op))
    return false;
  return llvm::any_of(op->getOperandTypes(), [](Type type) {
    return getElementTypeOrSelf(type).isBF16();
  });
}

namespace {

class SiteBuilder {
public:
  explicit SiteBuilder(Manifest &manifest) : manifest(manifest) {}

  LogicalResult visit(Operation *op);

private:
  Site &add(Operation *op, SiteKind kind, int64_t parameter = 0) {
    Site site;
    site.op = op->getName().getStringRef().str();
    site.name = siteName(op->getLoc(), site.op, manifest.sites.size());
    site.kind = kind;
    site.parameter = parameter;
    manifest.siteOf[op] = uint32_t(manifest.sites.size());
    manifest.sites.push_back(std::move(site));
    return manifest.sites.back();
  }
  InFlightDiagnostic refuse(Operation *op) {
    return op->emitError("the emulator does not know ") << op->getName();
  }
  LogicalResult memory(Operation *op, SiteKind kind, Type type, Value pointer,
                       std::optional<uint64_t> alignment);
  LogicalResult asyncCopy(NVVM::CpAsyncOp op);
  LogicalResult matrix(NVVM::MmaOp op);
  LogicalResult loadMatrix(NVVM::LdMatrixOp op);

  Manifest &manifest;
};

} // namespace

LogicalResult SiteBuilder::memory(Operation *op, SiteKind kind, Type type,
                                  Value pointer,
                                  std::optional<uint64_t> alignment) {
  unsigned space =
      cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace();
  if (space != 0 && space != 1 && space != 3)
    return refuse(op) << " on address space " << space
                      << " (expected 0, 1 or 3)";
  DataLayout layout = DataLayout::closest(op);
  int64_t bytes = layout.getTypeSize(type);
  int64_t align = alignment.value_or(layout.getTypeABIAlignment(type));
  Type element = getElementTypeOrSelf(type);
  bool scalar = element.isIntOrFloat() || isa<LLVM::LLVMPointerType>(element);
  if (!scalar || !llvm::isPowerOf2_64(bytes) || bytes > 128 ||
      (element.isIntOrFloat() && element.getIntOrFloatBitWidth() % 8 != 0))
    return refuse(op) << " of type " << type
                      << " (expected numbers of 1 to 128 bytes together, a "
                         "power of two)";
  if (space != 1 && std::min(bytes, align) < 2)
    return refuse(op) << " of single bytes of shared memory (type " << type
                      << ", alignment " << align << ")";
  Site &site = add(op, kind);
  site.space = static_cast<AddressSpace>(space);
  site.bytes = bytes;
  site.alignment = align;
  return success();
}

LogicalResult SiteBuilder::asyncCopy(NVVM::CpAsyncOp op) {
  int64_t bytes = op.getSize();
  if (bytes != 4 && bytes != 8 && bytes != 16)
    return refuse(op) << " of " << bytes << " bytes (expected 4, 8 or 16)";
  Site &site = add(op, SiteKind::asyncCopy);
  site.space = AddressSpace::shared;
  site.bytes = site.alignment = bytes;
  return success();
}

LogicalResult SiteBuilder::matrix(NVVM::MmaOp op) {
  auto shape = op.getShape();
  if (shape.getM() != 16 || shape.getN() != 8 || shape.getK() != 16)
    return refuse(op) << " of shape m" << shape.getM() << "n" << shape.getN()
                      << "k" << shape.getK() << " (expected m16n8k16)";
  if (op.getLayoutA() != NVVM::MMALayout::row ||
      op.getLayoutB() != NVVM::MMALayout::col)
    return refuse(op) << " with other layouts than row and col";
  auto typeA = op.getMultiplicandAPtxType();
  auto typeB = op.getMultiplicandBPtxType();
  bool half = typeA == NVVM::MMATypes::f16 && typeB == NVVM::MMATypes::f16;
  bool brain = typeA == NVVM::MMATypes::bf16 && typeB == NVVM::MMATypes::bf16;
  if ((!half && !brain) || op.accumPtxType() != NVVM::MMATypes::f32 ||
      op.resultPtxType() != NVVM::MMATypes::f32)
    return refuse(op) << " of other types than f16 or bf16 with f32 sums";
  add(op, SiteKind::mma, int64_t(half ? MmaType::f16 : MmaType::bf16));
  return success();
}

LogicalResult SiteBuilder::loadMatrix(NVVM::LdMatrixOp op) {
  if (op.getEltType() != NVVM::LdStMatrixEltType::B16 ||
      op.getShape().getM() != 8 || op.getShape().getN() != 8)
    return refuse(op) << " of other matrices than 8x8 of b16";
  bool transposed = op.getLayout() == NVVM::MMALayout::col;
  Site &site = add(op, SiteKind::loadMatrix,
                   int64_t(op.getNum()) | int64_t(transposed) << 8);
  site.space = AddressSpace::shared;
  site.bytes = site.alignment = 16; // a row
  return success();
}

LogicalResult SiteBuilder::visit(Operation *op) {
  if (isBFloat16Arithmetic(op))
    return op->emitError("the emulator does not know arithmetic on bf16 (")
           << op->getName() << "): convert to f32";
  if (isPlain(op) || isSpecialRegister(op) || isApproximation(op))
    return success();
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    if (load.getOrdering() != LLVM::AtomicOrdering::not_atomic)
      return refuse(op) << " with an atomic ordering";
    return memory(op, SiteKind::load, load.getType(), load.getAddr(),
                  load.getAlignment());
  }
  if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
    if (store.getOrdering() != LLVM::AtomicOrdering::not_atomic)
      return refuse(op) << " with an atomic ordering";
    return memory(op, SiteKind::store, store.getValue().getType(),
                  store.getAddr(), store.getAlignment());
  }
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op))
    return asyncCopy(copy);
  if (auto mma = dyn_cast<NVVM::MmaOp>(op))
    return matrix(mma);
  if (auto load = dyn_cast<NVVM::LdMatrixOp>(op))
    return loadMatrix(load);
  if (auto barrier = dyn_cast<NVVM::BarrierOp>(op)) {
    if (barrier.getReductionOp())
      return refuse(op) << " with a reduction";
    add(op, SiteKind::barrier);
    return success();
  }
  if (isa<NVVM::Barrier0Op>(op)) {
    add(op, SiteKind::barrier);
    return success();
  }
  if (isa<NVVM::SyncWarpOp>(op)) {
    add(op, SiteKind::syncWarp);
    return success();
  }
  if (auto shuffle = dyn_cast<NVVM::ShflOp>(op)) {
    ShuffleKind kind = ShuffleKind::butterfly;
    switch (shuffle.getKind()) {
    case NVVM::ShflKind::bfly:
      break;
    case NVVM::ShflKind::up:
      kind = ShuffleKind::up;
      break;
    case NVVM::ShflKind::down:
      kind = ShuffleKind::down;
      break;
    case NVVM::ShflKind::idx:
      kind = ShuffleKind::index;
      break;
    }
    add(op, SiteKind::shuffle, int64_t(kind));
    return success();
  }
  if (auto vote = dyn_cast<NVVM::VoteSyncOp>(op)) {
    add(op, SiteKind::vote, int64_t(vote.getKind()));
    return success();
  }
  if (auto redux = dyn_cast<NVVM::ReduxOp>(op)) {
    ReduxKind kind;
    switch (redux.getKind()) {
    case NVVM::ReduxKind::ADD:
      kind = ReduxKind::add;
      break;
    case NVVM::ReduxKind::AND:
      kind = ReduxKind::bitAnd;
      break;
    case NVVM::ReduxKind::MAX:
      kind = ReduxKind::max;
      break;
    case NVVM::ReduxKind::MIN:
      kind = ReduxKind::min;
      break;
    case NVVM::ReduxKind::OR:
      kind = ReduxKind::bitOr;
      break;
    case NVVM::ReduxKind::UMAX:
      kind = ReduxKind::umax;
      break;
    case NVVM::ReduxKind::UMIN:
      kind = ReduxKind::umin;
      break;
    case NVVM::ReduxKind::XOR:
      kind = ReduxKind::bitXor;
      break;
    default:
      return refuse(op) << " of floats (sm_100)";
    }
    add(op, SiteKind::redux, int64_t(kind));
    return success();
  }
  if (isa<NVVM::CpAsyncCommitGroupOp>(op)) {
    add(op, SiteKind::commitGroup);
    return success();
  }
  if (auto wait = dyn_cast<NVVM::CpAsyncWaitGroupOp>(op)) {
    add(op, SiteKind::waitGroup, int64_t(wait.getN()));
    return success();
  }
  if (isa<NVVM::GriddepcontrolOp>(op)) {
    add(op, SiteKind::gridDependency);
    return success();
  }
  if (auto call = dyn_cast<LLVM::CallIntrinsicOp>(op))
    return refuse(op) << " of " << call.getIntrin();
  return refuse(op);
}

LogicalResult mlir::prefill::emulation::addSites(LLVM::LLVMFuncOp kernel,
                                                 Manifest &manifest) {
  SiteBuilder builder(manifest);
  WalkResult result = kernel.getBody().walk([&](Operation *op) {
    return failed(builder.visit(op)) ? WalkResult::interrupt()
                                     : WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
