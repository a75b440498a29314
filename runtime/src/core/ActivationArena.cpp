#include "core/ActivationArena.h"
#include "core/Canary.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <utility>

using namespace prefill;
using namespace prefill::rt;

namespace {

int poisonPattern(const module::Buffer &buffer) {
  return buffer.dtype() == module::DType::i8 ? int8Pattern : nanPattern;
}

} // namespace

int64_t ActivationArena::rowsOf(const module::Buffer &buffer) const {
  return buffer.domain() == module::RowDomain::tokens ? rowsPad : logitRowsPad;
}

Result<void> ActivationArena::prepare(const module::Schedule &schedule,
                                      int64_t rowsPad, int64_t logitRowsPad,
                                      bool poison, Allocator &allocator) {
  this->rowsPad = rowsPad;
  this->logitRowsPad = logitRowsPad;
  const auto &buffers = *schedule.buffers();
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
  memory = &allocator.memory();
  if (poison) {
    if (Result<void> ok =
            memory->fill(storage.address(), canaryPattern, storage.size());
        !ok)
      return ok;
    for (uint32_t i = 0; i < buffers.size(); ++i)
      if (Result<void> ok = memory->fill(buffer(i), poisonPattern(*buffers[i]),
                                         bytes(*buffers[i]));
          !ok)
        return ok;
  }
  return {};
}

Result<void> ActivationArena::poisonPaddedRows(const module::Schedule &schedule,
                                               int64_t rows,
                                               int64_t logitRows) {
  for (uint32_t i = 0; i < schedule.buffers()->size(); ++i) {
    const module::Buffer &table = *schedule.buffers()->Get(i);
    uint64_t valid =
        table.row_bytes() *
        (table.domain() == module::RowDomain::tokens ? rows : logitRows);
    if (Result<void> ok = memory->fill(buffer(i) + valid, poisonPattern(table),
                                       bytes(table) - valid);
        !ok)
      return ok;
  }
  return {};
}

Result<std::string>
ActivationArena::damage(const module::Schedule &schedule) const {
  for (uint32_t i = 0; i < schedule.buffers()->size(); ++i) {
    const module::Buffer &table = *schedule.buffers()->Get(i);
    std::string name = "buffer " + quote(table.name()->string_view());
    for (auto [where, address] : {std::pair{"before ", buffer(i) - canaryBytes},
                                  {"behind ", buffer(i) + bytes(table)}}) {
      std::byte canary[canaryBytes];
      if (Result<void> ok = memory->download(canary, address, canaryBytes); !ok)
        return ok.takeError();
      if (!canaryIntact(canary))
        return where + name;
    }
  }
  return std::string(storage.guardIntact() ? ""
                                           : "behind the activation arena");
}
