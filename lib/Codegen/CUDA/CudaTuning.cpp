//===- CudaTuning.cpp - tiles that were measured on a GPU -----------------===//
#include "prefill/Codegen/CUDA/CudaTuning.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using namespace mlir::prefill;

/// The entry with the fewest rows of at least `rows` among those that `matches`
/// accepts; rows = 0 is more than any.
template <typename Entry, typename Matches>
static std::optional<Entry> nearest(const std::vector<Entry> &entries,
                                    int64_t rows, Matches matches) {
  const Entry *best = nullptr;
  for (const Entry &entry : entries) {
    if (!matches(entry) || (entry.rows && (rows == 0 || entry.rows < rows)))
      continue;
    if (!best || (entry.rows && (!best->rows || entry.rows < best->rows)))
      best = &entry;
  }
  return best ? std::optional<Entry>(*best) : std::nullopt;
}

std::optional<CudaGemmTuning> CudaTuning::gemm(llvm::StringRef dtype,
                                               int64_t rows, int64_t n,
                                               int64_t k) const {
  return nearest(gemms, rows, [&](const CudaGemmTuning &entry) {
    return entry.dtype == dtype && entry.n == n && entry.k == k;
  });
}

std::optional<CudaAttentionTuning>
CudaTuning::attention(llvm::StringRef dtype, int64_t rows, int64_t group,
                      int64_t headDim) const {
  return nearest(attentions, rows, [&](const CudaAttentionTuning &entry) {
    return entry.dtype == dtype && entry.group == group &&
           entry.headDim == headDim;
  });
}

std::vector<int64_t> CudaTuning::gemmWidths(llvm::StringRef dtype, int64_t n,
                                            int64_t k) const {
  std::vector<int64_t> widths;
  for (const CudaGemmTuning &entry : gemms)
    if (entry.dtype == dtype && entry.n == n && entry.k == k &&
        !llvm::is_contained(widths, entry.blockN))
      widths.push_back(entry.blockN);
  return widths;
}

std::optional<int64_t> CudaTuning::attentionKeys(llvm::StringRef dtype,
                                                 int64_t group,
                                                 int64_t headDim) const {
  for (const CudaAttentionTuning &entry : attentions)
    if (entry.dtype == dtype && entry.group == group &&
        entry.headDim == headDim)
      return entry.blockKv;
  return std::nullopt;
}

std::string prefill::toText(const CudaGemmTuning &tuning) {
  std::string rows = tuning.rows ? std::to_string(tuning.rows) + "x" : "";
  return tuning.dtype + "/" + rows + std::to_string(tuning.n) + "x" +
         std::to_string(tuning.k) + ":" + std::to_string(tuning.blockM) + "x" +
         std::to_string(tuning.blockN);
}

std::string prefill::toText(const CudaAttentionTuning &tuning) {
  std::string rows = tuning.rows ? "/s" + std::to_string(tuning.rows) : "";
  return tuning.dtype + "/g" + std::to_string(tuning.group) + "/d" +
         std::to_string(tuning.headDim) + rows + ":" +
         std::to_string(tuning.blockQ) + "x" + std::to_string(tuning.blockKv);
}

/// Positive numbers between `separator`s.
static std::optional<llvm::SmallVector<int64_t>>
parseNumbers(llvm::StringRef text, llvm::StringRef separator) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, separator);
  llvm::SmallVector<int64_t> numbers;
  for (llvm::StringRef part : parts)
    if (part.getAsInteger(10, numbers.emplace_back()) || numbers.back() < 1)
      return std::nullopt;
  return numbers;
}

static llvm::Error invalid(llvm::StringRef text, llvm::StringRef expected) {
  return llvm::createStringError("'" + text + "', expected " + expected);
}

llvm::Expected<CudaGemmTuning> prefill::parseGemmTuning(llvm::StringRef text) {
  auto [where, tile] = text.split(':');
  auto [dtype, shape] = where.split('/');
  auto sizes = parseNumbers(shape, "x"), blocks = parseNumbers(tile, "x");
  if (dtype.empty() || !sizes || sizes->size() < 2 || sizes->size() > 3 ||
      !blocks || blocks->size() != 2)
    return invalid(text, "DTYPE/[ROWSx]NxK:BLOCK_MxBLOCK_N");
  bool hasRows = sizes->size() == 3;
  return CudaGemmTuning{dtype.str(),       hasRows ? sizes->front() : 0,
                        (*sizes)[hasRows], sizes->back(),
                        blocks->front(),   blocks->back()};
}

llvm::Expected<CudaAttentionTuning>
prefill::parseAttentionTuning(llvm::StringRef text) {
  auto [where, tile] = text.split(':');
  llvm::SmallVector<llvm::StringRef> parts;
  where.split(parts, '/');
  auto blocks = parseNumbers(tile, "x");
  auto number = [&](size_t place, llvm::StringRef prefix) -> int64_t {
    int64_t value = 0;
    if (place >= parts.size() || !parts[place].consume_front(prefix) ||
        parts[place].getAsInteger(10, value))
      return 0;
    return value;
  };
  CudaAttentionTuning tuning;
  tuning.dtype = parts[0].str();
  tuning.group = number(1, "g");
  tuning.headDim = number(2, "d");
  tuning.rows = number(3, "s");
  if (tuning.dtype.empty() || parts.size() < 3 || parts.size() > 4 ||
      tuning.group < 1 || tuning.headDim < 1 ||
      (parts.size() == 4 && tuning.rows < 1) || !blocks || blocks->size() != 2)
    return invalid(text, "DTYPE/gGROUP/dHEAD_DIM[/sROWS]:BLOCK_QxBLOCK_KV");
  tuning.blockQ = blocks->front();
  tuning.blockKv = blocks->back();
  return tuning;
}
