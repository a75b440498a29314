// Names out of files in messages.
#ifndef PREFILL_CHECKPOINT_QUOTE_H
#define PREFILL_CHECKPOINT_QUOTE_H

#include <string>
#include <string_view>

namespace prefill::rt {

/// 'name', in one printable line of bounded length whatever the file holds:
/// control characters become \xNN, and what follows the first 400 bytes becomes
/// "...".
inline std::string quote(std::string_view name) {
  constexpr size_t maxBytes = 400;
  std::string text = "'";
  for (char c : name.substr(0, maxBytes)) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      constexpr const char *digits = "0123456789abcdef";
      text += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + (name.size() > maxBytes ? "...'" : "'");
}

} // namespace prefill::rt

#endif // PREFILL_CHECKPOINT_QUOTE_H
