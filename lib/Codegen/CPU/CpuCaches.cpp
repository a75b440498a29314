//===- CpuCaches.cpp - the caches that tiles are made for -----------------===//
#include "prefill/Codegen/CPU/CpuCaches.h"
#include "llvm/ADT/SmallVector.h"
#include <unistd.h>

using namespace mlir;
using namespace mlir::prefill;

static constexpr int64_t kMinL1 = 8 * 1024;
static constexpr int64_t kMaxSize = int64_t(1) << 40;

static llvm::Error invalid(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

static bool parseSize(llvm::StringRef text, int64_t &bytes) {
  int64_t unit = 1;
  if (text.consume_back("K"))
    unit = int64_t(1) << 10;
  else if (text.consume_back("M"))
    unit = int64_t(1) << 20;
  else if (text.consume_back("G"))
    unit = int64_t(1) << 30;
  if (text.getAsInteger(10, bytes) || bytes < 1 || bytes > kMaxSize / unit)
    return false;
  bytes *= unit;
  return true;
}

llvm::Expected<CpuCaches> prefill::hostCpuCaches() {
  CpuCaches caches;
  caches.l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  caches.l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  caches.l3 = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), caches.l2);
  if (caches.l1 < kMinL1 || caches.l2 < caches.l1)
    return invalid("this machine does not tell the sizes of its caches, "
                   "expected them as L1,L2,L3");
  return caches;
}

llvm::Expected<CpuCaches> prefill::parseCpuCaches(llvm::StringRef text) {
  if (text == "host")
    return hostCpuCaches();
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  CpuCaches caches;
  int64_t *sizes[] = {&caches.l1, &caches.l2, &caches.l3};
  bool valid = parts.size() == std::size(sizes);
  for (size_t i = 0; valid && i < parts.size(); ++i)
    valid = parseSize(parts[i], *sizes[i]);
  if (!valid || caches.l1 < kMinL1 || caches.l2 < caches.l1 ||
      caches.l3 < caches.l2)
    return invalid("'" + text +
                   "', expected host or L1,L2,L3 such as 32K,1M,32M, none "
                   "smaller than the one before, L1 at least 8K");
  return caches;
}
