#include "core/ActivationArena.h"
#include "core/Canary.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <cstring>

using namespace prefill;
using namespace prefill::rt;

int64_t ActivationArena::rowsOf(const module::Buffer &buffer) const {
  return buffer.domain() == module::RowDomain::tokens ? rowsPad : logitRowsPad;
}

Result<void> ActivationArena::prepare(const module::Module &file,
                                      int64_t rowsPad, int64_t logitRowsPad,
                                      bool poison, Allocator &allocator) {
  this->rowsPad = rowsPad;
  this->logitRowsPad = logitRowsPad;
  const auto &buffers = *file.buffers();
  offsets.assign(buffers.size(), 0);

  // Rows are below 2^32 and row bytes below 2^40, so products can overflow.
  bool overflow = false;
  uint64_t total = 0;
  auto multiply = [&](uint64_t a, uint64_t b) {
    uint64_t product = 0;
    overflow |= __builtin_mul_overflow(a, b, &product) || product > uint64_t(1)
                                                                        << 61;
    return product;
  };
  auto align = [](uint64_t value) { return (value + 63) / 64 * 64; };
  if (poison) {
    for (uint32_t i = 0; i < buffers.size(); ++i) {
      offsets[i] = align(total + canaryBytes);
      total = offsets[i] +
              multiply(buffers[i]->row_bytes(), rowsOf(*buffers[i])) +
              canaryBytes;
      overflow |= total > uint64_t(1) << 61;
    }
  } else {
    uint64_t base = 0;
    for (module::RowDomain domain :
         {module::RowDomain::tokens, module::RowDomain::logits}) {
      for (uint32_t i = 0; i < buffers.size(); ++i) {
        const module::Buffer &buffer = *buffers[i];
        if (buffer.domain() != domain)
          continue;
        offsets[i] = base + multiply(buffer.row_offset(), rowsOf(buffer));
        total = std::max(
            total, base + multiply(buffer.row_offset() + buffer.row_bytes(),
                                   rowsOf(buffer)));
      }
      base = align(total);
    }
  }
  if (overflow)
    return Error{ErrorCode::outOfMemory,
                 "out of memory: class activation_peak: the buffers of " +
                     std::to_string(rowsPad) + " rows overflow 2^61 bytes"};

  if (total > storage.size()) {
    storage = Allocation(); // first: two generations never coexist
    Result<Allocation> grown = allocator.allocate(
        MemoryClass::activationPeak, total,
        "activations of " + std::to_string(rowsPad) + " rows");
    if (!grown)
      return grown.takeError();
    storage = std::move(*grown);
  }
  if (poison) {
    std::memset(storage.data(), canaryPattern, storage.size());
    for (uint32_t i = 0; i < buffers.size(); ++i)
      std::memset(buffer(i), nanPattern,
                  buffers[i]->row_bytes() * rowsOf(*buffers[i]));
  }
  return {};
}

void ActivationArena::poisonPaddedRows(const module::Module &file, int64_t rows,
                                       int64_t logitRows) {
  for (uint32_t i = 0; i < file.buffers()->size(); ++i) {
    const module::Buffer &table = *file.buffers()->Get(i);
    int64_t valid =
        table.domain() == module::RowDomain::tokens ? rows : logitRows;
    std::memset(buffer(i) + table.row_bytes() * valid, nanPattern,
                table.row_bytes() * (rowsOf(table) - valid));
  }
}

std::string ActivationArena::damage(const module::Module &file) const {
  for (uint32_t i = 0; i < file.buffers()->size(); ++i) {
    const module::Buffer &table = *file.buffers()->Get(i);
    const std::byte *begin = storage.data() + offsets[i];
    const std::byte *end = begin + table.row_bytes() * rowsOf(table);
    std::string name = "buffer " + quote(table.name()->string_view());
    if (!canaryIntact(begin - canaryBytes))
      return "before " + name;
    if (!canaryIntact(end))
      return "behind " + name;
  }
  return storage.guardIntact() ? "" : "behind the activation arena";
}
